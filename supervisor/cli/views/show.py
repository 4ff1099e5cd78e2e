"""What `spot show` tells of one run beside its sentence. Pure: JSON to lines.

Below the attempts: the machines they had, the last beat, where the files lie (the older runner's summary told the same
three: manifest, heartbeat, instance history); and the spec.

`--evidence`: why an attempt ended, on what that rests, and its last words. What an agent wrote is believed in nothing
(wording/attempt.py), and is made harmless for a terminal here.

`--facts`: what a paper needs, in one block; then the attempts; then where attempts differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from supervisor.cli.client import Json
from supervisor.cli.output import Table, clock, safe, table
from supervisor.domain.texts import HIDDEN
from supervisor.wording import attempt as evidence_words
from supervisor.wording.attempt import (
    beat_words,
    disk_words,
    exit_words,
    kills_of,
    kills_words,
    listed,
    mapping,
    memory_words,
)
from supervisor.wording.figures import DASH, count, duration, fact_text, plural

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
    parts = [kills_words(kills_of(end, agent)), memory_words(kept)]
    return "; ".join(filter(None, parts)) if end or agent else ""


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
        lines.append(f"  threads of process {dump.get('pid')} ({dump.get('how')}): {safe(dump.get('command'))}")
        lines += [f"    {_one_line(line)}" for line in str(dump.get("text", "")).splitlines() if line.strip()]
    if len(lines) > limit:
        lines = [*lines[:limit], f"    … {plural(len(lines) - limit, 'more line')}: spot show RUN --evidence"]
    return lines


def _one_line(text: str) -> str:
    """Indented as it was: stacks are read by their shape."""
    return " " * (len(text) - len(text.lstrip())) + safe(text.strip())


def _row(label: str, value: object) -> list[str]:
    return [f"  {label:<13} {safe(value)}"] if value else []


SHOWN = 5


def machine_lines(attempts: Sequence[Json]) -> list[str]:
    """`machines: 1 spot-…-a1-t1 (g2-standard-8) in us-east1-c, gone 02:14:02 · 2 …`: the newest few, by attempt. Their
    shape stands here where the table of attempts names the GPU instead."""
    named = [attempt for attempt in attempts if attempt.get("machine")]
    if not named:
        return []
    left_out = len(named) - SHOWN
    parts = [f"{plural(left_out, 'earlier one')} in instances/"] if left_out > 0 else []
    return ["machines: " + " · ".join([*parts, *map(_machine, named[-SHOWN:])])]


def _machine(attempt: Json) -> str:
    place = attempt.get("placement") or {}
    zone, shape = safe(place.get("zone") or "?"), f" ({safe(place['shape'])})" if place.get("gpu") else ""
    if attempt.get("gone_at"):
        ended = f", gone {clock(attempt['gone_at'])}"
    else:
        ended = ", not known gone yet" if attempt.get("ended_at") else ""
    return f"{attempt['number']} {safe(attempt['machine'])}{shape} in {zone}{ended}"


def account_lines(run: Json) -> list[str]:
    """Whose machines these are, by name and number, and how to see the same ones: a cloud's own tools show
    those of whatever account they were last told."""
    account = run.get("account") or {}
    if not account.get("console_url"):
        return []
    name, number = safe(account["name"]), account.get("number")
    noun = f"{safe(account['noun'])} " if account.get("noun") else ""
    whose = f"{noun}{name}" + (f" (number {safe(number)})" if number else "")
    tool = f" · {safe(account['tool'])}" if account.get("tool") else ""
    return [f"in {whose}: {safe(account['console_url'])}{tool}"]


def beat_lines(run: Json) -> list[str]:
    """`last beat 8 s ago, phase training, step 12,300 of 50,000, checkpoint 12,000`; nothing where no attempt lives."""
    beat, progress = run.get("beat"), run.get("progress") or {}
    if not beat:
        return []
    parts = [f"last beat {duration(beat.get('age_s'))} ago", f"phase {safe(beat.get('phase') or '?')}"]
    if progress.get("step") is not None:
        total = f" of {count(progress['total'])}" if progress.get("total") else ""
        parts.append(f"step {count(progress['step'])}{total}")
    if run.get("checkpoint_step") is not None:
        parts.append(f"checkpoint {count(run['checkpoint_step'])}")
    return [", ".join(parts)]


def files_lines(run: Json) -> list[str]:
    """Where the manifest and the instance history are, or will be."""
    return [f"files {safe(run['files_url'])}"] if run.get("files_url") else []


def spec_text(spec: Json) -> str:
    """The spec as a file that `spot submit FILE` takes."""
    import yaml

    def text(allow_unicode: bool) -> str:
        form = yaml.safe_dump(spec, sort_keys=False, allow_unicode=allow_unicode, default_flow_style=False)
        return str(form)

    return text(False) if HIDDEN.search(text(True)) else text(True)  # YAML's own escapes: it can be submitted again


NONE = "none"
HASH_CHARS = 12
# Label -> fact, in the order of a methods section.
BLOCK = (
    ("command", "command"), ("code", "code"), ("image", "image_digest"), ("python", "python"),
    ("", "python_executable"), ("conda", "conda_env"), ("venv", "virtual_env"), ("torch", "torch"), ("CUDA", "cuda"),
    ("cuDNN", "cudnn"), ("driver", "driver"), ("GPUs", "gpus"), ("packages", "packages"), ("seeds", "seeds"),
    ("tracker", "tracker_url"), ("CPU", "cpu"), ("cores", "cores"), ("memory", "memory_bytes"), ("kernel", "kernel"),
)  # fmt: skip


def facts_lines(answer: Json) -> list[str]:
    """Of the answer of GET /v1/runs/{id}/facts."""
    attempts: Sequence[Json] = answer["attempts"]
    described = [attempt for attempt in attempts if attempt.get("facts") is not None]
    lines = (
        _block(described[-1])
        if described
        else ["No facts are known yet: an attempt notes them when its command starts."]
    )
    if attempts:
        lines += ["", *table(FACTS, attempts)]
    if len(described) > 1:
        differing = [line for row in answer["differs"] for line in _difference(row)]
        lines += ["", "Attempts that differ"] + (differing or ["none: all attempts ran on the same facts"])
    return lines


def _block(attempt: Json) -> list[str]:
    facts = attempt["facts"]
    absent = facts.get("absent")
    reasons: Mapping[str, Any] = absent if isinstance(absent, Mapping) else {}
    lines = [f"Facts of attempt {attempt['attempt']}"]
    for label, name in BLOCK:
        if name in facts:
            lines.append(f"  {label:<9} {safe(_fact_text(facts, name))}")
        elif name in reasons and label:
            lines.append(f"  {label:<9} not known: {safe(reasons[name])}")
    return lines


def _fact_text(facts: Json, name: str) -> str:
    value = facts[name]
    if name == "packages":
        number = count(len(value)) if isinstance(value, list) else DASH
        cut = f"; {facts['packages_note']}" if facts.get("packages_note") else ""
        return f"{number}, sha256 {facts.get('packages_sha256', DASH)}{cut}"
    if name == "seeds" and isinstance(value, Mapping):
        return ", ".join(f"{key}={seed}" for key, seed in value.items()) or NONE
    if name == "memory_bytes" and isinstance(value, int | float):
        return f"{value / 2**30:.1f} GiB"
    if name == "command" and isinstance(value, list):
        return " ".join(map(str, value))
    return _text(value)


def _text(value: object) -> str:
    return fact_text(value) or NONE


def _fact(name: str) -> Callable[[Json], str]:
    def cell(attempt: Json) -> str:
        facts = attempt.get("facts") or {}
        if name not in facts:
            return DASH
        text = _text(facts[name])
        return safe(text[:HASH_CHARS] if name in ("code", "packages_sha256") else text)

    return cell


FACTS: Table = {
    "#": lambda attempt: str(attempt["attempt"]),
    "ENDED BY": lambda attempt: safe(attempt.get("cause") or DASH),
    "CODE": _fact("code"),
    "PYTHON": _fact("python"),
    "TORCH": _fact("torch"),
    "DRIVER": _fact("driver"),
    "GPUS": _fact("gpus"),
    "PACKAGES": _fact("packages_sha256"),
}


def _difference(row: Json) -> list[str]:
    head = f"attempt {row['attempt']} (against {row['against']})  {safe(row['fact'])}"
    packages = row.get("packages")
    if packages is None:
        return [f"{head}: {safe(row['was'] or NONE)} → {safe(row['is'] or NONE)}"]
    lines = [f"{head}:"]
    lines += [f"    {safe(change['was'])} → {safe(change['is'])}" for change in packages["changed"]]
    lines += [f"    + {safe(line)}" for line in packages["added"]]
    lines += [f"    - {safe(line)}" for line in packages["removed"]]
    if packages["left_out"]:
        lines.append(f"    and {plural(packages['left_out'], 'more package')}")
    return lines
