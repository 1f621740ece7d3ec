"""What the kubelet says of devices in use, asked of a real gRPC server on a socket."""

import socket
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from health import pod_resources_child
from health.pod_resources import ask_kubelet
from sickbay.active.idleness import PodDevice
from tests.health.kubelet import kubelet, pods

SOON = timedelta(seconds=20)


def test_devices_and_claims_of_pods_are_told(tmp_path: Path) -> None:
    answer = pods(
        {"devices": [{"resource_name": "nvidia.com/gpu", "device_ids": ["GPU-a", "GPU-b::1"]}]},
        {"dynamic_resources": [{"claim_resources": [{"driver_name": "gpu.nvidia.com", "device_name": "gpu-3"}]}]},
    )
    with kubelet(tmp_path, answer) as place:
        use = ask_kubelet(place, SOON)
    assert (use.kubelet, use.silent) == (True, "")
    assert use.devices == (
        PodDevice(resource="nvidia.com/gpu", id="GPU-a"),
        PodDevice(resource="nvidia.com/gpu", id="GPU-b::1"),
        PodDevice(resource="gpu.nvidia.com", id="gpu-3"),
    )


def test_fields_of_a_newer_kubelet_are_read_over(tmp_path: Path) -> None:
    unknown_field = b"\xfa\x01\x03new"  # field 31, a text
    with kubelet(tmp_path, pods() + unknown_field) as place:
        assert ask_kubelet(place, SOON).devices == ()


def test_no_kubelet_is_no_trouble(tmp_path: Path) -> None:
    use = ask_kubelet(tmp_path / "absent" / "kubelet.sock")
    assert (use.kubelet, use.silent, use.devices) == (False, "", ())


def test_a_kubelet_that_refuses_is_silent_with_its_reason(tmp_path: Path) -> None:
    with kubelet(tmp_path, b"", grpc.StatusCode.UNAVAILABLE) as place:
        use = ask_kubelet(place, SOON)
    assert (use.kubelet, use.silent) == (True, "StatusCode.UNAVAILABLE")


def test_a_kubelet_that_never_answers_is_given_up(tmp_path: Path) -> None:
    place = tmp_path / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(place))
        deaf.listen()
        use = ask_kubelet(place, timedelta(seconds=1))
    assert use.silent == "no answer in time"


def test_nonsense_in_place_of_an_answer_is_silence(tmp_path: Path) -> None:
    with kubelet(tmp_path, b"\xff\xff\xff") as place:
        use = ask_kubelet(place, SOON)
    assert use.silent
    assert use.devices == ()


def test_a_file_that_is_no_socket_is_silence(tmp_path: Path) -> None:
    place = tmp_path / "kubelet.sock"
    place.write_text("")
    assert ask_kubelet(place).silent == f"{place} is no socket"


def test_the_messages_have_the_kubelets_field_numbers() -> None:
    fields = pod_resources_child.MESSAGES
    assert fields["ContainerResources"]["dynamic_resources"][0] == 5
    assert fields["DynamicResource"]["claim_resources"][0] == 4
    assert fields["ClaimResource"]["device_name"][0] == 4


@pytest.mark.parametrize("word", ["GPU-a", ""])
def test_a_device_is_told_as_it_is_named(tmp_path: Path, word: str) -> None:
    answer = pods({"devices": [{"resource_name": "example.com/fpga", "device_ids": [word]}]})
    with kubelet(tmp_path, answer) as place:
        assert ask_kubelet(place, SOON).devices == (PodDevice(resource="example.com/fpga", id=word),)
