"""Run all checks of the doctor in parallel, with a result for each within one deadline.

A check that hangs gets a line that says so, and its thread ends by its own time limits. A check that raises gets a line
too.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain.findings import FAIL, OK, WARN, Check, Finding
from supervisor.services.parts import Answer, ask_together
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

DEADLINE_S = 4.0


class FindingShown(TypedDict):
    group: str
    name: str
    result: Annotated[str, Field(description="ok, warn or fail")]
    fact: str
    cause: str
    fix: str


class DoctorReport(TypedDict):
    """`worst`: the worst result of all checks."""

    worst: str
    checks: list[FindingShown]
    groups: Annotated[
        dict[str, str], Field(description="group -> title, of the platforms that machines are rented from")
    ]


def answers(checks: Sequence[Check], deadline_s: float = DEADLINE_S) -> list[Finding]:
    """The lines of all checks, in their order, after at most `deadline_s`. Raises nothing."""
    replies = ask_together({f"{check.name} {n}": check.ask for n, check in enumerate(checks)}, deadline_s)
    both = zip(checks, replies.values(), strict=True)
    return [line for check, answer in both for line in _lines(check, answer, deadline_s)]


def report(findings: Sequence[Finding], groups: Mapping[str, str] | None = None) -> DoctorReport:
    worst = max((finding.result for finding in findings), key=(OK, WARN, FAIL).index, default=OK)
    return {"worst": worst, "checks": list(map(finding_json, findings)), "groups": dict(groups or {})}


def finding_json(finding: Finding) -> FindingShown:
    return {
        "group": finding.group,
        "name": finding.name,
        "result": finding.result,
        "fact": finding.fact,
        "cause": finding.cause,
        "fix": finding.fix,
    }


def _lines(check: Check, answer: Answer, deadline_s: float) -> Sequence[Finding]:
    if answer.late:
        fact = f"no response within {deadline_s:g} s"
        cause = "the other side hangs, or the connection is slow"
        return (Finding(check.name, check.unanswered, fact, cause, check.hint, check.group),)
    if answer.error is not None:
        log.error("a check of the doctor failed", exc_info=answer.error, extra={telemetry.ACTION: "doctor"})
        cause = f"{type(answer.error).__name__}, an error in the doctor itself"
        fix = "report it with the supervisor's log, which says where it happened"
        return (Finding(check.name, FAIL, "not checked", cause, fix, check.group),)
    lines: Sequence[Finding] = answer.value
    return lines
