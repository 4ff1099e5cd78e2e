"""What began the end, of all that a log says: one line, and its pattern where it has one.

An error counts more than words before it that are not its own: those were caught. Of several ranks the one whose error
came first failed by itself. The word of a cascade or of work after the end never replaces another one, and nothing
counts that stands long before the end or that the training survived.
"""

from __future__ import annotations

from typing import Iterable, Optional, Sequence, Tuple

from supervisor.contract.logs.matcher import AROUND, Matcher, patterns_of
from supervisor.contract.logs.phrases import Pattern
from supervisor.contract.logs.tracebacks import ENDING, THREAD, Traceback
from supervisor.contract.signs import CASCADE, CAUSE, TEARDOWN

NEAR_LINES = 40  # what stands longer before the end did not cause it; frames do not count


def beginning(matcher: Matcher, since: int = 0, code: Optional[int] = None) -> Tuple[str, str]:
    """(id of its pattern or "", its line or ""). `since`: the training went on after what stands before this offset.
    `code`: of the exit; Python leaves with 1 after an error that nobody caught."""
    recent = [
        trace
        for trace in matcher.tracebacks()
        if trace.end >= since and matcher.lines_after(trace.number) <= NEAR_LINES + AROUND
    ]
    chosen = _chosen([trace for trace in recent if _role(trace) == ""])
    hits = [
        seen
        for seen in matcher.seen()
        if seen.pattern.role == CAUSE
        and seen.last.offset >= since
        and matcher.lines_after(seen.last.number) < NEAR_LINES
    ]
    if chosen is not None:
        for line in (*chosen.errors, *chosen.more):
            cause = _cause_in(line)
            if cause is not None:
                return cause.id, line
        later = [seen for seen in hits if seen.last.offset > chosen.end]
        if chosen.process or code == 1 or not later:
            return "", chosen.error
        hits = later
    if hits:
        line = hits[-1].last.line
        cause = _cause_in(line)  # the first of the table, where a line has several
        return hits[-1].pattern.id if cause is None else cause.id, line
    cascades = [trace for trace in recent if _role(trace) == CASCADE]
    return "", _first_cascade(cascades) if cascades else ""


def _chosen(own: Iterable[Traceback]) -> Optional[Traceback]:
    """The one that ended the command."""
    for kind in (ENDING, THREAD):
        of_kind = [trace for trace in own if trace.kind == kind]
        ranked = {trace.process: trace for trace in of_kind if trace.process}
        if ranked:
            return min(ranked.values(), key=lambda trace: trace.end)
        if of_kind:
            return of_kind[-1]
    return None


def _first_cascade(cascades: Sequence[Traceback]) -> str:
    others = [trace for trace in cascades if not any(pattern.id == "launcher" for pattern in patterns_of(trace.error))]
    return (others or cascades)[0].error


def _role(trace: Traceback) -> str:
    """CASCADE or TEARDOWN where its errors say only that, else ""."""
    roles = [pattern.role for line in trace.errors for pattern in patterns_of(line)]
    if CAUSE in roles:
        return ""
    return next((role for role in (CASCADE, TEARDOWN) if role in roles), "")


def _cause_in(line: str) -> Optional[Pattern]:
    return next((pattern for pattern in patterns_of(line) if pattern.role == CAUSE), None)
