"""The evidence of an attempt, as people read it: why, on what that rests, and its last words.

What an agent wrote is believed in nothing: fields may be missing or of another kind, and every text is made harmless.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from supervisor.dashboard import ansi
from supervisor.lifecycle.figures import age_text, count_text, gib_text, size_text

LAST_LINES, STACK_LINES, PROCESSES, JSON_CHARS = 15, 400, 50, 60_000
# Ends that nobody asks "why" of: what the command did is not their cause.
UNREMARKABLE = frozenset({"finished", "preempted", "stop_requested", "superseded", "expired", "time_limit"})

Json = dict[str, Any]


def last_failure(attempts: Sequence[Json]) -> Json | None:
    """The newest attempt that is over, if its end is one that people ask about."""
    over = [one for one in attempts if one["ended_at"] is not None]
    return over[-1] if over and over[-1]["cause"] not in UNREMARKABLE else None


def view(kept: Json) -> Json:
    """What the templates show."""
    agent = _mapping(kept.get("agent"))
    end = _mapping(kept.get("exit")) or _mapping(agent.get("exit"))
    tail = [ansi.shown(str(line)) for line in _list(kept.get("log_tail"))]
    beat, readings = _mapping(kept.get("beat")), _mapping(kept.get("readings"))
    rows = [
        ("Why", kept.get("detail")),
        ("Exit", _exit(end)),
        ("Most telling line", end.get("last_line")),
        ("Memory", _memory(kept, agent, end)),
        ("Disk", _disk(end, agent)),
        ("Left", agent.get("left")),
    ]
    more = [
        ("Last beat", _beat(beat)),
        ("Machine", _machine(_mapping(kept.get("machine")))),
        ("Boot", _boot(_mapping(agent.get("boot")))),
        ("Signals sent", ", ".join(map(str, _list(agent.get("signals_sent"))))),
        ("The agent's part", kept.get("agent_missing") and f"none: {kept['agent_missing']}"),
        ("Console in the store", kept.get("console")),
        ("Cut to keep it small", ", ".join(map(str, _list(agent.get("trimmed"))))),
    ]
    return {
        "attempt": kept["attempt"],
        "cause": kept.get("cause") or "unknown",
        "rows": _rows(rows),
        "more": _rows(more),
        "end_readings": [ansi.shown(str(one)) for one in _list(readings.get("end"))],
        "release_readings": [ansi.shown(str(one)) for one in _list(readings.get("release"))],
        "stacks": _stacks(_mapping(agent.get("stall"))),
        "processes": [_process(_mapping(one)) for one in _list(agent.get("processes"))[:PROCESSES]],
        "telemetry": _pretty(_mapping(beat.get("telemetry")) or _mapping(agent.get("telemetry"))),
        "tail": tail,
        "last_lines": tail[-LAST_LINES:],
    }


def _rows(told: Sequence[tuple[str, object]]) -> list[tuple[str, Markup]]:
    return [(label, ansi.shown(str(value))) for label, value in told if value]


def _exit(end: Mapping[str, Any]) -> str:
    if not end:
        return ""
    number, ran = end.get("signal"), end.get("ran_s")
    parts = [f"code {end.get('code')}" if number is None else _signal(number)]
    if number is not None or end.get("sent_by_us"):
        parts.append("sent by us" if end.get("sent_by_us") else "not sent by us")
    if isinstance(ran, int | float):
        parts.append(f"after {age_text(ran)}")
    return ", ".join(parts)


def _signal(number: object) -> str:
    try:
        return signal.Signals(number).name  # type: ignore[arg-type]
    except ValueError:
        return f"signal {number}"


def _memory(kept: Json, agent: Mapping[str, Any], end: Mapping[str, Any]) -> str:
    kills = end.get("oom_kills", agent.get("oom_kills"))
    killed = end.get("signal") is not None or end.get("code") == 137
    told = []
    if isinstance(kills, int) or killed:
        told.append("kills for memory: " + (str(kills) if isinstance(kills, int) else "not countable here"))
    telemetry = _mapping(_mapping(kept.get("beat")).get("telemetry")) or _mapping(agent.get("telemetry"))
    group = _mapping(telemetry.get("cgroup"))
    used, most = group.get("memory_bytes"), group.get("memory_max_bytes")
    if isinstance(used, int | float) and isinstance(most, int | float):
        told.append(f"{gib_text(used)} of {gib_text(most)} GiB at the last look")
    return "; ".join(told)


def _disk(end: Mapping[str, Any], agent: Mapping[str, Any]) -> str:
    if end.get("disk_full"):
        return f"full: {end['disk_full']}"
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
    return f"{beat.get('at')}, phase {beat.get('phase')}{at}" + (
        f", {beat['message']}" if beat.get("message") else ""
    )


def _machine(machine: Mapping[str, Any]) -> str:
    return " · ".join(str(machine[name]) for name in ("name", "zone", "shape") if machine.get(name))


def _boot(boot: Mapping[str, Any]) -> str:
    if not boot or boot.get("at_start") == boot.get("now"):
        return ""
    return f"{boot.get('now')}; it was {boot.get('at_start')} at the start: the machine was rebooted"


def _stacks(stall: Mapping[str, Any]) -> list[Json]:
    """Of each process: a title, and where its threads stood."""
    found, left = [], STACK_LINES
    for dump in map(_mapping, _list(stall.get("threads"))):
        lines = [line for line in str(dump.get("text", "")).splitlines() if line.strip()]
        shown = [ansi.shown(line) for line in lines[:left]]
        left -= len(shown)
        title = ansi.shown(f"Process {dump.get('pid')} ({dump.get('how')}): {dump.get('command')}")
        found.append({"title": title, "lines": shown, "more": len(lines) - len(shown)})
    return found


def _process(one: Mapping[str, Any]) -> Json:
    memory = one.get("rss_bytes")
    return {
        "pid": ansi.shown(str(one.get("pid", ""))),
        "state": ansi.shown(str(one.get("state", ""))),
        "memory": size_text(int(memory)) if isinstance(memory, int | float) else "",
        "command": ansi.shown(str(one.get("command", ""))),
    }


def _pretty(told: Mapping[str, Any]) -> list[Markup]:
    if not told:
        return []
    return [ansi.shown(line) for line in json.dumps(told, indent=1)[:JSON_CHARS].splitlines()]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
