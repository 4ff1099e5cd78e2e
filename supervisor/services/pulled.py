"""Pulled: somebody has a complete and verified copy of a run's results. The run's teardown may demand it.

Only the hash of the results that were pulled counts: results of another generation, or a part of them, free nothing.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.errors import NotFound, PullMismatch, Unavailable
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run
from supervisor.lifecycle.figures import plural
from supervisor.ports.store import Change
from supervisor.services.parts import OWNER, Parts

RACES = 8


def note_pull(parts: Parts, run_id: str, results_sha256: str, files: int, actor: str) -> Run:
    """The run with the pull on record; twice is once. Raises NotFound, PullMismatch, Unavailable."""
    for _ in range(RACES):
        now = parts.clock.now()
        with parts.store.begin(now) as tx:
            run = tx.find(run_id)
            if run is None or run.owner != OWNER:
                raise NotFound(f"There is no run {run_id}.", {"run_id": run_id})
            _check(run, results_sha256, files)
            if run.pulled == results_sha256:
                return run
            text = f"{actor} pulled the results: {plural(files, 'file')}, sizes and checksums compared."
            data = {"results_sha256": results_sha256, "files": files}
            event = Event(EventKind.RESULTS_PULLED, text, actor, data)
            stored = tx.apply(Change(run, replace(run, pulled=results_sha256), (event,)), now)
        if stored is not None:
            parts.wake.set()
            return stored
    raise Unavailable(f"{run_id} kept changing; the pull was not noted. Try again.", {"run_id": run_id})


def _check(run: Run, results_sha256: str, files: int) -> None:
    outcome = run.outcome
    if outcome is None:
        raise PullMismatch(
            f"{run.run_id} is {run.status}; it has no verified results yet, so nothing was noted as pulled.",
            {"run_id": run.run_id, "status": run.status},
        )
    if (results_sha256, files) != (outcome.results_sha256, outcome.files):
        raise PullMismatch(
            f"What was pulled of {run.run_id} is not what it has now: {plural(outcome.files, 'file')}. Pull again.",
            {
                "run_id": run.run_id,
                "files": outcome.files,
                "results_manifest_sha256": outcome.results_sha256,
            },
        )
