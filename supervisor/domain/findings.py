"""One line of the doctor: what was looked at, how it is, and where it is not well why, and what to type."""

from __future__ import annotations

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
