"""The rules of the active checks: which GPUs are idle, and what it means when one fails at a small piece of work.

Called by `health.active` and `health.loopback` with what their children said. Queries are no proof of health: a GPU can
answer them all and refuse the first context (facts: detection, 0.6). Nothing here runs anything.
"""
