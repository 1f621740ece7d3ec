"""Rules on how a job is set up: memory, images, arguments, checkpoints (facts: training, 2.7, rows 7 to 14, 24)."""

from typing import Final

from sickbay.training.failures.case import Case, verdict
from sickbay.training.verdicts import BudgetKind, FailureAction, FailureClass, FailureVerdict

CONFIG: Final = FailureClass.CONFIG
ONCE: Final = FailureAction.CONFIRM_ONCE
SHM_FREE: Final = 80
"""Per cent of /dev/shm in use below which it was not full."""
_MEMORY: Final = {
    "pod-oomkilled": "the pod used more memory than its limit",
    "pod-own-limit": "the pod used more disk than its own limit",
    "ray-oom": "the node ran out of memory under Ray's workers",
    "loader-killed": "a data loader's worker was killed, which is the host's memory",
    "kernel-oom": "the kernel killed a process for want of memory",
    "host-oom": "a process could not get host memory",
}
_WRONG: Final = {
    "arguments": "the script does not know its arguments",
    "import-error": "the image lacks what the script imports",
    "state-dict": "the checkpoint does not fit the model",
    "exec-failed": "the container's command cannot be run",
}
_MAYBE: Final = {
    "shm-full": "/dev/shm is too small",
    "no-space": "a disk or a quota is full",
    "file-limit": "too many files are open",
    "nccl-invalid-usage": "NCCL is used wrongly, e.g. one GPU twice",
    "no-interface": "NCCL finds no network to use",
    "driver-insufficient": "the image's CUDA does not fit the driver or the GPU",
    "name-resolution": "a name cannot be resolved",
    "permission": "access is denied",
    "missing-file": "a file is not there",
    "address-in-use": "an address is in use",
}


def memory(case: Case) -> FailureVerdict | None:
    """Row 7: host memory or the pod's own limits, whatever the exit code says."""
    shown = case.all(*_MEMORY)
    if not shown:
        return None
    return verdict(
        CONFIG,
        ONCE,
        "row-07-own-memory",
        f"{_MEMORY[shown[0].code]}: give it more, or use less",
        shown,
        case=case,
        culprits=[each.who for each in shown if each.rank is not None and each.rank.rank is not None],
    )


def shared_memory(case: Case) -> FailureVerdict | None:
    """A bus error is a full /dev/shm, unless it is known not to have been full."""
    shown = case.all("loader-bus-error")
    if not shown:
        return None
    free = [each for each in case.all("shm-free") if int(each.sign.details.get("used", "100")) < SHM_FREE]
    if free:
        return verdict(
            FailureClass.AMBIGUOUS,
            FailureAction.RESTART,
            "row-30-bus-error",
            "a bus error although /dev/shm was not full: nobody can say why",
            [*shown, *free],
            case=case,
            culprits=[],
        )
    return verdict(
        CONFIG,
        ONCE,
        "row-07-shared-memory",
        "/dev/shm is too small for the data loader's workers",
        shown,
        case=case,
        culprits=[],
    )


def unreadable_checkpoint(case: Case) -> FailureVerdict | None:
    """Row 24: the checkpoint that it resumed from cannot be read; the one before may be."""
    shown = case.all("checkpoint-unreadable", "trainer-state-missing")
    if not shown:
        return None
    return verdict(
        FailureClass.AMBIGUOUS,
        FailureAction.RESTART,
        "row-24-checkpoint-unreadable",
        "a checkpoint cannot be read: the next attempt uses the one before",
        shown,
        case=case,
        culprits=[],
        invalid_checkpoint=case.evidence.resumed_from,
    )


def wrong_setup(case: Case) -> FailureVerdict | None:
    """Row 10: what no restart changes."""
    shown = case.all(*_WRONG)
    if not shown:
        return None
    return verdict(
        CONFIG, FailureAction.STOP, "row-10-setup-is-wrong", _WRONG[shown[0].code], shown, case=case, culprits=[]
    )


def images(case: Case) -> FailureVerdict | None:
    """Row 14: the image or what the container needs cannot be had; it may come, and is waited for."""
    shown = case.all("image-pull", "container-config")
    if not shown:
        return None
    return verdict(
        CONFIG,
        FailureAction.WAIT,
        "row-14-image",
        "the image, or what the container needs, cannot be had",
        shown,
        case=case,
        culprits=[],
        budget=BudgetKind.CONFIRMATION,
    )


def doubtful_setup(case: Case) -> FailureVerdict | None:
    """Rows 10 and 13: what is the setup's as a rule, and is tried once more elsewhere."""
    shown = [each for code in _MAYBE for each in case.all(code)]
    if not shown:
        return None
    reason = f"{_MAYBE[shown[0].code]}; if it fails again, the setup is wrong"
    return verdict(CONFIG, ONCE, "row-13-setup-in-doubt", reason, shown, case=case, culprits=[])
