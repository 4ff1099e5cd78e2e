"""How a rule makes a verdict of facts. One rule for each check, one file of rules for each gate.

A fact is a value, None (it could not be read, or was not measured), `Unread` (the same, with a reason of its own), or
`Skip`: the check does not apply, and why. A rule gets the facts that it names, and only when all of them are known: an
unread one makes the verdict unknown, a skipped one makes it a pass that says why. So no rule can mistake ignorance for
health.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from supervisor.domain.gates.checks import CHECKS
from supervisor.domain.gates.verdicts import State, Verdict

HASH_SHOWN = 12  # characters: enough to tell two apart
NONE = "none"  # an empty list in a fact
_AGAIN = "Read it on the machine, or wait until it is read again; an unread value counts as no pass."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Skip:
    """The check does not apply. `why`: a clause, such as "the machine is this computer"."""

    why: str


@dataclass(frozen=True, slots=True)
class Unread:
    """It is not known, and `why` says more than "could not be read"; a clause. `fix` "": that of the check."""

    why: str
    fix: str = ""


Known: TypeAlias = T | Skip | Unread | None  # a fact: its value; or why it does not apply, or is not known; or not read


class Judged(NamedTuple):
    """`texts`: the values of the check's templates, ready to read."""

    state: State
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Rule:
    """`reads`: names of facts, in the order of the arguments of `judge`."""

    reads: tuple[str, ...]
    judge: Callable[..., Judged]


Rules = Mapping[str, Rule]


class Reader(NamedTuple):
    """Who read the facts, when, and of what: `names` are the run and the provider, for the texts."""

    at: float
    by: str
    names: Mapping[str, str]


def judged(good: bool, otherwise: State = State.FAIL, **texts: str) -> Judged:
    return Judged(State.PASS if good else otherwise, texts)


def verdict(check_id: str, rule: Rule, facts: object, reader: Reader) -> Verdict:
    """`facts`: has each field that the rule reads."""
    check, values = CHECKS[check_id], [getattr(facts, name) for name in rule.reads]
    skipped = next((value for value in values if isinstance(value, Skip)), None)
    if skipped is not None:
        return Verdict(check_id, State.PASS, f"not needed: {skipped.why}", "", reader.at, reader.by)
    unread = next((value for value in values if isinstance(value, Unread)), None)
    if unread is not None:
        fix = unread.fix or check.fix.format_map(_Named(reader.names))
        return Verdict(check_id, State.UNKNOWN, unread.why, fix, reader.at, reader.by)
    if any(value is None for value in values):
        return Verdict(check_id, State.UNKNOWN, f"could not be read: {check.what}", _AGAIN, reader.at, reader.by)
    state, texts = rule.judge(*values)
    named = {**reader.names, **texts}
    fix = "" if state == State.PASS else check.fix.format_map(named)
    return Verdict(check_id, state, check.says.format_map(named), fix, reader.at, reader.by)


class _Named(dict[str, str]):
    """A value of a template that is not known stays in capitals, as on the page of the checks."""

    def __missing__(self, name: str) -> str:
        return name.upper()


def listed(names: tuple[str, ...]) -> str:
    """'a, b and c' would read as one name where names have blanks: 'a, b, c'."""
    return ", ".join(names) or NONE


def short_hash(text: str) -> str:
    return text[:HASH_SHOWN] or NONE
