"""A kernel log that a test writes, record by record."""

from pathlib import Path

XID_119 = (
    "NVRM: Xid (PCI:0000:61:00): 119, pid=4242, name=python3, "
    "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x0 0x0)."
)
XID_79 = "NVRM: Xid (PCI:0000:53:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID_31 = (
    "NVRM: Xid (PCI:0000:61:00): 31, pid=4242, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"
)
ACTION_RESET = (
    "NVRM: Xid (PCI:0000:61:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
)
ACTION_NONE = "NVRM: Xid (PCI:0000:61:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


class KernelLogFile:
    """A growing file of records, as the simulator provides it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sequence = 0
        path.write_bytes(b"")

    def write(self, *messages: str, priority: int = 3) -> None:
        """Append one record a message."""
        with self.path.open("ab") as file:
            for message in messages:
                file.write(self.record(message, priority))

    def record(self, message: str, priority: int = 3) -> bytes:
        """The next record."""
        self.sequence += 1
        return f"{priority},{self.sequence - 1},{self.sequence * 1000},-;{message}\n".encode()

    def skip(self, count: int) -> None:
        """Records that the kernel overwrote before anybody read them."""
        self.sequence += count

    def replace(self) -> None:
        """A new boot: another file in this one's place."""
        scratch = self.path.with_suffix(".new")
        scratch.write_bytes(b"")
        scratch.replace(self.path)
        self.sequence = 0
