"""A rule of the table and its signs: which evidence it requires, what looks like it and is not, and what it means.

A sign is a named, pure predicate over the evidence. It matches with values (texts that sentences use) and quotes (texts
that stand verbatim in their source). A sign that could not be read is not a sign that is absent: `is_read` tells them
apart. Neither a sign nor a rule may raise: evidence is untrusted, so a value of another type is no match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.evidence import Evidence
from supervisor.domain.diagnosis.verdict import Certainty, Quote, Retry, Where

_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_FIELD = re.compile(r"\{(\w+)(?::([^{}]*))?\}")


class Tier(IntEnum):
    """Which source a rule rests on; a lower tier is judged first."""

    OURS = 0  # our own stop, our own limit
    RECORD = 1  # the platform's record
    AGENT = 2  # signals, counters and figures of the agent and the host
    LOG = 3  # words of the command
    FIGURES = 4  # figures of several minutes, and what is left


@dataclass(frozen=True, slots=True)
class Match:
    values: Mapping[str, str] = field(default_factory=dict)
    quotes: tuple[Quote, ...] = ()


def _never(evidence: Evidence) -> bool:
    return False


@dataclass(frozen=True, slots=True, eq=False)
class Sign:
    """`name`: a statement, true where it matches. `no`: the statement where it does not. `reads`: it was not read
    where the evidence has none of these items; () = it can always be read. `lacks_times`: it compares two times, and
    the evidence has both events but not their order; a rule that excludes it is then likely at most."""

    name: str
    find: Callable[[Evidence], Match | None]
    reads: tuple[str, ...] = ()
    no: str = ""
    lacks_times: Callable[[Evidence], bool] = _never

    def __or__(self, other: Sign) -> Sign:
        """Matches where either does."""
        return Sign(
            f"{self.name}, or {other.name}",
            lambda evidence: self.find(evidence) or other.find(evidence),
            (*self.reads, *other.reads) if self.reads and other.reads else (),
            self.no or other.no,
        )

    def __and__(self, other: Sign) -> Sign:
        """Matches where both do, with the values and quotes of both."""

        def both(evidence: Evidence) -> Match | None:
            first, second = self.find(evidence), other.find(evidence)
            if first is None or second is None:
                return None
            return Match({**first.values, **second.values}, (*first.quotes, *second.quotes))

        return Sign(f"{self.name}, and {other.name}", both, (*self.reads, *other.reads), self.no or other.no)

    def is_read(self, evidence: Evidence) -> bool:
        return not self.reads or any(evidence.items.get(name) for name in self.reads)


@dataclass(frozen=True, slots=True)
class Rule:
    """`id`: gotcha and a word. `sentence`: a template; a part in [brackets] is left out where one of its values is
    unknown. `likely_without`: signs of `requires` that lower the rule to likely where they were not read.
    `goes_on`: the run can go on without a change of its code; None = by the retry class. `may_pass`: nobody can say,
    because what it met may be over later, such as a refusal of access or a full memory."""

    id: str
    gotchas: tuple[str, ...]
    tier: Tier
    requires: tuple[Sign, ...]
    excludes: tuple[Sign, ...]
    certainty: Certainty
    cause: Cause | None
    where: Where
    retry: Retry
    sentence: str
    remedies: tuple[str, ...] = ()
    likely_without: tuple[Sign, ...] = field(default=())
    goes_on: bool | None = None
    may_pass: bool = False

    @property
    def can_go_on(self) -> bool | None:
        """None = not known."""
        if self.may_pass:
            return None
        if self.goes_on is not None:
            return self.goes_on
        return _GOES_ON.get(self.retry)


_GOES_ON = {Retry.FREE_ELSEWHERE: True, Retry.FREE_SAME: True, Retry.ONCE_AFTER_REPAIR: True, Retry.NEVER: False}


def filled(template: str, values: Mapping[str, str]) -> str:
    """The sentence with its values. A part in brackets with an unknown value is left out; an unknown value elsewhere
    reads "unknown", or the words after the colon in {name:words}."""

    def optional(part: re.Match[str]) -> str:
        return part[1] if all(values.get(name) for name, _ in _FIELD.findall(part[1])) else ""

    text = _OPTIONAL.sub(optional, template)
    return _FIELD.sub(lambda name: values.get(name[1]) or name[2] or "unknown", text)
