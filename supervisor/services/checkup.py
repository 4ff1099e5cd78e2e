"""All of the doctor's questions at once, and an answer to each within one deadline.

Every check has a thread of its own. What hangs gets a line that says so and is left to its own time limits: the thread
is a daemon, so neither the answer nor the end of the process waits for it. A check that breaks is a line too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from supervisor import telemetry
from supervisor.domain.findings import FAIL, OK, WARN, Check, Finding

log = logging.getLogger(__name__)

DEADLINE_S = 4.0
Json = dict[str, Any]


def answers(
    checks: Sequence[Check], deadline_s: float = DEADLINE_S, monotonic: Callable[[], float] = time.monotonic
) -> list[Finding]:
    """The lines of all checks, in their order, at most `deadline_s` from now. Raises nothing."""
    until = monotonic() + deadline_s
    asked = [_Asked(check) for check in checks]
    found: list[Finding] = []
    for one in asked:
        if not one.done.wait(max(0.0, until - monotonic())):
            found.append(_unanswered(one.check, deadline_s))
        else:
            found += one.lines
    return found


def report(found: Sequence[Finding]) -> Json:
    """`worst` is the worst result among them."""
    worst = max((finding.result for finding in found), key=(OK, WARN, FAIL).index, default=OK)
    return {"worst": worst, "checks": [asdict(finding) for finding in found]}


class _Asked:
    """`lines` is complete once `done` is set."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.lines: list[Finding] = []
        self.done = threading.Event()
        threading.Thread(target=self._ask, name=f"doctor {check.name}", daemon=True).start()

    def _ask(self) -> None:
        try:
            self.lines = list(self.check.ask())
        except Exception as error:
            log.exception("a check of the doctor broke", extra={telemetry.ACTION: "doctor"})
            told = f"{type(error).__name__}, a fault of the doctor itself"
            fix = "report it with the supervisor's log, which says where it happened"
            self.lines = [Finding(self.check.name, FAIL, "not looked at", told, fix, self.check.group)]
        finally:
            self.done.set()


def _unanswered(check: Check, deadline_s: float) -> Finding:
    fact = f"not answered within {deadline_s:g} s"
    cause = "what is asked hangs, or the way to it is slow"
    return Finding(check.name, check.unanswered, fact, cause, check.hint, check.group)
