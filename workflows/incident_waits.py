"""How an incident waits: always for something it shows, until a deadline, and with an eye on the node and on orders.

Called by the incident workflow. A wait ends early when the plan changes, when a person orders something, or when a look
shows that the node is gone. Long waits continue the workflow as new where its history has grown; the act itself and its
verification never do, since they are short.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow

from sickbay.faults import Rung
from sickbay.incident import HandoverReason, Outcome, Stage
from sickbay.ladder import Step
from sickbay.nodes import NodeSnapshot
from sickbay.safety import Obstacle, objection_to_touching
from workflows.incident_calls import IncidentCalls
from workflows.incident_record import IncidentRecord
from workflows.outside import OutsideError

T = TypeVar("T")


class Ended(Exception):  # noqa: N818 - an end, not an error
    """The incident is over; raised from wherever that becomes clear, caught once by the workflow."""

    def __init__(self, outcome: Outcome, reason: str, *, proof: str = "") -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.proof = proof


class IncidentWaits:
    """The waits of one incident."""

    def __init__(self, record: IncidentRecord, calls: IncidentCalls) -> None:
        self._record = record
        self._calls = calls
        self._policy = record.policy

    def overtaken(self, step: Step) -> bool:
        """Whether something else is due by now than this step."""
        return self._record.holding or self._record.plan() != step

    async def look(self) -> NodeSnapshot:
        """A look at the node. Ends the incident if it is gone, and hands over where somebody else's hand is seen."""
        record = self._record
        until: datetime | None = None
        while True:
            look = await self.until_answered(self._calls.look)
            objection = objection_to_touching(record.node, record.incident_id, look)
            if objection is None:
                return look
            match objection.obstacle:
                case Obstacle.NODE_GONE:
                    raise Ended(Outcome.NODE_GONE, objection.reason)
                case Obstacle.PERSON_RELEASED:
                    record.hand_over(HandoverReason.PERSON_RELEASED, objection.reason)
                    return look
                case Obstacle.BEING_REPLACED:
                    until = until or workflow.now() + self._policy.replace.deadline
                    if not await self._while_it_goes(objection.reason, until):
                        return look
                case _:
                    record.hand_over(HandoverReason.FOREIGN_LOCK, objection.reason)
                    return look

    async def contain(self) -> None:
        """Block new work on the node. Ends the incident if it is gone; what else forbids it, the next look tells."""
        record = self._record
        contained = await self.until_answered(self._calls.contain)
        if contained.node_gone:
            raise Ended(Outcome.NODE_GONE, f"node {record.node.name} was gone before it could be contained")
        if contained.contained and record.state.contained_at is None:
            record.change(contained_at=workflow.now())
            record.enter(Stage.CONTAINED, "new work is blocked")

    async def _while_it_goes(self, reason: str, until: datetime) -> bool:
        """Somebody else takes the node away: do nothing but watch it go. False where a person must know of it."""
        record = self._record
        if workflow.now() >= until:
            record.hand_over(HandoverReason.FOREIGN_LOCK, f"{reason}, and it does not end")
        if record.state.handover is not None:
            return False
        record.waits(f"the node to go: {reason}", until)
        await self._pause(self._policy.verify_every)
        self.heed_orders()
        return True

    async def until_answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer to a call that nothing can go on without; says so while it fails, and heeds orders."""
        waiting = self._record.waiting_for, self._record.waiting_until
        while True:
            try:
                answer = await call()
            except OutsideError as failed:
                self._record.note(f"tries again: {failed}")
                self._record.waits(f"an answer: {failed}", workflow.now() + self._policy.look_every)
                await self._pause(self._policy.look_every if failed.final else self._policy.verify_every)
                self.heed_orders()
            else:
                self._record.waits(*waiting)
                return answer

    async def for_plan_to_change(
        self, step: Step, until: datetime, what: str, done: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait until something else is due than `step`, or `done`; False at the deadline."""
        record = self._record
        record.waits(what, until)
        while not (done() or self.overtaken(step)):
            self._continue_if_long()
            left = until - workflow.now()
            if left <= timedelta(0):
                return False
            pause = min(left, self._policy.look_every)
            if not await self._wait(lambda: done() or self.overtaken(step) or _long(), pause, what) and pause < left:
                await self.look()
        return True

    async def lasting(self, duration: timedelta, what: str) -> bool:
        """Whether for so long no fault asks for anything and no order comes."""
        return not await self.for_plan_to_change(Step(rung=Rung.NONE), workflow.now() + duration, what)

    async def while_held(self) -> None:
        """Heed orders, and wait while a person holds the incident; at the deadline it is handed over."""
        record = self._record
        self.heed_orders()
        while record.state.held_by and record.state.held_since is not None:
            self.heed_orders()
            record.enter(Stage.HELD, f"held by {record.state.held_by}")
            until = record.state.held_since + self._policy.handover_deadline
            record.waits(f"{record.state.held_by} to release it", until)
            self._continue_if_long()
            await self._wait(
                lambda: not record.state.held_by or record.ordered or _long(), self._policy.look_every, "held"
            )
            self.heed_orders()
            await self.look()
            if workflow.now() >= until:
                record.hand_over(HandoverReason.VERDICT, f"{record.state.held_by} held it for too long")
                record.change(held_by="", held_since=None)

    async def for_people(self) -> None:
        """Wait for a person's order with reminders; at the last deadline leave the cordon to people and end."""
        record = self._record
        until = (record.state.handed_over_at or workflow.now()) + self._policy.handover_deadline
        while True:
            remind_at = min(until, workflow.now() + self._policy.handover_reminder)
            if await self.for_plan_to_change(Step(rung=Rung.HUMAN), remind_at, "a person", done=self._left_alone):
                self.heed_orders()
                if self._left_alone():
                    raise Ended(Outcome.WITHDRAWN, f"{record.state.handover_text}, and no fault is open any more")
                return
            if workflow.now() >= until:
                record.keep_cordon = True
                raise Ended(Outcome.HANDED_OVER, "nobody ended it in time; the cordon is left to people")
            record.note(f"still waits for a person: {record.state.handover_text}")

    async def brief(self, done: Callable[[], bool], why: str) -> None:
        """The pause between two passes of a verification."""
        await self._wait(done, self._policy.verify_every, why)

    async def soak(self, until: datetime, done: Callable[[], bool]) -> None:
        """The watch over a repaired node."""
        while not done() and (left := until - workflow.now()) > timedelta(0):
            self._continue_if_long()
            pause = min(left, self._policy.look_every)
            if not await self._wait(lambda: done() or _long(), pause, "soak") and pause < left:
                await self.look()

    def heed_orders(self) -> None:
        """End the incident if a person said so. Raises Ended, or CancelledError where the workflow is cancelled."""
        record = self._record
        if workflow.cancellation_reason() is not None:
            raise asyncio.CancelledError
        if record.withdrawn_by:
            raise Ended(Outcome.WITHDRAWN, f"withdrawn by {record.withdrawn_by}")
        if record.closed_by:
            raise Ended(Outcome.HANDED_OVER, f"closed by {record.closed_by}")

    def _left_alone(self) -> bool:
        """A person made the node schedulable again, and the fault has passed."""
        state = self._record.state
        return state.handover is HandoverReason.PERSON_RELEASED and self._record.verdict.rung is Rung.NONE

    def _continue_if_long(self) -> None:
        if _long():
            workflow.continue_as_new(self._record.continued())

    async def _pause(self, duration: timedelta) -> None:
        await self._wait(lambda: self._record.ordered, duration, "pause")

    async def _wait(self, done: Callable[[], bool], duration: timedelta, what: str) -> bool:
        try:
            await workflow.wait_condition(done, timeout=duration, timeout_summary=what[:200])
        except TimeoutError:
            return False
        return True


def _long() -> bool:
    """Whether the server would rather have the history end here: it bears a flood of signals, but not for ever."""
    return workflow.info().is_continue_as_new_suggested()
