"""The policy file: YAML text in, one resolved policy per pool out.

Called by `console.policy`, which reads the bytes, and by the controller through it. Sections, each optional but the
first:

    version:      a word of yours, kept in every incident
    defaults:     what all pools share
    faults:       rules for single faults, for all pools
    pools:        what differs for a pool, by its name or a pattern of names; may hold `faults` too
    containment:  the cap of the watch's own cordons

A pool's own name goes before patterns, and of patterns the first that matches holds, alone. `default.yaml` beside this
module is the shipped policy, documented line by line, and what a file lays its own words over.
"""

from fnmatch import fnmatchcase
from hashlib import sha256
from importlib import resources
from typing import Final

from ruamel.yaml.nodes import MappingNode, Node

from sickbay.model import Frozen
from sickbay.policy.contradictions import contradictions, limit_contradictions
from sickbay.policy.model import ContainmentPolicy, IncidentPolicy
from sickbay.policy.problems import PolicyError, Problem, nearest
from sickbay.policy.sections import SET_BY_THE_FILE, Overrides, SectionReader, laid_over
from sickbay.policy.yaml_reading import compose, joined, scalar

SECTIONS: Final = ("version", "defaults", "faults", "pools", "containment")
DEFAULT_NAME: Final = "default.yaml"


class PoolPolicy(Frozen):
    """The policy of the pools that a name or a pattern stands for."""

    pattern: str
    policy: IncidentPolicy


class Policy(Frozen):
    """One policy file, resolved."""

    version: str
    digest: str
    """First 12 digits of the SHA-256 of the file."""
    defaults: IncidentPolicy
    pools: tuple[PoolPolicy, ...] = ()
    containment: ContainmentPolicy = ContainmentPolicy()

    def for_pool(self, pool: str) -> IncidentPolicy:
        """The policy of one pool's incidents; the defaults for a pool that no section stands for."""
        section = self.section_of(pool)
        policy = section.policy if section else self.defaults
        return policy.model_copy(update={"pool": pool})

    def section_of(self, pool: str) -> PoolPolicy | None:
        """The section that holds for a pool: its own name before patterns, of patterns the first."""
        named = (section for section in self.pools if section.pattern == pool)
        matching = (section for section in self.pools if fnmatchcase(pool, section.pattern))
        return next(named, None) or next(matching, None)


def parse_policy(data: bytes, file: str = "policy") -> Policy:
    """The policy that a file holds. Raises PolicyError with every problem of it; `file` is its name in them."""
    root = compose(data, file)
    policy, problems = _Parsing(root, sha256(data).hexdigest()[:12]).result()
    if problems:
        raise PolicyError(file, problems)
    return policy


def default_policy() -> Policy:
    """The shipped policy."""
    return parse_policy(default_text(), DEFAULT_NAME)


def default_text() -> bytes:
    """The shipped policy file as it is, documented line by line."""
    return resources.files("sickbay.policy").joinpath(DEFAULT_NAME).read_bytes()


class _Parsing:
    """One pass over one file."""

    def __init__(self, root: MappingNode, digest: str) -> None:
        self._reader = SectionReader()
        self._digest = digest
        self._sections: dict[str, Node] = {}
        for key, key_node, value in self._reader.mapping(root, "", ", ".join(SECTIONS)):
            if key in SECTIONS:
                self._sections[key] = value
            else:
                self._reader.problem(key_node, key, f"is not a section; {self._cure(key)}")
        self._root = root

    @staticmethod
    def _cure(key: str) -> str:
        if key in IncidentPolicy.model_fields and key not in SET_BY_THE_FILE:
            return "write it under `defaults`, or under a pool"
        return nearest(key, SECTIONS)

    def result(self) -> tuple[Policy, list[Problem]]:
        """The policy, of use only if there is no problem."""
        version = self._version()
        shared = self._defaults()
        base = laid_over(IncidentPolicy(version=version, digest=self._digest), shared)
        self._check(base, "defaults")
        policy = Policy(
            version=version,
            digest=self._digest,
            defaults=base,
            pools=self._pools(base),
            containment=self._containment(),
        )
        return policy, self._reader.problems

    def _version(self) -> str:
        node = self._sections.get("version")
        if node is None:
            self._reader.problem(
                self._root, "version", "is missing; give the policy a word of its own, e.g. 2026-03-01"
            )
            return ""
        version = scalar(node)
        if not version or len(version) > 100:
            self._reader.problem(node, "version", "must be one word of at most 100 characters, e.g. 2026-03-01")
            return ""
        return version

    def _defaults(self) -> Overrides:
        shared: Overrides = {}
        if node := self._sections.get("defaults"):
            shared |= self._reader.section(node, "defaults", IncidentPolicy, without=(*SET_BY_THE_FILE, "faults"))
        if node := self._sections.get("faults"):
            shared["faults"] = self._reader.faults(node, "faults")
        return shared

    def _pools(self, base: IncidentPolicy) -> tuple[PoolPolicy, ...]:
        node = self._sections.get("pools")
        if node is None:
            return ()
        pools = []
        for pattern, _, value in self._reader.mapping(node, "pools", "pool names or patterns"):
            path = joined("pools", pattern)
            overrides = self._reader.section(value, path, IncidentPolicy, without=SET_BY_THE_FILE)
            policy = laid_over(base, overrides)
            self._check(policy, path)
            pools.append(PoolPolicy(pattern=pattern, policy=policy))
        return tuple(pools)

    def _containment(self) -> ContainmentPolicy:
        node = self._sections.get("containment")
        if node is None:
            return ContainmentPolicy()
        containment = laid_over(ContainmentPolicy(), self._reader.section(node, "containment", ContainmentPolicy))
        for found in limit_contradictions(containment.cap, "cap"):
            self._note(found.paths, found.text, "containment")
        return containment

    def _check(self, policy: IncidentPolicy, section: str) -> None:
        for found in contradictions(policy):
            self._note(found.paths, found.text, section)

    def _note(self, paths: tuple[str, ...], text: str, section: str) -> None:
        """A contradiction belongs to the section that sets one of its halves; no other section can mend it."""
        for path in paths:
            line = self._reader.lines.get(joined(section, path))
            if line:
                self._reader.problems.append(Problem(line=line, path=joined(section, paths[0]), text=text))
                return
