"""What the older runner wrote down of a run's life, as events of ours: one for each machine and each change of state.

They are told in our words with the old times, because an event's own time is that of the import. A reason that we do
not know stays unknown.

Does an old run still live? Two trainings of one run would overwrite each other, so every sign of life refuses.

Signs: a heartbeat or a lock that the store saw written a short while ago, and a machine that carries the run's name.
The machine's clock is never asked; what cannot be read is no proof that nobody is there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from supervisor.contract.identifiers import label_value
from supervisor.domain.causes import Cause
from supervisor.domain.errors import OldRunAlive, Unavailable
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import OLD_RUN_LABEL, SUPERVISOR_LABEL, Machine, MachineState
from supervisor.ports.provider import ProviderUnavailable
from supervisor.services.migration.oldrun import (
    HEARTBEAT,
    MANIFEST,
    OWNER_LOCK,
    RECORDS_MAX,
    RESTART_LOCK,
    STATE,
    STOP,
    TERMINAL,
    OldRun,
)
from supervisor.services.parts import Parts
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
STEP_MAX = 10**15  # the largest that a checkpoint's name holds


def events(old: OldRun, actor: str) -> list[Event]:
    """Oldest first, as their files were written; what state.json remembers besides comes first. At most RECORDS_MAX."""
    written = [(name, record) for name, records in old.records.items() for record in records]
    written_keys = {_key(record) for _, record in written}
    remembered = old.documents.get(STATE, {}).get("history")
    besides = [
        record
        for record in (remembered if isinstance(remembered, list) else ())
        if isinstance(record, dict) and _key(record) not in written_keys
    ]
    first = besides[max(0, len(besides) + len(written) - RECORDS_MAX) :]
    return [_moved(old, STATE, record, actor) for record in first] + [
        (_machine if name.startswith("instances/") else _moved)(old, name, record, actor) for name, record in written
    ]


def last_step(old: OldRun) -> int | None:
    """None = the older runner did not write down any."""
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
    """Epoch seconds of RFC 3339 or a number; None for what is no time of this century."""
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


# The older runner's own limits: HEARTBEAT_STALE_SEC, OWNER_LOCK_STALE_SEC; a restart takes as long as a boot may.
FRESH_S = {HEARTBEAT: 600.0, OWNER_LOCK: 300.0, RESTART_LOCK: 600.0}


def refuse_alive(parts: Parts, old: OldRun) -> None:
    """Raises OldRunAlive, and Unavailable when the machines cannot be read."""
    now = max([old.now, *(info.updated for info in old.seen.values())])
    for name, limit_s in FRESH_S.items():
        info = old.seen.get(name)
        if info is not None and now - info.updated < limit_s:
            age_s = max(0.0, now - info.updated)
            raise OldRunAlive(
                f"The old run may still be going on: its {name} was written {age_text(age_s)} ago. Stop it the old "
                f"way, and import it in {age_text(limit_s - age_s)}.",
                {"file": name, "age_s": round(age_s, 1), "limit_s": limit_s},
            )
    for machine in _machines(parts, old):
        raise OldRunAlive(
            f"A machine of the old run is still there: {machine.name} in {machine.zone} ({machine.state}). Two must "
            "not train the same: delete it the old way, then import.",
            {"machine": machine.name, "zone": machine.zone},
        )


def warnings(old: OldRun, run_id: str, sees_cloud: bool) -> tuple[str, ...]:
    """`sees_cloud`: this supervisor's machines are in the cloud, so that the old one's would have been seen."""
    texts = []
    if not sees_cloud and old.place.root.startswith("gs://"):
        texts.append(
            "This supervisor sees no machines of Google Cloud: make sure that none of the old run is left there."
        )
    if old.state == "COMPLETE":
        texts.append("The old run was COMPLETE: resume it only if it is to train on.")
    elif old.state not in TERMINAL and STOP not in old.seen:
        texts.append(
            f"The old run is {old.state or 'in an unknown state'} and has no .stop: the older reconciler may start it "
            f"again. Switch that off, or put a .stop there: "
            f"echo stop | gcloud storage cp - {clip(old.place.url, 200)}/.stop"
        )
    if run_id != old.place.old_id:
        texts.append(f"It is called {run_id} here.")
    return tuple(texts)


def _machines(parts: Parts, old: OldRun) -> Iterator[Machine]:
    names = set(_names(old))
    labels = {old.place.old_id, label_value(old.place.old_id)}
    for provider in parts.providers.values():
        try:
            listing = provider.machines()
        except ProviderUnavailable as error:
            raise Unavailable(
                f"It is not known whether a machine of the old run is still there: {clip(str(error), 200)}. Try again."
            ) from error
        for machine in listing.machines:
            labeled = machine.labels.get(OLD_RUN_LABEL) in labels and SUPERVISOR_LABEL not in machine.labels
            if (machine.name in names or labeled) and machine.state is not MachineState.ENDED:
                yield machine
        if listing.unreachable:
            away = ", ".join(sorted(listing.unreachable)[:5])
            raise Unavailable(f"A machine of the old run may be in a zone that does not answer ({away}). Try again.")


def _names(old: OldRun) -> Iterator[str]:
    """Of the machines that it had, as far as they were written down."""
    records = [old.documents.get(name, {}) for name in (STATE, MANIFEST)]
    records += [record for name, several in old.records.items() if name.startswith("instances/") for record in several]
    for record in records:
        for key in ("instance_name", "instance", "owner_id"):
            value = record.get(key)
            if isinstance(value, str) and value not in ("", "unknown"):
                yield value
