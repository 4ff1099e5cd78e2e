"""What is kept of an attempt's end, in words that the command line and the pages share.

What an agent wrote is believed in nothing: fields may be missing or of another kind. What comes out holds its text as
it stands: whoever shows it makes it harmless.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.wording.figures import age_text, count_text, gib_text

# Ends that nobody asks "why" of: what the command did is not their cause.
UNREMARKABLE = frozenset({"finished", "preempted", "stop_requested", "superseded", "expired"})

Told = Mapping[str, Any]


def mapping(value: object) -> Told:
    return value if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def last_failure(attempts: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The newest attempt that is over, if its end is one that people ask about."""
    over = [one for one in attempts if one.get("ended_at") is not None]
    return over[-1] if over and over[-1].get("cause") not in UNREMARKABLE else None


def exit_words(end: Told) -> str:
    """`SIGKILL, not sent by us, after 3 min`"""
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


def kills_of(end: Told, agent: Told) -> int | None:
    """How often the kernel killed for memory; None = nobody could count."""
    kills = end.get("oom_kills", agent.get("oom_kills"))
    return kills if isinstance(kills, int) else None


def kills_words(kills: int | None) -> str:
    return f"kills for memory: {'not countable here' if kills is None else kills}"


def telemetry_of(kept: Told) -> Told:
    """Of the last beat, else of the agent's part."""
    return mapping(mapping(kept.get("beat")).get("telemetry")) or mapping(
        mapping(kept.get("agent")).get("telemetry")
    )


def memory_words(kept: Told) -> str:
    """`22.5 of 24 GiB at the last look`; "" = not told."""
    group = mapping(telemetry_of(kept).get("cgroup"))
    used, most = group.get("memory_bytes"), group.get("memory_max_bytes")
    if not (isinstance(used, int | float) and isinstance(most, int | float)):
        return ""
    return f"{gib_text(used)} of {gib_text(most)} GiB at the last look"


def disk_words(end: Told, agent: Told) -> str:
    if end.get("disk_full"):
        return f"full: {end['disk_full']}"
    told = []
    for role, figures in mapping(agent.get("disks")).items():
        free, inodes = mapping(figures).get("free_bytes"), mapping(figures).get("free_inodes")
        if isinstance(free, int | float):
            more = f", {count_text(int(inodes))} inodes" if isinstance(inodes, int | float) else ""
            told.append(f"{role}: {gib_text(free)} GiB{more} free")
    return "; ".join(told)


def beat_words(beat: Told, at: str) -> str:
    """`at`: its time as it is to be shown."""
    if not beat:
        return ""
    step = beat.get("step")
    reached = f", step {count_text(step)}" if isinstance(step, int) else ""
    message = f", {beat['message']}" if beat.get("message") else ""
    return f"{at}, phase {beat.get('phase')}{reached}{message}"
