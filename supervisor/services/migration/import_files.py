"""The files of an imported run: its checkpoint in our own layout, and the baton that names it.

The folder of the new run must be empty, or hold what an import left that was cut off: another run's is not touched.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, Pointer
from supervisor.domain.access.callers import Caller
from supervisor.domain.errors import Conflict, Forbidden, Unavailable
from supervisor.ports.objectstore import (
    ABSENT,
    ObjectMissing,
    ObjectReader,
    PreconditionFailed,
    StoreUnavailable,
)
from supervisor.services.files.copying import copy
from supervisor.services.migration.oldrun import BEST, CHECKPOINTS, LAST, OldRun, Place
from supervisor.services.parts import Elsewhere, Parts
from supervisor.services.runs.changing import RACES
from supervisor.wording.figures import clip

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
        raise Conflict(
            f"The baton of {run_id} cannot be understood. Give another name (--as NEW_ID)."
        ) from None


def _may_lay(found: Baton | None) -> bool:
    return found is None or (found.generation == 0 and found.closed == CLOSED)


def copied(
    parts: Parts, reader: ObjectReader, old: OldRun, run_id: str, step: int
) -> tuple[Pointer, tuple[Pointer, ...]]:
    """(the checkpoint that is resumed from, the best ones). Raises what `copying.copy` raises."""

    def take(name: str) -> Pointer:
        info = old.seen[CHECKPOINTS + name]

        def prefix(upload: int) -> str:
            return runfiles.checkpoint(run_id, step, ATTEMPT, upload, best=name == BEST)

        done = copy(
            (reader, info), name, parts.objects, prefix=prefix, scratch=scratch, closing=parts.closing
        )
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
        left = [
            path
            for path in elsewhere.scratch.iterdir()
            if path.name == run_id or path.name not in elsewhere.busy
        ]
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
    wanted = Baton(parts.store.supervisor_id, 0, checkpoint=pointer, best=best, closed=CLOSED)
    try:
        for _ in range(RACES):
            found, generation = _baton(parts, run_id)
            if found == wanted:
                return
            if not _may_lay(found):
                raise Conflict(
                    f"Another run of the name {run_id} began meanwhile. Give another name (--as NEW_ID)."
                )
            try:
                parts.objects.put(runfiles.baton(run_id), batons.encode(wanted), if_generation=generation)
                return
            except PreconditionFailed:
                continue
    except StoreUnavailable as error:
        raise Unavailable(f"The import was broken off: {clip(str(error), 300)}. Repeat it.") from error
    raise Unavailable(f"The baton of {run_id} kept changing. Repeat the import.")
