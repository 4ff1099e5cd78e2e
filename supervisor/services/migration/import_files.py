"""The files of an imported run: its checkpoint in our own layout, and the baton that names it.

The folder of the new run must be empty, or hold what an import left that was cut off: another run's is not touched.

A large object from one store to another, in constant memory: by way of a file on this computer's disk.

Hashed while it is read, compared with what the source says of it, and read back after it was written. A copy that is
there already, of a copying that was cut off, is used again when its content is the same.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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

UPLOADS = 100  # names that are tried for one file
SPARE_BYTES = 256 * 1024 * 1024  # of the disk; the database lives there too


@dataclass(frozen=True)
class Copied:
    prefix: str
    entry: FileEntry


def copy(
    source: tuple[ObjectReader, ObjectInfo],
    name: str,
    target: ObjectStore,
    *,
    prefix: Callable[[int], str],
    scratch: Path,
    closing: threading.Event,
) -> Copied:
    """`prefix(n)`: where the copy goes, for n = 1, 2, … while another content lies there. `scratch`: a folder for the
    file. Raises Unavailable (repeat it), StoreUnavailable, ObjectMissing."""
    reader, info = source
    free = shutil.disk_usage(scratch).free
    if free < info.size + SPARE_BYTES:
        raise Unavailable(
            f"{name} has {size_text(info.size)}, and the data folder's disk has {size_text(free)} left: free some.",
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
            raise Unavailable(f"{name} changed while it was copied: the old run still writes. Try again later.")
        entry = FileEntry(name, size, digest.hexdigest())
        return _placed(Path(file.name), entry, target, prefix, closing)


def _placed(
    path: Path, entry: FileEntry, target: ObjectStore, prefix: Callable[[int], str], closing: threading.Event
) -> Copied:
    for number in range(1, UPLOADS + 1):
        key = prefix(number) + entry.name
        fresh = True
        try:
            target.put_file(key, path, if_generation=ABSENT)
        except PreconditionFailed:
            fresh = False
        if _sha256(target, key, closing) == entry.sha256:
            return Copied(prefix(number), entry)
        if fresh:  # no baton names it: the run's next machine removes it
            raise Unavailable(f"What was stored of {entry.name} is not what was read. Try again.")
    raise Unavailable(f"{UPLOADS} other copies of {entry.name} lie in the store.")


def _sha256(store: ObjectReader, key: str, closing: threading.Event) -> str:
    digest = hashlib.sha256()
    for piece in _until(closing, store.read(key)):
        digest.update(piece)
    return digest.hexdigest()


def _until(closing: threading.Event, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Raises Unavailable when this process must end."""
    for piece in pieces:
        if closing.is_set():
            raise Unavailable("The supervisor is being stopped: the copy was broken off. Repeat it.")
        yield piece


CLOSED = "imported"
ATTEMPT = 0  # of the imported files; our own attempts begin at 1


def allowed(place: Place, caller: Caller) -> Place:
    """What lies on this computer is read as the supervisor, whoever asks. Raises Forbidden."""
    if place.root.startswith("file:") and not caller.admin:
        raise Forbidden(
            "Only an administrator may import from a folder of the supervisor's computer. Copy the run into a bucket, "
            "or let an administrator import it."
        )
    return place


def refuse_foreign_folder(parts: Parts, run_id: str) -> None:
    """What lies in the new run's folder must be of an import that was cut off. Raises Conflict."""
    folder = runfiles.folder(run_id)
    page = next(iter(parts.objects.pages(folder)))
    ours = (runfiles.checkpoints(run_id), runfiles.baton(run_id))
    if any(not info.key.startswith(ours) for info in page.objects) or not _may_lay(_baton(parts, run_id)[0]):
        raise Conflict(
            f"{folder} in {parts.objects.url} holds files of another run. Give another name (--as NEW_ID).",
            {"run_id": run_id},
        )


def _baton(parts: Parts, run_id: str) -> tuple[Baton | None, str]:
    """(None where there is none, its generation in the store). Raises Conflict for one that is torn."""
    try:
        raw, info = parts.objects.get(runfiles.baton(run_id))
        return batons.decode(raw), info.generation
    except ObjectMissing:
        return None, ABSENT
    except ValueError:
        raise Conflict(f"The baton of {run_id} cannot be understood. Give another name (--as NEW_ID).") from None


def _may_lay(baton: Baton | None) -> bool:
    return baton is None or (baton.generation == 0 and baton.closed == CLOSED)


def copied(
    parts: Parts, reader: ObjectReader, old: OldRun, run_id: str, step: int
) -> tuple[Pointer, tuple[Pointer, ...]]:
    """(the checkpoint that is resumed from, the best ones). Raises what `copying.copy` raises."""

    def take(name: str) -> Pointer:
        info = old.seen[CHECKPOINTS + name]

        def prefix(upload: int) -> str:
            return runfiles.checkpoint(run_id, step, ATTEMPT, upload, best=name == BEST)

        done = copy((reader, info), name, parts.objects, prefix=prefix, scratch=scratch, closing=parts.closing)
        return Pointer(step, done.prefix, (done.entry,))

    with _scratch(parts.elsewhere, run_id) as scratch:
        best = (take(BEST),) if CHECKPOINTS + BEST in old.seen else ()
        return take(LAST), best


@contextmanager
def _scratch(elsewhere: Elsewhere, run_id: str) -> Iterator[Path]:
    """A folder for what is on its way; what killed imports have left there goes first."""
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
    undone = Unavailable(f"The baton of {run_id} kept changing. Repeat the import.")
    try:
        retry_races(undone, _lay, parts, run_id, pointer, best)
    except StoreUnavailable as error:
        raise Unavailable(f"The import was broken off: {clip(str(error), 300)}. Repeat it.") from error


def _lay(parts: Parts, run_id: str, pointer: Pointer, best: tuple[Pointer, ...]) -> None:
    wanted = Baton(parts.store.supervisor_id, 0, checkpoint=pointer, best=best, closed=CLOSED)
    baton, generation = _baton(parts, run_id)
    if baton == wanted:
        return
    if not _may_lay(baton):
        raise Conflict(f"Another run of the name {run_id} began meanwhile. Give another name (--as NEW_ID).")
    try:
        parts.objects.put(runfiles.baton(run_id), batons.encode(wanted), if_generation=generation)
    except PreconditionFailed:
        raise Raced from None
