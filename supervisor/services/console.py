"""The console of a machine: what it says now while it lives, afterwards the tail that was kept of it.

A machine that boots has nothing else to say: no log, no beat of the training. Read straight from the provider, one call
for each question of a person; the loop never waits for it.
"""

from __future__ import annotations

from supervisor.domain import runfiles
from supervisor.domain.attempt import Attempt
from supervisor.domain.errors import EvidenceNotFound, Unavailable
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ObjectMissing, StoreUnavailable
from supervisor.ports.provider import MachineMissing, NotSupported, ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.services.purge import refuse_purged
from supervisor.services.queries import Queries
from supervisor.services.run_view import Json

MAX_BYTES = 65_536


def show_console(parts: Parts, queries: Queries, run_id: str, number: int | None) -> Json:
    """`number`: of the attempt, None = the newest. Raises NotFound, EvidenceNotFound (nothing was said, or kept),
    FilesPurged, Unavailable."""
    run = queries.find(run_id)
    attempt = _attempt(parts, run, number)
    text = _live(parts, run, attempt)
    live = bool(text)
    if not live:
        refuse_purged(run, attempt)
        text = _kept(parts, run, attempt)
    return {
        "run_id": run.run_id,
        "attempt": attempt.number,
        "machine": attempt.machine_name,
        "zone": attempt.placement.zone,
        "live": live,
        "text": text.decode("utf-8", "replace"),
    }


def _attempt(parts: Parts, run: Run, number: int | None) -> Attempt:
    wanted = number if number is not None else run.attempt.number if run.attempt is not None else None
    for attempt in parts.store.attempts(run.key):
        if attempt.number == wanted:
            return attempt
    what = "no machine yet" if number is None else f"no attempt {number}"
    raise EvidenceNotFound(f"{run.run_id} has {what}.", {"run_id": run.run_id})


def _live(parts: Parts, run: Run, attempt: Attempt) -> bytes:
    """Empty: the machine is gone, not ours to ask, or says nothing."""
    provider = parts.providers.get(run.provider)
    if provider is None or attempt.gone_at is not None or parts.cells[run.provider] != run.cell:
        return b""
    try:
        return provider.console(attempt.ref, MAX_BYTES)
    except (MachineMissing, NotSupported):
        return b""
    except ProviderUnavailable as error:
        raise Unavailable(
            f"The console of {attempt.machine_name} cannot be read now. Try again.", {"run_id": run.run_id}
        ) from error


def _kept(parts: Parts, run: Run, attempt: Attempt) -> bytes:
    try:
        return b"".join(parts.objects.read(runfiles.console(run.run_id, attempt.number), 0, MAX_BYTES))
    except ObjectMissing:
        ended = "was kept" if attempt.gone_at is not None else "is there yet"
        raise EvidenceNotFound(
            f"Nothing of the console of attempt {attempt.number} of {run.run_id} {ended}.",
            {"run_id": run.run_id, "attempt": attempt.number},
        ) from None
    except StoreUnavailable as error:
        raise Unavailable(
            f"The console of {run.run_id} cannot be read now. Try again.", {"run_id": run.run_id}
        ) from error
