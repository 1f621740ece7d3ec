"""Events that happen to an incident at chosen moments, and a watch that holds each act against them.

An event happens as a certain activity begins. The incident then waits for that activity alone, so that whatever it does
next is its answer to the event, and must respect it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from temporalio.client import WorkflowUpdateFailedError

from sickbay.faults import FaultClass, Rung
from sickbay.incident import CommandKind, Stage
from sickbay.nodes import DrainOutcome
from tests.workflows.fake_world import fault
from tests.workflows.incident_bench import Bench

ACTS = {
    "reset_gpus": Rung.RESET_GPU,
    "reboot_host": Rung.REBOOT,
    "reboot_instance": Rung.REBOOT,
    "delete_node_claim": Rung.REPLACE,
    "replace_member": Rung.REPLACE,
}
"""Activities that disrupt the node, and for which rung; the drain, which serves them all, aside."""


class Watch:
    """Lets the events happen, and tells of each act that one of them forbids."""

    def __init__(self, bench: Bench, events: Sequence[tuple[int, str]]) -> None:
        """Each event is the number of the activity at whose beginning it happens, and its name in `EVENTS`."""
        self._bench = bench
        self._events = events
        self._begun = 0
        self._forbidden = ""
        self._held = False
        self.started = asyncio.Event()
        self.violations: list[str] = []
        self.uncordoned = False

    async def __call__(self, activity: str) -> None:
        """An activity begins."""
        await self.started.wait()
        because = self._forbidden or ("it is held" if self._held else "")
        if because and (activity in ACTS or activity == "drain_node"):
            self.violations.append(f"{activity} began although {because}")
        due = [name for moment, name in self._events if moment == self._begun]
        self._begun += 1
        for name in due:
            await EVENTS[name](self)

    async def forbid(self, why: str) -> None:
        """From now on no act may begin; one that is under way may end."""
        if (await self._bench.view()).stage is not Stage.REPAIRING:
            self._forbidden = self._forbidden or why

    async def order(self, kind: CommandKind, rung: Rung | None = None) -> None:
        """What is refused is as if nobody had said it."""
        try:
            reply = await self._bench.say(kind, rung=rung)
        except WorkflowUpdateFailedError:
            return
        if kind in (CommandKind.HOLD, CommandKind.RELEASE):
            self._held = kind is CommandKind.HOLD and reply.stage is not Stage.REPAIRING
        elif kind in (CommandKind.WITHDRAW, CommandKind.CLOSE):
            self._forbidden = f"{kind} was accepted"

    async def say_by_signal(self, kind: CommandKind) -> None:
        """The same by a bot; only a withdrawal is sure to be taken where it is not forbidden."""
        if kind is CommandKind.WITHDRAW:
            await self.forbid("it was withdrawn by signal")
        await self._bench.signal(kind, rung=Rung.REPLACE)

    async def cancel(self) -> None:
        """The operator's stop."""
        await self.forbid("it was cancelled")
        await self._bench.handle.cancel()

    async def lose_permit(self) -> None:
        """The budget takes its leave back; the bench's budget never gives another."""
        await self.forbid("its permit was taken back")
        await self._bench.take_permit_back()

    async def uncordon(self) -> None:
        """A person makes the node schedulable."""
        world = self._bench.world
        if world.mark is not None:
            await self.forbid("a person made the node schedulable")
            world.uncordoned_by_person, world.cordoned, self.uncordoned = True, False, True

    async def go(self) -> None:
        """The node goes, and every mark on it."""
        await self.forbid("the node is gone")
        world = self._bench.world
        world.exists, world.mark, world.cordoned, world.protected = False, None, False, False

    async def delete(self) -> None:
        """Somebody else deletes the node's claim."""
        await self.forbid("somebody else deletes the node")
        self._bench.world.claim_deleting = True

    async def lock(self) -> None:
        """Other software takes the node for itself; it may still be drained."""
        self._bench.world.foreign_locks = ("driver upgrade",)

    async def worsen(self) -> None:
        """Another fault joins."""
        await self._bench.report(fault("xid-79", Rung.REBOOT))

    async def worry_a_person(self) -> None:
        """A fault joins that only a person can judge."""
        await self._bench.report(fault("driver-mismatch", Rung.HUMAN, FaultClass.DRIVER))

    async def clear(self) -> None:
        """No fault is seen any more."""
        await self._bench.clear()

    async def block_drain(self) -> None:
        """From now on a drain ends blocked."""
        self._bench.world.drain = DrainOutcome.BLOCKED

    async def refuse_reset(self) -> None:
        """From now on the host refuses a reset."""
        self._bench.world.reset_refused = "in use"

    async def swallow_reboot(self) -> None:
        """From now on an accepted reboot does not happen."""
        self._bench.world.reboot_works = False


EVENTS: dict[str, Callable[[Watch], Awaitable[None]]] = {
    "hold": lambda watch: watch.order(CommandKind.HOLD),
    "release": lambda watch: watch.order(CommandKind.RELEASE),
    "withdraw": lambda watch: watch.order(CommandKind.WITHDRAW),
    "close": lambda watch: watch.order(CommandKind.CLOSE),
    "approve": lambda watch: watch.order(CommandKind.APPROVE, Rung.REPLACE),
    "reject": lambda watch: watch.order(CommandKind.REJECT),
    "choose reset": lambda watch: watch.order(CommandKind.CHOOSE_RUNG, Rung.RESET_GPU),
    "choose person": lambda watch: watch.order(CommandKind.CHOOSE_RUNG, Rung.HUMAN),
    "withdraw by signal": lambda watch: watch.say_by_signal(CommandKind.WITHDRAW),
    "approve by signal": lambda watch: watch.say_by_signal(CommandKind.APPROVE),
    "cancel": Watch.cancel,
    "lose permit": Watch.lose_permit,
    "uncordon": Watch.uncordon,
    "go": Watch.go,
    "delete": Watch.delete,
    "lock": Watch.lock,
    "worsen": Watch.worsen,
    "worry a person": Watch.worry_a_person,
    "clear": Watch.clear,
    "block drain": Watch.block_drain,
    "refuse reset": Watch.refuse_reset,
    "swallow reboot": Watch.swallow_reboot,
}
"""By names that a failing example shows."""
