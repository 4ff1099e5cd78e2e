"""A run of the older shell runner, as its folder tells it: gs://BUCKET/runs/RUN_ID. Only read, never written.

Its files were written by shell scripts that could be killed in mid-sentence, so everything is optional and nothing is
believed: a file that is torn, too large or no JSON is a trouble to be told, not an error. What cannot be listed or
read for another reason than not being there is an error: it may hold the checkpoint, or the sign that the run lives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from supervisor.domain.errors import InvalidRequest
from supervisor.ports.objectstore import ObjectInfo, ObjectMissing, ObjectReader
from supervisor.wording.figures import clip, size_text

URL_MAX = 255  # it becomes a label of the run
JSON_BYTES = 1_000_000
NEWEST = 100  # files of events and machines: so many of the newest are read
RECORDS_MAX = 1000  # what they and state.json tell, together: one row of our history each, written at once
LISTED_PAGES = 20
LAST, BEST = "last.pt", "best.pt"
CHECKPOINTS = "checkpoint_sync/checkpoints/"
STATE, HEARTBEAT, MANIFEST = "state.json", "heartbeat.json", "run_manifest.json"
CONFIGS = ("restart_config.json", "run_config.json", MANIFEST)  # what says how to start it; the first that knows wins
STOP, OWNER_LOCK, RESTART_LOCK = ".stop", ".owner.lock", "restart.lock"
LOCKS = (HEARTBEAT, OWNER_LOCK, RESTART_LOCK)
TERMINAL = ("COMPLETE", "FAILED", "PARTIAL", "STOPPED")
SEVERAL = re.compile(r"(instances/[0-9]{1,9}\.json|events/.+)")
_URL = re.compile(r"((?:gs://[^/\s]+|file://)(?:/[^\x00-\x1f\x7f]*?)?)/?runs/([^/\x00-\x1f\x7f]+)/?")

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """Where an old run lies: `root` is the store, `old_id` the run's name there."""

    root: str
    old_id: str

    @property
    def url(self) -> str:
        return f"{self.root}/runs/{self.old_id}"

    @property
    def folder(self) -> str:
        return f"runs/{self.old_id}/"


@dataclass(frozen=True)
class OldRun:
    """`seen`: file -> what the store says of it, for what lies there of the files with a name of their own. `records`:
    file -> what it holds, for events and machines, oldest first, at most RECORDS_MAX together. `left`: of those files,
    how many were not read; `cut`: how many records of those that were read are left out. `now`: the store's clock.
    `troubles`: what could not be understood, a sentence each."""

    place: Place
    seen: Mapping[str, ObjectInfo]
    documents: Mapping[str, Json]
    records: Mapping[str, tuple[Json, ...]]
    left: int
    cut: int
    results: int
    now: float
    troubles: tuple[str, ...]

    @property
    def state(self) -> str:
        """The older runner's word; "" = not told."""
        word = self.documents.get(STATE, {}).get("state")
        return word if isinstance(word, str) and re.fullmatch("[A-Z_]{1,32}", word) else ""

    @property
    def empty(self) -> bool:
        return not self.seen and not self.records and not self.results and self.left == 0


def place_of(url: str) -> Place:
    """Raises InvalidRequest."""
    match = _URL.fullmatch(url) if len(url) <= URL_MAX else None
    root, old_id = (match[1].rstrip("/"), match[2]) if match is not None else ("", "")
    if not root or old_id in (".", "..") or root == "file:" or "\x00" in unquote(root):
        raise InvalidRequest(
            "The address of a run of the older runner is gs://BUCKET/runs/RUN_ID, or file:///FOLDER/runs/RUN_ID for a "
            f"copy of it on this computer; at most {URL_MAX} characters.",
            {},
            [("#/url", "is no such address")],
        )
    return Place(root, old_id)


def read(reader: ObjectReader, place: Place) -> OldRun:
    """Raises StoreUnavailable; ValueError for a name that no store can have."""
    troubles: list[str] = []
    single = {*CONFIGS, STATE, STOP, *LOCKS, CHECKPOINTS + LAST, CHECKPOINTS + BEST}
    seen = {name: info for name in sorted(single) if (info := _stat(reader, place.folder + name)) is not None}
    documents = {
        name: record
        for name in seen
        if name.endswith(".json") and (record := _document(reader, place, name, troubles)) is not None
    }
    several, now = _several(reader, place)
    records, cut = _newest(reader, place, several[-NEWEST:], troubles)
    left = len(several) - len(records)
    return OldRun(place, seen, documents, records, left, cut, _results(reader, place), now, tuple(troubles))


def _stat(reader: ObjectReader, key: str) -> ObjectInfo | None:
    try:
        return reader.stat(key)
    except ObjectMissing:
        return None


def _several(reader: ObjectReader, place: Place) -> tuple[list[str], float]:
    """(files of events and machines, oldest first; the store's time)."""
    files: list[tuple[float, str]] = []
    now = 0.0
    for kind in ("events/", "instances/"):
        for number, page in enumerate(reader.pages(place.folder + kind)):
            now = max(now, page.server_time)
            names = [(info.updated, info.key.removeprefix(place.folder)) for info in page.objects]
            files += [(at, name) for at, name in names if SEVERAL.fullmatch(name)]
            if number + 1 == LISTED_PAGES:
                break
    return [name for _, name in sorted(files)], now


def _newest(
    reader: ObjectReader, place: Place, names: list[str], troubles: list[str]
) -> tuple[dict[str, tuple[Json, ...]], int]:
    """(file -> its newest records; how many older ones are left out). `names`: oldest first, and so is what is found.
    Machines go first: there are few, and each is an attempt."""
    rows_of: dict[str, tuple[Json, ...]] = {}
    room, cut = RECORDS_MAX, 0
    newest_first = names[::-1]
    for name in sorted(newest_first, key=lambda path: not path.startswith("instances/")):
        if room == 0:
            break
        rows = tuple(_records(reader, place, name, troubles))
        rows_of[name] = rows[-room:]
        room -= len(rows_of[name])
        cut += len(rows) - len(rows_of[name])
    return {name: rows_of[name] for name in names if name in rows_of}, cut


def _results(reader: ObjectReader, place: Place) -> int:
    """How many files of results there are; those after the first pages are not counted."""
    pages = zip(range(LISTED_PAGES), reader.pages(place.folder + "results/"), strict=False)
    return sum(len(page.objects) for _, page in pages)


def _document(reader: ObjectReader, place: Place, name: str, troubles: list[str]) -> Json | None:
    documents = list(_records(reader, place, name, troubles))
    return documents[0] if documents else None


def _records(reader: ObjectReader, place: Place, name: str, troubles: list[str]) -> Iterator[Json]:
    """The objects of a JSON file, or of one with an object in each line; what is something else is a trouble."""
    try:
        raw = b"".join(reader.read(place.folder + name, 0, JSON_BYTES + 1))
    except ObjectMissing:
        return
    if len(raw) > JSON_BYTES:
        troubles.append(f"{clip(name, 80)} is larger than {size_text(JSON_BYTES)} and was not read.")
        return
    whole = _parsed(raw)
    rows = [whole] if whole is not None else [_parsed(line) for line in raw.splitlines() if line.strip()]
    good = [row for row in rows if isinstance(row, dict)]
    if len(good) < len(rows) or not rows:
        troubles.append(f"{clip(name, 80)} is torn, or no JSON: what it says is left out.")
    yield from good


def _parsed(raw: bytes) -> Any:
    """None where it is no JSON."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
