"""Blocks of an event stream (HTML standard, section Server-sent events): those of the API read, ours written.

Scripts hear of nothing that has no data: so what the API says as a comment or as a bare id goes on as an event `ping`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

KEPT_BYTES = 64 * 1024  # a larger piece is one of a listener that is behind: nobody else gets the same
KEPT = 64
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Told:
    """One piece of the API's stream. `runs`: that changed, each with its last event. `looks`: it holds anything that a
    page could show. `aside`: what goes to every page as it is: pings, and how soon to come back."""

    runs: Mapping[str, str] = field(default_factory=dict)
    last_id: str = ""
    looks: bool = False
    aside: bytes = b""


def told(piece: bytes) -> Told:
    """Whole blocks. The API sends the same piece to all who listen to the same."""
    return _kept(piece) if len(piece) <= KEPT_BYTES else _read(piece)


def _read(piece: bytes) -> Told:
    runs: dict[str, str] = {}
    last_id, looks, aside = "", False, b""
    for block in piece.decode().split("\n\n"):
        fields = dict(_field(line) for line in block.split("\n"))
        block_id = fields.get("id", "")
        last_id = block_id or last_id
        if "data" in fields:
            looks = True
            run_id = json.loads(fields["data"]).get("run_id")
            if run_id:
                runs[run_id] = block_id
        elif block_id:
            aside += framed("ping", ".", block_id)
        elif "retry" in fields:
            aside += f"retry: {fields['retry']}\n\n".encode()
        elif fields.get(""):
            aside += f": {fields['']}\n\n".encode()
    return Told(runs, last_id, looks, aside)


_kept = lru_cache(KEPT)(_read)


def _field(line: str) -> tuple[str, str]:
    """ "" = a comment, or nothing."""
    name, _, value = line.partition(":")
    return name, value.removeprefix(" ")


def framed(event: str, data: str, block_id: str = "") -> bytes:
    lines = [f"event: {event}", *(f"data: {line}" for line in _LINE_END.split(data))]
    if block_id:
        lines.append(f"id: {block_id}")
    return ("\n".join(lines) + "\n\n").encode()


@lru_cache(KEPT)
def look(last_id: str, spread_ms: int) -> bytes:
    return framed("look", str(spread_ms), last_id)
