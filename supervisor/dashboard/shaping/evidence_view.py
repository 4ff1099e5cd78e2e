"""The evidence of an attempt, as people read it: why, on what that rests, and its last words.

What an agent wrote is believed in nothing (wording/evidence_words.py), and every text is made harmless here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from supervisor.dashboard.shaping import ansi
from supervisor.wording.evidence_words import (
    beat_words,
    disk_words,
    exit_words,
    kills_of,
    kills_words,
    listed,
    mapping,
    memory_words,
    telemetry_of,
)
from supervisor.wording.figures import size_text

LAST_LINES, STACK_LINES, PROCESSES, JSON_CHARS = 15, 400, 50, 60_000

Json = dict[str, Any]


def view(kept: Json) -> Json:
    """What the templates show."""
    agent = mapping(kept.get("agent"))
    end = mapping(kept.get("exit")) or mapping(agent.get("exit"))
    tail = [ansi.shown(str(line)) for line in listed(kept.get("log_tail"))]
    beat, readings = mapping(kept.get("beat")), mapping(kept.get("readings"))
    rows = [
        ("Why", kept.get("detail")),
        ("Exit", exit_words(end)),
        ("Most telling line", end.get("last_line")),
        ("Memory", _memory(kept, agent, end)),
        ("Disk", disk_words(end, agent)),
        ("Ended by the agent", agent.get("left")),
    ]
    more = [
        ("Last beat", beat_words(beat, str(beat.get("at")))),
        ("Machine", _machine(mapping(kept.get("machine")))),
        ("Boot", _boot(mapping(agent.get("boot")))),
        ("Signals sent", ", ".join(map(str, listed(agent.get("signals_sent"))))),
        ("The agent's part", kept.get("agent_missing") and f"none: {kept['agent_missing']}"),
        ("Console in the store", kept.get("console")),
        ("Cut to keep it small", ", ".join(map(str, listed(agent.get("trimmed"))))),
    ]
    return {
        "attempt": kept["attempt"],
        "cause": kept.get("cause") or "unknown",
        "rows": _rows(rows),
        "more": _rows(more),
        "end_readings": [ansi.shown(str(one)) for one in listed(readings.get("end"))],
        "release_readings": [ansi.shown(str(one)) for one in listed(readings.get("release"))],
        "stacks": _stacks(mapping(agent.get("stall"))),
        "processes": [_process(mapping(one)) for one in listed(agent.get("processes"))[:PROCESSES]],
        "telemetry": _pretty(telemetry_of(kept)),
        "tail": tail,
        "last_lines": tail[-LAST_LINES:],
    }


def _rows(told: Sequence[tuple[str, object]]) -> list[tuple[str, Markup]]:
    return [(label, ansi.shown(str(value))) for label, value in told if value]


def _memory(kept: Json, agent: Mapping[str, Any], end: Mapping[str, Any]) -> str:
    kills = kills_of(end, agent)
    killed = end.get("signal") is not None or end.get("code") == 137
    told = [kills_words(kills) if killed or kills is not None else "", memory_words(kept)]
    return "; ".join(filter(None, told))


def _machine(machine: Mapping[str, Any]) -> str:
    return " · ".join(str(machine[name]) for name in ("name", "zone", "shape") if machine.get(name))


def _boot(boot: Mapping[str, Any]) -> str:
    if not boot or boot.get("at_start") == boot.get("now"):
        return ""
    return f"{boot.get('now')}; it was {boot.get('at_start')} at the start: the machine was rebooted"


def _stacks(stall: Mapping[str, Any]) -> list[Json]:
    """Of each process: a title, and where its threads stood."""
    found, left = [], STACK_LINES
    for dump in map(mapping, listed(stall.get("threads"))):
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
