"""The catalogue of fault codes: what class, severity and rung a code has by itself.

The rows are data, `codes.toml`, read once per process. The kernel-log parser, the health layers and the controller
ask here, so that a code means the same wherever it was seen. What a line or the driver says besides is not known
here: `sickbay.kernel_log` lets the words of the line outrank the row.
"""

from sickbay.catalogue.rows import CATALOGUE_VERSION, Row, codes, fault_of, lookup, lookup_sxid, lookup_xid

__all__ = ["CATALOGUE_VERSION", "Row", "codes", "fault_of", "lookup", "lookup_sxid", "lookup_xid"]
