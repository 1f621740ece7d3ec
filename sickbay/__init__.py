"""The domain of Sickbay: pure rules on faults, diagnosis, the repair ladder, policy and budgets.

Nothing here does I/O, reads a clock or draws a random number; Temporal is known only by its search-attribute keys.
"""
