"""Ranks: what each tells of its steps, which one is slow, and whether a job stands still."""
