"""Where the time of an attempt went, as stretches on the clock: what a time line draws.

`waiting` ends with the request that brought the machine; `provisioning` ends when the machine was obtained; `pull` is
the part of `boot` in which the image is pulled, as far as beats told of it; `lost` is laid at the end of the training,
which is where the steps were that had to be done again. The stretches of an attempt follow each other without a gap,
and their sums are those of its `phase_s`, in which `waiting` holds provisioning and `boot` holds the pull.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.domain.attempt import Attempt, Try
from supervisor.services.views import rfc3339
from supervisor.services.views.run_view import Json

WAITING, PROVISIONING, BOOT, PULL = "waiting", "provisioning", "boot", "pull"
RESTORE, TRAINING, LOST = "restore", "training", "lost"

Border = tuple[str, float]  # a phase, and when it ended


def attempt_spans(attempt: Attempt, waits_since: float, lost_s: float, now: float) -> list[Json]:
    """`[{"phase", "since", "until"}]`, oldest first, none of them empty; of a live attempt until `now`."""
    end = now if attempt.ended_at is None else attempt.ended_at
    running = end if attempt.running_at is None else min(attempt.running_at, end)
    training = end if attempt.training_at is None else min(attempt.training_at, end)
    borders = [
        (WAITING, min(attempt.requested_at, attempt.started_at)),
        (PROVISIONING, attempt.started_at),
        *_boot(attempt, running),
        (RESTORE, training),
        (TRAINING, end - lost_s),
        (LOST, end),
    ]
    return spans(waits_since, borders)


def placing_spans(waits_since: float, asked: Try | None, now: float) -> list[Json]:
    """Of the attempt that is being placed. `asked`: its request that is in flight."""
    return spans(waits_since, [(WAITING, now if asked is None else asked.requested_at), (PROVISIONING, now)])


def _boot(attempt: Attempt, until: float) -> list[Border]:
    if attempt.pull_at is None:
        return [(BOOT, until)]
    pulled_at = until if attempt.pulled_at is None else attempt.pulled_at
    return [(BOOT, min(attempt.pull_at, until)), (PULL, min(pulled_at, until)), (BOOT, until)]


def spans(since: float, borders: Sequence[Border]) -> list[Json]:
    """Each border ends one stretch; a border before the last one, which a clock set back leaves, makes none."""
    found = []
    for phase, until in borders:
        if until > since:
            found.append({"phase": phase, "since": rfc3339.text(since), "until": rfc3339.text(until)})
            since = until
    return found
