"""What the agents noted of each attempt (versions, packages, cards, seeds), and where two attempts differ.

Facts come from the machine on which somebody's training runs, so they are read as anything from outside: another shape
is no facts. A fact that is missing was not found out and differs from nothing; null was found out: there is none.
Differing packages are told one by one, because "the hash differs" helps nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.lifecycle.evidence.foreign_json import read_object

Facts = Mapping[str, Any]
Row = dict[str, Any]

MAX_BYTES = 262_144  # twice what an agent writes
ATTEMPTS_READ = 200  # the newest
PACKAGES_TOLD = 20
TEXT_CHARS = 300
# In the order in which a reader looks for causes.
COMPARED = (
    "code", "image_digest", "command", "packages", "python", "python_executable", "conda_env", "virtual_env", "torch",
    "cuda", "cudnn", "driver", "gpus", "cpu", "cores", "kernel", "seeds", "tracker_url",
)  # fmt: skip
_EGG = re.compile(r"#egg=([^&]+)$")


def parse(raw: bytes) -> dict[str, Any] | None:
    """None for what no agent of ours writes."""
    return read_object(raw, MAX_BYTES)


def differences(known: Sequence[tuple[int, Facts | None]]) -> list[Row]:
    """Of (attempt, facts) in order: each attempt against the last one before it whose facts are known.

    A row: `attempt`, `against`, `fact`, `was`, `is` (texts; null = there was none), and for `packages` which ones.
    """
    rows: list[Row] = []
    before: tuple[int, Facts] | None = None
    for attempt, facts in known:
        if facts is None:
            continue
        if before is not None:
            rows += [{"attempt": attempt, "against": before[0], **row} for row in _compare(before[1], facts)]
        before = (attempt, facts)
    return rows


def _compare(was: Facts, now: Facts) -> list[Row]:
    rows: list[Row] = []
    for fact in COMPARED:
        if fact == "packages":
            rows += _packages(was, now)
        elif fact == "seeds":
            rows += _seeds(was.get("seeds"), now.get("seeds"))
        elif fact in was and fact in now and was[fact] != now[fact]:
            rows.append(_row(fact, was[fact], now[fact]))
    return rows


def _row(fact: str, was: object, now: object, packages: Row | None = None) -> Row:
    return {"fact": fact, "was": as_text(was), "is": as_text(now), "packages": packages}


def _seeds(was: object, now: object) -> list[Row]:
    if not isinstance(was, Mapping) or not isinstance(now, Mapping):
        return []
    names = sorted({*was, *now})
    return [
        _row(f"seed {name}"[:TEXT_CHARS], was.get(name), now.get(name))
        for name in names
        if was.get(name) != now.get(name)
    ]


def _packages(was: Facts, now: Facts) -> list[Row]:
    hashes = was.get("packages_sha256"), now.get("packages_sha256")
    if None in hashes or hashes[0] == hashes[1]:
        return []
    whole = not was.get("packages_note") and not now.get("packages_note")
    told = _changes(_by_name(was.get("packages")), _by_name(now.get("packages"))) if whole else None
    return [_row("packages", *hashes, told)]


def _changes(was: Mapping[str, str], now: Mapping[str, str]) -> Row:
    """At most PACKAGES_TOLD in all; `left_out` counts the others."""
    both = sorted({*was} & {*now})
    all_of: dict[str, list[Any]] = {
        "changed": [{"was": was[name], "is": now[name]} for name in both if was[name] != now[name]],
        "added": [now[name] for name in sorted({*now} - {*was})],
        "removed": [was[name] for name in sorted({*was} - {*now})],
    }
    room = PACKAGES_TOLD
    told: Row = {"left_out": max(0, sum(map(len, all_of.values())) - room)}
    for name, lines in all_of.items():
        told[name] = lines[:room]
        room -= len(told[name])
    return told


def _by_name(lines: object) -> dict[str, str]:
    """Normalised name -> line of `pip freeze`."""
    found = {}
    for line in lines if isinstance(lines, list) else ():
        if isinstance(line, str):
            egg = _EGG.search(line)
            name = egg.group(1) if egg else re.split(r"==| @ ", line, maxsplit=1)[0]
            found[re.sub(r"[-_.]+", "-", name).lower()] = line[:TEXT_CHARS]
    return found


def as_text(value: object) -> str | None:
    """One fact for people: `2 x NVIDIA L4`; None stays None."""
    if value is None:
        return None
    if isinstance(value, list) and value and len(set(map(str, value))) == 1 and len(value) > 1:
        return f"{len(value)} x {value[0]}"[:TEXT_CHARS]
    if isinstance(value, list):
        return ", ".join(map(str, value))[:TEXT_CHARS] or None
    return str(value)[:TEXT_CHARS]
