"""Import: a run of the older shell runner becomes a stopped run of ours, with its checkpoint and its history.

Order: every check that may refuse; the checkpoint's files; the baton, which names them; the row with its events, in one
transaction. If the import is interrupted, either there is no run yet and the same request finishes the import (copied
files are reused), or there is a complete run whose checkpoint is safe. The baton has generation 0 and is closed: no
agent may write before a resume opens generation 2. The old folder is only read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from typing_extensions import TypedDict

from supervisor.contract.identifiers import RUN_ID_RULE, is_run_id
from supervisor.domain.callers import Caller
from supervisor.domain.errors import (
    ImportRunning,
    InvalidRequest,
    OldRunNotFound,
    OldRunUnreadable,
    RunIdTaken,
    Unavailable,
)
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Files, Money, Run
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ObjectMissing, ObjectReader, StoreForbidden, StoreMissing, StoreUnavailable
from supervisor.ports.store import DuplicateRun
from supervisor.services.migration import import_files, oldhistory, oldrun, oldspec
from supervisor.services.migration.oldrun import BEST, CHECKPOINTS, LAST, OldRun, Place
from supervisor.services.parts import Parts
from supervisor.services.runs.dependencies import check_after
from supervisor.services.runs.policy import Spec, policy_from, providers_of, settled
from supervisor.services.views.run_view import RunJson, run_json
from supervisor.wording.end import IMPORTED
from supervisor.wording.figures import clip, count_text, plural

SOURCE = "imported-from"  # label: the address of the old run
SUFFIX = "-imported"


class ImportedFile(TypedDict):
    name: str
    size: int


class ImportedRun(TypedDict):
    """`step`: of the checkpoint; null where the old run did not record it, and then it counts as 0. `left_out`: what
    was not taken over, and why. `run`: null after a dry run."""

    run_id: str
    source: str
    dry_run: bool
    old_state: str | None
    step: int | None
    files: list[ImportedFile]
    events: int
    spec: Mapping[str, Any]
    left_out: list[str]
    warnings: list[str]
    run: RunJson | None


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """`run_id` None: the old name, or a name made from it. `spec` None: made from the old run's files."""

    url: str
    run_id: str | None = None
    spec: Spec | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class _Plan:
    """Everything that the import would do; nothing is done yet."""

    old: OldRun
    run: Run
    spec: Spec
    step_known: bool
    events: tuple[Event, ...]
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]


def import_run(parts: Parts, request: ImportRequest, caller: Caller) -> tuple[int, ImportedRun]:
    """(201 or 200, the response). Raises InvalidRequest and its kin, Forbidden, OldRunNotFound, OldRunAlive,
    OldRunUnreadable, ImportRunning, RunIdTaken, Unavailable, StoreDown."""
    place = import_files.allowed(oldrun.place_of(request.url), caller)
    run_id = _run_id(place, request.run_id, _folder_of(place.root) == _folder_of(parts.objects.url))
    with _alone(parts, run_id):
        run = _imported_before(parts, run_id, place, caller)
        if run is not None:
            return 200, _earlier_answer(parts, place, run)
        with _reading(parts, place) as reader:
            plan = _plan(parts, _old_run(parts, reader, place), run_id, request, caller)
            if request.dry_run:
                return 200, _answer(parts, plan, None)
            pointers = import_files.copied(parts, reader, plan.old, run_id, plan.run.files.checkpoint_step or 0)
        import_files.lay_baton(parts, run_id, *pointers)
        return _written(parts, plan, place, caller)


def _folder_of(url: str) -> str:
    """One spelling for one folder."""
    path = url.removeprefix("file://")
    return os.path.realpath(unquote(path)) if path != url else url.rstrip("/")


def _run_id(place: Place, requested: str | None, same_folder: bool) -> str:
    """Our folder of the run must not be the old one. Raises InvalidRequest."""
    if requested is not None:
        if same_folder and requested == place.old_id:
            text = "The old run is in this supervisor's own store: its name would be the same folder. Give another."
            raise InvalidRequest(text, {}, [("#/run_id", "is the old run's own name")])
        return requested
    made = re.sub(r"[^a-z0-9]+", "-", place.old_id.lower()).strip("-")
    made = made if made[:1].isalpha() else f"run-{made}".rstrip("-")
    if same_folder:
        made = made[: 63 - len(SUFFIX)].rstrip("-") + SUFFIX
    made = made[:63].rstrip("-")
    if not is_run_id(made):
        text = f"The old name cannot become a run_id. Give one: {RUN_ID_RULE}."
        raise InvalidRequest(text, {}, [("#/run_id", "is needed")])
    return made


@contextmanager
def _alone(parts: Parts, run_id: str) -> Iterator[None]:
    """One import of a run at a time in this process. Raises ImportRunning."""
    elsewhere = parts.elsewhere
    with elsewhere.guard:
        if run_id in elsewhere.busy:
            raise ImportRunning(f"{run_id} is being imported. Retry: when the import is done, the response is the run.")
        elsewhere.busy.add(run_id)
    try:
        yield
    finally:
        with elsewhere.guard:
            elsewhere.busy.discard(run_id)


def _imported_before(parts: Parts, run_id: str, place: Place, caller: Caller) -> Run | None:
    """The run that the same import made earlier. Raises RunIdTaken for any other run of this name."""
    run = parts.store.find(run_id)
    if run is None:
        return None
    if caller.owns(run.owner) and parts.store.labels(run.key).get(SOURCE) == place.url:
        return run
    raise RunIdTaken(
        f"There is a run {run_id} already, with another origin. Give another name (--as NEW_ID).", {"run_id": run_id}
    )


@contextmanager
def _reading(parts: Parts, place: Place) -> Iterator[ObjectReader]:
    """Turn errors of the old store into errors that say how to fix them."""
    try:
        with parts.elsewhere.open(place.root) as reader:
            yield reader
    except ValueError as error:
        raise InvalidRequest(
            f"{clip(place.root, 100)} cannot be read from here: {clip(str(error), 200)}",
            {},
            [("#/url", "cannot be read from here")],
        ) from None
    except StoreForbidden as error:
        who = clip(parts.elsewhere.account(), 120) or "the supervisor's account"
        bucket = "/".join(place.root.split("/")[:3])
        raise OldRunUnreadable(
            f"{clip(str(error), 300)}. The supervisor reads as {who}: give it roles/storage.objectViewer on {bucket} "
            f"(gcloud storage buckets add-iam-policy-binding {bucket} --member=serviceAccount:{who} "
            "--role=roles/storage.objectViewer).",
            {"account": who, "role": "roles/storage.objectViewer"},
        ) from error
    except StoreMissing as error:
        raise OldRunNotFound(f"{clip(str(error), 300)}.") from error
    except (StoreUnavailable, ObjectMissing) as error:
        raise Unavailable(
            f"The import was interrupted: {clip(str(error), 300)}. Repeat it: copied files are reused."
        ) from error


def _old_run(parts: Parts, reader: ObjectReader, place: Place) -> OldRun:
    """Raises OldRunNotFound, OldRunUnreadable, OldRunAlive, Unavailable."""
    old = oldrun.read(reader, place)
    if old.empty:
        lists = "gcloud storage ls" if place.url.startswith("gs:") else "ls"
        parent = place.url.rpartition("/")[0].removeprefix("file://")
        raise OldRunNotFound(f"There is nothing at {place.url}/. `{lists} {parent}/` lists the runs.")
    if CHECKPOINTS + LAST not in old.seen or old.seen[CHECKPOINTS + LAST].size == 0:
        what = "is empty" if CHECKPOINTS + LAST in old.seen else "is missing"
        raise OldRunNotFound(
            f"The old run's {CHECKPOINTS}{LAST} {what}: nothing can be resumed. Submit it as a new run."
        )
    oldrun.refuse_alive(parts, old)
    return old


def _plan(parts: Parts, old: OldRun, run_id: str, request: ImportRequest, caller: Caller) -> _Plan:
    """Raises Conflict, and what `policy_from` raises."""
    import_files.refuse_foreign_folder(parts, run_id)
    now, place = parts.clock.now(), old.place
    carried = oldspec.carried(old)
    spec = _spec(parts, carried.spec if request.spec is None else request.spec, place)
    policy = policy_from(spec, parts, now)
    check_after(parts, run_id, spec, caller, exists=False)
    provider = providers_of(spec, parts)[0]
    step = oldhistory.last_step(old)
    run = Run(
        key=0, run_id=run_id, owner=caller.owner, cell=parts.cells[provider], provider=provider, generation=1,
        status=Status.STOPPED, policy=policy, created_at=now, generation_at=now, status_since=now,
        detail=f"{IMPORTED}{place.url}", files=Files(checkpoint_step=step or 0), money=Money(all_known=False),
        settled=True,
    )  # fmt: skip
    submitted = caller.changed(
        EventKind.IMPORTED,
        f"{IMPORTED}{place.url} by {caller.actor}: {_about(old, step)}",
        {},
        {"status": run.status, "generation": run.generation},
        {"source": place.url, "step": step, "state": old.state},
    )
    return _Plan(
        old=old,
        run=run,
        spec=spec,
        step_known=step is not None,
        events=(submitted, *oldhistory.events(old, caller.actor)),
        left_out=(*(carried.left_out if request.spec is None else ()), *_files_left(old), *old.troubles),
        warnings=_warnings(old, run_id, not parts.traits(provider).shares_computer),
    )


def _warnings(old: OldRun, run_id: str, sees_cloud: bool) -> tuple[str, ...]:
    """`sees_cloud`: this supervisor lists the machines of the cloud, so it would have found the old run's machines."""
    texts = []
    if not sees_cloud and old.place.root.startswith("gs://"):
        texts.append(
            "This supervisor sees no machines of Google Cloud: make sure that no machine of the old run is left there."
        )
    if old.state == "COMPLETE":
        texts.append("The old run was COMPLETE: resume it only if it should train further.")
    elif old.state not in oldrun.TERMINAL and oldrun.STOP not in old.seen:
        texts.append(
            f"The old run is {old.state or 'in an unknown state'} and has no .stop: the older reconciler may restart "
            "it. Switch the reconciler off, or write a .stop: "
            f"echo stop | gcloud storage cp - {clip(old.place.url, 200)}/.stop"
        )
    if run_id != old.place.old_id:
        texts.append(f"It is called {run_id} here.")
    return tuple(texts)


def _about(old: OldRun, step: int | None) -> str:
    step_text = f"step {count_text(step)}" if step is not None else "its step is unknown and counts as 0"
    return f"the old run was {old.state or 'in an unknown state'}; {LAST}, {step_text}."


def _spec(parts: Parts, spec: Spec, place: Place) -> Spec:
    """Raises InvalidRequest if there is no command."""
    if "command" not in spec:
        text = "The old run's files contain no command. Give a spec with a command (--spec FILE)."
        raise InvalidRequest(text, {}, [("#/spec/command", "is needed")])
    labels: Mapping[str, Any] = {**spec.get("labels", {}), SOURCE: place.url}
    return settled({**spec, "labels": labels}, parts)


def _files_left(old: OldRun) -> tuple[str, ...]:
    notes = []
    if old.results:
        notes.append(f"results/: {plural(old.results, 'file')} or more stay in the old folder.")
    if old.left:
        notes.append(f"events/ and instances/: {plural(old.left, 'older file')} were not imported.")
    if old.cut:
        notes.append(f"events/: {plural(old.cut, 'older line')} were not imported.")
    return tuple(notes)


def _written(parts: Parts, plan: _Plan, place: Place, caller: Caller) -> tuple[int, ImportedRun]:
    try:
        with parts.store.begin(parts.clock.now()) as tx:
            run = tx.insert(plan.run, plan.spec, plan.spec["labels"], plan.events)
    except DuplicateRun:  # another supervisor on this database was faster
        earlier = _imported_before(parts, plan.run.run_id, place, caller)
        if earlier is None:
            raise Unavailable("The run kept changing while it was imported. Repeat it.") from None
        return 200, _earlier_answer(parts, place, earlier)
    return 201, _answer(parts, plan, run)


def _answer(parts: Parts, plan: _Plan, run: Run | None) -> ImportedRun:
    old = plan.old
    files = [name for name in (LAST, BEST) if CHECKPOINTS + name in old.seen]
    return {
        "run_id": plan.run.run_id,
        "source": old.place.url,
        "dry_run": run is None,
        "old_state": old.state or None,
        "step": plan.run.files.checkpoint_step if plan.step_known else None,
        "files": [{"name": name, "size": old.seen[CHECKPOINTS + name].size} for name in files],
        "events": len(plan.events),
        "spec": plan.spec,
        "left_out": list(plan.left_out),
        "warnings": list(plan.warnings),
        "run": None if run is None else _view(parts, run),
    }


def _earlier_answer(parts: Parts, place: Place, run: Run) -> ImportedRun:
    """For a run that was imported earlier: nothing was read again."""
    return {
        "run_id": run.run_id,
        "source": place.url,
        "dry_run": False,
        "old_state": None,
        "step": run.files.checkpoint_step,
        "files": [],
        "events": 0,
        "spec": parts.store.spec(run.key),
        "left_out": [],
        "warnings": ["It was imported earlier; nothing was done now."],
        "run": _view(parts, run),
    }


def _view(parts: Parts, run: Run) -> RunJson:
    return run_json(run, parts.clock.now(), parts.store.labels(run.key), parts.gpu)
