"""The facts of a run: what was asked for, what each attempt ran on, and where attempts differ."""

from __future__ import annotations

from supervisor.contract import runfiles
from supervisor.lifecycle.evidence import facts as known_facts
from supervisor.ports.objectstore import ObjectMissing, ObjectStore
from supervisor.services.parts import Parts
from supervisor.services.reading.queries import Queries
from supervisor.services.runs.spec_secrets import shown_spec
from supervisor.services.views.run_view import Json


def show_facts(parts: Parts, queries: Queries, run_id: str) -> Json:
    """`facts` of an attempt: as its agent wrote them, null when it wrote none (yet). Only the newest ones carry the
    list of packages, the others its hash. Raises NotFound, StoreUnavailable."""
    run = queries.find(run_id)
    spec = shown_spec(parts.store.spec(run.key))
    attempts = parts.store.attempts(run.key)[-known_facts.ATTEMPTS_READ :]
    known = [_read(parts.objects, run.run_id, attempt.number) for attempt in attempts]
    newest = max((at for at, facts in enumerate(known) if facts is not None), default=None)
    return {
        "run_id": run.run_id,
        "spec": spec,
        "command": spec["command"],
        "code": spec.get("code"),
        "image": spec.get("image"),
        "attempts": [
            {
                "attempt": attempt.number,
                "generation": attempt.generation,
                "cause": attempt.cause,
                "facts": facts if at == newest or facts is None else _without_packages(facts),
            }
            for at, (attempt, facts) in enumerate(zip(attempts, known, strict=True))
        ],
        "differs": known_facts.differences(
            [(attempt.number, facts) for attempt, facts in zip(attempts, known, strict=True)]
        ),
    }


def _without_packages(facts: Json) -> Json:
    return {name: value for name, value in facts.items() if name != "packages"}


def _read(objects: ObjectStore, run_id: str, attempt: int) -> Json | None:
    try:
        chunks = objects.read(runfiles.facts(run_id, attempt), 0, known_facts.MAX_BYTES + 1)
        return known_facts.parse(b"".join(chunks))
    except ObjectMissing:
        return None
