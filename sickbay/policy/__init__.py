"""The policy: every deadline, cap and tolerance that an incident runs under."""
