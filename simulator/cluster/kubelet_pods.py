"""The kubelets' side of pods: starting what was bound, ending what was deleted, losing what a boot killed.

Pods here are names and GPU claims; what a training pod really does is another part's affair. A pod whose annotation
`RUN_SECONDS` says so succeeds by itself after that time. A kubelet that is not alive changes nothing, so its pods stay
as they were told last, and hang in deletion, as on a real dead node.
"""

import logging
from collections.abc import Awaitable, Callable

from simulator.cluster.api import Json, PatchKind
from simulator.cluster.objects import Pod
from simulator.cluster.operands import OPENS_GPUS
from simulator.cluster.pod_processes import RUN_PROCESS, PodProcesses
from simulator.cluster.resource import PASSING_ERRORS
from simulator.cluster.stamps import condition, stamp
from simulator.cluster.world import World
from simulator.machine import Machine
from simulator.tasks import Background

log = logging.getLogger(__name__)

RUN_SECONDS = "simulator.sickbay.dev/run-seconds"
"""Pod annotation: simulated seconds after which the pod succeeds."""
STOP_SECONDS = "simulator.sickbay.dev/stop-seconds"
"""Pod annotation: simulated seconds that the pod needs to end once asked, instead of the usual few."""


Step = Callable[[Pod, Machine], Awaitable[None]]


class KubeletPods:
    """All kubelets, as far as pods go."""

    def __init__(self, world: World, processes: PodProcesses) -> None:
        self._world = world
        self._processes = processes
        self._steps = Background()
        self._under_way: set[str] = set()
        self._started_in: dict[str, str] = {}
        """Boot id in which a pod of this UID was started."""

    async def run(self) -> None:
        """For ever."""
        try:
            await self._world.keep(
                "pods", self._look, (self._world.pods, self._world.nodes), every=self._world.heartbeat
            )
        finally:
            await self._steps.close()

    async def _look(self) -> None:
        for pod in self._world.pods:
            machine = self._machine_of(pod)
            if machine is None or not machine.kubelet_alive or pod.metadata.uid in self._under_way:
                continue
            if pod.deleting:
                self._begin(pod, machine, self._end)
            elif pod.status.phase == "Pending":
                self._begin(pod, machine, self._start)
            elif pod.status.phase == "Running":
                self._look_after(pod, machine)
        await self._lose_processes()
        known = {pod.metadata.uid for pod in self._world.pods}
        self._processes.forget(known)
        self._started_in = {uid: boot for uid, boot in self._started_in.items() if uid in known}

    def _look_after(self, pod: Pod, machine: Machine) -> None:
        started_in = self._started_in.setdefault(pod.metadata.uid, machine.boot_id)
        running = self._processes.find(pod)
        if started_in != machine.boot_id:
            self._begin(pod, machine, self._lose)
        elif running is not None and running.exit_code is not None:
            self._begin(pod, machine, self._tell_exit)
        elif self._has_run_enough(pod):
            self._begin(pod, machine, self._finish)
        elif not pod.ready:
            # The node controller called it not ready while the kubelet was silent.
            self._begin(pod, machine, self._tell_ready)

    async def _start(self, pod: Pod, machine: Machine) -> None:
        await self._world.clock.sleep(self._world.timings.pod_start)
        if not machine.kubelet_alive:
            return
        if pod.gpus and not machine.occupy(pod.metadata.uid, pod.gpus):
            reason = {"reason": "UnexpectedAdmissionError", "message": "Allocate failed: too few healthy GPUs"}
            await self._report(pod, {"phase": "Failed", **reason})
            return
        if pod.metadata.annotations.get(OPENS_GPUS) == "true":
            machine.open_gpus(pod.metadata.uid)
        self._started_in[pod.metadata.uid] = machine.boot_id
        if pod.metadata.annotations.get(RUN_PROCESS) == "true" and machine.host_root is not None:
            await self._processes.start(pod, machine.host_root, machine.boot_id)
        await self._report(pod, {**self._running(pod), "phase": "Running", "conditions": self._ready_conditions()})

    async def _tell_exit(self, pod: Pod, machine: Machine) -> None:
        """The pod's process has ended by itself."""
        running = self._processes.find(pod)
        if running is None or running.exit_code is None:
            return
        machine.vacate(pod.metadata.uid)
        well = running.exit_code == 0
        ended = {
            "exitCode": running.exit_code,
            "reason": "Completed" if well else "Error",
            "finishedAt": stamp(self._world.clock.now()),
        }
        status: Json = {
            "phase": "Succeeded" if well else "Failed",
            "conditions": self._not_ready("PodCompleted" if well else "PodFailed"),
            "containerStatuses": [
                {**_running_container(container.name, ""), "ready": False, "state": {"terminated": ended}}
                for container in pod.spec.containers
            ],
        }
        await self._report(pod, status)

    async def _lose_processes(self) -> None:
        """A process dies with its machine, whether or not a kubelet is there to tell of it."""
        for pod in self._world.pods:
            running = self._processes.find(pod)
            if running is None or running.exit_code is not None:
                continue
            machine = self._machine_of(pod)
            if machine is None or machine.boot_id != running.boot_id:
                await self._processes.lose(pod.metadata.uid)

    def _has_run_enough(self, pod: Pod) -> bool:
        wanted, started = pod.metadata.annotations.get(RUN_SECONDS), pod.status.start_time
        return wanted is not None and started is not None and self._world.clock.since(started) >= float(wanted)

    async def _finish(self, pod: Pod, machine: Machine) -> None:
        machine.vacate(pod.metadata.uid)
        await self._report(pod, {"phase": "Succeeded", "conditions": self._not_ready("PodCompleted")})

    async def _tell_ready(self, pod: Pod, _machine: Machine) -> None:
        await self._report(pod, {"conditions": self._ready_conditions()})

    async def _lose(self, pod: Pod, machine: Machine) -> None:
        machine.vacate(pod.metadata.uid)
        if pod.spec.restart_policy == "Never":
            reason = {"reason": "NodeRebooted", "message": "The node was rebooted while the pod ran"}
            await self._report(pod, {"phase": "Failed", "conditions": self._not_ready("PodFailed"), **reason})
        else:
            await self._start(pod, machine)

    async def _end(self, pod: Pod, machine: Machine) -> None:
        grace = pod.metadata.deletion_grace_period_seconds or 0
        needed = float(pod.metadata.annotations.get(STOP_SECONDS, self._world.timings.pod_stop))
        runs = pod.status.phase == "Running" and self._started_in.get(pod.metadata.uid) == machine.boot_id
        if self._processes.find(pod) is not None:
            await self._processes.end(pod, self._world.clock.real(grace) if runs else 0)
        else:
            await self._world.clock.sleep(min(grace, needed) if runs else 0)
        if machine.kubelet_alive:
            machine.vacate(pod.metadata.uid)
            await self._world.pods.delete(pod, grace_seconds=0)

    async def _report(self, pod: Pod, status: Json) -> None:
        await self._world.pods.patch(pod, {"status": status}, kind=PatchKind.STRATEGIC, subresource="status")

    def _begin(self, pod: Pod, machine: Machine, step: Step) -> None:
        self._under_way.add(pod.metadata.uid)
        self._steps.spawn(self._take(pod, machine, step), f"pod {pod.name}")

    async def _take(self, pod: Pod, machine: Machine, step: Step) -> None:
        try:
            await step(pod, machine)
        except PASSING_ERRORS as error:
            log.debug("pod %s waits for its next turn: %s", pod.name, error)
        finally:
            self._under_way.discard(pod.metadata.uid)

    def _machine_of(self, pod: Pod) -> Machine | None:
        node = self._world.nodes.get(pod.spec.node_name) if pod.spec.node_name else None
        instance = self._world.instance_of(node) if node is not None else None
        return instance.machine if instance is not None else None

    def _running(self, pod: Pod) -> Json:
        now = stamp(self._world.clock.now())
        return {
            "startTime": now,
            "podIP": self._processes.address_of(pod),
            "containerStatuses": [_running_container(container.name, now) for container in pod.spec.containers],
        }

    def _ready_conditions(self) -> list[Json]:
        now = self._world.clock.now()
        return [dict(condition(kind, True, now, "")) for kind in ("Initialized", "Ready", "ContainersReady")]

    def _not_ready(self, reason: str) -> list[Json]:
        now = self._world.clock.now()
        return [dict(condition(kind, False, now, reason)) for kind in ("Ready", "ContainersReady")]


def _running_container(name: str, started_at: str) -> Json:
    return {
        "name": name,
        "image": "simulated",
        "imageID": "simulated",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": started_at}},
    }
