"""Instances as EC2 treats them: states that take time, refusals by state, status checks.

The ledger of every instance, with its machine. Called by the wire front, by the Auto Scaling groups and by the
simulated Karpenter. It decides no replacement: that is the groups' and Karpenter's affair.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from simulator.clock import Clock
from simulator.cloud.errors import protected, unknown_id, wrong_state
from simulator.cloud.faults import Faults
from simulator.cloud.instances import Instance, NodeNames, ScheduledEvent, State, Timings, check_instance_id
from simulator.cloud.store import MotoStore
from simulator.machine import MachineFactory
from simulator.tasks import Background

NAME_TAGS = ("karpenter.sh/nodepool", "aws:autoscaling:groupName", "Name")
"""Tags that name a machine's pool, the first one found."""


class Compute:
    """The ledger of instances."""

    def __init__(
        self,
        clock: Clock,
        store: MotoStore,
        machines: MachineFactory,
        faults: Faults,
        timings: Timings,
        names: NodeNames,
    ) -> None:
        self._clock = clock
        self._store = store
        self._machines = machines
        self._faults = faults
        self._timings = timings
        self._names = names
        self._tasks = Background()
        self.instances: dict[str, Instance] = {}

    async def close(self) -> None:
        """Stop every wait and every machine."""
        await self._tasks.close()
        for instance in self.instances.values():
            await instance.machine.stop()

    def get(self, instance_id: str) -> Instance:
        """One instance. Raises AwsError for a malformed or unknown id."""
        check_instance_id(instance_id)
        try:
            return self.instances[instance_id]
        except KeyError:
            raise unknown_id(instance_id) from None

    def get_all(self, instance_ids: Iterable[str]) -> list[Instance]:
        """Several instances; one bad id refuses the whole call, as EC2 does."""
        return [self.get(instance_id) for instance_id in instance_ids]

    async def launch(self, instance_type: str, zone: str, tags: Mapping[str, str]) -> Instance:
        """A new instance, pending. Raises AwsError while there is no capacity."""
        self._faults.check_capacity(instance_type, zone)
        async with self._store.turn:
            instance_id = self._store.run(instance_type, zone, tags)
            self.adopt()
        return self.instances[instance_id]

    def adopt(self) -> None:
        """Follow what moto did by itself: take in instances it made, end those it ended (a group that shrank)."""
        for made in self._store.instances():
            known = self.instances.get(made.id)
            if known is None and made.state != State.TERMINATED:
                tags = {tag["key"]: tag["value"] for tag in made.get_tags()}
                self._take_in(made.id, made.instance_type, made.availability_zone or "", tags)
            elif known is not None and made.state == State.TERMINATED and not known.state.ending:
                self._end(known)

    def terminate(self, instance: Instance, override_protection: bool = False) -> State:
        """Begin to end an instance; the state it was in. Raises AwsError where protection is on."""
        before = instance.state
        if not override_protection and not before.ending and self._store.termination_protected(instance.instance_id):
            raise protected(instance.instance_id)
        if not before.ending:
            self._end(instance)
        return before

    async def reboot(self, instance: Instance) -> None:
        """Reboot from outside; returns at once. Raises AwsError unless the instance runs."""
        if instance.state is not State.RUNNING:
            raise wrong_state(instance.instance_id, instance.state)
        await instance.machine.reboot()

    def stop(self, instance: Instance) -> State:
        """Begin to stop; the state it was in. Raises AwsError unless it runs or is stopped already."""
        before = instance.state
        if before in (State.STOPPING, State.STOPPED):
            return before
        if before is not State.RUNNING:
            raise wrong_state(instance.instance_id, before)
        self._become(instance, State.STOPPING)
        self._tasks.spawn(self._power_off(instance), f"stop {instance.instance_id}")
        return before

    def start(self, instance: Instance) -> State:
        """Begin to start; the state it was in. Raises AwsError unless it is stopped or up already."""
        before = instance.state
        if before in (State.PENDING, State.RUNNING):
            return before
        if before is not State.STOPPED:
            raise wrong_state(instance.instance_id, before)
        self._faults.check_capacity(instance.instance_type, instance.zone)
        self._become(instance, State.PENDING)
        self._tasks.spawn(self._power_on(instance), f"start {instance.instance_id}")
        return before

    def protect(self, instance_id: str, on: bool) -> None:
        """Set termination protection."""
        self._store.protect(self.get(instance_id).instance_id, on)

    def impair(
        self,
        instance_id: str,
        instance_since: datetime | None,
        system_since: datetime | None,
        ebs_since: datetime | None,
    ) -> None:
        """Let the status checks fail since some moments, or pass where they are None."""
        instance = self.get(instance_id)
        instance.instance_impaired_since, instance.system_impaired_since = instance_since, system_since
        instance.ebs_impaired_since = ebs_since

    def schedule_event(self, instance_id: str, event: ScheduledEvent) -> None:
        """Announce an event, or replace the one of the same id."""
        instance = self.get(instance_id)
        instance.events = [kept for kept in instance.events if kept.event_id != event.event_id] + [event]

    def _take_in(self, instance_id: str, instance_type: str, zone: str, tags: dict[str, str]) -> None:
        name = self._names.take(self._name_prefix(tags))
        machine = self._machines(instance_id, name, instance_type)
        instance = Instance(instance_id, instance_type, zone, tags, machine)
        self.instances[instance_id] = instance
        self._become(instance, State.PENDING)
        self._tasks.spawn(self._power_on(instance), f"launch {instance_id}")

    def _end(self, instance: Instance) -> None:
        self._become(instance, State.SHUTTING_DOWN)
        self._tasks.spawn(self._terminate(instance), f"terminate {instance.instance_id}")

    def _become(self, instance: Instance, state: State) -> None:
        instance.state = state
        self._store.show_state(instance.instance_id, state)

    async def _power_on(self, instance: Instance) -> None:
        await instance.machine.start()
        await self._clock.sleep(self._timings.pending)
        if instance.state is State.PENDING:
            self._become(instance, State.RUNNING)

    async def _power_off(self, instance: Instance) -> None:
        await instance.machine.stop()
        await self._clock.sleep(self._timings.stopping)
        if instance.state is State.STOPPING:
            self._become(instance, State.STOPPED)

    async def _terminate(self, instance: Instance) -> None:
        await instance.machine.stop()
        await self._clock.sleep(self._timings.shutting_down)
        async with self._store.turn:
            self._become(instance, State.TERMINATED)
        self._names.give_back(self._name_prefix(instance.tags), instance.node_name)
        await self._clock.sleep(self._timings.terminated_visible)
        async with self._store.turn:
            self._store.forget(instance.instance_id)
        del self.instances[instance.instance_id]

    @staticmethod
    def _name_prefix(tags: Mapping[str, str]) -> str:
        return next((tags[key] for key in NAME_TAGS if key in tags), "instance")
