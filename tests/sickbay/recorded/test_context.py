from sickbay.gpu_readings import KnownGpu
from sickbay.recorded.context import context_of
from sickbay.recorded.kinds import KINDS
from sickbay.recorded.model import Recorded, RecordedContext, RecordedKind
from tests.sickbay.nvidia_smi.documents import H200, pci, query_text, query_xml, table, uuid


def smi(text: str) -> Recorded:
    return Recorded(kind=RecordedKind.NVIDIA_SMI, text=text)


def test_every_kind_has_a_reader_and_words() -> None:
    assert set(KINDS) == set(RecordedKind)
    assert all(about.looks_at and about.source and about.judges for about in KINDS.values())


def test_a_query_tells_products_numbers_and_which_uuid_is_which_gpu() -> None:
    for text in (query_text(2), query_xml(2)):
        context = context_of([smi(text)])
        assert context.products == (H200,)
        assert context.expected_gpus == 2
        assert context.gpus == tuple(KnownGpu(index=index, uuid=uuid(index), pci=pci(index)) for index in range(2))
        assert not context.fabric_in_progress


def test_the_most_gpus_that_one_recording_counts_are_expected() -> None:
    assert context_of([smi(table(8)), smi(query_text(2))]).expected_gpus == 8
    listed = f"GPU 0: {H200} (UUID: {uuid(0)})\nGPU 1: {H200} (UUID: {uuid(1)})\n"
    assert context_of([smi(listed)]).expected_gpus == 2


def test_a_registration_under_way_is_told() -> None:
    assert context_of([smi(query_text(1, {0: {"state": "In Progress"}}))]).fabric_in_progress


def test_other_kinds_tell_the_product_too() -> None:
    page = Recorded(kind=RecordedKind.EXPORTER, text='DCGM_FI_DEV_GPU_TEMP{gpu="0",modelName="NVIDIA L4"} 40\n')
    node = Recorded(kind=RecordedKind.NODE_CONDITIONS, text="Labels:  nvidia.com/gpu.product=NVIDIA-A10G\n")
    assert context_of([page, node]).products == ("NVIDIA L4", "NVIDIA A10G")


def test_what_cannot_be_read_tells_nothing() -> None:
    unreadable = [smi(""), smi("hello"), Recorded(kind=RecordedKind.DCGMI_DIAG, text="{")]
    assert context_of(unreadable) == RecordedContext()
