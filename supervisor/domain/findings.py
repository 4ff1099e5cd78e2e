"""One line of the doctor: what was looked at, how it is, and where it is not well why, and what to type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """`result`: ok, warn or fail. `cause` and `fix` are empty when all is well."""

    name: str
    result: str
    fact: str
    cause: str = ""
    fix: str = ""
    group: str = "local"


@dataclass(frozen=True, slots=True)
class Check:
    """One question of the doctor's. `ask` may block and raises nothing; no lines = another line says why there is
    nothing to ask here. `unanswered`, `hint`: the result and the fix where no answer comes in time."""

    name: str
    ask: Callable[[], Sequence[Finding]]
    group: str = "local"
    unanswered: str = WARN
    hint: str = "ask again: spot doctor"
