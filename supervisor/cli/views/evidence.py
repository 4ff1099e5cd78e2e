"""`spot show RUN --evidence`: why an attempt ended, on what that rests, and its last words. Pure: JSON to lines.

What an agent wrote is believed in nothing (wording/evidence_words.py), and is made harmless for a terminal here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.cli.client import Json
from supervisor.cli.words import safe
from supervisor.wording import evidence_words
from supervisor.wording.evidence_words import (
    beat_words,
    disk_words,
    exit_words,
    kills_of,
    kills_words,
    listed,
    mapping,
    memory_words,
)
from supervisor.wording.figures import DASH, plural

BRIEF_LINES, BRIEF_STACK = 5, 12
STACK_LINES = 200
_SECONDS = re.compile(r"\.\d+(?=Z$)")  # nobody reads a beat's microseconds


def evidence_lines(kept: Json, brief: bool = False) -> list[str]:
    """All that is kept of an attempt; `brief`: what one needs at a glance."""
    agent = mapping(kept.get("agent"))
    lines = [f"Evidence of attempt {kept['attempt']}: {safe(kept.get('cause') or DASH)}"]
    lines += _row("why", kept.get("detail")) + _row(
        "exit", exit_words(mapping(kept.get("exit")) or mapping(agent.get("exit")))
    )
    lines += _row("memory", _memory(kept, agent)) + _row("disk", disk_words(mapping(kept.get("exit")), agent))
    if not brief:
        lines += _row("beat", _beat(mapping(kept.get("beat")))) + _row("boot", _boot(agent))
        for name in ("end", "release"):
            for reading in listed(mapping(kept.get("readings")).get(name)):
                lines += _row(f"read, {name}", reading)
        lines += _row("console", kept.get("console"))
        lines += _row("agent", kept.get("agent_missing") and f"no part: {kept['agent_missing']}")
    lines += _stacks(agent, BRIEF_STACK if brief else STACK_LINES)
    tail = listed(kept.get("log_tail"))
    shown = tail[-BRIEF_LINES:] if brief else tail
    if shown:
        lines += [f"  last {plural(len(shown), 'line')} of the log", *(f"    {safe(line)}" for line in shown)]
    return lines


def last_failure(attempts: Sequence[Json]) -> int | None:
    """The number of the newest attempt that is over, if its end is one that people ask about."""
    failed = evidence_words.last_failure(attempts)
    return None if failed is None else failed["number"]


def _memory(kept: Json, agent: Mapping[str, Any]) -> str:
    end = mapping(kept.get("exit"))
    told = [kills_words(kills_of(end, agent)), memory_words(kept)]
    return "; ".join(filter(None, told)) if end or agent else ""


def _beat(beat: Mapping[str, Any]) -> str:
    return beat_words(beat, _SECONDS.sub("", str(beat.get("at"))))


def _boot(agent: Mapping[str, Any]) -> str:
    boot = mapping(agent.get("boot"))
    if not boot:
        return ""
    same = boot.get("at_start") == boot.get("now")
    return f"{boot.get('now')}" + ("" if same else f"; it was {boot.get('at_start')} at the start")


def _stacks(agent: Mapping[str, Any], limit: int) -> list[str]:
    stall = mapping(agent.get("stall"))
    lines = []
    for dump in map(mapping, listed(stall.get("threads"))):
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


def _row(label: str, value: object) -> list[str]:
    return [f"  {label:<13} {safe(value)}"] if value else []
