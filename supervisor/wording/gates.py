"""The gates in words: their names, how a state looks, and one line for what a gate allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.domain.gates.checks import CHECKS, Gate
from supervisor.domain.gates.verdicts import GateState, Passage, State, Waiver
from supervisor.wording.figures import Look, clip, plural

REASON_SHOWN = 200
GATE_NAMES: Mapping[Gate, str] = {
    Gate.AUDIT: "audit",
    Gate.ACCESS: "access",
    Gate.SMOKE: "smoke",
    Gate.LAUNCH: "launch",
    Gate.MONITOR: "monitor",
    Gate.VERIFY: "verify",
    Gate.TEARDOWN: "teardown",
}
GATE_LOOKS: Mapping[str, Look] = {
    GateState.PASSED: Look("✔", "good", "passed"),
    GateState.WAIVED: Look("✔", "good", "passed, waived"),
    GateState.WARNED: Look("!", "wait", "look at it"),
    GateState.UNREAD: Look("◌", "still", "partly read"),
    GateState.OPEN: Look("◔", "busy", "not confirmed"),
    GateState.STOPPED: Look("✗", "bad", "stopped"),
    GateState.NOT_REACHED: Look("·", "still", "not reached"),
}
VERDICT_LOOKS: Mapping[str, Look] = {
    State.PASS: Look("✔", "good", "pass"),
    State.WARN: Look("!", "wait", "warn"),
    State.FAIL: Look("✗", "bad", "fail"),
    State.UNKNOWN: Look("?", "still", "unknown"),
}
WAIVED_LOOK = Look("~", "still", "waived")


def gate_text(passage: Passage) -> str:
    """Such as '1 check stops: disk_bytes' or 'every check passed'. Names are the checks' ids."""
    if passage.state == GateState.NOT_REACHED:
        return "not reached yet"
    stopping = [verdict.check for verdict in passage.stopped_by if verdict.state == State.FAIL]
    open_checks = [verdict.check for verdict in passage.stopped_by if verdict.state == State.UNKNOWN]
    groups = (
        (stopping, "fails", "fail"),
        (open_checks, "is not confirmed", "are not confirmed"),
        ([verdict.check for verdict in passage.warned], "warns", "warn"),
        ([verdict.check for verdict in passage.waived], "is waived", "are waived"),
        ([verdict.check for verdict in passage.unread], "could not be read", "could not be read"),
    )
    parts = [
        f"{plural(len(names), 'check')} {verb if len(names) == 1 else verbs}: {', '.join(names)}"
        for names, verb, verbs in groups
        if names
    ]
    return "; ".join(parts) or "every check passed"


def waived_text(actor: str, waivers: Sequence[Waiver]) -> str:
    """For the history of a run."""
    each = [f"{item.check} ({CHECKS[item.check].gate}): {clip(item.reason, REASON_SHOWN)}" for item in waivers]
    return f"{actor} waived {'; '.join(each)}."
