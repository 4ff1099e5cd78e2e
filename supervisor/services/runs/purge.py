"""Purge: a person has all files of one run deleted. Nothing else here deletes results, logs or kept checkpoints.

The row says `purging` first, so that no resume begins meanwhile; then the baton is emptied and closed, so that an
agent of before can name and finish nothing (on a full disk what it never names goes first, to make room for it); then
the objects go, page by page; then the row says `purged_at`. Cut off anywhere it shows as `purging`, and the same
command finishes it. The history in the database stays, and so do code bundles, which other runs may use.

Two purges of one run may overlap, and a resume may follow the quicker one. So the slower one looks at the row after
each look at the store and before each deed, and every deed is guarded by the generation that was seen: what a new
generation of the run has written is never touched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.domain.attempt import Attempt
from supervisor.domain.callers import Caller
from supervisor.domain.errors import FilesPurged, InvalidRequest, PurgeRefused, Unavailable
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ObjectInfo, ObjectMissing, PreconditionFailed, StoreFull, StoreUnavailable
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import Raced, change, find_run, until_settled
from supervisor.services.runs.keys import Once, Reply, replay
from supervisor.services.views import rfc3339
from supervisor.wording.figures import plural, size_text


@dataclass(frozen=True, slots=True)
class Purged:
    """`files`, `size_bytes`: what this request deleted; an earlier one that was cut off may have deleted others."""

    run: Run
    files: int
    size_bytes: int


class _Overtaken(Exception):
    """Another request has finished this purge."""


class _Closing(Exception):
    """This process must end."""


def refuse_purged(run: Run, attempt: Attempt | None = None) -> None:
    """For readers of a run's files, or of those of one attempt. Raises FilesPurged."""
    if run.files.purging:
        raise FilesPurged(
            f"The files of {run.run_id} are being purged; `spot purge {run.run_id}` finishes it if it was cut off.",
            {"run_id": run.run_id},
        )
    at = run.files.purged_at
    if at is not None and (run.files_gone or (attempt is not None and run.has_purged(attempt))):
        raise FilesPurged(
            f"The files of {run.run_id} were purged at {rfc3339.text(at)}; its history is still there "
            f"(`spot events {run.run_id}`).",
            {"run_id": run.run_id, "purged_at": rfc3339.text(at)},
        )


def purge_once(
    parts: Parts, run_id: str, confirm: str, *, caller: Caller, idempotency: Once, shape: Callable[[Purged], Reply]
) -> Reply:
    """The same for a request with a key, which counts from the purge's end on: cut off, a repeat finishes it. Once
    answered, a repeat deletes nothing of what a later generation wrote. Raises KeyReused, KeyInFlight too."""
    before = parts.store.kept_response(idempotency.scope, idempotency.key)
    if before is not None:
        return replay(before, idempotency.fingerprint)
    reply, now = shape(purge(parts, run_id, confirm, caller)), parts.clock.now()
    with parts.store.begin(now) as tx:
        answer = idempotency.taken(tx, now)
        if answer is None:
            idempotency.keep(tx, reply)
    return answer or reply


def purge(parts: Parts, run_id: str, confirm: str, caller: Caller) -> Purged:
    """Delete every file of a settled run. Raises NotFound, InvalidRequest (`confirm` is not the run's id),
    PurgeRefused, Unavailable (cut off: repeat it), StoreDown."""
    run = change(parts, run_id, lambda run, now: _begun(parts, run, confirm, caller), "nothing was deleted")
    deleted = _Deleting(parts, run)
    try:
        try:
            deleted.empty_baton()
        except StoreFull:
            deleted.delete(f"{runfiles.folder(run_id)}logs/")
            deleted.delete(runfiles.evidences(run_id))
            deleted.empty_baton()
        deleted.delete(runfiles.folder(run_id))
        deleted.delete(runfiles.beat(run_id), whole=True)
    except _Overtaken:
        return Purged(find_run(parts, run_id), deleted.files, deleted.size_bytes)
    except (StoreUnavailable, _Closing) as error:
        raise Unavailable(
            f"{_trouble(error)}: the purge of {run_id} was cut off after {plural(deleted.files, 'file')}. "
            "Repeat it: it goes on where it stopped.",
            {"run_id": run_id, "files": deleted.files},
        ) from error
    done = change(parts, run_id, lambda run, now: _ended(run, deleted, caller, now), "its files are deleted")
    return Purged(done, deleted.files, deleted.size_bytes)


def _trouble(error: Exception) -> str:
    if isinstance(error, _Closing):
        return "The supervisor is being stopped"
    return f"The object store {'is full' if isinstance(error, StoreFull) else 'went away'}"


def _begun(parts: Parts, run: Run, confirm: str, caller: Caller) -> tuple[Run, Event]:
    if confirm != run.run_id:
        raise InvalidRequest(
            f"Nothing was deleted: to purge {run.run_id}, confirm it with exactly this run id.",
            {"run_id": run.run_id},
            [("#/confirm", "must be the run id")],
        )
    _refuse_live(run, parts.store.attempts(run.key))
    again = " again" if run.files.purging else ""
    text = f"Purge asked for{again} by {caller.actor}: all files of the run are deleted, its history stays."
    values = {"purging": run.files.purging}, {"purging": True}
    return replace(run, files=replace(run.files, purging=True)), caller.changed(EventKind.PURGED, text, *values)


def _refuse_live(run: Run, attempts: list[Attempt]) -> None:
    """Raises PurgeRefused, naming what it waits for."""
    waits = ""
    there = [attempt for attempt in attempts if attempt.gone_at is None]
    if run.status == Status.AWAITING_TEARDOWN:
        waits = f"its machine waits for an answer: spot approve {run.run_id} gives it back"
    elif not run.terminal:
        waits = f"it is {run.status}: stop it, and wait until it has stopped"
    elif run.retiring:
        names = ", ".join(item.ref.name for item in run.retiring)
        kept = f", kept until {rfc3339.text(run.kept_until)}" if run.kept_until is not None else ""
        waits = f"{names} may still write{kept}: wait until it is known to be gone"
    elif there:
        names = ", ".join(attempt.machine_name for attempt in there)
        waits = f"{names} is not known to be gone"
    elif not run.settled:
        waits = "its records are still being written: try again in a moment"
    if waits:
        raise PurgeRefused(f"Nothing of {run.run_id} was deleted: {waits}.", {"run_id": run.run_id, "waits_for": waits})


class _Deleting:
    """The deeds in the object store. Every method raises StoreUnavailable, StoreDown, _Overtaken, _Closing."""

    def __init__(self, parts: Parts, run: Run) -> None:
        self._parts, self._run = parts, run
        self._baton = runfiles.baton(run.run_id)
        self.files = 0
        self.size_bytes = 0

    def empty_baton(self) -> None:
        """By compare-and-set. One that is torn is replaced; where there is none, no agent has ever begun."""
        undone = StoreUnavailable(f"{self._baton} changes faster than it can be changed")
        until_settled(undone, self._empty_once)

    def _empty_once(self) -> None:
        objects, run = self._parts.objects, self._run
        try:
            raw, info = objects.get(self._baton)
        except ObjectMissing:
            return
        self._check()
        try:
            before = batons.decode(raw)
        except ValueError:
            before = batons.create(self._parts.store.supervisor_id, run.generation)
        try:
            objects.put(self._baton, batons.encode(batons.purge(before)), if_generation=info.generation)
        except PreconditionFailed:
            raise Raced from None

    def delete(self, prefix: str, whole: bool = False) -> None:
        """All objects below `prefix` but the baton. `whole`: the one object of exactly this key."""
        for page in self._parts.objects.pages(prefix):
            self._check()
            for info in page.objects:
                if info.key != self._baton and (not whole or info.key == prefix):
                    self._delete_one(info)

    def _delete_one(self, info: ObjectInfo) -> None:
        if self._parts.closing.is_set():
            raise _Closing
        try:
            if self._parts.objects.delete(info.key, if_generation=info.generation):
                self.files += 1
                self.size_bytes += info.size
        except PreconditionFailed:
            return  # written anew since this page was listed: whoever did so is no longer purged

    def _check(self) -> None:
        row = self._parts.store.find(self._run.run_id)
        if row is None or not row.files.purging or row.generation != self._run.generation:
            raise _Overtaken


def _ended(run: Run, deleted: _Deleting, caller: Caller, now: float) -> tuple[Run, Event] | None:
    if not run.files.purging:
        return None
    figures = f"{plural(deleted.files, 'file')}, {size_text(deleted.size_bytes)}"
    text = f"Purged by {caller.actor}: {figures} deleted. A resume begins from nothing."
    data = {"files": deleted.files, "size_bytes": deleted.size_bytes}
    files = replace(run.files, purging=False, purged_at=now, checkpoint_step=None)
    after = replace(run, files=files, no_progress_base=None)
    values = _state(run), _state(after)
    return after, caller.changed(EventKind.PURGED, text, *values, data)


def _state(run: Run) -> dict[str, object]:
    return {"purged_at": rfc3339.maybe(run.files.purged_at), "checkpoint_step": run.files.checkpoint_step}
