"""The evidence of one attempt, as it is kept in the object store.

The facts of a run: what was asked for, what each attempt ran on, and where attempts differ.
"""

from __future__ import annotations

from supervisor.contract import runfiles
from supervisor.domain.attempt import Attempt
from supervisor.domain.errors import EvidenceNotFound, Unavailable
from supervisor.domain.run import Run
from supervisor.lifecycle.evidence import attempt_evidence as evidence
from supervisor.lifecycle.evidence import facts as known_facts
from supervisor.ports.objectstore import ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.services.parts import Parts
from supervisor.services.reading.queries import Queries
from supervisor.services.runs.purge import refuse_purged
from supervisor.services.runs.spec_secrets import shown_spec
from supervisor.services.views.run_view import Json
from supervisor.wording.figures import clip


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


def show_evidence(parts: Parts, queries: Queries, run_id: str, number: str) -> Json:
    """`number`: of the attempt. Raises NotFound, EvidenceNotFound (which says whether it will come), FilesPurged,
    Unavailable."""
    run = queries.find(run_id)
    attempt = _attempt(parts, run, number)
    try:
        key = runfiles.evidence(run.run_id, attempt.number)
        raw = b"".join(parts.objects.read(key, 0, evidence.MAX_BYTES + 1))
    except ObjectMissing:
        refuse_purged(run, attempt)
        raise EvidenceNotFound(_why(run, attempt), {"run_id": run_id, "attempt": attempt.number}) from None
    except StoreUnavailable as error:
        raise Unavailable(
            f"The evidence of {run.run_id} cannot be read now. Try again.", {"run_id": run_id}
        ) from error
    found = evidence.read(raw)
    if found is None:
        raise EvidenceNotFound(
            f"The evidence of attempt {attempt.number} of {run.run_id} is in the store, but damaged.",
            {"run_id": run_id, "attempt": attempt.number},
        )
    return found


def _attempt(parts: Parts, run: Run, number: str) -> Attempt:
    for attempt in parts.store.attempts(run.key):
        if str(attempt.number) == number:
            return attempt
    raise EvidenceNotFound(f"{run.run_id} has no attempt {clip(number, 20)}.", {"run_id": run.run_id})


def _why(run: Run, attempt: Attempt) -> str:
    if attempt.ended_at is None:
        return f"Attempt {attempt.number} of {run.run_id} is not over: its evidence is kept when it ends."
    if run.settled:
        return f"No evidence of attempt {attempt.number} of {run.run_id} was kept, and none will come."
    return (
        f"The evidence of attempt {attempt.number} of {run.run_id} is not kept yet: ask again in a moment; what is "
        f"missed now is made up for when the run ends."
    )
