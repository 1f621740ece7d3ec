"""Checkpoints: which are whole, which may be resumed from, and why not the others. No file is ever unpickled."""
