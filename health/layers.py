"""Every check of the node agent and of `sickbay check`, made from the settings; the order is that of the printed table.

A new check is a module of its own in this room and one row here.
"""

from health.active import ActiveCheck
from health.check import Check
from health.dcgm import dcgmi_checks
from health.dcgm_exporter import DcgmExporterCheck
from health.files import HostFiles
from health.host import HOST_WANTED, host_checks
from health.loopback import EfaLoopbackCheck, NcclCheck
from health.network import NETWORK_WANTED, network_checks
from health.nvml_check import NvmlCheck
from health.settings import NodeSettings


def checks(settings: NodeSettings) -> tuple[Check, ...]:
    """All checks, whether or not they apply to this machine."""
    files = HostFiles(settings.host_root, HOST_WANTED + NETWORK_WANTED)
    active = (ActiveCheck(settings), NcclCheck(settings), EfaLoopbackCheck(settings))
    dcgm = (*dcgmi_checks(settings), DcgmExporterCheck(settings))
    return (NvmlCheck(settings), *dcgm, *network_checks(settings, files), *host_checks(settings, files), *active)
