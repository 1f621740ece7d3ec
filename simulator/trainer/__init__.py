"""A small data-parallel trainer that simulated training jobs run as real processes; see `__main__`."""
