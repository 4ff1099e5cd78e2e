"""One hash for a set of results: who has the same files, by name, size and content, has the same hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict

from supervisor.contract.baton import FileEntry


def manifest_sha256(files: Iterable[FileEntry]) -> str:
    """Names are relative to the results folder; the order of the files does not matter."""
    rows = sorted((asdict(entry) for entry in files), key=lambda row: str(row["name"]))
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
