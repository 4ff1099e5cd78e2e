"""What an end means: the cause, how sure it is, where it failed, whether it can go on, and what helps.

Two claims are apart: where it failed (`where`), and whether the run can go on without a change of its code (`goes_on`).
Only `certain` and `likely` may change what happens; a `hint` never acts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.evidence import Source


class Certainty(StrEnum):
    CERTAIN = "certain"
    LIKELY = "likely"
    HINT = "hint"


class Retry(StrEnum):
    FREE_ELSEWHERE = "free_elsewhere"
    FREE_SAME = "free_same"
    ONCE_AFTER_REPAIR = "once_after_repair"
    ONCE_IDENTICAL = "once_identical"
    NEVER = "never"
    ASK = "ask"
    NONE = "none"  # nothing ended: alive or slow


class Where(StrEnum):
    OURS = "ours"
    PLACE = "place"
    MACHINE = "machine"
    CARD = "card"
    IMAGE = "image"
    CODE = "code"
    DATA = "data"
    ACCOUNT = "account"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Quote:
    """`text` stands verbatim in its source. `at`: by the clock of that source; None = unknown. `where`: the exact place
    in its source, such as `memory.events`."""

    item: str
    text: str
    source: Source
    at: float | None = None
    where: str = ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """`word`: of a closed list. `ours`: the supervisor carries it out; else it is advice. `setting`: what to change."""

    word: str
    text: str
    ours: bool = False
    setting: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`goes_on`: the run can go on without a change of code; None = not known. `rejected`: (rule, why it does not
    apply). `hints`: for an unknown end, the rules that come nearest."""

    rule: str
    certainty: Certainty
    cause: Cause | None
    where: Where
    goes_on: bool | None
    retry: Retry
    sentence: str
    quotes: tuple[Quote, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    rejected: tuple[tuple[str, str], ...] = ()
    hints: tuple[str, ...] = ()
