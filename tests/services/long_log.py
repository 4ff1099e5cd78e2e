"""A log of many short lines in a folder store, made cheaply: of a million lines only the first is unlike the others."""

from __future__ import annotations

from supervisor.contract import runfiles
from supervisor.ports.objectstore import ObjectStore

LINE = b"--------\n"
IN_CHUNK = 1_000_000


def write(objects: ObjectStore, run_id: str, lines: int, odd: dict[int, bytes]) -> None:
    """The log of attempt 1. `odd`: line number -> text, as long as the other lines."""
    for sequence in range(lines // IN_CHUNK):
        first = sequence * IN_CHUNK + 1
        chunk = bytearray(LINE * IN_CHUNK)
        for number, text in {first: b"%08d" % first, **odd}.items():
            if first <= number < first + IN_CHUNK:
                at = (number - first) * len(LINE)
                chunk[at : at + len(LINE) - 1] = text
        objects.put(runfiles.log_chunk(run_id, 1, sequence), bytes(chunk))
