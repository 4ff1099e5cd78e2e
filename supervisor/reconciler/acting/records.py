"""Records in a run's folder of what happened: the evidence of each attempt, run_manifest.json, instances/<n>.json.

All are safe to repeat, evidence also for two writers at a time. Could not read is not absent. Where the present
evidence cannot be read, nothing is written. Where the agent's part cannot be read, the document says so, and the next
time retries.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from supervisor.contract import runfiles
from supervisor.domain.attempt import Attempt, kept_step
from supervisor.domain.run import Run
from supervisor.lifecycle.evidence import attempt_evidence as evidence
from supervisor.lifecycle.evidence import facts as facts_of
from supervisor.lifecycle.evidence.attempt_evidence import Found, Json, utc_text
from supervisor.lifecycle.evidence.facts import read_object
from supervisor.ports.objectstore import ABSENT, ObjectMissing, ObjectStore, PreconditionFailed, StoreUnavailable
from supervisor.ports.store import Store

MANIFEST_VERSION = 1
ROUNDS = 4
LIMIT_S = 10.0  # of store calls before a release, which must not wait for evidence
TAIL_BYTES = 262_144
FINAL = {"final": "true"}  # metadata of a document to which nothing will be added

Clock = Callable[[], float]


def attempt_of(store: Store, run: Run, launch_id: str) -> Attempt | None:
    """The attempt of this launch, if there is one and it is over. Raises StoreDown."""
    near = (run.attempt, *(item.attempt for item in run.retiring))
    attempts = [attempt for attempt in near if attempt is not None and attempt.launch_id == launch_id]
    if not attempts:
        attempts = [attempt for attempt in store.attempts(run.key) if attempt.launch_id == launch_id]
    return attempts[0] if attempts and attempts[0].ended_at is not None else None


def keep_evidence(
    objects: ObjectStore, run: Run, attempt: Attempt, monotonic: Clock, release: Sequence[str] = ()
) -> None:
    """Compose and store it. Raises StoreUnavailable when that fails, also when it takes longer than LIMIT_S."""
    deadline = monotonic() + LIMIT_S
    key = runfiles.evidence(run.run_id, attempt.number)
    for _ in range(ROUNDS):
        before, generation = _present(objects, key)
        stored = _stored(objects, run, attempt, before)
        if monotonic() > deadline:
            raise StoreUnavailable(f"the store took more than {LIMIT_S:.0f} s for the evidence")
        document = evidence.compose(run, attempt, stored, release, before)
        if document == before:
            return
        metadata = FINAL if evidence.final(document) and attempt.gone_at is not None else None
        try:
            objects.put(key, evidence.encoded(document), generation, metadata)
        except PreconditionFailed:
            continue
        return
    raise StoreUnavailable(f"the evidence of {run.run_id} changed {ROUNDS} times while it was being written")


def keep_missing_evidence(objects: ObjectStore, store: Store, run: Run, monotonic: Clock) -> None:
    """At the run's end: what was missed, or could not be read, at the ends of its attempts. Raises StoreUnavailable."""
    pages = objects.pages(runfiles.evidences(run.run_id))
    kept = {info.key for page in pages for info in page.objects if info.metadata.get("final")}
    for attempt in store.attempts(run.key):
        due = attempt.ended_at is not None and not run.has_purged(attempt)
        if due and runfiles.evidence(run.run_id, attempt.number) not in kept:
            keep_evidence(objects, run, attempt, monotonic)


def _present(objects: ObjectStore, key: str) -> tuple[Json | None, str]:
    """(the document as it is, its generation). A document that cannot be understood counts as none, and is replaced."""
    try:
        raw, info = objects.get(key)
    except ObjectMissing:
        return None, ABSENT
    return evidence.read(raw), info.generation


def _stored(objects: ObjectStore, run: Run, attempt: Attempt, before: Json | None) -> Found:
    agent, missing = _agent_part(objects, run.run_id, attempt)
    final = evidence.final(before or {}) or (agent is not None and agent.get("when") == "end")
    tail = None if final else _log_tail(objects, run.run_id, attempt.number)
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
        return None, "it belongs to another launch"
    return part, ""


def _log_tail(objects: ObjectStore, run_id: str, number: int) -> tuple[str, ...] | None:
    try:
        chunks = [info for page in objects.pages(runfiles.logs(run_id, number)) for info in page.objects][-2:]
        pieces = [b"".join(objects.read(info.key, max(0, info.size - TAIL_BYTES), TAIL_BYTES)) for info in chunks]
    except (StoreUnavailable, ObjectMissing):
        return None
    return evidence.last_lines(b"".join(pieces)[-TAIL_BYTES:])


def _console(objects: ObjectStore, run_id: str, number: int) -> str | None:
    """The key of the console's tail, if it was kept."""
    key = runfiles.console(run_id, number)
    try:
        objects.stat(key)
    except (StoreUnavailable, ObjectMissing):
        return None
    return key


# --- the manifest ----------------------------------------------------------------------------------------------------


def write_records(objects: ObjectStore, store: Store, run: Run) -> None:
    """Repeated until the run is settled; the same rows give the same bytes."""
    attempts = store.attempts(run.key)
    following = [*attempts[1:], None]
    instances = [_instance(attempt, after) for attempt, after in zip(attempts, following, strict=False)]
    for attempt, record in zip(attempts, instances, strict=True):
        objects.put(runfiles.instance(run.run_id, attempt.number), _json(record))
    numbers = [attempt.number for attempt in attempts[-facts_of.ATTEMPTS_READ :]]
    facts = [(number, _facts(objects, run.run_id, number)) for number in numbers]
    manifest = {
        "version": MANIFEST_VERSION,
        "run_id": run.run_id,
        "generation": run.generation,
        "status": run.status,
        "cause": run.cause,
        "detail": run.detail,
        "created_at": utc_text(run.created_at),
        "ended_at": utc_text(run.status_since),
        "checkpoint_step": run.files.checkpoint_step,
        "cost_usd": round(run.money.cost_usd, 6) if run.money.all_known else None,
        "results": _results(run),
        "spec": store.spec(run.key),
        "attempts": instances,
        # In full for the newest attempt whose facts are known; for the others where they differ from the one before.
        "facts": next((noted for _, noted in reversed(facts) if noted is not None), None),
        "facts_differ": facts_of.differences(facts),
    }
    objects.put(runfiles.manifest(run.run_id), _json(manifest))


def _results(run: Run) -> dict[str, object] | None:
    outcome = run.files.outcome
    if outcome is None:
        return None
    return {
        "sha256": outcome.results_sha256,
        "files": outcome.files,
        "size_bytes": outcome.size_bytes,
        "missing": list(outcome.missing),
    }


def _instance(attempt: Attempt, after: Attempt | None) -> dict[str, object]:
    place = attempt.placement
    return {
        "attempt": attempt.number,
        "generation": attempt.generation,
        "machine": attempt.machine_name,
        "machine_id": attempt.machine_id,
        "provider": place.provider,
        "zone": place.zone,
        "shape": place.shape,
        "spot": place.spot,
        "started_at": utc_text(attempt.started_at),
        "ended_at": utc_text(attempt.ended_at),
        "gone_at": utc_text(attempt.gone_at),
        "cause": attempt.cause,
        "evidence": attempt.evidence,
        "code": attempt.code,
        "step_from": attempt.step_from,
        "step_kept": kept_step(attempt, after),
        "step_last": attempt.step_last,
    }


def _facts(objects: ObjectStore, run_id: str, attempt: int) -> facts_of.Facts | None:
    try:
        chunks = objects.read(runfiles.facts(run_id, attempt), 0, facts_of.MAX_BYTES + 1)
        return facts_of.parse(b"".join(chunks))
    except ObjectMissing:
        return None


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode()
