"""Lines of the doctor's report: what was checked, the result, and on a problem the cause and the fix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """`result`: ok, warn or fail. `cause` and `fix` are empty when the result is ok."""

    name: str
    result: str
    fact: str
    cause: str = ""
    fix: str = ""
    group: str = "local"


@dataclass(frozen=True, slots=True)
class Check:
    """`ask` may block and raises nothing; no lines = not applicable, which another line explains. `unanswered`, `hint`:
    the result and the fix when `ask` does not return in time."""

    name: str
    ask: Callable[[], Sequence[Finding]]
    group: str = "local"
    unanswered: str = WARN
    hint: str = "retry: spot doctor"
