"""The files of a run, as one may list and fetch them: results, checkpoints, logs, evidence and the code bundle.

A path is relative to the run's folder in the object store, so that a file has one name everywhere. Results and
checkpoints are what the baton names, with the checksums that it names them with: an upload under way, and a checkpoint
that no longer counts, are no files of the run. Nothing outside these kinds can be reached (the baton holds a nonce).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from supervisor.domain import baton as batons
from supervisor.domain import runfiles
from supervisor.domain.baton import Baton, FileEntry
from supervisor.domain.errors import FileUnknown, Unavailable
from supervisor.domain.identifiers import parse_launch_id
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ObjectInfo, ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.services import rfc3339
from supervisor.services.run_view import Json

KINDS = ("results", "checkpoints", "logs", "evidence", "code")
PAGE_SIZE, PAGE_MAX = 200, 1000
HASHED_BYTES = (
    4_000_000  # of one page of a listing: so much is read to tell the checksums that nobody has written down
)


@dataclass(frozen=True, slots=True)
class RunFile:
    """`key`: in the object store. `sha256` and `updated` None: not known."""

    path: str
    kind: str
    key: str
    size: int
    sha256: str | None = None
    updated: float | None = None


def list_files(
    objects: ObjectStore, run: Run, kinds: Collection[str], page_size: int = 0, after: str = ""
) -> Json:
    """A page of the files of these kinds (none = all), in order of path, beginning behind the path `after`. `complete`:
    the run is over, so that nothing will be added. Raises Unavailable."""
    limit = min(page_size or PAGE_SIZE, PAGE_MAX)
    try:
        found = sorted(_files(objects, run, kinds or KINDS), key=lambda file: file.path)
        rest = [file for file in found if file.path > after]
        page = _hashed(objects, rest[:limit])
    except (StoreUnavailable, ObjectMissing) as error:
        raise Unavailable(
            f"The files of {run.run_id} cannot be listed now. Try again.", {"run_id": run.run_id}
        ) from error
    return {
        "run_id": run.run_id,
        "files": [_json(file) for file in page],
        "next_cursor": page[-1].path if len(rest) > limit else None,
        "complete": run.terminal or run.status == Status.AWAITING_TEARDOWN,
        "results_sha256": run.outcome.results_sha256 if run.outcome is not None else None,
    }


def find_file(objects: ObjectStore, run: Run, path: str) -> RunFile:
    """The file of this path; `updated` is not looked up. Raises FileUnknown, for every path that is none of the run's
    too; StoreUnavailable."""
    kind, _, name = path.partition("/")
    if kind in KINDS and name and _is_plain(path):
        if kind in ("logs", "evidence"):
            return RunFile(path, kind, runfiles.folder(run.run_id) + path, 0)
        for file in _files(objects, run, (kind,), list_them=False):
            if file.path == path:
                return file
        key = runfiles.folder(run.run_id) + path
        present = kind == "results" and key.startswith(_present_results(run))
        if present and _done(_baton(objects, run), run) is None:
            return RunFile(path, kind, key, 0)
    raise unknown(run, path if _is_plain(path) else "")


def unknown(run: Run, path: str) -> FileUnknown:
    named = f" {path[:200]}" if path else " of this name"
    return FileUnknown(
        f"{run.run_id} has no file{named}. `GET /v1/runs/{run.run_id}/files` lists them.",
        {"run_id": run.run_id},
    )


def _is_plain(path: str) -> bool:
    """Parts that are names: not empty, no `.` or `..`, nothing that cannot be printed."""
    return path.isprintable() and not any(part in ("", ".", "..") for part in path.split("/"))


def _files(
    objects: ObjectStore, run: Run, kinds: Collection[str], list_them: bool = True
) -> Iterator[RunFile]:
    """`list_them` False: only what the baton and the spec name, without a look at the store's listing."""
    folder = runfiles.folder(run.run_id)
    baton = _baton(objects, run) if {"results", "checkpoints"} & set(kinds) else None
    if "results" in kinds:
        done = _done(baton, run)
        seen = _listed(objects, _present_results(run)) if list_them else {}
        if done is not None:
            yield from _named("results", folder, done[0], done[1], seen)
        else:
            yield from (_plain("results", folder, info) for info in seen.values())
    if "checkpoints" in kinds and baton is not None:
        seen = _listed(objects, runfiles.checkpoints(run.run_id)) if list_them else {}
        for prefix, files in _pointers(baton).items():
            yield from _named("checkpoints", folder, prefix, files, seen)
    for kind in ("logs", "evidence"):
        if kind in kinds and list_them:
            yield from (_plain(kind, folder, info) for info in _listed(objects, f"{folder}{kind}/").values())
    if "code" in kinds and run.policy.code is not None:
        key = runfiles.code(run.policy.code)
        try:
            info = objects.stat(key)
        except ObjectMissing:
            return
        yield RunFile(key, "code", key, info.size, None, info.updated)


def _baton(objects: ObjectStore, run: Run) -> Baton | None:
    """None: there is none (yet). Raises Unavailable when it is torn: then nobody knows which files count."""
    try:
        return batons.decode(objects.get(runfiles.baton(run.run_id))[0])
    except ObjectMissing:
        return None
    except ValueError:
        raise Unavailable(
            f"The record of {run.run_id} in the object store cannot be understood, so its files are not known.",
            {"run_id": run.run_id},
        ) from None


def _done(baton: Baton | None, run: Run) -> tuple[str, tuple[FileEntry, ...]] | None:
    """(prefix, files) of the finished work of the present generation."""
    if baton is None or baton.done is None or parse_launch_id(baton.done.launch_id)[0] != run.generation:
        return None
    return baton.done.prefix, baton.done.results


def _present_results(run: Run) -> str:
    return runfiles.results(run.run_id, run.generation)


def _pointers(baton: Baton) -> dict[str, tuple[FileEntry, ...]]:
    """Prefix -> files of every checkpoint that the baton names."""
    newest = () if baton.checkpoint is None else (baton.checkpoint,)
    return {one.prefix: one.files for one in (*newest, *baton.previous, *baton.kept, *baton.best)}


def _listed(objects: ObjectStore, prefix: str) -> dict[str, ObjectInfo]:
    return {info.key: info for page in objects.pages(prefix) for info in page.objects}


def _named(
    kind: str, folder: str, prefix: str, files: tuple[FileEntry, ...], seen: dict[str, ObjectInfo]
) -> Iterator[RunFile]:
    for entry in files:
        key = prefix + entry.name
        updated = seen[key].updated if key in seen else None
        yield RunFile(key.removeprefix(folder), kind, key, entry.size, entry.sha256, updated)


def _plain(kind: str, folder: str, info: ObjectInfo) -> RunFile:
    return RunFile(info.key.removeprefix(folder), kind, info.key, info.size, None, info.updated)


def _hashed(objects: ObjectStore, page: list[RunFile]) -> list[RunFile]:
    """Logs and evidence with their checksums, where all of them together are small."""
    wanted = [file for file in page if file.kind in ("logs", "evidence")]
    if sum(file.size for file in wanted) > HASHED_BYTES:
        return page
    return [_with_hash(objects, file) if file.kind in ("logs", "evidence") else file for file in page]


def _with_hash(objects: ObjectStore, file: RunFile) -> RunFile:
    """A log that grew since it was listed keeps its unknown checksum."""
    data = b"".join(objects.read(file.key, 0, file.size + 1))
    if len(data) != file.size:
        return file
    return replace(file, sha256=hashlib.sha256(data).hexdigest())


def _json(file: RunFile) -> Json:
    return {
        "path": file.path,
        "kind": file.kind,
        "size": file.size,
        "sha256": file.sha256,
        "updated": rfc3339.maybe(file.updated),
    }
