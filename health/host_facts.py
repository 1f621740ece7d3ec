"""What kind of machine this is: its type, and the GPUs, switches and adapters on its PCI bus.

Asked once by the node agent and by `sickbay check`, before the checks, and without the GPUs' driver: which checks
apply follows from it. Whether the parts are well is none of its business.
"""

from health.files import read_files
from health.settings import NodeSettings
from sickbay.checks import HostFacts
from sickbay.pci import FACTS_WANTED, facts_from


def host_facts(settings: NodeSettings) -> HostFacts:
    """What the firmware and the PCI bus tell. Blocking, for less than ten seconds; raises nothing.

    What cannot be read stays empty, and `pci_known` False: then nothing proves an absence.
    """
    return facts_from(read_files(settings.host_root, FACTS_WANTED))
