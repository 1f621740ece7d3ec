"""dcgm-exporter of a simulated host: its page by HTTP, of the families that are on by default.

Entered by the machine when it is switched on. While the driver hangs the page never comes, though the server lives; a
GPU that is lost is missing from the page. The last Xid of a GPU stays until the next boot, as the real one does.
"""

import asyncio
import contextlib
import shlex
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from simulator.host.driver import Driver
from simulator.host.gpu import GpuIdentity
from simulator.host.gpu_state import DRIVER_VERSION
from simulator.host.native import NativePrograms

REQUEST_SECONDS = 10
"""Real time in which a client must have sent its request."""

_FAMILIES = {
    "DCGM_FI_DEV_SM_CLOCK": ("gauge", "SM clock frequency (in MHz)."),
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", "GPU temperature (in C)."),
    "DCGM_FI_DEV_XID_ERRORS": ("gauge", "Value of the last XID error encountered."),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("counter", "Number of remapped rows for uncorrectable errors"),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("counter", "Number of remapped rows for correctable errors"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("gauge", "Whether remapping of rows has failed"),
}


def dcgm_names(programs: NativePrograms, version: int, exporter_url: str) -> dict[str, str]:
    """What an agent must find in its environment to ask a simulated DCGM of this version."""
    return {
        "SICKBAY_DCGMI_COMMAND": shlex.quote(str(programs.dcgmi)),
        "SICKBAY_DCGM_EXPORTER_URL": exporter_url,
        "SICKBAY_SIM_DCGM": str(version),
    }


class DcgmExporter:
    """Serves one machine's page while entered."""

    def __init__(self, driver: Driver, node_name: str, running: Callable[[], bool]) -> None:
        self._driver = driver
        self._node_name = node_name
        self._running = running
        self._open: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where the page is."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}/metrics"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    def page(self) -> str:
        """The page as it stands."""
        return "".join(f"{line}\n" for line in self._lines())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                await reader.readuntil(b"\r\n\r\n")
            if self._driver.hangs:
                await asyncio.get_running_loop().create_future()
            writer.write(self._answer())
            await writer.drain()
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the machine has lost power: there is nobody to answer
        finally:
            self._open.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _answer(self) -> bytes:
        up = self._running()
        body = self.page().encode() if up else b""
        status = "200 OK" if up else "503 Service Unavailable"
        head = (f"HTTP/1.1 {status}", "Content-Type: text/plain", f"Content-Length: {len(body)}", "Connection: close")
        return "".join(f"{line}\r\n" for line in (*head, "")).encode() + body

    def _lines(self) -> Iterator[str]:
        shown = [gpu for gpu in self._driver.gpus if not self._lacks(gpu)]
        xids = self._driver.events.last_xids()
        for family, (kind, words) in _FAMILIES.items():
            yield f"# HELP {family} {words}"
            yield f"# TYPE {family} {kind}"
            for gpu in shown:
                yield f"{family}{{{self._labels(gpu)}}} {self._value(family, gpu, xids.get(gpu.index, 0))}"

    def _lacks(self, gpu: GpuIdentity) -> bool:
        trouble = self._driver.trouble(gpu)
        return trouble.lost or trouble.absent

    def _labels(self, gpu: GpuIdentity) -> str:
        labels = {
            "gpu": str(gpu.index),
            "UUID": gpu.uuid,
            "pci_bus_id": f"0000{gpu.pci.upper()}.0",
            "device": f"nvidia{gpu.index}",
            "modelName": self._driver.model.name,
            "Hostname": self._node_name,
            "DCGM_FI_DRIVER_VERSION": DRIVER_VERSION,
        }
        return ",".join(f'{name}="{value}"' for name, value in labels.items())

    def _value(self, family: str, gpu: GpuIdentity, last_xid: int) -> int:
        trouble = self._driver.trouble(gpu)
        match family:
            case "DCGM_FI_DEV_SM_CLOCK":
                return 1980
            case "DCGM_FI_DEV_GPU_TEMP":
                return 31
            case "DCGM_FI_DEV_XID_ERRORS":
                return last_xid
            case "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS":
                return int(trouble.remap_pending)
            case "DCGM_FI_DEV_ROW_REMAP_FAILURE":
                return int(trouble.remap_failed)
        return 0
