from sickbay.checks import HostFacts
from sickbay.file_readings import FileReadings
from sickbay.pci import MAKER, PRODUCT, facts_from, pci_functions

BUS = "/sys/bus/pci/devices"


def bus(functions: dict[str, str], virtual: tuple[str, ...] = (), **firmware: str) -> FileReadings:
    """Functions by address, each `class vendor:device`."""
    texts = {}
    for address, words in functions.items():
        code, identity = words.split()
        texts[f"{BUS}/{address}/uevent"] = f"DRIVER=x\nPCI_CLASS={code}\nPCI_ID={identity}\nMODALIAS=a=b"
    texts |= {{"product": PRODUCT, "maker": MAKER}[name]: text for name, text in firmware.items()}
    links = {f"{BUS}/{address}/physfn": "../0000:10:00.0" for address in virtual}
    return FileReadings(texts=texts, names={BUS: tuple(functions)}, links=links)


def test_each_function_is_what_its_vendor_and_class_say() -> None:
    readings = bus(
        {
            "0000:53:00.0": "30200 10DE:2330",
            "0000:53:00.1": "40300 10DE:22BA",
            "0000:c0:00.0": "68000 10DE:22A3",
            "0000:10:19.0": "20000 1D0F:EFA2",
            "0000:11:00.0": "20000 1D0F:EC20",
            "0000:5e:00.0": "20700 15B3:1021",
            "0000:5e:00.1": "20700 15B3:101E",
        },
        virtual=("0000:5e:00.1",),
        product="p5.48xlarge",
        maker="Amazon EC2",
    )
    assert facts_from(readings) == HostFacts(
        instance_type="p5.48xlarge",
        pci_gpus=("0000:53:00",),
        pci_nvswitches=("0000:c0:00",),
        pci_efa=("0000:10:19",),
        pci_infiniband=("0000:5e:00",),
        pci_known=True,
    )


def test_a_bus_of_which_one_function_cannot_be_read_proves_no_absence() -> None:
    readings = bus({"0000:53:00.0": "30200 10DE:2330", "0000:54:00.0": "30200 :"})
    assert pci_functions(readings) is None
    assert not facts_from(readings).pci_known
    assert facts_from(readings).pci_gpus == ()


def test_only_amazon_s_firmware_tells_an_instance_type() -> None:
    assert facts_from(bus({}, product="ProLiant XD670", maker="HPE")).instance_type == ""
    assert facts_from(bus({})).pci_known
    assert facts_from(FileReadings(silent="no answer in time")) == HostFacts()
