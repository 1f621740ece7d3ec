import pytest

from sickbay.active.answers import Rate
from sickbay.active.speeds import peaks_of, too_slow


@pytest.mark.parametrize(
    ("product", "host"),
    [
        ("NVIDIA A100-SXM4-40GB", 31.5),
        ("NVIDIA A10G", 31.5),
        ("NVIDIA H100 80GB HBM3", 63),
        ("NVIDIA H200", 63),
        ("NVIDIA GB200", 63),
        ("NVIDIA L4", 15.75),
        ("Tesla T4", 15.75),
        ("Tesla V100-SXM2-16GB", 15.75),
    ],
)
def test_products_are_known_by_their_names(product: str, host: float) -> None:
    peaks = peaks_of(product)
    assert peaks is not None
    assert peaks.host == host


@pytest.mark.parametrize(
    "product",
    [
        "",
        "NVIDIA L40",
        "NVIDIA T400",
        "NVIDIA GeForce RTX 4090",
        "NVIDIA L4-3Q",
        "NVIDIA L40S-12C",
        "NVIDIA GH200 480GB",
    ],
)
def test_others_have_no_figures(product: str) -> None:
    assert peaks_of(product) is None


def test_only_boards_whose_gpus_are_all_joined_have_a_floor_between_them() -> None:
    fast, slow = peaks_of("NVIDIA A100-SXM4-80GB"), peaks_of("NVIDIA A100-PCIE-40GB")
    assert fast is not None
    assert slow is not None
    assert (fast.peer, slow.peer) == (300, None)
    bridged = peaks_of("NVIDIA H200 NVL")
    assert bridged is not None
    assert (bridged.peer, bridged.all_reduce) == (None, None)
    assert too_slow(Rate(what="peer", gigabytes_per_second=1), "NVIDIA A100-PCIE-40GB", 0.25) == ""


def test_a_kind_of_copy_that_is_not_known_is_not_judged() -> None:
    assert too_slow(Rate(what="sideways", gigabytes_per_second=0), "NVIDIA H200", 0.25) == ""
