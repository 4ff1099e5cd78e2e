"""What people and tools find in a run's folder after the fact: run_manifest.json, instances/<n>.json, console tails."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from supervisor.contract import runfiles
from supervisor.domain.attempt import Attempt, kept_step
from supervisor.domain.run import Run
from supervisor.lifecycle.evidence import facts as known_facts
from supervisor.ports.objectstore import ObjectMissing, ObjectStore
from supervisor.ports.store import Store

MANIFEST_VERSION = 1


def write_records(objects: ObjectStore, store: Store, run: Run) -> None:
    """Written over and over until the run is settled; the same rows give the same bytes."""
    attempts = store.attempts(run.key)
    following = [*attempts[1:], None]
    shown = [_instance(attempt, after) for attempt, after in zip(attempts, following, strict=False)]
    for attempt, record in zip(attempts, shown, strict=True):
        objects.put(runfiles.instance(run.run_id, attempt.number), _json(record))
    outcome = run.files.outcome
    known = [
        (attempt.number, _facts(objects, run.run_id, attempt.number))
        for attempt in attempts[-known_facts.ATTEMPTS_READ :]
    ]
    manifest = {
        "version": MANIFEST_VERSION,
        "run_id": run.run_id,
        "generation": run.generation,
        "status": run.status,
        "cause": run.cause,
        "detail": run.detail,
        "created_at": _time(run.created_at),
        "ended_at": _time(run.status_since),
        "checkpoint_step": run.files.checkpoint_step,
        "cost_usd": round(run.money.cost_usd, 6) if run.money.all_known else None,
        "results": None
        if outcome is None
        else {
            "sha256": outcome.results_sha256,
            "files": outcome.files,
            "size_bytes": outcome.size_bytes,
            "missing": list(outcome.missing),
        },
        "spec": store.spec(run.key),
        "attempts": shown,
        # Of the newest attempt whose facts are known, in full; of the others where they differ from the one before.
        "facts": next((facts for _, facts in reversed(known) if facts is not None), None),
        "facts_differ": known_facts.differences(known),
    }
    objects.put(runfiles.manifest(run.run_id), _json(manifest))


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
        "started_at": _time(attempt.started_at),
        "ended_at": _time(attempt.ended_at),
        "gone_at": _time(attempt.gone_at),
        "cause": attempt.cause,
        "evidence": attempt.evidence,
        "code": attempt.code,
        "step_from": attempt.step_from,
        "step_kept": kept_step(attempt, after),
        "step_last": attempt.step_last,
    }


def _facts(objects: ObjectStore, run_id: str, attempt: int) -> known_facts.Facts | None:
    try:
        chunks = objects.read(runfiles.facts(run_id, attempt), 0, known_facts.MAX_BYTES + 1)
        return known_facts.parse(b"".join(chunks))
    except ObjectMissing:
        return None


def _time(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode()
