"""Reads what the store holds of an attempt and keeps its evidence there. Safe to repeat, and for two at a time.

Could not read is not absent: where the present document cannot be read, nothing is written; where the agent's part
cannot be read, that is said, and the next time tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from supervisor.contract import runfiles
from supervisor.domain.actions import Release
from supervisor.domain.attempt import Attempt
from supervisor.domain.run import Run
from supervisor.lifecycle.evidence import attempt_evidence as evidence
from supervisor.lifecycle.evidence.attempt_evidence import Found, Json
from supervisor.lifecycle.evidence.facts import read_object
from supervisor.ports.objectstore import ABSENT, ObjectMissing, ObjectStore, PreconditionFailed, StoreUnavailable
from supervisor.ports.store import Store
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

ROUNDS = 4
LIMIT_S = 10.0  # of store calls before a release, which must not wait for evidence
TAIL_BYTES = 262_144
FINAL = {"final": "true"}  # metadata of a document to which nothing will be added

Clock = Callable[[], float]


def attempt_of(store: Store, run: Run, launch_id: str) -> Attempt | None:
    """The attempt of this launch, if there is one and it is over. Raises StoreDown."""
    near = [run.attempt, *(item.attempt for item in run.retiring)]
    known = next((one for one in near if one is not None and one.launch_id == launch_id), None)
    if known is None:
        known = next((one for one in store.attempts(run.key) if one.launch_id == launch_id), None)
    return known if known is not None and known.ended_at is not None else None


def keep(objects: ObjectStore, run: Run, attempt: Attempt, monotonic: Clock, release: Sequence[str] = ()) -> None:
    """Compose and store it. Raises StoreUnavailable when it could not be done, also when LIMIT_S were not enough."""
    deadline = monotonic() + LIMIT_S
    key = runfiles.evidence(run.run_id, attempt.number)
    for _ in range(ROUNDS):
        before, generation = _present(objects, key)
        found = _find(objects, run, attempt, before)
        if monotonic() > deadline:
            raise StoreUnavailable(f"the store took more than {LIMIT_S:.0f} s for the evidence")
        document = evidence.compose(run, attempt, found, release, before)
        if document == before:
            return
        metadata = FINAL if evidence.final(document) and attempt.gone_at is not None else None
        try:
            objects.put(key, evidence.encoded(document), generation, metadata)
        except PreconditionFailed:
            continue
        return
    raise StoreUnavailable(f"the evidence of {run.run_id} changed {ROUNDS} times while it was being written")


def keep_missing(objects: ObjectStore, store: Store, run: Run, monotonic: Clock) -> None:
    """At the run's end: what was missed, or could not be read, at the ends of its attempts. Raises StoreUnavailable."""
    pages = objects.pages(runfiles.evidences(run.run_id))
    kept = {info.key for page in pages for info in page.objects if info.metadata.get("final")}
    for attempt in store.attempts(run.key):
        due = attempt.ended_at is not None and not run.has_purged(attempt)
        if due and runfiles.evidence(run.run_id, attempt.number) not in kept:
            keep(objects, run, attempt, monotonic)


def try_to_keep(objects: ObjectStore, store: Store, run: Run, release: Release, monotonic: Clock) -> None:
    """Before a release, which goes on whatever happens here."""
    try:
        attempt = attempt_of(store, run, release.launch_id)
        if attempt is not None:
            keep(objects, run, attempt, monotonic, release.readings)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not keep a machine billing
        log.warning(
            "evidence not kept before the release",
            extra={telemetry.ACTION: "evidence", telemetry.RUN_ID: run.run_id, telemetry.ERROR: str(error)},
        )


def _present(objects: ObjectStore, key: str) -> tuple[Json | None, str]:
    """(the document as it is, its generation). One that cannot be understood counts as none, and is replaced."""
    try:
        raw, info = objects.get(key)
    except ObjectMissing:
        return None, ABSENT
    return evidence.read(raw), info.generation


def _find(objects: ObjectStore, run: Run, attempt: Attempt, before: Json | None) -> Found:
    agent, missing = _agent_part(objects, run.run_id, attempt)
    told = evidence.final(before or {}) or (agent is not None and agent.get("when") == "end")
    tail = None if told else _log_tail(objects, run.run_id, attempt.number)
    return Found(agent, missing, tail, _console(objects, run.run_id, attempt.number))


def _agent_part(objects: ObjectStore, run_id: str, attempt: Attempt) -> tuple[Json | None, str]:
    """(the part, ""), or (None, why there is none)."""
    try:
        raw = b"".join(objects.read(runfiles.agent_evidence(run_id, attempt.number), 0, evidence.AGENT_BYTES + 1))
    except ObjectMissing:
        return None, evidence.NO_AGENT_PART
    except StoreUnavailable as error:
        return None, f"it could not be read: {error}"
    if len(raw) > evidence.AGENT_BYTES:
        return None, f"it is larger than {evidence.AGENT_BYTES} bytes"
    part = read_object(raw, evidence.AGENT_BYTES)
    if part is None:
        return None, "it is not what an agent writes"
    if part.get("launch_id") != attempt.launch_id:
        return None, "it is of another launch"
    return part, ""


def _log_tail(objects: ObjectStore, run_id: str, number: int) -> tuple[str, ...] | None:
    try:
        chunks = [info for page in objects.pages(runfiles.logs(run_id, number)) for info in page.objects][-2:]
        pieces = [b"".join(objects.read(info.key, max(0, info.size - TAIL_BYTES), TAIL_BYTES)) for info in chunks]
    except (StoreUnavailable, ObjectMissing):
        return None
    return evidence.last_lines(b"".join(pieces)[-TAIL_BYTES:])


def _console(objects: ObjectStore, run_id: str, number: int) -> str | None:
    """The key of the console's tail, if one was kept."""
    key = runfiles.console(run_id, number)
    try:
        objects.stat(key)
    except (StoreUnavailable, ObjectMissing):
        return None
    return key
