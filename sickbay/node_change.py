"""One write on one Node object, as a pure decision made it and as the API takes it.

Made by `sickbay.node_marks` and `sickbay.gpu_clients`, sent by `activities.node_marks`. It is bound to the resource
version that was decided on, so that nobody's write in between is lost (facts: remediation, 2.5).
"""

from pydantic import Field, JsonValue

from sickbay.kube_objects import Taint
from sickbay.model import Frozen


class NodeChange(Frozen):
    """One write on one node. None in `annotations` or `labels` removes a key; `taints` is the whole new list."""

    resource_version: str
    annotations: dict[str, str | None]
    labels: dict[str, str | None] = Field(default_factory=dict)
    unschedulable: bool | None = None
    """None leaves it as it is."""
    taints: tuple[Taint, ...] | None = None
    """None leaves them as they are."""

    def merge_patch(self) -> dict[str, JsonValue]:
        """The change as a JSON merge patch, which the server refuses with 409 on any other resource version."""
        spec: dict[str, JsonValue] = {}
        if self.unschedulable is not None:
            # The server never keeps `false`: null is how kubectl uncordons too.
            spec["unschedulable"] = True if self.unschedulable else None
        if self.taints is not None:
            spec["taints"] = [taint.model_dump(mode="json", exclude_none=True) for taint in self.taints]
        annotations: dict[str, JsonValue] = dict(self.annotations)
        metadata: dict[str, JsonValue] = {"resourceVersion": self.resource_version, "annotations": annotations}
        if self.labels:
            metadata["labels"] = dict(self.labels)
        return {"metadata": metadata, "spec": spec} if spec else {"metadata": metadata}
