"""Every public case of a failed training run, read where it lies: class, action and culprit of its second line."""

import re
from pathlib import Path

import pytest

from sickbay.training.failures.classify import classify
from sickbay.training.failures.folder import evidence_of_text

CASES = Path(__file__).parents[4] / "shared" / "cases" / "training"
EXPECTED = re.compile(r"# expect: class=(?P<class>\w+); action=(?P<action>\w+);.*?culprit=(?P<culprit>.*)$")
NAMED = re.compile(r"^(?:ranks? |worker-|node[A-Z])")


def cases() -> list[Path]:
    return sorted(CASES.glob("*.log")) if CASES.is_dir() else []


@pytest.mark.skipif(not cases(), reason="the public cases are not beside this clone (../shared/cases/training)")
@pytest.mark.parametrize("path", cases(), ids=lambda path: path.stem[:40])
def test_a_public_case_is_classified_as_it_must_be(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    match = EXPECTED.match(text.splitlines()[1])
    assert match is not None
    found = classify(evidence_of_text(text))
    told = f"{found.rule}: {found.reason} {found.evidence}"
    assert (str(found.failure_class), str(found.action)) == (match["class"], match["action"]), told
    wanted = match["culprit"]
    if wanted.startswith("none") or "only the victim" in wanted:
        assert found.culprits == (), told
    elif NAMED.match(wanted):
        name = re.split(r"[ (,;]", wanted.removeprefix("ranks ").removeprefix("rank "))[0]
        assert any(re.search(rf"\b{re.escape(name)}\b", culprit) for culprit in found.culprits), (found.culprits, told)
