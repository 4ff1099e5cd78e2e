"""The files of an imported run: its checkpoint in our own layout, and the baton that names it.

Each file is copied from one store to another in constant memory, through a file on this computer's disk: hashed while
it is read, compared with the source's metadata, and read back after it was written. A copy that an interrupted import
has left is reused if its content is the same. The folder of the new run must be empty, or contain only such copies: the
files of another run are never touched.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, FileEntry, Pointer
from supervisor.domain.callers import Caller
from supervisor.domain.errors import Conflict, Forbidden, Unavailable
from supervisor.ports.objectstore import (
    ABSENT,
    ObjectInfo,
    ObjectMissing,
    ObjectReader,
    ObjectStore,
    PreconditionFailed,
    StoreUnavailable,
)
from supervisor.services.migration.oldrun import BEST, CHECKPOINTS, LAST, OldRun, Place
from supervisor.services.parts import Elsewhere, Parts
from supervisor.services.runs.changing import Raced, retry_races
from supervisor.wording.figures import clip, size_text

CLOSED = "imported"
ATTEMPT = 0  # of the imported files; our own attempts start at 1
UPLOADS = 100  # names that are tried for one file
SPARE_BYTES = 256 * 1024 * 1024  # on the disk, which also holds the database


def copy(
    source: tuple[ObjectReader, ObjectInfo],
    name: str,
    target: ObjectStore,
    *,
    prefix: Callable[[int], str],
    scratch: Path,
    closing: threading.Event,
) -> tuple[str, FileEntry]:
    """(the prefix of the copy, its entry). `prefix(n)`: the place of the copy, for n = 1, 2, … as long as other content
    is there. `scratch`: a folder for the file. Raises Unavailable (repeat it), StoreUnavailable, ObjectMissing."""
    reader, info = source
    free = shutil.disk_usage(scratch).free
    if free < info.size + SPARE_BYTES:
        raise Unavailable(
            f"{name} has {size_text(info.size)}, and the disk of the data folder has {size_text(free)} left: free some "
            "space.",
            {"size_bytes": info.size, "free_bytes": free},
        )
    with tempfile.NamedTemporaryFile(dir=scratch, prefix="import-") as file:
        digest, size = hashlib.sha256(), 0
        for piece in _until(closing, reader.read(info.key)):
            digest.update(piece)
            size += len(piece)
            if size > info.size:
                break
            file.write(piece)
        file.flush()
        if size != info.size or reader.stat(info.key).generation != info.generation:
            raise Unavailable(f"{name} changed while it was copied: the old run still writes. Retry later.")
        entry = FileEntry(name, size, digest.hexdigest())
        return _placed(Path(file.name), entry, target, prefix, closing)


def _placed(
    path: Path, entry: FileEntry, target: ObjectStore, prefix: Callable[[int], str], closing: threading.Event
) -> tuple[str, FileEntry]:
    for number in range(1, UPLOADS + 1):
        key = prefix(number) + entry.name
        fresh = True
        try:
            target.put_file(key, path, if_generation=ABSENT)
        except PreconditionFailed:
            fresh = False
        if _sha256(target, key, closing) == entry.sha256:
            return prefix(number), entry
        if fresh:  # no baton names it: the run's next machine removes it
            raise Unavailable(f"The stored copy of {entry.name} differs from its source. Retry.")
    raise Unavailable(f"The store has {UPLOADS} other copies of {entry.name}.")


def _sha256(store: ObjectReader, key: str, closing: threading.Event) -> str:
    digest = hashlib.sha256()
    for piece in _until(closing, store.read(key)):
        digest.update(piece)
    return digest.hexdigest()


def _until(closing: threading.Event, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Raises Unavailable if this process is being stopped."""
    for piece in pieces:
        if closing.is_set():
            raise Unavailable("The supervisor is being stopped: the copy was interrupted. Repeat it.")
        yield piece


def allowed(place: Place, caller: Caller) -> Place:
    """A folder of this computer is read with the supervisor's rights, so only for administrators. Raises Forbidden."""
    if place.root.startswith("file:") and not caller.admin:
        raise Forbidden(
            "Only an administrator may import from a folder of the supervisor's computer. Copy the run into a bucket, "
            "or let an administrator import it."
        )
    return place


def refuse_foreign_folder(parts: Parts, run_id: str) -> None:
    """The new run's folder may only contain files of an interrupted import. Raises Conflict."""
    folder = runfiles.folder(run_id)
    page = next(iter(parts.objects.pages(folder)))
    ours = (runfiles.checkpoints(run_id), runfiles.baton(run_id))
    if any(not info.key.startswith(ours) for info in page.objects) or not _may_lay(_baton(parts, run_id)[0]):
        raise Conflict(
            f"{folder} in {parts.objects.url} holds files of another run. Give another name (--as NEW_ID).",
            {"run_id": run_id},
        )


def _baton(parts: Parts, run_id: str) -> tuple[Baton | None, str]:
    """(the baton or None, its generation in the store). Raises Conflict for a torn baton."""
    try:
        raw, info = parts.objects.get(runfiles.baton(run_id))
        return batons.decode(raw), info.generation
    except ObjectMissing:
        return None, ABSENT
    except ValueError:
        raise Conflict(f"The baton of {run_id} cannot be parsed. Give another name (--as NEW_ID).") from None


def _may_lay(baton: Baton | None) -> bool:
    return baton is None or (baton.generation == 0 and baton.closed == CLOSED)


def copied(
    parts: Parts, reader: ObjectReader, old: OldRun, run_id: str, step: int
) -> tuple[Pointer, tuple[Pointer, ...]]:
    """(the checkpoint to resume from, the best ones). Raises what `copy` raises."""

    def take(name: str) -> Pointer:
        info = old.seen[CHECKPOINTS + name]

        def prefix(upload: int) -> str:
            return runfiles.checkpoint(run_id, step, ATTEMPT, upload, best=name == BEST)

        at, entry = copy((reader, info), name, parts.objects, prefix=prefix, scratch=scratch, closing=parts.closing)
        return Pointer(step, at, (entry,))

    with _scratch(parts.elsewhere, run_id) as scratch:
        best = (take(BEST),) if CHECKPOINTS + BEST in old.seen else ()
        return take(LAST), best


@contextmanager
def _scratch(elsewhere: Elsewhere, run_id: str) -> Iterator[Path]:
    """A folder for copies in transfer. Leftovers of killed imports are deleted first."""
    if elsewhere.scratch is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    elsewhere.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    with elsewhere.guard:
        left = [path for path in elsewhere.scratch.iterdir() if path.name == run_id or path.name not in elsewhere.busy]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    own = elsewhere.scratch / run_id
    own.mkdir()
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)


def lay_baton(parts: Parts, run_id: str, pointer: Pointer, best: tuple[Pointer, ...]) -> None:
    """Raises Conflict, Unavailable."""
    error = Unavailable(f"The baton of {run_id} kept changing. Repeat the import.")
    try:
        retry_races(error, _lay, parts, run_id, pointer, best)
    except StoreUnavailable as failure:
        raise Unavailable(f"The import was interrupted: {clip(str(failure), 300)}. Repeat it.") from failure


def _lay(parts: Parts, run_id: str, pointer: Pointer, best: tuple[Pointer, ...]) -> None:
    wanted = Baton(parts.store.supervisor_id, 0, checkpoint=pointer, best=best, closed=CLOSED)
    baton, generation = _baton(parts, run_id)
    if baton == wanted:
        return
    if not _may_lay(baton):
        raise Conflict(f"Another run with the name {run_id} has started. Give another name (--as NEW_ID).")
    try:
        parts.objects.put(runfiles.baton(run_id), batons.encode(wanted), if_generation=generation)
    except PreconditionFailed:
        raise Raced from None
