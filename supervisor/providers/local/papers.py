"""One paper: a JSON object in a file, written by rename and read whole, or known to be unreadable."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Unreadable(Exception):
    """A paper or folder is there, or may be, and cannot be read. Says nothing about the machine."""


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in `path`, None when there is no such file; Unreadable for everything else."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise Unreadable(f"{path} does not hold a JSON object")
    return data


def write_json(path: Path, data: Mapping[str, object]) -> None:
    """Write by rename, for this user's eyes only: a reader sees the old paper or the new one."""
    descriptor, half_made = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        Path(half_made).replace(path)
    except BaseException:
        Path(half_made).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def private(path: str, flags: int) -> int:
    """An opener for files of ours: for this user's eyes only, and through no link that somebody laid in its place."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def sync_folder(path: Path) -> None:
    """Make renames in this folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
