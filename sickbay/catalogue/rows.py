"""Reads `codes.toml` and finds the row of a code."""

import tomllib
from importlib import resources
from typing import Final

from pydantic import Field

from sickbay.faults import Component, Fault, FaultClass, Moment, Rung, Severity
from sickbay.model import Frozen


class Row(Frozen):
    """What one code means by itself."""

    code: str
    """The code as everywhere in Sickbay: `xid-79`, `sxid-20034`, `gpu-lost`."""
    mnemonic: str
    fault_class: FaultClass = Field(alias="class")
    rung: Rung
    severity: Severity
    source: str
    meaning: str
    """A few words for a person."""
    known: bool = True
    """False for a code without a row: a human is told, and nothing else happens."""


class _NumberedRow(Frozen):
    code: int
    mnemonic: str
    fault_class: FaultClass = Field(alias="class")
    rung: Rung
    severity: Severity
    source: str
    meaning: str

    def named(self, prefix: str) -> Row:
        return Row.model_validate(self.model_dump() | {"code": f"{prefix}-{self.code}"})


class _File(Frozen):
    version: str
    xid: tuple[_NumberedRow, ...]
    sxid: tuple[_NumberedRow, ...]
    fault: tuple[Row, ...]


def _read() -> _File:
    text = resources.files("sickbay.catalogue").joinpath("codes.toml").read_text(encoding="utf-8")
    return _File.model_validate(tomllib.loads(text))


_FILE: Final = _read()
_ROWS: Final = {
    row.code: row
    for row in (
        *(row.named("xid") for row in _FILE.xid),
        *(row.named("sxid") for row in _FILE.sxid),
        *_FILE.fault,
    )
}

CATALOGUE_VERSION: Final = _FILE.version
"""Kept by each incident, so that its verdict can be understood later."""


def codes() -> tuple[str, ...]:
    """Every code that has a row."""
    return tuple(_ROWS)


def lookup(code: str) -> Row:
    """The row of a code such as `xid-79`; for a code without one, a `watch` row with `known` False. Raises nothing."""
    row = _ROWS.get(code)
    if row is not None:
        return row
    return Row(
        code=code,
        mnemonic="UNKNOWN",
        fault_class=FaultClass.WATCH,
        rung=Rung.NONE,
        severity=Severity.WARNING,
        source="none",
        meaning=f"not in catalogue {CATALOGUE_VERSION}; a human should look it up",
        known=False,
    )


def lookup_xid(number: int) -> Row:
    """The row of an Xid, the error number of the NVIDIA driver for a GPU."""
    return lookup(f"xid-{number}")


def lookup_sxid(number: int) -> Row:
    """The row of an SXid, the error number of the NVIDIA driver for an NVSwitch."""
    return lookup(f"sxid-{number}")


def fault_of(
    code: str,
    component: Component,
    *,
    seen: Moment | None = None,
    boot_id: str | None = None,
    evidence: tuple[str, ...] = (),
) -> Fault:
    """One fault of this code, judged by the catalogue alone; for detectors that know nothing more of it."""
    row = lookup(code)
    return Fault(
        code=code,
        component=component,
        fault_class=row.fault_class,
        severity=row.severity,
        rung=row.rung,
        first_seen=seen,
        last_seen=seen,
        boot_id=boot_id,
        evidence=evidence,
    )
