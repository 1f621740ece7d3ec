"""Asks EC2 once a minute how the instances of all GPU nodes stand, and keeps what is new on the nodes.

Run by `workers.controller` beside the triage, on the replica that leads. The answer goes to the node as an annotation
(`sickbay.cloud_words`), where the watch of nodes shows it to the triage and an incident's own look finds it. So this
module tells incidents nothing itself, and an EC2 that is silent, throttles or forbids changes nothing.

Without AWS (no credentials, no region, no right to ask) it says so once and tries again now and then, since rights
may be given later. Nodes that are not on EC2 are never asked for.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog
from kubernetes.aio.client import ApiClient
from temporalio.exceptions import ApplicationError

from activities import node_marks
from activities.ec2_words import read_words
from activities.errors import FinalError, PassingError
from activities.waiting import utc_now
from sickbay.aws_errors import AwsErrorKind
from sickbay.cloud_words import InstanceWords, failing, note
from sickbay.kube_objects import Node
from sickbay.names import machine_id
from sickbay.node_reading import is_gpu_node, reference
from workers import controller_metrics as metrics

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

OFF_FOR: Final = timedelta(minutes=10)
"""After a refusal that no retry cures, until it is tried whether somebody has cured it."""
THROTTLED_FOR: Final = timedelta(minutes=3)
"""A limit of requests is the account's: incidents that must reboot or replace need them more."""

_ON_EC2: Final = re.compile(r"aws:///[^/]+/i-[0-9a-f]{8,17}")
_OFF: Final = frozenset({f"aws-{kind}" for kind in (AwsErrorKind.POLICY, AwsErrorKind.CALLER, AwsErrorKind.QUOTA)})
_THROTTLED: Final = f"aws-{AwsErrorKind.THROTTLED}"

log: Final = structlog.get_logger(__name__)


class CloudWatch:
    """EC2's words on the GPU nodes of one cluster. `nodes` is what the watch of nodes knows, by UID."""

    def __init__(
        self,
        *,
        api: ApiClient,
        client: "EC2Client",
        nodes: Mapping[str, Node],
        cluster: str,
        every: timedelta,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._api = api
        self._client = client
        self._nodes = nodes
        self._cluster = cluster
        self._every = every
        self._clock = clock
        self._noticed: dict[str, datetime] = {}
        self._said_off = False

    async def run(self) -> None:
        """Ask and note until cancelled; no answer ends it."""
        while True:
            try:
                wait = await self.turn()
            except Exception:
                # An answer of a kind that we did not think of must not end the watch of nodes beside us.
                log.exception("EC2's words could not be read")
                metrics.CLOUD_FAILURES.labels(why="sickbay").inc()
                wait = self._every
            await asyncio.sleep(wait.total_seconds())

    async def turn(self) -> timedelta:
        """Ask once about every GPU node, and note what is new; how long to wait until the next time."""
        machines = {
            machine_id(node.spec.provider_id, node.metadata.uid): node
            for node in self._nodes.values()
            if is_gpu_node(node) and _ON_EC2.fullmatch(node.spec.provider_id or "")
        }
        if not machines:
            return self._every
        try:
            answers = await asyncio.to_thread(read_words, self._client, tuple(machines))
        except ApplicationError as error:
            return self._after(error)
        self._said_off = False
        now = self._clock()
        self._notice(answers, now)
        for said in answers:
            node = machines.get(said.instance_id)
            if node is not None:
                await self._note(node, said, now)
        return self._every

    def _notice(self, answers: tuple[InstanceWords, ...], now: datetime) -> None:
        """Remember since when each instance's checks fail, for those that do not tell."""
        self._noticed = {
            said.instance_id: self._noticed.get(said.instance_id, now) for said in answers if failing(said)
        }

    async def _note(self, node: Node, said: InstanceWords, now: datetime) -> None:
        noticed = self._noticed.get(said.instance_id, now)
        if note(node, said, noticed, now).change is None:
            return
        name = node.metadata.name
        try:
            await node_marks.decide_and_write(
                self._api, reference(node, self._cluster), lambda fresh: note(fresh, said, noticed, now)
            )
        except (FinalError, PassingError) as error:
            log.warning("EC2's words could not be noted; the next answer will be", node=name, error=str(error))
            metrics.CLOUD_FAILURES.labels(why="kubernetes").inc()
            return
        metrics.CLOUD_NOTED.inc()
        log.info("EC2 says something new", node=name, instance=said.instance_id)

    def _after(self, error: ApplicationError) -> timedelta:
        """How long to leave EC2 alone after it gave no answer."""
        metrics.CLOUD_FAILURES.labels(why=error.type or "unknown").inc()
        if error.type in _OFF:
            if not self._said_off:
                log.warning("EC2's word on the nodes is not heard", error=error.message)
            self._said_off = True
            return max(self._every, OFF_FOR)
        log.warning("EC2 gave no answer about the nodes", error=error.message)
        return max(self._every, THROTTLED_FOR) if error.type == _THROTTLED else self._every
