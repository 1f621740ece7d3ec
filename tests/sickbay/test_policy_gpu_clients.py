"""The policy's lists of GPU clients: read from a file as lists, and every slip told with its line and its cure."""

import pytest

from sickbay.policy.explain import explain
from sickbay.policy.file import parse_policy
from sickbay.policy.model import GpuClientsPolicy
from sickbay.policy.problems import PolicyError


def section(text: str) -> bytes:
    return f"version: a\ndefaults:\n  gpu_clients:\n    {text}\n".encode()


def problem(text: str) -> str:
    with pytest.raises(PolicyError) as caught:
        parse_policy(section(text), "p.yaml")
    return str(caught.value).removeprefix("p.yaml:4: defaults.gpu_clients.")


def test_a_list_replaces_the_default_as_a_whole_and_leaves_the_rest() -> None:
    clients = parse_policy(section("operands: [dcgm, device-plugin]")).defaults.gpu_clients
    assert clients == GpuClientsPolicy(operands=("dcgm", "device-plugin"))


def test_an_empty_list_means_none() -> None:
    assert parse_policy(section("restart: []")).defaults.gpu_clients.restart == ()


def test_a_pool_may_have_lists_of_its_own() -> None:
    text = section("deadline: 1m") + b"pools:\n  p5:\n    gpu_clients: {operands: []}\n"
    clients = parse_policy(text).for_pool("p5").gpu_clients
    assert (clients.operands, clients.deadline.total_seconds()) == ((), 60)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("operands: dcgm", "operands: must be a list"),
        ("operands:", "operands: is empty; write [] for none, or delete the line"),
        ("operands: [[dcgm]]", "operands: holds what is no word"),
        (
            "operands: [DCGM]",
            "operands: 'DCGM' is no operand of the GPU operator; write its name, e.g. dcgm-exporter",
        ),
        (
            "restart: [app.kubernetes.io/name=plugin]",
            "restart: 'app.kubernetes.io/name=plugin' selects no pods; "
            "write NAMESPACE/LABEL=VALUE, with * for every namespace",
        ),
        ("deadline: 0s", "deadline: must leave some time; write at least 1s"),
    ],
)
def test_a_slip_is_shown_with_its_line_its_path_and_its_cure(text: str, shown: str) -> None:
    assert problem(text) == shown


def test_every_problem_of_a_list_is_told() -> None:
    assert problem("operands: [A, B]").count("is no operand") == 2


def test_the_explanation_of_a_reset_says_how_long_pods_may_take() -> None:
    policy = parse_policy(section("deadline: 7m"))
    told = explain(policy, "xid-119", "p5")
    assert "out of the way within 7m, else the reset failed; put back within 7m after it" in told
    assert "GPU pods" not in explain(policy, "xid-79", "p5")
