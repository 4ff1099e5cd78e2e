"""The history of an old run as events of ours: one for each machine and each change of state.

An event's own time is that of the import, so the text contains the old time. A reason that we do not know stays
unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.services.migration.oldrun import RECORDS_MAX, STATE, OldRun
from supervisor.wording.figures import age_text, clip

TEXT_MAX = 160
WORDS: tuple[tuple[str, Cause], ...] = (
    ("preempt", Cause.PREEMPTED),
    ("orphan", Cause.ORPHANED),
    ("stale", Cause.ORPHANED),
    ("gpu_timeout", Cause.GPU_UNAVAILABLE),
    ("no gpu", Cause.GPU_UNAVAILABLE),
    ("deadline", Cause.DEADLINE),
    ("max_runtime", Cause.MAX_RUNTIME),
    ("operator", Cause.STOP_REQUESTED),
    ("stop", Cause.STOP_REQUESTED),
    ("complete", Cause.FINISHED),
    ("success", Cause.FINISHED),
)
STEP_KEYS = ("step", "last_step", "global_step", "checkpoint_step")
STEP_MAX = 10**15  # the largest step that fits into a checkpoint's name


def events(old: OldRun, actor: str) -> list[Event]:
    """In the order of their files, oldest first, after further records of state.json. At most RECORDS_MAX."""
    written = [(name, record) for name, records in old.records.items() for record in records]
    written_keys = {_key(record) for _, record in written}
    history = old.documents.get(STATE, {}).get("history")
    further = [
        record
        for record in (history if isinstance(history, list) else ())
        if isinstance(record, dict) and _key(record) not in written_keys
    ]
    first = further[max(0, len(further) + len(written) - RECORDS_MAX) :]
    return [_moved(old, STATE, record, actor) for record in first] + [
        (_machine if name.startswith("instances/") else _moved)(old, name, record, actor) for name, record in written
    ]


def last_step(old: OldRun) -> int | None:
    """None = the older runner recorded no step."""
    steps = []
    for record in old.documents.values():
        value = next((record[key] for key in STEP_KEYS if key in record), None)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < STEP_MAX:
            steps.append(value)
    return max(steps, default=None)


def cause_of(*words: object) -> Cause:
    text = " ".join(word for word in words if isinstance(word, str)).lower()
    return next((cause for part, cause in WORDS if part in text), Cause.UNKNOWN)


def _key(record: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(_text(record, name) for name in ("at", "from", "to"))


def _machine(old: OldRun, name: str, record: Mapping[str, Any], actor: str) -> Event:
    number = int(re.sub("[^0-9]", "", name)[:9] or "0")
    machine = _text(record, "instance_name", "instance", "name") or "a machine"
    zone = _text(record, "zone")
    began, ended = (_time(record, "started_at", "created_at", "launched_at"), _time(record, "ended_at", "finished_at"))
    reason = _text(record, "end_reason", "reason", "terminal_state", "state", "phase")
    cause = cause_of(reason)
    code = record.get("exit_code")
    if cause is Cause.UNKNOWN and isinstance(code, int) and not isinstance(code, bool) and "exit_code" in record:
        cause = Cause.FINISHED if code == 0 else Cause.USER_ERROR
    length = age_text(ended - began) if began is not None and ended is not None else ""
    text = f"Machine {number} of the older runner: {machine}{f' in {zone}' if zone else ''}"
    text += f", {_clock(began)}" if began is not None else ""
    text += f", for {length}" if length else ""
    text += f", ended by {cause}" + (f' ("{reason}")' if reason else "") + "."
    facts = {"machine": machine, "zone": zone, "cause": str(cause), "reason": reason, "number": number}
    return _event(old, name, text, {**facts, "from": _iso(began), "to": _iso(ended)}, actor)


def _moved(old: OldRun, name: str, record: Mapping[str, Any], actor: str) -> Event:
    before, after, who = (_text(record, "from"), _text(record, "to", "state", "event"), _text(record, "by", "actor"))
    at, reason = _time(record, "at", "timestamp"), _text(record, "reason", "message")
    text = f"Older runner{f', {_clock(at)}' if at is not None else ''}: "
    text += f"{before} → {after}" if before else after or "an event"
    text += f", by {who}" if who else ""
    text += f": {reason}." if reason else "."
    return _event(old, name, text, {"from": before, "to": after, "by": who, "reason": reason, "at": _iso(at)}, actor)


def _event(old: OldRun, name: str, text: str, data: Mapping[str, object], actor: str) -> Event:
    fields = {key: value for key, value in data.items() if value not in ("", None)}
    return Event(EventKind.IMPORTED, text, actor, {"source": clip(f"{old.place.url}/{name}", 400), "old": fields})


def _text(record: Mapping[str, Any], *names: str) -> str:
    """One line; "" where there is none."""
    text = next((record[name] for name in names if isinstance(record.get(name), str)), "")
    return clip(text, TEXT_MAX)


def _time(record: Mapping[str, Any], *names: str) -> float | None:
    """Epoch seconds from RFC 3339 or a number; None = no time in this century."""
    for name in names:
        value = record.get(name)
        try:
            at = datetime.fromisoformat(value).timestamp() if isinstance(value, str) else float(value or "x")
        except (ValueError, TypeError, OverflowError):
            continue
        if math.isfinite(at) and 946_684_800 <= at < 4_102_444_800:
            return at
    return None


def _iso(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
