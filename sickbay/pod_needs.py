"""What pods use, and which selectors they meet: small readings of Pod objects for the drain rules."""

from sickbay.kube_objects import Container, LabelSelector, Pod, PodDisruptionBudget, Requirement
from sickbay.node_reading import is_gpu_resource


def may_hold_gpu(pod: Pod) -> bool:
    """Whether the pod asks for an accelerator, or for a device of any kind by dynamic resource allocation.

    A claim's devices stand in other objects; to take each for a GPU errs on the safe side of a reset.
    """
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return bool(pod.spec.resource_claims) or any(_asks_for_gpu(container) for container in containers)


def budgets_of(pod: Pod, budgets: tuple[PodDisruptionBudget, ...]) -> tuple[str, ...]:
    """Names of the disruption budgets, of the pod's own namespace, that guard it."""
    return tuple(
        budget.metadata.name
        for budget in budgets
        if budget.metadata.namespace == pod.metadata.namespace
        and budget.spec.selector is not None
        and meets(budget.spec.selector, pod.metadata.labels)
    )


def meets(selector: LabelSelector, labels: dict[str, str]) -> bool:
    """Whether labels meet a selector; an empty selector is met by all."""
    by_label = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return by_label and all(_meets_requirement(each, labels) for each in selector.match_expressions)


def _asks_for_gpu(container: Container) -> bool:
    needs = container.resources
    return any(is_gpu_resource(name) for name in (*needs.requests, *needs.limits))


def _meets_requirement(requirement: Requirement, labels: dict[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
