"""How controllers end pods by force: with the condition that tells why, so that a job's failure policy can see it."""

from simulator.cluster.api import PatchKind
from simulator.cluster.objects import Pod
from simulator.cluster.stamps import condition
from simulator.cluster.world import World


async def end_pod(world: World, pod: Pod, reason: str, message: str, *, at_once: bool = False) -> None:
    """Mark a pod as disrupted and delete it. `at_once` removes it without its kubelet, and fails it first."""
    told = condition("DisruptionTarget", True, world.clock.now(), reason, message)
    status: dict[str, object] = {"conditions": [told]}
    if at_once and not pod.finished:
        status["phase"] = "Failed"
    marked = await world.pods.patch(pod, {"status": status}, kind=PatchKind.STRATEGIC, subresource="status")
    await world.pods.delete(marked, grace_seconds=0 if at_once else None)
