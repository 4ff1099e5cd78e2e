"""`spot show RUN --evidence`: why an attempt ended, on what that rests, and its last words. Pure: JSON to lines.

What an agent wrote is believed in nothing: fields may be missing or of another kind.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.cli.client import Json
from supervisor.cli.words import safe
from supervisor.lifecycle.figures import DASH, age_text, count_text, gib_text, plural

BRIEF_LINES, BRIEF_STACK = 5, 12
STACK_LINES = 200
_SECONDS = re.compile(r"\.\d+(?=Z$)")  # nobody reads a beat's microseconds
# Ends that nobody asks "why" of: what the command did is not their cause.
UNREMARKABLE = frozenset({"finished", "preempted", "stop_requested", "superseded", "expired", "time_limit"})


def evidence_lines(kept: Json, brief: bool = False) -> list[str]:
    """All that is kept of an attempt; `brief`: what one needs at a glance."""
    agent = _mapping(kept.get("agent"))
    lines = [f"Evidence of attempt {kept['attempt']}: {safe(kept.get('cause') or DASH)}"]
    lines += _row("why", kept.get("detail")) + _row(
        "exit", _exit(_mapping(kept.get("exit")) or _mapping(agent.get("exit")))
    )
    lines += _row("memory", _memory(kept, agent)) + _row("disk", _disk(kept, agent))
    if not brief:
        lines += _row("beat", _beat(_mapping(kept.get("beat")))) + _row("boot", _boot(agent))
        for name in ("end", "release"):
            for reading in _list(_mapping(kept.get("readings")).get(name)):
                lines += _row(f"read, {name}", reading)
        lines += _row("console", kept.get("console"))
        lines += _row("agent", kept.get("agent_missing") and f"no part: {kept['agent_missing']}")
    lines += _stacks(agent, BRIEF_STACK if brief else STACK_LINES)
    tail = _list(kept.get("log_tail"))
    shown = tail[-BRIEF_LINES:] if brief else tail
    if shown:
        lines += [f"  last {plural(len(shown), 'line')} of the log", *(f"    {safe(line)}" for line in shown)]
    return lines


def last_failure(attempts: Sequence[Json]) -> int | None:
    """The number of the newest attempt that is over, if its end is one that people ask about."""
    over = [one for one in attempts if one.get("ended_at") is not None]
    return over[-1]["number"] if over and over[-1].get("cause") not in UNREMARKABLE else None


def _exit(end: Mapping[str, Any]) -> str:
    if not end:
        return ""
    number = end.get("signal")
    how = f"code {end.get('code')}" if number is None else _signal(number)
    sent = "sent by us" if end.get("sent_by_us") else "not sent by us" if number is not None else ""
    ran = end.get("ran_s")
    after = f"after {age_text(ran)}" if isinstance(ran, int | float) else ""
    return ", ".join(part for part in (how, sent, after) if part)


def _signal(number: object) -> str:
    try:
        return signal.Signals(number).name  # type: ignore[arg-type]
    except ValueError:
        return f"signal {number}"


def _memory(kept: Json, agent: Mapping[str, Any]) -> str:
    end = _mapping(kept.get("exit"))
    kills = end.get("oom_kills", agent.get("oom_kills"))
    told = "kills for memory: " + (str(kills) if isinstance(kills, int) else "not countable here")
    group = _mapping(_telemetry(kept, agent).get("cgroup"))
    used, limit = group.get("memory_bytes"), group.get("memory_max_bytes")
    if isinstance(used, int | float) and isinstance(limit, int | float):
        told += f"; {gib_text(used)} of {gib_text(limit)} GiB at the last look"
    return told if end or agent else ""


def _disk(kept: Json, agent: Mapping[str, Any]) -> str:
    full = _mapping(kept.get("exit")).get("disk_full")
    if full:
        return f"full: {full}"
    told = []
    for role, figures in _mapping(agent.get("disks")).items():
        free, inodes = _mapping(figures).get("free_bytes"), _mapping(figures).get("free_inodes")
        if isinstance(free, int | float):
            more = f", {count_text(int(inodes))} inodes" if isinstance(inodes, int | float) else ""
            told.append(f"{role}: {gib_text(free)} GiB{more} free")
    return "; ".join(told)


def _beat(beat: Mapping[str, Any]) -> str:
    if not beat:
        return ""
    step = beat.get("step")
    at = f", step {count_text(step)}" if isinstance(step, int) else ""
    message = f", {beat['message']}" if beat.get("message") else ""
    return f"{_SECONDS.sub('', str(beat.get('at')))}, phase {beat.get('phase')}{at}{message}"


def _boot(agent: Mapping[str, Any]) -> str:
    boot = _mapping(agent.get("boot"))
    if not boot:
        return ""
    same = boot.get("at_start") == boot.get("now")
    return f"{boot.get('now')}" + ("" if same else f"; it was {boot.get('at_start')} at the start")


def _stacks(agent: Mapping[str, Any], limit: int) -> list[str]:
    stall = _mapping(agent.get("stall"))
    lines = []
    for dump in map(_mapping, _list(stall.get("threads"))):
        lines.append(
            f"  threads of process {dump.get('pid')} ({dump.get('how')}): {safe(dump.get('command'))}"
        )
        lines += [f"    {_one_line(line)}" for line in str(dump.get("text", "")).splitlines() if line.strip()]
    if len(lines) > limit:
        lines = [*lines[:limit], f"    … {plural(len(lines) - limit, 'more line')}: spot show RUN --evidence"]
    return lines


def _one_line(text: str) -> str:
    """Indented as it was: stacks are read by their shape."""
    return " " * (len(text) - len(text.lstrip())) + safe(text.strip())


def _telemetry(kept: Json, agent: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(_mapping(kept.get("beat")).get("telemetry")) or _mapping(agent.get("telemetry"))


def _row(label: str, value: object) -> list[str]:
    return [f"  {label:<13} {safe(value)}"] if value else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
