"""Judges a recorded output of `nvidia-smi`, whichever of its forms it has.

Called by `sickbay check --from nvidia-smi=FILE`. The form is told by the text itself. Sentences of the tool are taken
out first, since they stand in any form; what is left is read by the module of its form, and what no module can read is
unknown.
"""

import re
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.checks import CheckOutcome, CheckResult, judged, unknown
from sickbay.faults import Component, ComponentKind, merge_faults
from sickbay.nvidia_smi.blocks import Document
from sickbay.nvidia_smi.csv_rows import looks_like_csv, read_csv
from sickbay.nvidia_smi.judgement import judge_document
from sickbay.nvidia_smi.links import judge_links, judge_no_output, looks_like_links
from sickbay.nvidia_smi.listing import judge_listing, looks_like_listing
from sickbay.nvidia_smi.query_text import looks_like_query, read_query_text
from sickbay.nvidia_smi.query_xml import looks_like_xml, read_query_xml
from sickbay.nvidia_smi.sentences import read_sentences
from sickbay.nvidia_smi.table import looks_like_table, read_table
from sickbay.nvidia_smi.topology import judge_topology, looks_like_topology
from sickbay.recorded.model import Recorded, RecordedContext

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PROMPT: Final = re.compile(r"^(?:[\w.@:~/\[\] -]*[$#>] +)?(?:sudo +)?nvidia-smi\b(?! has failed)(?!:)")
"""The line on which somebody typed the command."""
_FENCE: Final = "```"
"""What a ticket puts around a paste."""
_LARGEST: Final = 4 << 20
"""Characters of an output; that of 16 GPUs has a tenth of it."""
_LONGEST: Final = 1000
"""Characters of a line that has no commas; the widest matrix has half of it."""
_LONGEST_ROW: Final = 20_000
"""Characters of a row of csv; one of every value there is has nine thousand."""
_FELL_OFF: Final = 15
"""Exit code of nvidia-smi for a GPU that is gone from the bus (its manual)."""
_XML: Final = re.compile(r"<\?xml.*|<nvidia_smi_log.*", re.DOTALL)


def judge_nvidia_smi(recorded: Recorded, context: RecordedContext) -> CheckOutcome:
    """What a recorded output of nvidia-smi says. Raises nothing."""
    if len(recorded.text) > _LARGEST:
        return unknown(f"it is larger than any output of nvidia-smi: {len(recorded.text)} characters")
    text = _without_surroundings(recorded.text)
    if not text.strip():
        return _ended(judge_no_output(context), recorded.exit_code)
    xml = _XML.search(text) if looks_like_xml(text) else None
    around = text[: xml.start()] if xml else text
    said = read_sentences(around.splitlines(), context.expected_gpus)
    rest = xml[0] if xml else said.rest
    shown = _judge_form(rest, context) if rest.strip() else None
    if shown is None and rest.strip() and not said.faults and not said.open:
        return _ended(unknown("no output of nvidia-smi can be read in it"), recorded.exit_code)
    if shown is not None and not said.faults and not said.open:
        return _ended(shown, recorded.exit_code)
    faults = merge_faults(said.faults, shown.faults if shown else ())
    doubts = list(said.open)
    if shown is not None and shown.why and shown.result is not CheckResult.HEALTHY:
        doubts.append(shown.why)
    elif said.faults and shown is None:
        doubts.append("other GPUs of the machine are not shown")
    return _ended(judged(faults, "; ".join(dict.fromkeys(doubts))), recorded.exit_code)


def read_document(text: str) -> Document | None:
    """The output laid out by GPU, for whoever wants to know which GPUs a machine has; None for another form."""
    if len(text) > _LARGEST:
        return None
    text = _without_surroundings(text)
    if looks_like_xml(text):
        return read_query_xml(text)
    if looks_like_table(text):
        return read_table(text)
    if looks_like_query(text):
        return read_query_text(text)
    return read_csv(text) if looks_like_csv(text) else None


def _judge_form(text: str, context: RecordedContext) -> CheckOutcome | None:
    if looks_like_xml(text):
        return judge_document(read_query_xml(text), context)
    if looks_like_topology(text):
        return judge_topology(text, context)
    if looks_like_links(text):
        return judge_links(text, context)
    if looks_like_listing(text):
        return judge_listing(text, context)
    if looks_like_table(text):
        return judge_document(read_table(text), context, table=True)
    if looks_like_query(text):
        return judge_document(read_query_text(text), context)
    return judge_document(read_csv(text), context) if looks_like_csv(text) else None


def _without_surroundings(text: str) -> str:
    plain = _COLOUR.sub("", text.removeprefix("\ufeff"))
    if looks_like_xml(plain):
        return plain
    return "\n".join(_cut(line) for line in plain.splitlines() if not _is_around(line))


def _is_around(line: str) -> bool:
    start = line.strip()[:_LONGEST]
    return start.startswith(_FENCE) or ("nvidia-smi" in start and _PROMPT.match(start) is not None)


def _cut(line: str) -> str:
    """The line without blanks at its end, and no longer than one of the tool's."""
    return line.rstrip()[: _LONGEST_ROW if "," in line else _LONGEST]


def _ended(outcome: CheckOutcome, exit_code: int | None) -> CheckOutcome:
    """The outcome beside the code that the command ended with; one that failed proves nothing good."""
    if not exit_code or outcome.result is CheckResult.FAULTS:
        return outcome
    words = f"the command ended with exit code {exit_code}"
    if exit_code == _FELL_OFF:
        component = Component(kind=ComponentKind.GPU, id="unknown")
        return judged(
            (fault_of("gpu-lost", component, evidence=(f"{words}: a GPU is gone from the bus",)),), outcome.why
        )
    return unknown(f"{outcome.why}; {words}" if outcome.why else words)
