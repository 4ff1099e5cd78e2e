"""The evidence of one attempt, as it is kept in the object store."""

from __future__ import annotations

from supervisor.contract import runfiles
from supervisor.domain.attempt import Attempt
from supervisor.domain.errors import EvidenceNotFound, Unavailable
from supervisor.domain.run import Run
from supervisor.lifecycle.evidence import attempt_evidence as evidence
from supervisor.ports.objectstore import ObjectMissing, StoreUnavailable
from supervisor.services.parts import Parts
from supervisor.services.reading.queries import Queries
from supervisor.services.runs.purge import refuse_purged
from supervisor.services.views.run_view import Json
from supervisor.wording.figures import clip


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
