"""Pulled: somebody has a complete and verified copy of a run's results. The run's teardown may demand it.

Only the hash of the results that were pulled counts: results of another generation, or a part of them, free nothing.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.access.callers import Caller
from supervisor.domain.errors import PullMismatch
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import change
from supervisor.wording.figures import plural


def note_pull(parts: Parts, run_id: str, results_sha256: str, files: int, caller: Caller) -> Run:
    """The run with the pull on record; twice is once. Raises NotFound, PullMismatch, Unavailable."""

    def judge(run: Run, now: float) -> tuple[Run, Event] | None:
        _check(run, results_sha256, files)
        if run.pulled == results_sha256:
            return None
        text = f"{caller.actor} pulled the results: {plural(files, 'file')}, sizes and checksums compared."
        data = {"results_sha256": results_sha256, "files": files}
        values = {"pulled": run.pulled or None}, {"pulled": results_sha256}
        return replace(run, pulled=results_sha256), caller.changed(
            EventKind.RESULTS_PULLED, text, *values, data
        )

    return change(parts, run_id, judge, "the pull was not noted")


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
