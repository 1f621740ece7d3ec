"""The policy file: what it resolves to, and every slip with its line and its cure."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from ruamel.yaml import YAML

from sickbay.faults import Rung
from sickbay.policy.file import Policy, default_policy, default_text, parse_policy
from sickbay.policy.model import ApprovalNeed, ContainmentPolicy, IncidentPolicy, Limit
from sickbay.policy.problems import PolicyError, Problem


def parse(text: str) -> Policy:
    return parse_policy(text.encode(), "policy.yaml")


def problems(text: str | bytes) -> list[str]:
    """What is wrong with a file, each as shown to people."""
    with pytest.raises(PolicyError) as caught:
        parse_policy(text if isinstance(text, bytes) else text.encode(), "policy.yaml")
    shown = str(caught.value).splitlines()
    assert len(shown) == len(caught.value.problems), "a problem takes one line"
    return shown


def problems_of(data: bytes) -> list[Problem] | None:
    """What is wrong with a file; None if nothing is."""
    try:
        parse_policy(data)
    except PolicyError as error:
        return list(error.problems)
    return None


class TestDefault:
    """The shipped policy."""

    def test_it_equals_the_defaults_of_the_models(self) -> None:
        policy = default_policy()
        assert policy.defaults == IncidentPolicy(digest=policy.digest)
        assert policy.containment == ContainmentPolicy()

    def test_it_writes_out_every_field_so_that_each_is_documented(self) -> None:
        written = YAML(typ="safe").load(default_text())
        missing = [
            *unwritten(IncidentPolicy(), written["defaults"]),
            *unwritten(ContainmentPolicy(), written["containment"]),
        ]
        assert [path for path in missing if path not in ("version", "digest", "pool", "faults")] == []


def unwritten(model: BaseModel, section: dict[str, object], path: str = "") -> list[str]:
    missing = []
    for name in type(model).model_fields:
        value, here = getattr(model, name), f"{path}{name}"
        if name not in section:
            missing.append(here)
        elif isinstance(value, BaseModel):
            inner = section[name]
            assert isinstance(inner, dict)
            missing += unwritten(value, inner, f"{here}.")
    return missing


class TestResolving:
    """Defaults, pools and patterns."""

    TEXT = """
        version: 1.10
        defaults:
          soak: 1h
          budget: {max_unavailable: {count: 4}}
        faults:
          node-not-ready: {tolerance: 2m}
          xid-79: {rung: replace}
        pools:
          p5-*:
            soak: 2h
          p5-big:
            reboot: {attempts: 2}
            faults:
              xid-79: {tolerance: 1m}
          "*":
            replace: {approval: never}
    """

    def test_a_pool_without_a_section_has_the_defaults(self) -> None:
        policy = parse("version: a\ndefaults: {soak: 1h}\npools: {p5: {soak: 2h}}").for_pool("p4")
        assert (policy.pool, policy.soak) == ("p4", timedelta(hours=1))

    def test_what_a_section_leaves_out_comes_from_the_defaults(self) -> None:
        policy = parse(self.TEXT).for_pool("p5-big")
        assert policy.soak == timedelta(hours=1)
        assert policy.reboot.attempts == 2
        assert policy.reboot.deadline == timedelta(minutes=30)
        assert policy.budget.max_unavailable == Limit(count=4, percent=20)

    def test_a_pools_own_name_goes_before_patterns_and_the_first_pattern_holds(self) -> None:
        policy = parse(self.TEXT)
        assert policy.for_pool("p5-big").replace.approval is ApprovalNeed.ALWAYS
        assert policy.for_pool("p5-small").soak == timedelta(hours=2)
        assert policy.for_pool("p5-small").replace.approval is ApprovalNeed.ALWAYS
        assert policy.for_pool("h100").replace.approval is ApprovalNeed.NEVER

    def test_fault_rules_change_only_what_they_set(self) -> None:
        policy = parse(self.TEXT).for_pool("p5-big")
        assert policy.for_fault("xid-79").rung is Rung.REPLACE
        assert policy.tolerance_of("xid-79") == timedelta(minutes=1)
        assert policy.tolerance_of("node-not-ready") == timedelta(minutes=2)
        assert policy.tolerance_of("monitor-silent") == timedelta(minutes=10)

    def test_a_version_stays_the_word_that_was_written(self) -> None:
        assert parse(self.TEXT).for_pool("p5-big").version == "1.10"

    def test_two_files_of_one_version_differ_in_their_digest(self) -> None:
        one, other = parse("version: a"), parse("version: a # changed")
        assert one.version == other.version
        assert one.for_pool("p").digest != other.for_pool("p").digest

    def test_an_xid_that_the_catalogue_does_not_know_yet_may_have_a_rule(self) -> None:
        assert (
            parse("version: a\nfaults: {xid-999: {rung: human}}").for_pool("p").for_fault("xid-999").rung is Rung.HUMAN
        )

    def test_both_halves_of_a_limit_may_be_none(self) -> None:
        policy = parse("version: a\ndefaults: {budget: {max_unavailable: {count: 0, percent: 0}}}")
        assert policy.defaults.budget.max_unavailable == Limit(count=0, percent=0)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{}", ["1: version: is missing; give the policy a word"]),
        ("version:", ["1: version: must be one word"]),
        ("version: a\nsoak: 3m", ["2: soak: is not a section; write it under `defaults`"]),
        ("version: a\ndefalts: {}", ["2: defalts: is not a section; did you mean 'defaults'?"]),
        ("version: a\ndefaults: {deadline: 5m}", ["2: defaults.deadline: is not a key here; "]),
        ("version: a\ndefaults: {faults: {}}", ["2: defaults.faults: is not a key here; write it at the top"]),
        (
            "version: a\ndefaults:\n  reboot:\n    deadlin: 5m",
            ["4: defaults.reboot.deadlin: is not a key here; did you mean"],
        ),
        ("version: a\ndefaults:\n  soak: 15", ["3: defaults.soak: '15' has no unit; write 15s"]),
        ("version: a\ndefaults:\n  soak: [15]", ["3: defaults.soak: must be one value"]),
        ("version: a\ndefaults:\n  soak:\n  verify_every: 5s", ["3: defaults.soak: is empty"]),
        ("version: a\ndefaults:\n  look_every: 0s", ["3: defaults.look_every: must leave some time"]),
        ("version: a\ndefaults:\n  reboot: {attempts: 0}", ["3: defaults.reboot.attempts: '0' must be greater"]),
        (
            "version: a\ndefaults:\n  reboot: {approval: maybe}",
            ["3: defaults.reboot.approval: 'maybe' must be 'never'"],
        ),
        (
            "version: a\ndefaults:\n  taint: {enabled: perhaps}",
            ["3: defaults.taint.enabled: 'perhaps' must be a"],
        ),
        ("version: a\ndefaults:\n  taint: {effect: NoExecute}", ["3: defaults.taint.effect: 'NoExecute' must match"]),
        ("version: a\ndefaults:\n  drain: 30m", ["3: defaults.drain: must be a mapping of deadline, "]),
        ("version: a\ndefaults:\n  <<: {soak: 5m}", ["3: defaults.<<: is not a key here"]),
        ("version: a\npools:\n  p5:\n  p6: {}", ["3: pools.p5: is empty"]),
        ("version: a\npools:\n  - p5", ["3: pools: must be a mapping of pool names"]),
        ("version: a\npools:\n  [p5]: {}", ["3: pools: a key must be one word"]),
        ("version: a\nfaults:\n  xid79: {}", ["3: faults.xid79: is not a fault code; did you mean 'xid-79'?"]),
        ("version: a\nfaults:\n  zzz: {}", ["3: faults.zzz: is not a fault code; `sickbay diagnose`"]),
        ("version: a\nfaults:\n  xid-79: {rung: rebot}", ["3: faults.xid-79.rung: 'rebot' must be 'none', "]),
        ("version: a\nversion: b", ["2: version: the key stands twice, first on line 1"]),
        (
            "version: a\ncontainment: {cap: {percent: 20%}}",
            ["2: containment.cap.percent: '20%' is not a number; write 20"],
        ),
        ("version: a\ncontainment: {cap: {percent: .nan}}", ["2: containment.cap.percent: '.nan' must be"]),
        ("version: a\ncontainment: {cap: {percent: 120}}", ["2: containment.cap.percent: '120' must be less"]),
    ],
)
def test_a_slip_is_shown_with_its_line_its_path_and_its_cure(text: str, shown: list[str]) -> None:
    found = problems(text)
    assert len(found) == len(shown)
    for line, expected in zip(found, shown, strict=True):
        assert line.startswith(f"policy.yaml:{expected}"), line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "version: a\ndefaults:\n  handover_reminder: 60d",
            "3: defaults.handover_reminder: 60d is longer than",
        ),
        (
            "version: a\ndefaults:\n  handover_deadline: 1h",
            "3: defaults.handover_reminder: 1d is longer than",
        ),
        ("version: a\ndefaults:\n  verify_every: 11m", "3: defaults.verify_every: 11m is longer than verify_deadline"),
        (
            "version: a\ndefaults:\n  drain: {deadline: 1m}",
            "3: defaults.drain.dead_kubelet_grace: 5m is longer than",
        ),
        ("version: a\ndefaults:\n  host_pickup: 1h", "3: defaults.host_pickup: 1h is longer than reset_gpu.deadline"),
        ("version: a\ndefaults:\n  soak: 8d", "3: defaults.soak: 8d is longer than lemon.window"),
        ("version: a\ndefaults:\n  lemon: {start_at: human}", "3: defaults.lemon.start_at: 'human' repairs nothing"),
        (
            "version: a\npools:\n  p5:\n    budget: {max_unavailable: {percent: 0}}",
            "4: pools.p5.budget.max_unavailable.percent: 0 forbids all, whatever count says",
        ),
        (
            "version: a\ncontainment:\n  cap: {count: 0}",
            "3: containment.cap.count: 0 forbids all, whatever",
        ),
    ],
)
def test_a_contradiction_is_shown_where_it_can_be_mended(text: str, shown: str) -> None:
    (found,) = problems(text)
    assert found.startswith(f"policy.yaml:{shown}"), found


def test_a_contradiction_of_the_defaults_is_not_repeated_for_each_pool() -> None:
    assert len(problems("version: a\ndefaults: {soak: 8d}\npools: {p5: {}, p6: {look_every: 5m}}")) == 1


def test_every_problem_is_told_at_once_in_the_order_of_the_file() -> None:
    found = problems("vers: a\npools:\n  p5: {soak: x}\ndefaults: {soak: 3, drain: {deadlines: 3m}}\n")
    assert [line.split(":")[1] for line in found] == ["1", "1", "3", "4", "4"]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", "policy.yaml: the file is empty"),
        (b"# nothing\n", "policy.yaml: the file is empty"),
        (b"- a\n", "policy.yaml:1: the file must be a mapping"),
        (b"version: a\n  b: c\n", "policy.yaml:2: not valid YAML: "),
        (b"version: [a\n", "policy.yaml:2: not valid YAML: "),
        (b"version: a\n---\nversion: b\n", "policy.yaml:2: not valid YAML: "),
        (b"version: *nobody\n", "policy.yaml:1: not valid YAML: "),
        (b"version: a\nx: \xff\xfe\n", "policy.yaml:2: not UTF-8 text"),
        (b"version: \x00\n", "policy.yaml: not valid YAML: "),
        (b"[" * 1_000, "policy.yaml: not valid YAML: "),
        (b"#" * 2_000_000, "policy.yaml: the file has 2000000 bytes"),
    ],
)
def test_what_is_no_policy_at_all_is_one_clear_line(data: bytes, shown: str) -> None:
    (found,) = problems(data)
    assert found.startswith(shown), found


@given(st.binary(max_size=200))
def test_any_bytes_are_a_policy_or_a_list_of_problems(data: bytes) -> None:
    assert problems_of(data) != []


KEYS = ["soak", "reboot", "deadline", "p5", "xid-79", "rung", "cap"]
JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.sampled_from(["5m", "0s", "replace"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["soak", "reboot", "deadline", "p5", "xid-79", "rung", "cap"]), inner, max_size=4
        ),
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["version", "defaults", "faults", "pools", "containment", "x"]), JUNK))
def test_any_shape_is_a_policy_or_a_list_of_problems_with_lines(shape: dict[str, object]) -> None:
    assert all(problem.line for problem in problems_of(json.dumps(shape).encode()) or [])
