"""The files of a run that users may list and fetch: results, checkpoints, logs, evidence and the code bundle.

A path is relative to the run's folder in the object store, so a file has the same name everywhere. Results and
checkpoints are the files that the baton names, with its checksums: an upload in progress, and an old checkpoint, are
not listed. Nothing outside these kinds can be read (the baton contains a nonce).

Until the work is done, the results are those of the agent's last save (with a checkpoint, or at an end), under their
final paths. A file that the final upload has rewritten since replaces the saved one. The response marks such results as
partial.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from typing_extensions import TypedDict

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import FileEntry
from supervisor.contract.identifiers import parse_launch_id
from supervisor.contract.runfiles import SavedResults
from supervisor.domain.errors import FileUnknown, Unavailable
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.services.views import formats

KINDS = ("results", "checkpoints", "logs", "evidence", "code")
LISTED = ("logs", "evidence")  # only the store knows which exist
PAGE_SIZE, PAGE_MAX = 200, 1000
HASHED_BYTES = 4_000_000  # a page of a listing reads at most so much to compute checksums that are not stored
LEFT_OUT_SHOWN = 100


class FileShown(TypedDict):
    """`path`: relative to the run's folder, as in the address of the file. `sha256` null: not known."""

    path: str
    kind: str
    size: int
    sha256: str | None
    updated: formats.Time | None


class LeftOutShown(TypedDict):
    name: str
    why: str


class PartialResults(TypedDict):
    """Results of the last save: with the checkpoint of `step`, or at the end of `attempt`. `left_out`: the first 100
    files whose newest content was not saved."""

    attempt: int
    step: int | None
    left_out: list[LeftOutShown]


class FileList(TypedDict):
    """`complete`: the run is over, so no file will be added. `results_sha256`: of the verified results.
    `partial_results`: null once the work is done, and where nothing was saved."""

    run_id: str
    files: list[FileShown]
    next_cursor: str | None
    complete: bool
    results_sha256: str | None
    partial_results: PartialResults | None


@dataclass(frozen=True, slots=True)
class RunFile:
    """`key`: in the object store. `sha256` and `updated` None: not known."""

    path: str
    kind: str
    key: str
    size: int
    sha256: str | None = None
    updated: float | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """The files that a baton names. `files`: kind -> path -> file; no "results" until the work of this generation is
    done. `saved`: until then, the manifest of the saved results."""

    files: Mapping[str, Mapping[str, RunFile]]
    saved: FileEntry | None = None


def list_files(objects: ObjectStore, run: Run, kinds: Collection[str], page_size: int = 0, after: str = "") -> FileList:
    """A page of the files of these kinds (none = all), in order of path, after the path `after`. `complete`: no file
    will be added, because the run has ended. Raises Unavailable."""
    limit = min(page_size or PAGE_SIZE, PAGE_MAX)
    try:
        reads_baton = not {"results", "checkpoints"}.isdisjoint(kinds or KINDS)
        named = _named(objects, run) if reads_baton else Named({})
        partial = _partial(objects, run, named)
        files = sorted(_files(objects, run, kinds or KINDS, named, partial), key=lambda file: file.path)
        rest = [file for file in files if file.path > after]
        page = _hashed(objects, rest[:limit])
    except (StoreUnavailable, ObjectMissing) as error:
        text = f"The files of {run.run_id} cannot be listed now. Retry."
        raise Unavailable(text, {"run_id": run.run_id}) from error
    return {
        "run_id": run.run_id,
        "files": [_json(file) for file in page],
        "next_cursor": page[-1].path if len(rest) > limit else None,
        "complete": run.terminal or run.status == Status.AWAITING_TEARDOWN,
        "results_sha256": run.files.outcome.results_sha256 if run.files.outcome is not None else None,
        "partial_results": None if partial is None else _partial_json(partial.results),
    }


def find_file(objects: ObjectStore, run: Run, path: str) -> RunFile:
    """The file at this path, without `updated`. Raises FileUnknown for any other path, StoreUnavailable."""
    kind, _, name = path.partition("/")
    file: RunFile | None = None
    if kind in KINDS and name and _is_plain(path):
        key = runfiles.folder(run.run_id) + path
        if kind == "code":
            file = _code(objects, run)
        elif kind in LISTED:
            file = RunFile(path, kind, key, 0)
        else:
            named = _named(objects, run)
            if kind in named.files:
                file = named.files[kind].get(path)
            elif key.startswith(_present_results(run)):
                file = _partial_file(objects, run, named, path)
    if file is None or file.path != path:
        raise unknown(run, path if _is_plain(path) else "")
    return file


def unknown(run: Run, path: str) -> FileUnknown:
    name = f" {path[:200]}" if path else " with this name"
    return FileUnknown(
        f"{run.run_id} has no file{name}. `GET /v1/runs/{run.run_id}/files` lists them.", {"run_id": run.run_id}
    )


def _is_plain(path: str) -> bool:
    """No empty part, no `.` or `..`, only printable characters."""
    return path.isprintable() and not any(part in ("", ".", "..") for part in path.split("/"))


@dataclass(frozen=True, slots=True)
class _Partial:
    """Results that were saved at `updated`."""

    results: SavedResults
    updated: float


def _partial(objects: ObjectStore, run: Run, named: Named) -> _Partial | None:
    """None: nothing was saved, or the manifest is gone or torn. Raises StoreUnavailable."""
    if named.saved is None or not _is_saved(run, named.saved.name):
        return None
    try:
        raw, info = objects.get(named.saved.name)
        return _Partial(_decoded(raw), info.updated)
    except (ObjectMissing, ValueError):
        return None


def _is_saved(run: Run, key: str) -> bool:
    """A training can write its own manifest, so a key outside of the run's folder may be another run's."""
    return runfiles.launch_of_saved(run.run_id, key) is not None and _is_plain(key)


_decoded = lru_cache(maxsize=2)(runfiles.decode_saved)  # a pull requests one file after the other


def _saved_files(run: Run, partial: _Partial) -> dict[str, RunFile]:
    """Path -> file, with the paths of the final results."""
    folder = _present_results(run).removeprefix(runfiles.folder(run.run_id))
    files = {}
    for file in partial.results.files:
        if not _is_saved(run, file.key):
            continue
        path = folder + runfiles.storable(file.name)
        files[path] = RunFile(path, "results", file.key, file.size, file.sha256, partial.updated)
    return files


def _partial_file(objects: ObjectStore, run: Run, named: Named, path: str) -> RunFile:
    """The newer one of the saved file and the file of the final upload."""
    partial = _partial(objects, run, named)
    saved = None if partial is None else _saved_files(run, partial).get(path)
    present = RunFile(path, "results", runfiles.folder(run.run_id) + path, 0)
    if saved is None or saved.updated is None:
        return present
    try:
        return present if objects.stat(present.key).updated > saved.updated else saved
    except ObjectMissing:
        return saved


def _partial_json(saved: SavedResults) -> PartialResults:
    return {
        "attempt": saved.attempt,
        "step": saved.step,
        "left_out": [
            {"name": runfiles.storable(left.name), "why": left.why} for left in saved.left_out[:LEFT_OUT_SHOWN]
        ],
    }


def _files(
    objects: ObjectStore, run: Run, kinds: Collection[str], named: Named, partial: _Partial | None
) -> Iterator[RunFile]:
    folder = runfiles.folder(run.run_id)
    for kind in set(kinds) - {"code"}:
        prefix = _present_results(run) if kind == "results" else f"{folder}{kind}/"
        # With so many files each page would cost a listing of all: then there are no times.
        many = len(named.files.get(kind, ())) > PAGE_MAX
        seen = {} if many else {info.key: info for page in objects.pages(prefix) for info in page.objects}
        if kind in named.files:
            for file in named.files[kind].values():
                yield replace(file, updated=seen[file.key].updated) if file.key in seen else file
            continue
        saved = _saved_files(run, partial) if kind == "results" and partial is not None else {}
        for info in seen.values():
            path = info.key.removeprefix(folder)
            before = saved.get(path)
            if before is None or before.updated is None or info.updated > before.updated:
                saved[path] = RunFile(path, kind, info.key, info.size, None, info.updated)
        yield from saved.values()
    code = _code(objects, run) if "code" in kinds else None
    if code is not None:
        yield code


def _code(objects: ObjectStore, run: Run) -> RunFile | None:
    if run.policy.code is None:
        return None
    key = runfiles.code(run.policy.code)
    try:
        info = objects.stat(key)
    except ObjectMissing:
        return None
    return RunFile(key, "code", key, info.size, None, info.updated)


def _named(objects: ObjectStore, run: Run) -> Named:
    """Raises Unavailable for a torn baton: then it is not known which files are valid."""
    try:
        raw, _ = objects.get(runfiles.baton(run.run_id))
        return _named_in(raw, run.run_id, run.generation)
    except ObjectMissing:
        return Named({"checkpoints": {}})
    except ValueError:
        raise Unavailable(
            f"The baton of {run.run_id} in the object store cannot be parsed, so its files are not known.",
            {"run_id": run.run_id},
        ) from None


@lru_cache(maxsize=2)  # a pull requests one file after the other, and a baton may name thousands
def _named_in(raw: bytes, run_id: str, generation: int) -> Named:
    baton, folder = batons.decode(raw), runfiles.folder(run_id)
    parts = [("checkpoints", pointer.prefix, pointer.files) for pointer in batons.pointers(baton)]
    named: dict[str, dict[str, RunFile]] = {"checkpoints": {}}
    if baton.done is not None and parse_launch_id(baton.done.launch_id)[0] == generation:
        parts.append(("results", baton.done.prefix, baton.done.results))
        named["results"] = {}
        saved = None
    else:
        saved = next(iter(batons.saved_results(baton)), None)
    for kind, prefix, files in parts:
        for entry in files:
            key = prefix + entry.name
            path = key.removeprefix(folder)
            named[kind][path] = RunFile(path, kind, key, entry.size, entry.sha256)
    return Named(named, saved)


def _present_results(run: Run) -> str:
    return runfiles.results(run.run_id, run.generation)


def _hashed(objects: ObjectStore, page: list[RunFile]) -> list[RunFile]:
    """Add checksums to logs and evidence if all of them together are small."""
    small = sum(file.size for file in page if file.kind in LISTED) <= HASHED_BYTES
    return [_with_hash(objects, file) if small and file.kind in LISTED else file for file in page]


def _with_hash(objects: ObjectStore, file: RunFile) -> RunFile:
    """A log that has grown since the listing keeps its unknown checksum."""
    data = b"".join(objects.read(file.key, 0, file.size + 1))
    if len(data) != file.size:
        return file
    return replace(file, sha256=hashlib.sha256(data).hexdigest())


def _json(file: RunFile) -> FileShown:
    return {
        "path": file.path,
        "kind": file.kind,
        "size": file.size,
        "sha256": file.sha256,
        "updated": formats.maybe_time(file.updated),
    }
