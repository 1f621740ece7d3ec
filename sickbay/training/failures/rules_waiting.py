"""Rules on who waited for whom: networks, hangs, and consequences without their cause (rows 13, 21, 22, 27)."""

from typing import Final

from sickbay.training.evidence import Ending, Evidence
from sickbay.training.failures.case import Case, Seen, blames, verdict
from sickbay.training.failures.culprits import CulpritKind, Suspects, suspects
from sickbay.training.failures.culprits import who as name_of
from sickbay.training.failures.stacks import outliers
from sickbay.training.verdicts import FailureAction, FailureClass, FailureVerdict, NodeBlame

HANG: Final = FailureClass.HANG
FIND_ROOT: Final = FailureAction.FIND_ROOT
_HANGS: Final = ("watchdog-timeout", "watchdog-status", "ranks-missing", "barrier-timeout", "monitor-stuck", "nccl-ras")
_CASCADES: Final = ("sigterm", "peer-closed", "store-timeout", "peer-lost", "launcher-failed", "watchdog-abort")


def infiniband(case: Case) -> FailureVerdict | None:
    """Row 22: an adapter that ends a transfer with an error; which side is to blame is in the number."""
    local, retry = case.all("ib-error-4"), case.all("ib-error-12")
    if local:
        return verdict(
            FailureClass.CONFIG,
            FailureAction.CONFIRM_ONCE,
            "row-13-ib-local-protection",
            "adapters refuse access to memory: PCIe ACS or GPUDirect is set up wrongly",
            local,
            case=case,
            culprits=[],
        )
    if retry and not case.began:
        return verdict(
            FailureClass.CONFIG,
            FailureAction.CONFIRM_ONCE,
            "row-13-ib-at-start",
            "no peer is reached over InfiniBand from the start: the fabric's partitions or the choice of adapters",
            retry,
            case=case,
            culprits=[],
        )
    if retry:
        return _unreachable(case, retry)
    shown = case.all("ib-error")
    if not shown:
        return None
    return verdict(
        FailureClass.PLATFORM,
        FailureAction.RESTART,
        "row-22-ib-error",
        "a transfer over InfiniBand failed",
        shown,
        case=case,
        culprits=[],
    )


def _unreachable(case: Case, retry: list[Seen]) -> FailureVerdict:
    """Several that cannot reach one peer blame it; one report names two sides, and nobody."""
    peers = {each.sign.details.get("peer", "") for each in retry} - {""}
    reporters = {each.node for each in retry} - {""}
    if len(peers) == 1 and len(reporters) > 1:
        peer = next(iter(peers))
        return verdict(
            FailureClass.PLATFORM,
            FailureAction.RESTART_EXCLUDING_NODE,
            "row-22-ib-peer",
            f"several nodes cannot reach {peer}",
            retry,
            case=case,
            culprits=[peer],
            blamed=[NodeBlame(node=peer, reason="not reached over InfiniBand", hardware=True, code="ib-error-12")],
        )
    return verdict(
        FailureClass.PLATFORM,
        FailureAction.RESTART,
        "row-22-ib-link",
        "a link between two nodes failed",
        retry,
        case=case,
        culprits=[],
    )


def silent_network(case: Case) -> FailureVerdict | None:
    """A provider's warning that NCCL never sees: the job stands still."""
    shown = case.all("efa-error")
    if not shown:
        return None
    peers = list(dict.fromkeys(each.sign.details.get("peer", "") for each in shown))
    return verdict(
        HANG,
        FIND_ROOT,
        "row-22-efa-warning",
        "the network's library warns of a peer, and the job stands still",
        shown,
        case=case,
        culprits=peers,
    )


def after_the_end(case: Case) -> FailureVerdict | None:
    """A watchdog that is stuck after the training has ended holds up only the teardown."""
    shown = case.all("monitor-stuck", "no-destroy")
    if not case.has("main-ended") or not case.has("monitor-stuck"):
        return None
    return verdict(
        HANG,
        FailureAction.STOP,
        "row-27-hang-in-teardown",
        "the training had ended; only its teardown hangs: check the target",
        shown,
        case=case,
        culprits=[],
    )


def hang(case: Case) -> FailureVerdict | None:
    """Rows 21 and 27: somebody stands still; who, the collectives and the stacks tell."""
    shown = case.all(*_HANGS)
    hanging = case.evidence.ending in (Ending.HANG, Ending.DEADLINE) or bool(outliers(case.evidence.stacks))
    if not shown and not hanging:
        return None
    found = suspects(case.evidence)
    match found.kind:
        case CulpritKind.MISMATCHED:
            return verdict(
                FailureClass.APPLICATION,
                FailureAction.CONFIRM_ONCE,
                "row-21-out-of-step",
                found.reason,
                shown,
                case=case,
                culprits=[],
                lines=found.evidence,
            )
        case CulpritKind.ENDED_FIRST:
            return _of_the_first(case, found, shown)
        case CulpritKind.NEVER_JOINED | CulpritKind.DEVICE_SIDE | CulpritKind.FAULTY_NODE:
            return verdict(
                HANG,
                FIND_ROOT,
                f"row-27-{found.kind.replace('_', '-')}",
                found.reason,
                shown,
                case=case,
                culprits=_named(case.evidence, found),
                lines=found.evidence,
            )
        case CulpritKind.OUTLIER:
            return _of_the_outlier(case, found, shown)
    if stuck := case.all("monitor-stuck"):
        return verdict(
            HANG, FIND_ROOT, "row-27-driver-call", "a call into the driver never returns on this rank", stuck, case=case
        )
    if hanging:
        return verdict(
            HANG,
            FIND_ROOT,
            "row-27-no-step",
            f"no rank made a step, and nothing tells why{f': {found.reason}' if found.reason else ''}",
            shown,
            case=case,
            culprits=[],
        )
    return verdict(
        FailureClass.CASCADE,
        FIND_ROOT,
        "row-21-timeout-alone",
        "a collective timed out: some rank did not come, and nothing tells which",
        shown,
        case=case,
        culprits=[],
    )


def _of_the_first(case: Case, found: Suspects, shown: list[Seen]) -> FailureVerdict:
    """A rank failed by itself, and its own words did not decide before: it is the script's."""
    return verdict(
        FailureClass.APPLICATION,
        FailureAction.CONFIRM_ONCE,
        "row-21-failed-first",
        found.reason,
        shown,
        case=case,
        culprits=_named(case.evidence, found),
        lines=found.evidence,
    )


def _of_the_outlier(case: Case, found: Suspects, shown: list[Seen]) -> FailureVerdict:
    names = [name_of(stack) for stack in outliers(case.evidence.stacks)]
    if found.about:
        return verdict(
            HANG,
            FailureAction.RESTART,
            f"row-27-{found.about}",
            f"{found.reason}: {found.about}",
            shown,
            case=case,
            culprits=names,
            lines=found.evidence,
        )
    return verdict(
        HANG, FIND_ROOT, "row-27-outlier", found.reason, shown, case=case, culprits=names, lines=found.evidence
    )


def network_or_peer(case: Case) -> FailureVerdict | None:
    """NCCL lost a peer on the wire: a network, or a process that died; the peers must be looked at."""
    shown = case.all("nccl-remote")
    if shown:
        return verdict(
            FailureClass.PLATFORM,
            FIND_ROOT,
            "row-21-peer-or-network",
            "a peer was lost: its process died, or the network did",
            shown,
            case=case,
            culprits=[],
        )
    shown = case.all("nccl-system-error")
    if not shown:
        return None
    if not case.began:
        return verdict(
            FailureClass.CONFIG,
            FailureAction.CONFIRM_ONCE,
            "row-13-nccl-at-start",
            "NCCL cannot begin: the network, shared memory or a limit",
            shown,
            case=case,
            culprits=[],
        )
    return verdict(
        FailureClass.AMBIGUOUS,
        FailureAction.RESTART,
        "row-22-nccl-system",
        "a system call of NCCL failed",
        shown,
        case=case,
        culprits=[],
    )


def late_peer(case: Case) -> FailureVerdict | None:
    """A rank that gave up waiting while another still prepared its data: the same will happen each time."""
    shown = case.all("store-timeout")
    if not shown or not case.has("preprocessing"):
        return None
    return verdict(
        FailureClass.CONFIG,
        FailureAction.STOP,
        "row-13-preparing-too-long",
        "a rank still prepared its data when the others gave up: prepare it before, or wait longer",
        [*shown, *case.all("preprocessing")],
        case=case,
        culprits=[],
    )


def cascade(case: Case) -> FailureVerdict | None:
    """Row 21: only consequences are seen."""
    shown = case.all(*_CASCADES)
    if not shown:
        return None
    return verdict(
        FailureClass.CASCADE,
        FIND_ROOT,
        "row-21-consequences-alone",
        "only consequences are seen: something else failed or ended it before",
        shown,
        case=case,
        culprits=[],
    )


def failing_check(case: Case) -> FailureVerdict | None:
    """A launcher's check of nodes in pairs: whoever fails with two partners is the bad one."""
    shown = [each for each in case.all("node-check-failed") if each.sign.details.get("node")]
    if not shown:
        return None
    return verdict(
        FailureClass.PLATFORM,
        FailureAction.RESTART_EXCLUDING_NODE,
        "row-22-node-check",
        f"{shown[0].node} failed the check with different partners",
        shown,
        case=case,
        culprits=[each.node for each in shown],
        blamed=blames(shown, "failed the node check twice", hardware=True),
    )


def _named(evidence: Evidence, found: Suspects) -> list[str]:
    nodes = {rank.rank: rank.node for rank in evidence.ranks if rank.rank is not None}
    ranks = [f"rank {rank} ({nodes[rank]})" if nodes.get(rank) else f"rank {rank}" for rank in found.ranks]
    return ranks or list(found.nodes)
