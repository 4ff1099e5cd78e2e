"""Facts that the agents noted of each attempt (versions, packages, cards, seeds), and where two attempts differ.

Facts come from a machine on which a user's training runs, so they may be any bytes: another shape is no facts. Facts
that are accepted can be written again, returned by the API and shown: they have a limited depth, no number that JSON
cannot express (1e999 is read as infinity) or no figure can have (a whole number of 400 digits), and no text that is no
UTF-8 (half a surrogate pair). A missing fact was not determined and differs from nothing; null was
determined: there is none. Differing packages are listed one by one, because "the hash differs" helps nobody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.wording.attempt import FACT_CHARS, fact_text

Facts = Mapping[str, Any]
Row = dict[str, Any]

DEPTH = 12
DIGITS = 19  # of a whole number
MAX_BYTES = 262_144  # twice what an agent writes
ATTEMPTS_READ = 200  # the newest
PACKAGES_SHOWN = 20
# In the order in which a reader looks for causes.
COMPARED = (
    "code", "code_tree", "image_digest", "command", "packages", "python", "python_executable", "conda_env",
    "virtual_env", "torch", "cuda", "cudnn", "driver", "gpus", "cpu", "cores", "kernel", "seeds", "tracker_url",
)  # fmt: skip
_EGG = re.compile(r"#egg=([^&]+)$")


def read_object(raw: bytes, max_bytes: int, depth: int = DEPTH) -> dict[str, Any] | None:
    """None for anything that our agent does not write: torn, too large, too deep, or no JSON object."""
    if len(raw) > max_bytes:
        return None
    try:
        document = json.loads(raw, parse_int=_whole)
        json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and not _deeper(document, depth) else None


def _whole(text: str) -> int:
    if len(text) > DIGITS:
        raise ValueError("no agent counts so far")
    return int(text)


def _deeper(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(item, levels - 1) for item in inside)


def parse(raw: bytes) -> dict[str, Any] | None:
    """None for anything that our agent does not write."""
    return read_object(raw, MAX_BYTES)


def differences(noted: Sequence[tuple[int, Facts | None]]) -> list[Row]:
    """`noted`: (attempt, facts) in order. Each attempt is compared with the last one before it whose facts are known.

    A row: `attempt`, `against`, `fact`, `was`, `is` (texts; null = there was none), and for `packages` which ones.
    """
    rows: list[Row] = []
    before: tuple[int, Facts] | None = None
    for attempt, facts in noted:
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
    return {"fact": fact, "was": fact_text(was), "is": fact_text(now), "packages": packages}


def _seeds(was: object, now: object) -> list[Row]:
    if not isinstance(was, Mapping) or not isinstance(now, Mapping):
        return []
    names = sorted({*was, *now})
    return [
        _row(f"seed {name}"[:FACT_CHARS], was.get(name), now.get(name))
        for name in names
        if was.get(name) != now.get(name)
    ]


def _packages(was: Facts, now: Facts) -> list[Row]:
    hashes = was.get("packages_sha256"), now.get("packages_sha256")
    if None in hashes or hashes[0] == hashes[1]:
        return []
    whole = not was.get("packages_note") and not now.get("packages_note")
    changes = _changes(_by_name(was.get("packages")), _by_name(now.get("packages"))) if whole else None
    return [_row("packages", *hashes, changes)]


def _changes(was: Mapping[str, str], now: Mapping[str, str]) -> Row:
    """At most PACKAGES_SHOWN packages in all; `left_out` counts the others."""
    both = sorted({*was} & {*now})
    all_of: dict[str, list[Any]] = {
        "changed": [{"was": was[name], "is": now[name]} for name in both if was[name] != now[name]],
        "added": [now[name] for name in sorted({*now} - {*was})],
        "removed": [was[name] for name in sorted({*was} - {*now})],
    }
    room = PACKAGES_SHOWN
    row: Row = {"left_out": max(0, sum(map(len, all_of.values())) - room)}
    for name, lines in all_of.items():
        row[name] = lines[:room]
        room -= len(row[name])
    return row


def _by_name(lines: object) -> dict[str, str]:
    """Normalized name -> line of `pip freeze`."""
    packages = {}
    for line in lines if isinstance(lines, list) else ():
        if isinstance(line, str):
            egg = _EGG.search(line)
            name = egg.group(1) if egg else re.split(r"==| @ ", line, maxsplit=1)[0]
            packages[re.sub(r"[-_.]+", "-", name).lower()] = line[:FACT_CHARS]
    return packages
