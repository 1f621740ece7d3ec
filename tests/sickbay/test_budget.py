"""The disruption budget: single rules by example, and what must hold whatever happens by Hypothesis."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sickbay import budget
from sickbay.budget import Ledger, Member, PoolLook
from sickbay.budget_account import account
from sickbay.faults import Rung
from sickbay.limits import ceiling
from sickbay.nodes import NodeRef
from sickbay.permits import Permit, PermitRefusal, PermitRenewal, PermitRequest, PermitWaiting
from sickbay.policy.model import Limit

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=30)
LEASE = timedelta(hours=1)


def node(name: str, pool: str = "p5") -> NodeRef:
    return NodeRef(cluster="lab", name=name, uid=f"uid-{name}", pool=pool)


def asks(name: str, *, count: int = 2, percent: float = 100, pool: str = "p5") -> PermitRequest:
    return PermitRequest(
        holder=f"incident-{name}",
        node=node(name, pool),
        rung=Rung.REBOOT,
        limit=Limit(count=count, percent=percent),
        lease=LEASE,
        requested_at=NOW,
    )


def pool(up: Iterable[str] = (), out: Iterable[str] = (), name: str = "p5") -> PoolLook:
    members = [Member(node=node(one, name), created_at=LONG_AGO, available=True) for one in up]
    members += [Member(node=node(one, name), created_at=LONG_AGO, available=False, why_not="NotReady") for one in out]
    return PoolLook(pool=name, members=tuple(members))


def queued(*requests: PermitRequest) -> Ledger:
    ledger = Ledger()
    for one in requests:
        ledger = budget.request(ledger, one, NOW).ledger
    return ledger


def granted(decision: budget.Decision) -> list[str]:
    return [notice.holder for notice in decision.notices if isinstance(notice, Permit)]


def waiting(decision: budget.Decision) -> dict[str, str]:
    return {notice.holder: notice.reason for notice in decision.notices if isinstance(notice, PermitWaiting)}


class TestCounting:
    """What counts against the ceiling."""

    def test_the_asking_nodes_own_trouble_does_not_block_its_repair(self) -> None:
        decision = budget.observe(queued(asks("a", count=1)), pool(up="bcd", out="a"), NOW)
        assert granted(decision) == ["incident-a"]

    def test_the_only_node_of_a_pool_may_be_repaired(self) -> None:
        assert granted(budget.observe(queued(asks("a", percent=10)), pool(out="a"), NOW)) == ["incident-a"]

    def test_a_node_out_for_any_other_reason_counts(self) -> None:
        decision = budget.observe(queued(asks("a", count=1)), pool(up="cd", out="ab"), NOW)
        assert waiting(decision) == {"incident-a": "1 of 4 nodes of pool p5 may be out, and 1 are: b (NotReady)"}

    def test_waiting_sick_nodes_do_not_block_each_other_for_ever(self) -> None:
        ledger = queued(*(asks(name, count=2) for name in "abcde"))
        decision = budget.observe(ledger, pool(up="fghij", out="abcde"), NOW)
        assert granted(decision) == ["incident-a", "incident-b"]

    def test_a_waiting_node_that_still_takes_work_is_not_taken_out_beside_sick_ones_that_wait(self) -> None:
        ledger = queued(asks("healthy-looking", count=2), asks("a", count=2), asks("b", count=2))
        decision = budget.observe(ledger, pool(up=["healthy-looking", "c"], out="ab"), NOW)
        assert granted(decision) == ["incident-a", "incident-b"]
        assert "incident-healthy-looking" in waiting(decision)

    def test_a_holders_node_counts_once(self) -> None:
        ledger = budget.observe(queued(asks("a")), pool(up="bcd", out="a"), NOW).ledger
        ledger = budget.request(ledger, asks("b"), NOW).ledger
        assert granted(budget.observe(ledger, pool(up="cd", out="ab"), NOW)) == ["incident-b"]

    def test_a_holders_successor_on_its_way_up_counts_once_too(self) -> None:
        ledger = budget.observe(queued(asks("a")), pool(up="bcd", out="a"), NOW).ledger
        ledger = budget.request(ledger, asks("b"), NOW).ledger
        young = Member(node=node("a2"), created_at=NOW + LEASE, available=False, why_not="NotReady")
        look = pool(up="cd", out="b")
        look = look.model_copy(update={"members": (*look.members, young)})
        assert granted(budget.observe(ledger, look, NOW)) == ["incident-b"]

    def test_a_per_cent_is_rounded_up_and_the_smaller_half_holds(self) -> None:
        ledger = queued(*(asks(name, count=5, percent=20) for name in "abc"))
        assert granted(budget.observe(ledger, pool(up="def", out="abc"), NOW)) == ["incident-a", "incident-b"]

    def test_pools_do_not_count_for_each_other(self) -> None:
        ledger = queued(asks("a", count=1), asks("z", count=1, pool="p4"))
        ledger = budget.observe(ledger, pool(up="b", out="a"), NOW).ledger
        assert granted(budget.observe(ledger, pool(up="y", out="z", name="p4"), NOW)) == ["incident-z"]

    def test_a_pool_without_nodes_gives_nothing(self) -> None:
        decision = budget.observe(queued(asks("a")), pool(), NOW)
        assert waiting(decision)["incident-a"].endswith("the pool has no nodes")


class TestQueue:
    """Order, repeats and answers."""

    def test_a_ceiling_of_none_is_refused_at_once(self) -> None:
        for asked in (asks("a", count=0), asks("a", percent=0)):
            decision = budget.request(Ledger(), asked, NOW)
            assert isinstance(decision.notices[0], PermitRefusal)
            assert decision.ledger == Ledger()

    def test_a_repeated_request_keeps_its_place_and_is_told_again_why_it_waits(self) -> None:
        ledger = budget.observe(queued(asks("a", count=1), asks("b", count=1)), pool(up="c", out="ab"), NOW).ledger
        ledger = budget.request(ledger, asks("c", count=1), NOW).ledger
        decision = budget.request(ledger, asks("b", count=1), NOW)
        assert decision.ledger.holders == ("incident-a", "incident-b", "incident-c")
        assert list(waiting(decision)) == ["incident-b"]

    def test_a_repeated_request_of_a_holder_gives_the_same_permit_with_a_fresh_lease(self) -> None:
        first = budget.observe(queued(asks("a")), pool(up="b", out="a"), NOW)
        later = NOW + 2 * LEASE
        again = budget.request(first.ledger, asks("a"), later)
        assert [(one.holder, one.epoch, one.expires_at) for one in again.notices if isinstance(one, Permit)] == [
            ("incident-a", 1, later + LEASE)
        ]
        assert len(again.ledger.held) == 1

    def test_a_smaller_ceiling_at_the_head_is_not_overtaken(self) -> None:
        ledger = budget.observe(queued(asks("a")), pool(up="bcd", out="a"), NOW).ledger
        for later in (asks("b", count=1), asks("c", count=3)):
            ledger = budget.request(ledger, later, NOW).ledger
        decision = budget.observe(ledger, pool(up="d", out="abc"), NOW)
        assert granted(decision) == []
        assert waiting(decision)["incident-c"].startswith("behind b; 1 of 4 nodes")

    def test_a_reason_is_told_once_until_it_changes(self) -> None:
        ledger = queued(asks("a", count=1), asks("b", count=1))
        first = budget.observe(ledger, pool(up="c", out="ab"), NOW)
        assert list(waiting(first)) == ["incident-b"]
        assert budget.observe(first.ledger, pool(up="c", out="ab"), NOW).notices == ()

    def test_many_names_are_cut_short(self) -> None:
        names = [f"n{number}" for number in range(9)]
        decision = budget.observe(queued(asks("a", count=1)), pool(out=["a", *names]), NOW)
        assert decision.ledger.waiting[0].reason.endswith("n4 (NotReady) and 4 more")

    def test_a_pool_that_cannot_be_seen_grants_nothing_and_says_so_once(self) -> None:
        first = budget.unobservable(queued(asks("a")), "p5", "pool p5 cannot be observed")
        assert waiting(first) == {"incident-a": "pool p5 cannot be observed"}
        assert budget.unobservable(first.ledger, "p5", "pool p5 cannot be observed").notices == ()


class TestLeases:
    """Renewal, release and fencing."""

    def test_a_renewal_extends_the_lease(self) -> None:
        ledger = budget.observe(queued(asks("a")), pool(up="b", out="a"), NOW).ledger
        later = NOW + timedelta(minutes=50)
        renewed = budget.renew(ledger, PermitRenewal(holder="incident-a", epoch=1), later).ledger
        assert renewed.held[0].permit.expires_at == later + LEASE

    @pytest.mark.parametrize("holder", ["incident-a", "incident-unknown"])
    def test_a_renewal_of_a_lost_permit_is_refused(self, holder: str) -> None:
        ledger = budget.observe(queued(asks("a")), pool(up="b", out="a"), NOW).ledger
        decision = budget.renew(ledger, PermitRenewal(holder=holder, epoch=7), NOW)
        assert decision.ledger == ledger
        assert isinstance(decision.notices[0], PermitRefusal)

    def test_a_released_permit_goes_to_the_next_with_a_higher_epoch(self) -> None:
        ledger = budget.observe(queued(asks("a", count=1), asks("b", count=1)), pool(up="c", out="ab"), NOW).ledger
        ledger = budget.release(ledger, "incident-a")
        decision = budget.observe(ledger, pool(up="ac", out="b"), NOW)
        assert granted(decision) == ["incident-b"]
        assert decision.ledger.held[0].permit.epoch == 2

    def test_a_release_of_nobody_changes_nothing(self) -> None:
        ledger = queued(asks("a"))
        assert budget.release(ledger, "incident-unknown") == ledger


def test_the_account_says_who_holds_and_who_waits_for_what_and_until_when() -> None:
    asked = asks("b", count=1).model_copy(update={"wait_until": NOW + timedelta(hours=2)})
    ledger = budget.observe(queued(asks("a", count=1), asked), pool(up="c", out="ab"), NOW).ledger
    text = account(ledger, NOW + timedelta(hours=3))
    assert "| a | p5 | reboot | incident-a | 2026-03-01 12:00:00 UTC | 2026-03-01 13:00:00 UTC (overdue" in text
    assert "| b | p5 | reboot | 2026-03-01 12:00:00 UTC | 2026-03-01 14:00:00 UTC | 1 of 3 nodes" in text
    assert account(Ledger(), NOW) == "No permit is held, and nobody waits for one."


def test_the_account_of_a_crowd_is_cut_short() -> None:
    text = account(queued(*(asks(f"n{number}") for number in range(100))), NOW)
    assert text.rstrip().endswith("and 60 more")
    assert len(text.encode()) < 20_000


@dataclass
class World:
    """A pool that changes under the budget's eyes, and what its holders believe."""

    up: dict[str, bool]
    believed: dict[str, int] = field(default_factory=dict)

    def look(self) -> PoolLook:
        return pool(up=[one for one, up in self.up.items() if up], out=[one for one, up in self.up.items() if not up])


NODES = [f"n{number}" for number in range(6)]


class BudgetMachine(RuleBasedStateMachine):
    """Nodes fail and recover, incidents ask, repeat, renew, release and die, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.world = World(up=dict.fromkeys(NODES, True))
        self.epochs: list[int] = []

    @rule(name=st.sampled_from(NODES), up=st.booleans())
    def node_changes(self, name: str, up: bool) -> None:
        self.world.up[name] = up

    @rule(name=st.sampled_from(NODES), count=st.integers(1, 4), percent=st.sampled_from([10, 34, 50, 100]))
    def incident_asks(self, name: str, count: int, percent: float) -> None:
        asked = asks(name, count=count, percent=percent)
        self.ledger = budget.request(self.ledger, asked, NOW).ledger
        assert asked.holder in self.ledger.holders

    @rule(name=st.sampled_from(NODES))
    def incident_ends(self, name: str) -> None:
        self.ledger = budget.release(self.ledger, f"incident-{name}")
        self.world.believed.pop(f"incident-{name}", None)

    @precondition(lambda self: bool(self.ledger.waiting))
    @rule()
    def budget_looks(self) -> None:
        before = self.ledger
        look = self.world.look()
        decision = budget.observe(before, look, NOW)
        self.ledger = decision.ledger
        for permit in (notice for notice in decision.notices if isinstance(notice, Permit)):
            self._check_grant(look, permit)
            self.world.believed[permit.holder] = permit.epoch
            self.epochs.append(permit.epoch)
        assert set(before.holders) == set(self.ledger.holders), "a request or a permit was lost"

    def _check_grant(self, look: PoolLook, permit: Permit) -> None:
        asked = next(held.request for held in self.ledger.held if held.permit.holder == permit.holder)
        earlier = [held for held in self.ledger.held if held.permit.epoch <= permit.epoch]
        allowed = ceiling(asked.limit, len(look.members))
        assert len(earlier) <= allowed, "more permits than the ceiling"
        if self.world.up[asked.node.name]:
            held = {one.request.node.name for one in earlier}
            out = {member.node.name for member in look.members if not member.available}
            assert len(held | out) <= allowed, "a node that served was taken out above the ceiling"

    @invariant()
    def every_holder_holds_what_it_was_told(self) -> None:
        assert {held.permit.holder: held.permit.epoch for held in self.ledger.held} == self.world.believed

    @invariant()
    def epochs_only_grow(self) -> None:
        assert self.epochs == sorted(set(self.epochs))

    @invariant()
    def nobody_is_there_twice(self) -> None:
        assert len(set(self.ledger.holders)) == len(self.ledger.holders)

    def teardown(self) -> None:
        """No starvation: when all that hold finish and nodes come back, everyone that waits gets its turn."""
        for name in NODES:
            self.world.up[name] = self.world.up[name] or f"incident-{name}" not in self.ledger.holders
        for _ in range(len(NODES) + 1):
            for held in self.ledger.held:
                self.ledger = budget.release(self.ledger, held.permit.holder)
                self.world.up[held.request.node.name] = True
            self.ledger = budget.observe(self.ledger, self.world.look(), NOW).ledger
        assert not self.ledger.waiting


TestBudgetMachine = BudgetMachine.TestCase


@given(st.permutations(NODES))
def test_nodes_that_are_all_out_are_served_in_the_order_they_asked(order: list[str]) -> None:
    ledger = queued(*(asks(name, count=1) for name in order))
    served: list[str] = []
    up: set[str] = set()
    while ledger.waiting:
        ledger = budget.observe(ledger, pool(up=sorted(up), out=sorted(set(NODES) - up)), NOW).ledger
        done = ledger.held[0]
        served.append(done.request.node.name)
        up.add(done.request.node.name)
        ledger = budget.release(ledger, done.permit.holder)
    assert served == order
