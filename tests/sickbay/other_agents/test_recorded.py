"""Descriptions of nodes in every shape that people paste, of our own making."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.checks import CheckOutcome, CheckResult
from sickbay.diagnosis import diagnose
from sickbay.faults import ComponentKind, FaultClass
from sickbay.other_agents.recorded import judge_node_conditions
from sickbay.recorded.model import Recorded, RecordedContext, RecordedKind

READY = ("Ready", "True", "KubeletReady")
GOOD = (("MemoryPressure", "False", "KubeletHasSufficientMemory"), READY)
EKS_GOOD = (*GOOD, ("AcceleratedHardwareReady", "True", "NvidiaAcceleratedHardwareIsReady"))
STAMP = "Tue, 03 Mar 2026 10:00:00 +0000"


def judge(text: str, expected_gpus: int | None = None) -> CheckOutcome:
    recorded = Recorded(kind=RecordedKind.NODE_CONDITIONS, text=text)
    return judge_node_conditions(recorded, RecordedContext(expected_gpus=expected_gpus))


def codes(outcome: CheckOutcome) -> list[str]:
    return sorted(fault.code for fault in outcome.faults)


def manifest(
    *conditions: tuple[str, str, str],
    capacity: dict[str, str] | None = None,
    allocatable: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> str:
    """A Node as `kubectl get node -o json` prints it."""
    there = {"cpu": "96", "nvidia.com/gpu": "8"} if capacity is None else capacity
    listed = [
        {"type": kind, "status": status, "reason": reason, "lastHeartbeatTime": "2026-03-03T10:00:00Z"}
        for kind, status, reason in conditions
    ]
    status = {"capacity": there, "allocatable": there if allocatable is None else allocatable, "conditions": listed}
    return json.dumps({"kind": "Node", "metadata": {"name": "n1", "labels": labels or {}}, "status": status})


def description(*conditions: tuple[str, str, str], tail: str = "", beat: str = STAMP) -> str:
    """The conditions as `kubectl describe node` prints them."""
    rows = "".join(
        f"  {kind:<26}{status:<9}{beat:<34}{STAMP:<34}{reason:<34}some words\n" for kind, status, reason in conditions
    )
    head = "  Type                      Status   LastHeartbeatTime         LastTransitionTime        Reason   Message\n"
    return f"Name:               n1\nConditions:\n{head}  ----  ------  ----  ----  ----  ----\n{rows}{tail}"


def test_a_whole_node_that_is_well_is_healthy_in_json_yaml_and_as_a_description() -> None:
    assert judge(manifest(*EKS_GOOD)).result is CheckResult.HEALTHY
    listed = json.dumps({"kind": "List", "items": [json.loads(manifest(*EKS_GOOD))] * 2})
    assert judge(listed).result is CheckResult.HEALTHY
    yaml = (
        "kind: Node\nmetadata:\n  name: n1\n  creationTimestamp: null\nstatus:\n  capacity:\n    nvidia.com/gpu: 8\n"
        "  allocatable:\n    nvidia.com/gpu: 8\n  conditions:\n  - type: Ready\n    status: 'True'\n"
        "    lastHeartbeatTime: 2026-03-03T10:00:00Z\n"
    )
    assert judge(yaml).result is CheckResult.HEALTHY
    resources = "Capacity:\n  nvidia.com/gpu:  8\nAllocatable:\n  nvidia.com/gpu:  8\n"
    assert judge(description(*EKS_GOOD, tail=resources)).result is CheckResult.HEALTHY


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        (("AcceleratedHardwareReady", "False", "NvidiaDoubleBitError"), "reported-gpu"),
        (("AcceleratedHardwareReady", "False", "DCGMError"), "reported-monitor"),
        (("KernelDeadlock", "True", "DockerHung"), "reported-host"),
        (("GpuPowerWatch", "True", ""), "reported-gpu"),
        (("DiskPressure", "True", "KubeletHasDiskPressure"), "reported-pressure"),
        (("NetworkUnavailable", "True", "NoRouteCreated"), "reported-network"),
        (("SickbayFabricHealthy", "False", "XidBad"), "reported-fabric"),
    ],
)
def test_a_bad_word_is_a_fault_in_each_shape(condition: tuple[str, str, str], code: str) -> None:
    outcomes = (judge(manifest(*GOOD, condition)), judge(description(*GOOD, condition)))
    assert outcomes[0].result is CheckResult.FAULTS
    assert codes(outcomes[1]) == [code]


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_that_is_not_ready_is_a_fault(status: str) -> None:
    assert codes(judge(manifest(("Ready", status, "KubeletNotReady")))) == ["node-not-ready"]
    assert codes(judge(description(("Ready", status, "NodeStatusUnknown")))) == ["node-not-ready"]


def test_a_node_that_ran_out_of_memory_and_fell_silent_is_the_hosts_trouble_and_no_gpus() -> None:
    """Detection 8.24."""
    pressed = ("MemoryPressure", "True", "KubeletHasInsufficientMemory")
    verdict = diagnose(judge(manifest(pressed, ("Ready", "Unknown", "NodeStatusUnknown"))).faults)
    assert verdict.fault_class is FaultClass.HOST
    assert {component.kind for component in verdict.components} == {ComponentKind.HOST}


@pytest.mark.parametrize("cut", ["[...]\n", "  ...\n", "  Ready     True    Tue, 03 Mar\n"])
def test_a_list_of_conditions_that_is_cut_is_no_health(cut: str) -> None:
    assert judge(description(*EKS_GOOD, tail=cut)).result is CheckResult.UNKNOWN


def test_without_the_kubelets_ready_nothing_is_healthy() -> None:
    assert judge(manifest(*EKS_GOOD[2:])).result is CheckResult.UNKNOWN
    assert judge(description(*EKS_GOOD[2:])).result is CheckResult.UNKNOWN


def test_a_kubelet_that_fell_silent_long_before_others_makes_ready_old_news() -> None:
    late = json.loads(manifest(*EKS_GOOD))
    late["status"]["conditions"][2]["lastHeartbeatTime"] = "2026-03-03T11:00:00Z"
    outcome = judge(json.dumps(late))
    assert outcome.result is CheckResult.UNKNOWN
    assert "old news" in outcome.why


@pytest.mark.parametrize(
    ("condition", "result"),
    [
        (("OursAndNobodyElses", "False", ""), CheckResult.HEALTHY),
        (("OursAndNobodyElses", "True", ""), CheckResult.UNKNOWN),
        (("WidgetReady", "True", ""), CheckResult.HEALTHY),
        (("WidgetReady", "False", ""), CheckResult.UNKNOWN),
        (("KernelDeadlock", "Unknown", ""), CheckResult.UNKNOWN),
    ],
)
def test_an_unknown_type_is_told_and_is_unknown_where_its_word_looks_bad(
    condition: tuple[str, str, str], result: CheckResult
) -> None:
    outcome = judge(manifest(*GOOD, condition))
    assert outcome.result is result
    assert condition[0] in outcome.why


def test_a_time_of_never_is_no_stale_heartbeat() -> None:
    never = description(("GpuSmWatch", "False", ""), beat="Mon, 01 Jan 0001 00:00:00 +0000")
    told = judge(never + description(*GOOD).split("----\n", 1)[1])
    assert (told.result, told.why) == (CheckResult.HEALTHY, "")


@pytest.mark.parametrize(
    ("offered", "labels", "expected", "result"),
    [
        ({"nvidia.com/gpu": "7"}, {}, None, CheckResult.FAULTS),
        ({"nvidia.com/gpu": "0"}, {}, None, CheckResult.FAULTS),
        ({"nvidia.com/gpu": "8"}, {}, 8, CheckResult.HEALTHY),
        ({}, {}, None, CheckResult.UNKNOWN),
    ],
)
def test_gpus_that_are_withheld_are_told(
    offered: dict[str, str], labels: dict[str, str], expected: int | None, result: CheckResult
) -> None:
    """Detection 8.14."""
    outcome = judge(manifest(*GOOD, allocatable={"cpu": "96", **offered}, labels=labels), expected)
    assert outcome.result is result
    assert codes(outcome) == (["gpu-allocatable-short"] if result is CheckResult.FAULTS else [])


@pytest.mark.parametrize(
    ("resources", "labels", "expected", "result"),
    [
        ({"nvidia.com/gpu": "6"}, {"nvidia.com/gpu.count": "8"}, None, CheckResult.FAULTS),
        ({"nvidia.com/gpu": "6"}, {}, 8, CheckResult.FAULTS),
        (
            {"nvidia.com/gpu": "24"},
            {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "3"},
            8,
            CheckResult.HEALTHY,
        ),
        ({"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "24"}, {"nvidia.com/gpu.count": "8"}, 8, CheckResult.HEALTHY),
        ({"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"}, {"nvidia.com/gpu.count": "1"}, 1, CheckResult.HEALTHY),
        ({"nvidia.com/gpu": "7"}, {"nvidia.com/gpu.product": "NVIDIA-H100-MIG-1g.10gb"}, 8, CheckResult.HEALTHY),
        ({"nvidia.com/gpu": "7"}, {"nvidia.com/mig.config": "all-1g.10gb"}, 8, CheckResult.HEALTHY),
        ({"nvidia.com/gpu": "0"}, {}, None, CheckResult.UNKNOWN),
        ({"cpu": "8"}, {}, None, CheckResult.NOT_APPLICABLE),
        ({"cpu": "8"}, {"nvidia.com/gpu.count": "4"}, None, CheckResult.UNKNOWN),
    ],
)
def test_only_whole_gpus_are_counted(
    resources: dict[str, str], labels: dict[str, str], expected: int | None, result: CheckResult
) -> None:
    assert judge(manifest(*GOOD, capacity=resources, labels=labels), expected).result is result


def test_a_node_without_gpus_that_is_bad_is_not_called_inapplicable() -> None:
    assert codes(judge(manifest(*GOOD, ("XfsShutdown", "True", ""), capacity={"cpu": "8"}))) == ["reported-storage"]


@pytest.mark.parametrize(
    ("table", "result"),
    [
        ("NAME  GPU_TOTAL  GPU_AVAIL\nn1    8          8\nn2    <none>     <none>\n", CheckResult.HEALTHY),
        ("NAME  GPU_TOTAL  GPU_AVAIL\nn1    8          8\nn2    8          6\n", CheckResult.FAULTS),
        ("NAME  CAPACITY-GPU  ALLOCATABLE-GPU\nn1    8             <none>\n", CheckResult.FAULTS),
        ("NAME  GPU_TOTAL  GPU_AVAIL\nn1    8          ?\n", CheckResult.UNKNOWN),
        ("NAME  GPU_TOTAL  GPU_AVAIL\nn1    8\n", CheckResult.UNKNOWN),
        ("NAME  GPU_TOTAL\nn1    8\n", CheckResult.UNKNOWN),
        ("NAME  GPU_TOTAL  GPU_AVAIL  INSTANCE\nn1    <none>     <none>     p5.48xlarge\n", CheckResult.UNKNOWN),
        ("NAME  GPU_TOTAL  GPU_AVAIL  INSTANCE\nn1    7          7          p5.48xlarge\n", CheckResult.FAULTS),
        ("NAME  GPU_TOTAL  GPU_AVAIL  INSTANCE\nn1    8          8\n", CheckResult.UNKNOWN),
        ("NAME  GPUS\nn1    <none>\n", CheckResult.NOT_APPLICABLE),
        ("NAME  STATUS  ROLES   AGE  VERSION\nn1    Ready   <none>  1d   v1.34.1\n", CheckResult.UNKNOWN),
        ("NAME  STATUS    ROLES   AGE  VERSION\nn1    NotReady  <none>  1d   v1.34.1\n", CheckResult.FAULTS),
        ("NAME  GPU_TOTAL  GPU_AVAIL\n", CheckResult.UNKNOWN),
    ],
)
def test_columns_are_found_by_their_heads(table: str, result: CheckResult) -> None:
    assert judge(table).result is result


@pytest.mark.parametrize(
    "text", ["", "\n", "hello", "kind: Pod\nstatus: {}\n", "{", "a: [", "- 1\n- 2\n", "Conditions:\n"]
)
def test_a_text_that_describes_no_node_is_unknown_with_the_reason(text: str) -> None:
    outcome = judge(text)
    assert outcome.result is CheckResult.UNKNOWN
    assert outcome.why


@pytest.mark.parametrize("text", [manifest(*GOOD), description(*GOOD), "NAME  GPUS\nn1    8\n"])
def test_what_a_ticket_puts_around_a_paste_is_passed_over(text: str) -> None:
    assert judge(f"```\n$ kubectl get or describe\n{text}\n```\n").result is CheckResult.HEALTHY


WHOLE = (
    manifest(*EKS_GOOD, ("GpuMemWatch", "False", ""), capacity={"nvidia.com/gpu": "8"}),
    manifest(READY, ("AcceleratedHardwareReady", "False", "NvidiaXID79Error")),
)


@given(st.sampled_from(WHOLE), st.integers(min_value=0, max_value=2000))
def test_a_manifest_that_is_cut_anywhere_is_never_healthy(text: str, length: int) -> None:
    if length < len(text):
        assert judge(text[:length]).result is not CheckResult.HEALTHY


@given(st.text(max_size=300))
def test_no_text_is_an_error_or_health(text: str) -> None:
    assert judge(text).result is not CheckResult.HEALTHY


@given(st.lists(st.sampled_from([*description(*EKS_GOOD).splitlines(), "Capacity:", "  x: 1", "status:", "- a", "\t"])))
def test_lines_in_any_order_are_no_error(lines: list[str]) -> None:
    judge("\n".join(lines))
