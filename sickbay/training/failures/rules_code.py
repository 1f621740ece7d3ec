"""Rules on the job's own code, its numbers, and what code and hardware do alike (rows 11, 16 to 20, 25, 26, 28)."""

from typing import Final

from sickbay.training.evidence import PastFailure
from sickbay.training.failures.case import Case, Seen, blames, verdict
from sickbay.training.verdicts import FailureAction, FailureClass, FailureVerdict, NodeBlame

APPLICATION: Final = FailureClass.APPLICATION
AMBIGUOUS: Final = FailureClass.AMBIGUOUS
ONCE: Final = FailureAction.CONFIRM_ONCE


def mismatch(case: Case) -> FailureVerdict | None:
    """Ranks call different collectives, and say so: the code or the data."""
    shown = case.all("collective-mismatch")
    if not shown:
        return None
    return verdict(
        APPLICATION,
        FailureAction.STOP,
        "row-21-collectives-differ",
        "ranks call different collectives, or with different shapes: the code or its data",
        shown,
        case=case,
        culprits=[],
    )


def device_memory(case: Case) -> FailureVerdict | None:
    """Row 16: the process itself uses up its GPU."""
    shown = case.all("cuda-oom")
    if not shown:
        return None
    return verdict(
        APPLICATION,
        ONCE,
        "row-16-gpu-memory",
        "the job does not fit into its GPU's memory",
        shown,
        case=case,
        culprits=_ranks(shown),
    )


def device_assert(case: Case) -> FailureVerdict | None:
    """Row 17: an index or a label out of range."""
    shown = case.all("device-assert")
    if not shown:
        return None
    return verdict(
        APPLICATION,
        ONCE,
        "row-17-device-assert",
        "an index in the data is out of range",
        shown,
        case=case,
        culprits=_ranks(shown),
    )


def confirmed_corruption(case: Case) -> FailureVerdict | None:
    """Row 26: another GPU computes something else."""
    shown = case.all("sdc", "rerun-persistent")
    if not shown:
        return None
    return verdict(
        FailureClass.PLATFORM,
        FailureAction.RESTART_EXCLUDING_NODE,
        "row-26-corruption",
        "a GPU computes something wrong, and another does not",
        shown,
        case=case,
        blamed=blames(shown, "wrong results", hardware=True, corrupts=True),
    )


def numbers(case: Case) -> FailureVerdict | None:
    """Rows 25 and 28: values that are not numbers, and losses that run away."""
    if shown := case.all("rerun-reproducible"):
        return verdict(
            APPLICATION,
            ONCE,
            "row-28-reproducible",
            "the same GPU gives the same odd result again: code or data, unless another GPU differs",
            shown,
            case=case,
        )
    if shown := case.all("rerun-transient"):
        return verdict(
            AMBIGUOUS, FailureAction.RESTART, "row-28-transient", "one GPU gave an odd result once", shown, case=case
        )
    if shown := case.all("loss-scale-minimum"):
        return verdict(
            APPLICATION,
            ONCE,
            "row-25-overflow",
            "every step overflows: the data, or the precision",
            shown,
            case=case,
            culprits=[],
        )
    if shown := case.all("loss-diverged"):
        return verdict(
            APPLICATION,
            FailureAction.STOP,
            "row-25-diverged",
            "the loss ran away and never came back: the training itself",
            shown,
            case=case,
            culprits=[],
        )
    if shown := case.all("nan-found", "loss-not-a-number"):
        return verdict(
            AMBIGUOUS,
            ONCE,
            "row-25-not-a-number",
            "a value is no number: the same data on other GPUs will tell",
            shown,
            case=case,
            culprits=_ranks(shown),
        )
    return None


def spike(case: Case) -> FailureVerdict | None:
    """A loss that rose: if it came back by itself there is nothing to do."""
    shown = case.all("loss-spike-recovered", "loss-high")
    if not shown:
        return None
    words = "came back by itself" if shown[0].code == "loss-spike-recovered" else "may come back by itself"
    return verdict(
        AMBIGUOUS, FailureAction.WAIT, "row-25-spike", f"the loss rose and {words}", shown, case=case, culprits=[]
    )


def either_way(case: Case) -> FailureVerdict | None:
    """Rows 18 to 20: an illegal access and its like, by where the same was seen before."""
    shown = case.all("illegal-access", "library-failed")
    if not shown:
        return None
    first = verdict(
        AMBIGUOUS,
        FailureAction.RESTART,
        "row-18-code-or-gpu",
        "bad code and a bad GPU look alike here: where it fails next will tell",
        shown,
        case=case,
        culprits=_ranks(shown),
    )
    node = next((each.node for each in shown if each.node), "")
    gpu = next((each.rank.gpu_uuid for each in shown if each.rank and each.rank.gpu_uuid), "")
    before = [past for past in case.evidence.past if past.verdict.fingerprint.partition(":")[2] == _words(first)]
    elsewhere = [past for past in before if past.culprit_node and node and past.culprit_node != node]
    if elsewhere:
        return verdict(
            APPLICATION,
            FailureAction.STOP,
            "row-20-follows-the-job",
            f"the same failure on {node} as on {elsewhere[0].culprit_node}: it follows the job",
            shown,
            case=case,
        )
    if any(_same_place(past, node, gpu) and _other_step(past, case) for past in before):
        return verdict(
            FailureClass.PLATFORM,
            FailureAction.RESTART_EXCLUDING_NODE,
            "row-19-follows-the-node",
            f"the same failure on {node} at another step, and nowhere else",
            shown,
            case=case,
            blamed=[
                NodeBlame(
                    node=node, reason="the same failure again, at another step", hardware=True, code=shown[0].code
                )
            ],
        )
    return first


def own_exception(case: Case) -> FailureVerdict | None:
    """Row 11, and 10 before the first step: an exception of a type that carries no other failure's words, which
    outweighs what other ranks say of its consequences."""
    return exception(case) if case.own_exception() is not None else None


def exception(case: Case) -> FailureVerdict | None:
    """Row 11, and 10 before the first step: any exception in the script."""
    own = case.own_exception()
    shown = [own] if own is not None else case.all("python-exception", "assertion")[:1]
    if not shown:
        return None
    name = shown[0].sign.details.get("exception", "exception")
    if not case.began and not case.evidence.ran_before and own is not None:
        return verdict(
            APPLICATION,
            FailureAction.STOP,
            "row-10-exception-at-start",
            f"{name} right at the start",
            shown,
            case=case,
            culprits=_ranks(shown),
        )
    return verdict(
        APPLICATION, ONCE, "row-11-exception", f"{name} in the script", shown, case=case, culprits=_ranks(shown)
    )


def _ranks(shown: list[Seen]) -> list[str]:
    return [each.who for each in shown if each.who.startswith("rank ")]


def _words(found: FailureVerdict) -> str:
    return found.fingerprint.partition(":")[2]


def _same_place(past: PastFailure, node: str, gpu: str) -> bool:
    if gpu and past.culprit_gpu:
        return gpu == past.culprit_gpu
    return bool(node) and node == past.culprit_node


def _other_step(past: PastFailure, case: Case) -> bool:
    return past.verdict.step is None or case.evidence.last_step is None or past.verdict.step != case.evidence.last_step
