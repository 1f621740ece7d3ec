"""RunInstances: capacity, and one launch per client token.

moto makes the instances; this looks at the call before, and remembers the answer for a call that is repeated.
"""

from dataclasses import dataclass

from simulator.cloud.errors import AwsError
from simulator.cloud.faults import Faults
from simulator.cloud.wire import Call


@dataclass
class _Launch:
    call: frozenset[tuple[str, str]]
    answer: bytes


class Launches:
    """The launches asked for over the wire, by client token."""

    def __init__(self, faults: Faults, default_zone: str) -> None:
        self._faults = faults
        self._default_zone = default_zone
        self._by_token: dict[str, _Launch] = {}

    def repeated(self, call: Call) -> bytes | None:
        """The answer given before to this very call. Raises AwsError where its token belongs to another call, or where
        there is no capacity for a new one."""
        launch = self._by_token.get(call.text("ClientToken"))
        if launch is not None:
            if launch.call != call.without("Signature"):
                raise AwsError("IdempotentParameterMismatch", "Arguments on this idempotent request differ")
            return launch.answer
        zone = call.text("Placement.AvailabilityZone", self._default_zone)
        self._faults.check_capacity(call.text("InstanceType"), zone)
        return None

    def remember(self, call: Call, answer: bytes) -> bytes:
        """Keep a fresh answer; what the caller is to see."""
        # moto has its instances running at once; the ledger holds them pending by now, and so must the answer.
        pending = answer.replace(b"<code>16</code>", b"<code>0</code>").replace(
            b"<name>running</name>", b"<name>pending</name>"
        )
        if token := call.text("ClientToken"):
            self._by_token[token] = _Launch(call.without("Signature"), pending)
        return pending
