"""Finds faults in kernel logs of every shape: pure, never raising, in bounded memory.

One module a concern: `lines` takes a line apart, one module per family of lines recognises faults in it (`families`
lists them), `ledger` adds sightings up to faults, `scanner` holds the three together. No module reads a file or a
clock; `stream` is handed its input open.
"""

from sickbay.kernel_log.scanner import KernelLogScanner, scan

__all__ = ["KernelLogScanner", "scan"]
