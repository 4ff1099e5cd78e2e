"""The evidence of one attempt: why it ended, the readings this rests on, and what its agent left.

The document is composed several times: at the attempt's end, before the release, when the machine is gone, at the
run's end. Each time more or less is readable than before, so nothing in it is ever replaced by less.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from supervisor.contract import beat_telemetry
from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.run import Run
from supervisor.lifecycle.evidence.facts import DEPTH, read_object

VERSION = 1
MAX_BYTES = 262_144
AGENT_BYTES = 245_760  # of the agent's part
LOG_LINES, LINE_CHARS = 200, 1000
NO_AGENT_PART = "the agent left none"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What the store contains of an attempt. `agent` None: `missing` says why. `log_tail` None: not read. `console`:
    the key of its tail."""

    agent: Json | None = None
    missing: str = ""
    log_tail: tuple[str, ...] | None = None
    console: str | None = None


def compose(run: Run, attempt: Attempt, stored: Found, release: Sequence[str], before: Json | None) -> Json:
    """The document. `release`: readings that a release rests on. `before`: the document as it was composed last."""
    earlier = before or {}
    agent = _newer(stored.agent, earlier.get("agent"))
    tail = _tail(stored, agent) or earlier.get("log_tail") or []
    releases = (earlier.get("readings") or {}).get("release") or []
    return {
        "version": VERSION,
        "run_id": run.run_id,
        "generation": attempt.generation,
        "attempt": attempt.number,
        "launch_id": attempt.launch_id,
        "machine": _machine(attempt),
        "started_at": utc_text(attempt.started_at),
        "ended_at": utc_text(attempt.ended_at),
        "gone_at": utc_text(attempt.gone_at) or earlier.get("gone_at"),
        "cause": attempt.cause,
        "detail": attempt.evidence,
        "exit": None if attempt.exit is None else attempt.exit._asdict(),
        "step_last": attempt.step_last,
        "step_kept": attempt.step_kept,
        "readings": {"end": list(attempt.readings), "release": list(dict.fromkeys([*releases, *release]))},
        "beat": _beat(run.pulse, attempt) or earlier.get("beat"),
        "agent": agent,
        "agent_missing": "" if agent is not None else stored.missing or NO_AGENT_PART,
        "log_tail": tail,
        "console": stored.console or earlier.get("console"),
    }


def final(document: Mapping[str, Any]) -> bool:
    """The agent has written its part of the end: it will write nothing more."""
    return (document.get("agent") or {}).get("when") == "end"


def encoded(document: Json) -> bytes:
    """At most MAX_BYTES: the oldest lines of the log go first, then the stacks."""
    data = _bytes(document)
    while len(data) > MAX_BYTES and document["log_tail"]:
        document = {**document, "log_tail": document["log_tail"][1 + len(document["log_tail"]) // 8 :]}
        data = _bytes(document)
    if len(data) > MAX_BYTES:
        data = _bytes({**document, "agent": None, "agent_missing": "it is too large"})
    return data


def read(raw: bytes) -> Json | None:
    """A document as `encoded` makes it, with an agent's part inside; None for anything else."""
    document = read_object(raw, MAX_BYTES, DEPTH + 1)
    return document if document is not None and _is_document(document) else None


def _is_document(document: Json) -> bool:
    """Only what other code relies on is checked: the object lies where a training may write."""
    readings = document.get("readings")
    texts_of = [readings.get(when) for when in ("end", "release")] if isinstance(readings, dict) else [None]
    texts = [
        isinstance(part, list) and all(isinstance(text, str) for text in part)
        for part in (*texts_of, document.get("log_tail"))
    ]
    return all(texts) and isinstance(document.get("agent"), dict | None)


def last_lines(raw: bytes) -> tuple[str, ...]:
    """The last lines of a log, few and short enough to keep."""
    lines = raw.decode("utf-8", "replace").splitlines()[-LOG_LINES:]
    return tuple(line[:LINE_CHARS] for line in lines)


def _newer(agent: Json | None, earlier: Json | None) -> Json | None:
    """The part of the end wins over one of a stall, and any part over none. Its log is a field of the document."""
    if agent is None or (earlier is not None and earlier.get("when") == "end" != agent.get("when")):
        return earlier
    return {name: value for name, value in agent.items() if name != "log_tail"}


def _tail(stored: Found, agent: Json | None) -> list[str]:
    """The agent's last lines if it wrote them at the end, else those in the store, which may be newer."""
    agent_tail = (stored.agent or {}).get("log_tail")
    lines = [line[:LINE_CHARS] for line in agent_tail if isinstance(line, str)] if isinstance(agent_tail, list) else []
    if agent is not None and agent.get("when") == "end" and lines:
        return lines[-LOG_LINES:]
    return list(stored.log_tail or lines[-LOG_LINES:])


def _machine(attempt: Attempt) -> Json:
    place = attempt.placement
    return {
        "name": attempt.machine_name,
        "machine_id": attempt.machine_id,
        "provider": place.provider,
        "zone": place.zone,
        "shape": place.shape,
        "spot": place.spot,
    }


def _beat(pulse: Pulse | None, attempt: Attempt) -> Json | None:
    """The last beat of this attempt that the loop has received."""
    if pulse is None or pulse.launch_id != attempt.launch_id or pulse.sequence == 0:
        return None
    return {
        "at": utc_text(pulse.beat_at),
        "sequence": pulse.sequence,
        "phase": pulse.phase,
        "step": pulse.step,
        "total": pulse.total,
        "checkpoint_step": pulse.checkpoint_step,
        "stall_polls": pulse.stall_polls,
        "message": pulse.message,
        "metrics": dict(pulse.metrics),
        "telemetry": _telemetry(pulse.telemetry),
    }


def _telemetry(telemetry_text: str) -> Json | None:
    """Cleaned: it came from outside."""
    telemetry = beat_telemetry.decode(telemetry_text)
    return None if telemetry is None else beat_telemetry.to_json(telemetry)


def utc_text(at: float | None) -> str | None:
    """Epoch seconds as RFC 3339."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def _bytes(document: Json) -> bytes:
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace")
