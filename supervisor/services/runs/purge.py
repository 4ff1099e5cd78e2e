"""Purge: delete all files of one run on a user's request. Nothing else deletes results, logs or kept checkpoints.

Order: the row says `purging`, so that no resume starts meanwhile; the baton is emptied and closed, so that an old agent
can record nothing more; the objects are deleted page by page; the row gets `purged_at`. (On a full disk, emptying the
baton needs space, so logs and evidence are deleted before it.) An interrupted purge stays `purging`, and the same
command finishes it. The history in the database stays, and so do code bundles, which other runs may use.

Two purges of one run may overlap, and a resume may follow the faster one. So the slower purge reads the row again
before each action, and every deletion is guarded by the object's generation: files of a new generation are never
touched.
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
from supervisor.services.runs.changing import Action, Raced, change, find_run, retry_races
from supervisor.services.runs.keys import KeyedRequest, Reply, replay
from supervisor.services.views import formats
from supervisor.wording.figures import plural, size_text


@dataclass(frozen=True, slots=True)
class Purged:
    """`files`, `size_bytes`: deleted by this request. An earlier, interrupted purge may have deleted more."""

    run: Run
    files: int
    size_bytes: int


class _Overtaken(Exception):
    """Another request has finished this purge."""


class _Closing(Exception):
    """This process is being stopped."""


def refuse_purged(run: Run, attempt: Attempt | None = None) -> None:
    """For readers of a run's files, or of one attempt's files. Raises FilesPurged."""
    if run.files.purging:
        raise FilesPurged(
            f"The files of {run.run_id} are being purged; `spot purge {run.run_id}` finishes an interrupted purge.",
            {"run_id": run.run_id},
        )
    at = run.files.purged_at
    if at is not None and (run.files_gone or (attempt is not None and run.has_purged(attempt))):
        raise FilesPurged(
            f"The files of {run.run_id} were purged at {formats.time_text(at)}; its history is still there "
            f"(`spot events {run.run_id}`).",
            {"run_id": run.run_id, "purged_at": formats.time_text(at)},
        )


def purge_once(
    parts: Parts, run_id: str, confirm: str, *, caller: Caller, key: KeyedRequest, respond: Callable[[Purged], Reply]
) -> Reply:
    """`purge` for a request with a key. The key is used up when the purge has ended: a repeat of an interrupted purge
    finishes it, a later repeat deletes nothing of a new generation. Raises KeyReused, KeyInFlight too."""
    kept = parts.store.kept_response(key.scope, key.key)
    if kept is not None:
        return replay(kept, key.fingerprint)
    reply, now = respond(purge(parts, run_id, confirm, caller)), parts.clock.now()
    with parts.store.begin(now) as tx:
        earlier = key.take(tx, now)
        if earlier is None:
            key.keep(tx, reply)
    return earlier or reply


def purge(parts: Parts, run_id: str, confirm: str, caller: Caller) -> Purged:
    """Delete every file of a settled run. Raises NotFound, InvalidRequest (`confirm` is not the run's id),
    PurgeRefused, Unavailable (interrupted: repeat it), StoreDown."""
    run = change(parts, run_id, Action(lambda run, _: _begun(parts, run, confirm, caller), "nothing was deleted"))
    purging = _Purging(parts, run)
    try:
        purging.delete_all()
    except _Overtaken:
        return Purged(find_run(parts, run_id), purging.files, purging.size_bytes)
    except (StoreUnavailable, _Closing) as error:
        raise Unavailable(
            f"{_trouble(error)}: the purge of {run_id} was interrupted after {plural(purging.files, 'file')}. "
            "Repeat it: it continues where it stopped.",
            {"run_id": run_id, "files": purging.files},
        ) from error
    ended = Action(lambda run, now: _ended(run, purging, caller, now), "its files are deleted")
    return Purged(change(parts, run_id, ended), purging.files, purging.size_bytes)


def _trouble(error: Exception) -> str:
    if isinstance(error, _Closing):
        return "The supervisor is being stopped"
    return f"The object store {'is full' if isinstance(error, StoreFull) else 'became unavailable'}"


def _begun(parts: Parts, run: Run, confirm: str, caller: Caller) -> tuple[Run, Event]:
    if confirm != run.run_id:
        raise InvalidRequest(
            f"Nothing was deleted: to purge {run.run_id}, confirm with exactly this run id.",
            {"run_id": run.run_id},
            [("#/confirm", "must be the run id")],
        )
    why = _why_not(run, parts.store.attempts(run.key))
    if why:
        text = f"Nothing of {run.run_id} was deleted: {why}."
        raise PurgeRefused(text, {"run_id": run.run_id, "waits_for": why})
    again = " again" if run.files.purging else ""
    text = f"Purge requested{again} by {caller.actor}: all files of the run are deleted, its history stays."
    values = {"purging": run.files.purging}, {"purging": True}
    return replace(run, files=replace(run.files, purging=True)), caller.changed(EventKind.PURGED, text, *values)


def _why_not(run: Run, attempts: list[Attempt]) -> str:
    """What the purge has to wait for; "" = nothing."""
    if run.status == Status.AWAITING_TEARDOWN:
        return f"its machine awaits your approval: spot approve {run.run_id} releases it"
    if not run.terminal:
        return f"it is {run.status}: stop it, and wait until it has stopped"
    if run.retiring:
        names = ", ".join(item.ref.name for item in run.retiring)
        kept = f", kept until {formats.time_text(run.kept_until)}" if run.kept_until is not None else ""
        return f"{names} may still write{kept}: wait until it is known to be gone"
    names = ", ".join(attempt.machine_name for attempt in attempts if attempt.gone_at is None)
    if names:
        return f"{names} is not known to be gone"
    return "" if run.settled else "its records are still being written: retry in a moment"


class _Purging:
    """The deletions in the object store. Every method raises StoreUnavailable, StoreDown, _Overtaken, _Closing."""

    def __init__(self, parts: Parts, run: Run) -> None:
        self._parts, self._run = parts, run
        self._baton = runfiles.baton(run.run_id)
        self.files = 0
        self.size_bytes = 0

    def delete_all(self) -> None:
        run_id = self._run.run_id
        try:
            self._empty_baton()
        except StoreFull:
            self._delete(f"{runfiles.folder(run_id)}logs/")
            self._delete(runfiles.evidences(run_id))
            self._empty_baton()
        self._delete(runfiles.folder(run_id))
        self._delete(runfiles.beat(run_id), exact=True)
        self._delete(f"{runfiles.claims(self._parts.store.supervisor_id)}{run_id}/")

    def _empty_baton(self) -> None:
        """By compare-and-set. A torn baton is replaced. If there is no baton, no agent has ever started."""
        retry_races(StoreUnavailable(f"{self._baton} keeps changing"), self._empty_once)

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

    def _delete(self, prefix: str, exact: bool = False) -> None:
        """All objects below `prefix` except the baton. `exact`: only the object with exactly this key."""
        for page in self._parts.objects.pages(prefix):
            self._check()
            for info in page.objects:
                if info.key != self._baton and (not exact or info.key == prefix):
                    self._delete_one(info)

    def _delete_one(self, info: ObjectInfo) -> None:
        if self._parts.closing.is_set():
            raise _Closing
        try:
            if self._parts.objects.delete(info.key, if_generation=info.generation):
                self.files += 1
                self.size_bytes += info.size
        except PreconditionFailed:
            return  # rewritten since this page was listed, by a newer generation

    def _check(self) -> None:
        row = self._parts.store.find(self._run.run_id)
        if row is None or not row.files.purging or row.generation != self._run.generation:
            raise _Overtaken


def _ended(run: Run, purging: _Purging, caller: Caller, now: float) -> tuple[Run, Event] | None:
    if not run.files.purging:
        return None
    figures = f"{plural(purging.files, 'file')}, {size_text(purging.size_bytes)}"
    text = f"Purged by {caller.actor}: {figures} deleted. A resume starts from nothing."
    data = {"files": purging.files, "size_bytes": purging.size_bytes}
    files = replace(run.files, purging=False, purged_at=now, checkpoint_step=None)
    after = replace(run, files=files, no_progress_base=None)
    return after, caller.changed(EventKind.PURGED, text, _state(run), _state(after), data)


def _state(run: Run) -> dict[str, object]:
    return {"purged_at": formats.maybe_time(run.files.purged_at), "checkpoint_step": run.files.checkpoint_step}
