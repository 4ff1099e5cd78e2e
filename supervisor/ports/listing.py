"""What a list of runs is made of: a page of them, and the points of their lines of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.domain.run import Run

LINE_PARTS = 22  # into which a run's line of steps is cut: 23 points at most


@dataclass(frozen=True, slots=True)
class RunPage:
    """In the order of the filter. `counts`: status -> number of runs under the same filter, without its `statuses`."""

    runs: tuple[Run, ...]
    labels: Mapping[int, Mapping[str, str]]
    next_key: int | None  # give it back as `before_key` for the next page
    counts: Mapping[str, int] = field(default_factory=dict)
    usd_per_h: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """A point of a run's line of steps. `step` None: the attempt had told none by then."""

    at: float
    attempt: int
    step: int | None
