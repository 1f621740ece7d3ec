from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sickbay import catalogue
from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung, Severity
from sickbay.incident import Outcome
from sickbay.node_faults import MONITOR_SILENT, NODE_NOT_READY
from sickbay.nodes import NodeSnapshot, Readiness
from sickbay.policy.model import FaultPolicy, IncidentPolicy
from sickbay.triage import KnownIncident, Look, Standing, TriageRules, gone_codes, plan

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
INCIDENT = "incident-lab-i-1"
ABSENT = KnownIncident(standing=Standing.ABSENT)
OPEN = KnownIncident(standing=Standing.OPEN, faults=())
UNKNOWN = KnownIncident(standing=Standing.UNKNOWN)
RULES = TriageRules(settle=timedelta(minutes=1), cooldown=timedelta(minutes=1))


def xid(number: int, pci: str = "0000:61:00", boot: str = "boot-1") -> Fault:
    component = Component(kind=ComponentKind.GPU, id=pci)
    return catalogue.fault_of(f"xid-{number}", component).model_copy(update={"boot_id": boot})


def host_fault(code: str, rung: Rung) -> Fault:
    return Fault(
        code=code,
        component=Component(kind=ComponentKind.HOST, id="n1"),
        fault_class=FaultClass.HOST,
        severity=Severity.FATAL,
        rung=rung,
        boot_id="boot-1",
    )


NOT_READY = host_fault(NODE_NOT_READY, Rung.REBOOT)
SILENT = host_fault(MONITOR_SILENT, Rung.BLOCK_NEW_WORK)


def look(
    *faults: Fault,
    incident: KnownIncident = ABSENT,
    mark: str | None = None,
    marked: Standing = Standing.ABSENT,
    ready: Readiness = Readiness.TRUE,
    ready_for: timedelta = timedelta(hours=1),
    fresh: bool = True,
    deleting: bool = False,
    policy: IncidentPolicy | None = None,
) -> Look:
    snapshot = NodeSnapshot(
        observed_at=NOW,
        exists=True,
        uid="uid-1",
        boot_id="boot-1",
        ready=ready,
        ready_since=NOW - ready_for,
        incident_mark=mark,
        deleting=deleting,
        gpu_capacity=8,
        faults=faults,
        conditions_fresh=fresh,
        conditions_healthy=not faults,
    )
    return Look(
        snapshot=snapshot,
        incident_id=INCIDENT,
        incident=incident,
        marked=marked,
        policy=policy or IncidentPolicy(),
        rules=RULES,
        now=NOW,
    )


def test_a_fault_that_needs_repair_contains_and_opens_at_once() -> None:
    decided = plan(look(xid(79)))
    assert decided.contain
    assert decided.opens
    assert decided.report == (xid(79),)


def test_a_node_that_bears_our_mark_is_not_contained_again() -> None:
    decided = plan(look(xid(79), mark=INCIDENT))
    assert not decided.contain
    assert decided.opens


def test_an_applications_fault_opens_nothing() -> None:
    assert not plan(look(xid(31))).acts


def test_an_unknown_code_is_told_to_people_and_opens_nothing() -> None:
    decided = plan(look(xid(9999)))
    assert not decided.acts
    assert [fault.code for fault in decided.notice] == ["xid-9999"]


def test_a_healthy_node_needs_nothing() -> None:
    assert not plan(look()).acts


def test_a_node_that_is_being_deleted_is_left_alone() -> None:
    assert not plan(look(xid(79), mark=INCIDENT, deleting=True)).acts


def test_a_fault_of_a_silent_temporal_is_contained_and_not_opened_yet() -> None:
    decided = plan(look(xid(79), incident=UNKNOWN))
    assert decided.contain
    assert not decided.opens


def test_a_mark_is_never_undone_while_temporal_does_not_say_that_its_incident_is_over() -> None:
    assert not plan(look(mark=INCIDENT, incident=UNKNOWN)).release


def test_a_mark_without_an_incident_is_undone_if_the_fault_is_gone() -> None:
    assert plan(look(mark=INCIDENT)).release
    assert plan(look(mark=INCIDENT, incident=KnownIncident(standing=Standing.CLOSED))).release


def test_a_mark_of_an_open_incident_stays() -> None:
    assert not plan(look(mark=INCIDENT, incident=OPEN)).release


def test_a_mark_under_another_id_is_left_to_its_open_incident() -> None:
    assert not plan(look(xid(79), mark="incident-old-i-1", marked=Standing.OPEN)).acts
    assert not plan(look(xid(79), mark="incident-old-i-1", marked=Standing.UNKNOWN)).acts


def test_a_mark_under_another_id_whose_incident_is_over_makes_way_for_ours() -> None:
    decided = plan(look(xid(79), mark="incident-old-i-1", marked=Standing.CLOSED))
    assert decided.release
    assert decided.contain
    assert decided.opens


def test_not_ready_waits_until_it_has_settled() -> None:
    decided = plan(look(NOT_READY, ready=Readiness.UNKNOWN, ready_for=timedelta(seconds=20)))
    assert not decided.acts
    assert decided.again_in == timedelta(seconds=40)


def test_not_ready_that_has_settled_opens_an_incident() -> None:
    assert plan(look(NOT_READY, ready=Readiness.FALSE, ready_for=timedelta(minutes=1))).opens


def test_a_clock_that_runs_ahead_does_not_hold_an_incident_up() -> None:
    assert plan(look(NOT_READY, ready=Readiness.FALSE, ready_for=-timedelta(hours=3))).opens


def test_a_policy_that_tolerates_nothing_outranks_the_settling() -> None:
    strict = IncidentPolicy(faults=(FaultPolicy(code=NODE_NOT_READY, tolerance=timedelta(0)),))
    assert plan(look(NOT_READY, ready=Readiness.FALSE, ready_for=timedelta(0), policy=strict)).opens


def test_not_ready_does_not_hold_up_another_fault() -> None:
    decided = plan(look(NOT_READY, xid(79), ready=Readiness.FALSE, ready_for=timedelta(seconds=20)))
    assert decided.opens
    assert [fault.code for fault in decided.report] == ["xid-79"]
    assert decided.again_in == timedelta(seconds=40)


def test_an_agent_that_has_only_not_begun_after_a_boot_is_no_silent_monitor() -> None:
    assert not plan(look(SILENT, fresh=False, ready_for=timedelta(seconds=20))).acts
    assert plan(look(SILENT, fresh=False, ready_for=timedelta(minutes=2))).opens


def test_an_open_incident_is_told_only_what_it_does_not_know() -> None:
    knows = KnownIncident(standing=Standing.OPEN, faults=(xid(79),))
    assert not plan(look(xid(79), incident=knows, mark=INCIDENT)).acts
    assert plan(look(xid(79), xid(48), incident=knows, mark=INCIDENT)).report == (xid(48),)


def test_the_same_code_of_another_boot_is_news() -> None:
    knows = KnownIncident(standing=Standing.OPEN, faults=(xid(79, boot="boot-0"),))
    assert plan(look(xid(79), incident=knows, mark=INCIDENT)).report == (xid(79),)


def test_a_fault_whose_rung_rose_is_news() -> None:
    knows = KnownIncident(standing=Standing.OPEN, faults=(xid(79),))
    worse = xid(79).model_copy(update={"rung": Rung.REPLACE})
    assert plan(look(worse, incident=knows, mark=INCIDENT)).report == (worse,)


def test_a_fault_whose_rung_fell_is_not_told_at_each_look_anew() -> None:
    strong = xid(79).model_copy(update={"rung": Rung.REPLACE})
    assert not plan(look(xid(79), incident=OPEN.model_copy(update={"faults": (strong,)}))).acts


def test_an_open_incident_hears_that_a_fault_is_gone() -> None:
    knows = KnownIncident(standing=Standing.OPEN, faults=(xid(79), xid(48)))
    assert plan(look(xid(48), incident=knows, mark=INCIDENT)).clear == ("xid-79",)


def test_a_fault_is_not_gone_while_its_agent_is_silent() -> None:
    knows = KnownIncident(standing=Standing.OPEN, faults=(xid(79),))
    assert plan(look(incident=knows, mark=INCIDENT, fresh=False)).clear is None


def test_not_ready_is_gone_by_the_kubelets_word_alone() -> None:
    knows = KnownIncident(standing=Standing.OPEN, faults=(NOT_READY,))
    assert plan(look(incident=knows, mark=INCIDENT, fresh=False)).clear == (NODE_NOT_READY,)


def test_an_incident_that_does_not_answer_is_told_all_again() -> None:
    mute = KnownIncident(standing=Standing.OPEN)
    assert plan(look(xid(79), incident=mute, mark=INCIDENT)).report == (xid(79),)
    assert plan(look(incident=mute, mark=INCIDENT)).clear == ()


def test_an_incident_that_ended_just_now_is_not_followed_by_another_at_once() -> None:
    ended = KnownIncident(
        standing=Standing.CLOSED, outcome=Outcome.RETURNED, closed_at=NOW - timedelta(seconds=10), faults=(xid(79),)
    )
    decided = plan(look(xid(79), incident=ended))
    assert decided.contain
    assert not decided.opens
    assert decided.again_in == timedelta(seconds=50)


def test_a_repaired_fault_that_returns_after_the_cooldown_opens_a_new_incident() -> None:
    ended = KnownIncident(
        standing=Standing.CLOSED, outcome=Outcome.RETURNED, closed_at=NOW - timedelta(minutes=5), faults=(xid(79),)
    )
    assert plan(look(xid(79), incident=ended)).opens


def test_faults_that_a_person_has_decided_on_open_nothing() -> None:
    for outcome in (Outcome.HANDED_OVER, Outcome.WITHDRAWN):
        ended = KnownIncident(
            standing=Standing.CLOSED, outcome=outcome, closed_at=NOW - timedelta(days=1), faults=(xid(79),)
        )
        assert not plan(look(xid(79), incident=ended)).acts
        assert plan(look(xid(79), incident=ended, mark=INCIDENT)).release


def cloud_event(rung: Rung, seen: datetime) -> Fault:
    host = Component(kind=ComponentKind.HOST, id="i-1")
    return catalogue.fault_of("instance-retirement-scheduled", host, seen=seen).model_copy(update={"rung": rung})


def test_what_ec2_plans_for_a_far_day_is_told_and_opens_nothing() -> None:
    decided = plan(look(cloud_event(Rung.NONE, NOW)))
    assert not decided.acts
    assert [fault.code for fault in decided.notice] == ["instance-retirement-scheduled"]


def test_a_person_has_not_decided_on_a_later_event_nor_on_one_that_asks_for_more_by_now() -> None:
    closed_at, before, after = NOW - timedelta(hours=2), NOW - timedelta(days=1), NOW - timedelta(hours=1)

    def withdrawn(fault: Fault) -> KnownIncident:
        return KnownIncident(
            standing=Standing.CLOSED, outcome=Outcome.WITHDRAWN, closed_at=closed_at, faults=(xid(79), fault)
        )

    near = cloud_event(Rung.REPLACE, before)
    assert not plan(look(near, incident=withdrawn(near))).acts
    assert plan(look(cloud_event(Rung.REPLACE, after), incident=withdrawn(near))).opens
    assert plan(look(near, incident=withdrawn(cloud_event(Rung.NONE, before)))).opens


def test_a_persons_word_holds_while_temporal_is_away() -> None:
    remembered = KnownIncident(standing=Standing.UNKNOWN, outcome=Outcome.WITHDRAWN, faults=(xid(79),), closed_at=NOW)
    assert not plan(look(xid(79), incident=remembered)).acts
    assert plan(look(xid(79), xid(48), incident=remembered)).contain


def test_a_new_fault_on_a_node_that_people_have_opens_an_incident() -> None:
    ended = KnownIncident(
        standing=Standing.CLOSED, outcome=Outcome.HANDED_OVER, closed_at=NOW - timedelta(days=1), faults=(xid(79),)
    )
    assert plan(look(xid(79), xid(48), incident=ended)).opens
    assert plan(look(xid(79, boot="boot-2"), incident=ended)).opens


def test_an_incident_withdrawn_since_its_faults_went_does_not_hide_their_return() -> None:
    ended = KnownIncident(
        standing=Standing.CLOSED, outcome=Outcome.WITHDRAWN, closed_at=NOW - timedelta(hours=1), faults=()
    )
    assert plan(look(xid(79), incident=ended)).opens


def test_a_terminated_incident_is_followed_by_another() -> None:
    killed = KnownIncident(standing=Standing.CLOSED, closed_at=NOW - timedelta(hours=1))
    assert plan(look(xid(79), incident=killed, mark=INCIDENT)).opens


faults = st.lists(
    st.sampled_from([xid(79), xid(48), xid(31), xid(9999), xid(79, "0000:62:00"), NOT_READY, SILENT]),
    max_size=4,
    unique_by=lambda fault: fault.identity,
)
incidents = st.builds(
    KnownIncident,
    standing=st.sampled_from(Standing),
    faults=st.none() | faults.map(tuple),
    outcome=st.none() | st.sampled_from(Outcome),
    closed_at=st.none() | st.sampled_from([NOW, NOW - timedelta(days=1)]),
)


@given(found=faults, incident=incidents, mark=st.sampled_from([None, INCIDENT, "incident-old-i-1"]))
def test_a_mark_is_undone_only_where_no_incident_can_own_it(
    found: list[Fault], incident: KnownIncident, mark: str | None
) -> None:
    decided = plan(look(*found, incident=incident, mark=mark, marked=Standing.ABSENT))
    if decided.release:
        assert mark is not None
        assert mark != INCIDENT or incident.standing in (Standing.CLOSED, Standing.ABSENT)
    if decided.opens:
        assert incident.standing in (Standing.CLOSED, Standing.ABSENT)
        assert decided.report


@given(known=faults, found=faults, fresh=st.booleans(), ready=st.sampled_from(Readiness))
def test_nothing_that_is_still_there_or_cannot_be_judged_is_called_gone(
    known: list[Fault], found: list[Fault], fresh: bool, ready: Readiness
) -> None:
    gone = gone_codes(known, look(*found, fresh=fresh, ready=ready).snapshot)
    assert not set(gone) & {fault.code for fault in found}
    if not fresh:
        assert set(gone) <= {NODE_NOT_READY}
