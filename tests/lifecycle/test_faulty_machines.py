"""Which faults set a machine aside for all owners."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.causes import Cause
from supervisor.lifecycle.incidents import blocked_by, opened_event
from tests.lifecycle.test_incidents import NOW, end, found, opened


def test_faults_of_one_run_alone_are_an_alert_and_set_no_machine_aside() -> None:
    """Broken variant: a run whose beats carried a forged Xid in two attempts took the machine from all others."""
    first = end("one", Cause.GPU_FAULT, "", zone="box", machine="box", ago=900.0)
    again = replace(first, member=replace(first.member, attempt=2, at=NOW - 60.0))
    incident = opened(first, again)
    assert (incident.blocks, blocked_by([incident]).machines) == (False, {})
    assert opened_event(incident).text.endswith("Look at this machine; the runs continue elsewhere where they may.")
    other = end("two", Cause.GPU_FAULT, "", zone="box", machine="box", ago=5.0)
    [joined] = found(other, stored=(incident,))
    assert blocked_by([joined]).machines == {"gce/box": 7}
