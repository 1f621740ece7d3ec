"""The one base of every model that crosses a border (Temporal, Kubernetes, files).

Frozen, because workflow state must not change behind a replay; unknown fields are ignored, so that an older worker
can read what a newer one wrote during a rolling upgrade (facts: Temporal, 1.1).
"""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable value; two with equal fields are equal."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", validate_by_name=True, validate_by_alias=True, serialize_by_alias=True
    )
