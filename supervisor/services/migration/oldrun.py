"""A run of the older shell runner, read from its folder gs://BUCKET/runs/RUN_ID; and whether it still lives.

The folder is only read. Its files were written by shell scripts that could be killed at any point, so every file is
optional and none is trusted: a file that is torn, too large or no JSON is reported, not an error. A file that cannot be
listed or read for another reason than "absent" is an error: it may be the checkpoint, or a sign of life.

Two trainings of one run would overwrite each other, so every sign of life refuses the import: a heartbeat or a lock
that was written recently by the store's clock, or a machine with the run's name. The machine's clock is never used, and
"could not read" is no proof that the run has ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from supervisor.contract.identifiers import label_value
from supervisor.domain.errors import InvalidRequest, OldRunAlive, Unavailable
from supervisor.domain.machines import OLD_RUN_LABEL, SUPERVISOR_LABEL, Machine, MachineState
from supervisor.ports.objectstore import ObjectInfo, ObjectMissing, ObjectReader
from supervisor.ports.provider import ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.wording.figures import age_text, clip, size_text

URL_MAX = 255  # it becomes a label of the run
JSON_BYTES = 1_000_000
NEWEST = 100  # so many of the newest files of events and machines are read
RECORDS_MAX = 1000  # records in them and in state.json together: each becomes one event, in one transaction
LISTED_PAGES = 20
LAST, BEST = "last.pt", "best.pt"
CHECKPOINTS = "checkpoint_sync/checkpoints/"
STATE, HEARTBEAT, MANIFEST = "state.json", "heartbeat.json", "run_manifest.json"
CONFIGS = ("restart_config.json", "run_config.json", MANIFEST)  # the first file with a value wins
STOP, OWNER_LOCK, RESTART_LOCK = ".stop", ".owner.lock", "restart.lock"
LOCKS = (HEARTBEAT, OWNER_LOCK, RESTART_LOCK)
TERMINAL = ("COMPLETE", "FAILED", "PARTIAL", "STOPPED")
SEVERAL = re.compile(r"(instances/[0-9]{1,9}\.json|events/.+)")
# The older runner's own limits: HEARTBEAT_STALE_SEC, OWNER_LOCK_STALE_SEC; a restart takes as long as a boot.
FRESH_S = {HEARTBEAT: 600.0, OWNER_LOCK: 300.0, RESTART_LOCK: 600.0}
_URL = re.compile(r"((?:gs://[^/\s]+|file://)(?:/[^\x00-\x1f\x7f]*?)?)/?runs/([^/\x00-\x1f\x7f]+)/?")

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """The place of an old run: `root` is the store, `old_id` the run's name there."""

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
    """`seen`: file -> metadata, of the existing files with fixed names. `documents`: file -> content, of the JSON files
    among them. `records`: file -> records, of events and machines, oldest first, at most RECORDS_MAX together. `left`:
    number of such files that were not read; `cut`: number of records that are left out. `results`: number of files.
    `now`: the store's clock. `troubles`: what could not be parsed, a sentence each."""

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
        """The older runner's word; "" = unknown."""
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
            f"copy on this computer; at most {URL_MAX} characters.",
            {},
            [("#/url", "is no such address")],
        )
    return Place(root, old_id)


def read(reader: ObjectReader, place: Place) -> OldRun:
    """Raises StoreUnavailable; ValueError for a name that no store allows."""
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
    """(files of events and machines, oldest first; the store's time)"""
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
    """(file -> its newest records; how many older records are left out). `names`: oldest first, and so is the result.
    Machines are read first: they are few, and each is an attempt."""
    rows_of: dict[str, tuple[Json, ...]] = {}
    space, cut = RECORDS_MAX, 0
    newest_first = names[::-1]
    for name in sorted(newest_first, key=lambda path: not path.startswith("instances/")):
        if space == 0:
            break
        rows = tuple(_records(reader, place, name, troubles))
        rows_of[name] = rows[-space:]
        space -= len(rows_of[name])
        cut += len(rows) - len(rows_of[name])
    return {name: rows_of[name] for name in names if name in rows_of}, cut


def _results(reader: ObjectReader, place: Place) -> int:
    """The number of files of results, counted on the first pages only."""
    pages = zip(range(LISTED_PAGES), reader.pages(place.folder + "results/"), strict=False)
    return sum(len(page.objects) for _, page in pages)


def _document(reader: ObjectReader, place: Place, name: str, troubles: list[str]) -> Json | None:
    documents = list(_records(reader, place, name, troubles))
    return documents[0] if documents else None


def _records(reader: ObjectReader, place: Place, name: str, troubles: list[str]) -> Iterator[Json]:
    """The objects of a JSON file, or of a file with one object per line. Anything else is added to `troubles`."""
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
        troubles.append(f"{clip(name, 80)} is torn, or no JSON: its content is left out.")
    yield from good


def _parsed(raw: bytes) -> Any:
    """None = no JSON."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def refuse_alive(parts: Parts, old: OldRun) -> None:
    """Raises OldRunAlive, and Unavailable if the machines cannot be read."""
    now = max([old.now, *(info.updated for info in old.seen.values())])
    for name, limit_s in FRESH_S.items():
        info = old.seen.get(name)
        if info is not None and now - info.updated < limit_s:
            age_s = max(0.0, now - info.updated)
            raise OldRunAlive(
                f"The old run may still be running: its {name} was written {age_text(age_s)} ago. Stop it with the "
                f"older runner, and import it in {age_text(limit_s - age_s)}.",
                {"file": name, "age_s": round(age_s, 1), "limit_s": limit_s},
            )
    for machine in _machines(parts, old):
        raise OldRunAlive(
            f"A machine of the old run still exists: {machine.name} in {machine.zone} ({machine.state}). Two machines "
            "must not train the same run: delete it with the older runner, then import.",
            {"machine": machine.name, "zone": machine.zone},
        )


def _machines(parts: Parts, old: OldRun) -> Iterator[Machine]:
    names = set(_names(old))
    labels = {old.place.old_id, label_value(old.place.old_id)}
    for provider in parts.providers.values():
        try:
            listing = provider.machines()
        except ProviderUnavailable as error:
            raise Unavailable(
                f"It is not known whether a machine of the old run still exists: {clip(str(error), 200)}. Retry."
            ) from error
        for machine in listing.machines:
            labeled = machine.labels.get(OLD_RUN_LABEL) in labels and SUPERVISOR_LABEL not in machine.labels
            if (machine.name in names or labeled) and machine.state is not MachineState.ENDED:
                yield machine
        if listing.unreachable:
            away = ", ".join(sorted(listing.unreachable)[:5])
            raise Unavailable(f"A machine of the old run may be in a zone that does not respond ({away}). Retry.")


def _names(old: OldRun) -> Iterator[str]:
    """The names of its machines, as far as they were recorded."""
    records = [old.documents.get(name, {}) for name in (STATE, MANIFEST)]
    records += [record for name, several in old.records.items() if name.startswith("instances/") for record in several]
    for record in records:
        for key in ("instance_name", "instance", "owner_id"):
            value = record.get(key)
            if isinstance(value, str) and value not in ("", "unknown"):
                yield value
