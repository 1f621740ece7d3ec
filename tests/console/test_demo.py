"""How the demo judges its ends, and what it tells of them. The demo itself is played in tests/scenarios."""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from console.controller import read_policy
from console.demo_ends import ENDS, wrong_ends
from console.demo_report import markdown
from console.embedded_temporal import DATABASE
from console.errors import UserError
from console.processes import own_environment, program
from console.stage import working_folder
from sickbay.faults import Component, ComponentKind, FaultClass, Rung, Verdict
from sickbay.incident import IncidentView, Intent, Outcome, Stage, TimelineEntry
from sickbay.nodes import NodeRef
from simulator.scenario import load

OPENED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def view(node: str, outcome: Outcome | None, *rungs: Rung) -> IncidentView:
    return IncidentView(
        incident_id=f"incident-demo-{node}",
        node=NodeRef(cluster="demo", name=node, uid="uid", provider_id="aws:///a/i-1"),
        stage=Stage.CLOSED if outcome else Stage.SOAKING,
        outcome=outcome,
        verdict=Verdict(
            fault_class=FaultClass.GPU,
            rung=Rung.RESET_GPU,
            components=(Component(kind=ComponentKind.GPU, id="0000:61:00"),),
            reason="it needs a reset",
        ),
        intents=tuple(Intent(rung=rung, attempt=1, recorded_at=OPENED, proof=f"{rung} is proven") for rung in rungs),
        opened_at=OPENED,
        contained_at=OPENED + timedelta(seconds=1),
        closed_at=OPENED + timedelta(seconds=30) if outcome else None,
        timeline=(TimelineEntry(at=OPENED + timedelta(seconds=1), text="new work is blocked"),),
    )


def test_every_cure_of_a_scenario_has_its_end() -> None:
    assert {fault.cured_by for fault in load("demo").faults} == set(ENDS)


def test_ends_that_are_as_they_must_be_are_not_wrong() -> None:
    views = [view("a", Outcome.WITHDRAWN), view("b", Outcome.RETURNED, Rung.RESET_GPU, Rung.REBOOT)]
    assert wrong_ends({"a": ENDS["itself"], "b": ENDS["reboot"]}, views) == ()


@pytest.mark.parametrize(
    ("views", "said"),
    [
        ([], "no incident was opened"),
        ([view("a", None)], "not ended"),
        ([view("a", Outcome.RETURNED, Rung.RESET_GPU, Rung.REBOOT)], "returned by reboot"),
        ([view("a", Outcome.REPLACED, Rung.RESET_GPU)], "replaced by reset_gpu"),
        ([view("a", Outcome.RETURNED, Rung.RESET_GPU), view("a", Outcome.WITHDRAWN)], "withdrawn"),
    ],
)
def test_any_other_end_is_told(views: list[IncidentView], said: str) -> None:
    (wrong,) = wrong_ends({"a": ENDS["reset"]}, views)
    assert said in wrong
    assert "returned by reset_gpu was due" in wrong


def test_an_incident_that_nothing_called_for_is_told() -> None:
    assert wrong_ends({}, [view("b", Outcome.WITHDRAWN)]) == ("b: an incident that nothing called for",)


def test_the_report_shows_proof_times_and_timeline() -> None:
    report = markdown([view("a", Outcome.RETURNED, Rung.RESET_GPU)], (), OPENED)
    assert "| a |" in report
    assert "reset_gpu is proven" in report
    assert "30.0 s" in report
    assert "- 1.0 s **a** new work is blocked" in report


def test_an_incident_that_stays_open_is_told_with_where_it_stands() -> None:
    assert wrong_ends({"a": ENDS["reset"]}, [view("a", None)]) == (
        "a: not ended (soaking), where returned by reset_gpu was due",
    )


def test_a_simulated_cluster_hears_nothing_of_the_users_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEMPORAL_API_KEY", "TEMPORAL_NAMESPACE", "SICKBAY_CLUSTER", "AWS_PROFILE"):
        monkeypatch.setenv(name, "production")
    monkeypatch.setenv("HTTPS_PROXY", "kept")
    environment = own_environment()
    assert "production" not in environment.values()
    assert environment["HTTPS_PROXY"] == "kept"
    assert environment["TEMPORAL_CONFIG_FILE"] == os.devnull


def test_what_to_type_is_the_place_of_the_program_where_path_does_not_lead_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == str(Path(sys.executable).with_name("sickbay"))
    (tmp_path / "sickbay").touch(mode=0o755)
    assert program() == "sickbay"


def test_a_policy_that_cannot_be_used_is_told_by_the_name_of_the_option(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--policy: cannot read"):
        read_policy(tmp_path / "none.yaml", "--policy")


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--folder .*name a folder"):
        working_folder(tmp_path / "file" / "below", "demo")


def test_a_folder_of_an_earlier_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_text("incidents of yesterday")
    with pytest.raises(UserError, match="an earlier run is in it; name another, or delete it"):
        working_folder(tmp_path, "demo")
    assert (tmp_path / DATABASE).read_text() == "incidents of yesterday"
