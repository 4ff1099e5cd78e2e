"""The small line of steps in each row of a list: two dozen points for any length of run.

A page of runs is asked for again and again, and its lines change once a minute: what was read is kept for so long, of a
run that is over for longer, and until the row of the run changes, because an attempt may have ended then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.domain.run import Run
from supervisor.ports.listing import LINE_PARTS, Step
from supervisor.services.parts import Parts
from supervisor.services.reading.series import is_silence
from supervisor.services.views import rfc3339
from supervisor.services.views.run_view import Json

KEPT_S, ENDED_KEPT_S = 60.0, 600.0
MOST = 500  # lines in memory, about 5 KB each


@dataclass(frozen=True, slots=True)
class _Kept:
    version: int
    until: float  # of the monotonic clock
    points: list[Json]


class Sparklines:
    """Safe to use from any thread: two that look at once read the same lines twice, and no more."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._kept: dict[int, _Kept] = {}

    def of(self, runs: Sequence[Run]) -> dict[int, list[Json]]:
        """Key -> points {at, step, gap}, oldest first; none for a run that has told no step. Raises StoreDown."""
        monotonic, now = self._parts.clock.monotonic(), self._parts.clock.now()
        known, missing = {}, []
        for run in runs:
            kept = self._kept.get(run.key)
            if kept is not None and kept.version == run.version and monotonic < kept.until:
                known[run.key] = kept.points
            else:
                missing.append(run)
        lines = self._parts.store.lines([run.key for run in missing]) if missing else {}
        for run in missing:
            points = points_of(lines.get(run.key, []), now)
            known[run.key] = points
            self._keep(
                run, _Kept(run.version, monotonic + (ENDED_KEPT_S if run.terminal else KEPT_S), points)
            )
        return known

    def _keep(self, run: Run, kept: _Kept) -> None:
        """The oldest ones go first."""
        self._kept.pop(run.key, None)
        self._kept[run.key] = kept
        while len(self._kept) > MOST:
            self._kept.pop(next(iter(self._kept), run.key), None)


def points_of(line: Sequence[Step], now: float) -> list[Json]:
    """`gap`: no line leads here from the point before, because another attempt began or nothing was heard meanwhile."""
    told = [point for point in line if point.step is not None]
    spacing_s = (line[-1].at - line[0].at) / LINE_PARTS if line else 0.0
    return [
        {
            "at": rfc3339.text(point.at),
            "step": point.step,
            "gap": before is not None
            and (
                before.attempt != point.attempt
                or is_silence(before.at, point.at, now=now, spacing_s=spacing_s)
            ),
        }
        for before, point in zip([None, *told], told, strict=False)
    ]
