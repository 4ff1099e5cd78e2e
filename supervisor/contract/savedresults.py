"""The results of a run at one moment, as one small object: which files there were, and where their content lies.

Shared with the agent: Python 3.8, standard library only. A pointer of the baton names this object together with the
checkpoint of the same moment, so a restore brings both or neither. Contents are stored once and shared by all
manifests that name them. A file that could not be saved stands in `left_out` with the reason; where an older content
of it was in the store, `files` still has that one.

One hash for a set of results: who has the same files, by name, size and content, has the same hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Optional, Tuple

from supervisor.contract.baton import FileEntry


def manifest_sha256(files: Iterable[FileEntry]) -> str:
    """Names are relative to the results folder; the order of the files does not matter."""
    rows = sorted((asdict(entry) for entry in files), key=lambda row: str(row["name"]))
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class SavedFile:
    """`name`: relative to the results folder, as os.fsdecode gives it; it may hold lone surrogates."""

    name: str
    size: int
    sha256: str
    key: str


@dataclass(frozen=True)
class LeftOut:
    name: str
    why: str


@dataclass(frozen=True)
class SavedResults:
    """`step`: of the checkpoint of the same moment; at the end of an attempt the last step reported. `folders`: those
    that hold no file."""

    attempt: int
    step: Optional[int]
    files: Tuple[SavedFile, ...]
    folders: Tuple[str, ...] = ()
    left_out: Tuple[LeftOut, ...] = ()


def encode(saved: SavedResults) -> bytes:
    """The same results give the same bytes."""
    return json.dumps(asdict(saved), indent=1, sort_keys=True).encode("ascii")


def decode(raw: bytes) -> SavedResults:
    """ValueError when it is torn or not such an object."""
    try:
        data = json.loads(raw)
        return SavedResults(
            attempt=int(data["attempt"]),
            step=None if data["step"] is None else int(data["step"]),
            files=tuple(
                SavedFile(str(row["name"]), int(row["size"]), str(row["sha256"]), str(row["key"]))
                for row in data["files"]
            ),
            folders=tuple(str(name) for name in data["folders"]),
            left_out=tuple(LeftOut(str(row["name"]), str(row["why"])) for row in data["left_out"]),
        )
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError("not a manifest of results: %s" % error) from None
