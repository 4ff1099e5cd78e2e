"""`with_pulse` is faster than `dataclasses.replace` and must have the same result."""

from __future__ import annotations

from dataclasses import fields, replace

from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.machines import Placement
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run, with_pulse
from supervisor.domain.status import Status

PLACE = Placement("gce", "us-east1", "us-east1-c", "t4", True)
ATTEMPT = Attempt(1, 1, "1.1.1", "spot-1", "77", PLACE, 1.0, 2.0)
RUN = Run(1, "a-run", "local", "cell", "gce", 1, Status.RUNNING, Policy(), 1.0, 1.0, 1.0, attempt=ATTEMPT)


def test_a_newer_pulse_changes_nothing_else() -> None:
    marked = [object() for _ in fields(Run)]
    before = Run(*marked)  # type: ignore[arg-type]
    after = with_pulse(before, Pulse("1.1.1", 7), ATTEMPT)
    changed = {field.name for field in fields(Run) if getattr(after, field.name) is not getattr(before, field.name)}
    assert changed == {"pulse", "attempt"}
    assert [getattr(before, field.name) for field in fields(Run)] == marked


def test_it_is_what_replace_makes() -> None:
    pulse, timed = Pulse("1.1.1", 7), replace(ATTEMPT, running_at=9.0)
    assert with_pulse(RUN, pulse, timed) == replace(RUN, pulse=pulse, attempt=timed)
