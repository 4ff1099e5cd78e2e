"""`spot show RUN --facts`: what a paper needs, in one block; then the attempts; then where attempts differ. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.cli.client import Json
from supervisor.cli.output import columns
from supervisor.cli.words import safe
from supervisor.lifecycle.evidence.facts import as_text
from supervisor.wording.figures import DASH, count, plural

NONE = "none"
HASH_CHARS = 12
CELLS = ("code", "python", "torch", "driver", "gpus", "packages_sha256")
TITLES = ("#", "ENDED BY", "CODE", "PYTHON", "TORCH", "DRIVER", "GPUS", "PACKAGES")
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
    known = [one for one in attempts if one.get("facts") is not None]
    lines = (
        _block(known[-1])
        if known
        else ["No facts are known yet: an attempt notes them when its command starts."]
    )
    if attempts:
        lines += ["", *columns(TITLES, [_row(one) for one in attempts])]
    if len(known) > 1:
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
            lines.append(f"  {label:<9} {safe(_value(facts, name))}")
        elif name in reasons and label:
            lines.append(f"  {label:<9} not known: {safe(reasons[name])}")
    return lines


def _value(facts: Json, name: str) -> str:
    value = facts[name]
    if name == "packages":
        number = count(len(value)) if isinstance(value, list) else DASH
        cut = f"; {facts['packages_note']}" if facts.get("packages_note") else ""
        return f"{number}, sha256 {facts.get('packages_sha256', DASH)}{cut}"
    if name == "seeds" and isinstance(value, Mapping):
        return ", ".join(f"{key}={one}" for key, one in value.items()) or NONE
    if name == "memory_bytes" and isinstance(value, int | float):
        return f"{value / 2**30:.1f} GiB"
    if name == "command" and isinstance(value, list):
        return " ".join(map(str, value))
    return as_text(value) or NONE


def _row(attempt: Json) -> list[str]:
    facts = attempt.get("facts") or {}
    return [
        str(attempt["attempt"]),
        safe(attempt.get("cause") or DASH),
        *(_cell(facts, name) for name in CELLS),
    ]


def _cell(facts: Json, name: str) -> str:
    if name not in facts:
        return DASH
    text = as_text(facts[name]) or NONE
    return safe(text[:HASH_CHARS] if name in ("code", "packages_sha256") else text)


def _difference(row: Json) -> list[str]:
    head = f"attempt {row['attempt']} (against {row['against']})  {safe(row['fact'])}"
    packages = row.get("packages")
    if packages is None:
        return [f"{head}: {safe(row['was'] or NONE)} → {safe(row['is'] or NONE)}"]
    lines = [f"{head}:"]
    lines += [f"    {safe(one['was'])} → {safe(one['is'])}" for one in packages["changed"]]
    lines += [f"    + {safe(line)}" for line in packages["added"]]
    lines += [f"    - {safe(line)}" for line in packages["removed"]]
    if packages["left_out"]:
        lines.append(f"    and {plural(packages['left_out'], 'more package')}")
    return lines
