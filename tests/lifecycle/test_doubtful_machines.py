"""A machine whose host its platform does not reach: with the silence of its agent it is lost, and that is free."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract.baton import Baton, Holder
from supervisor.domain.causes import Cause, Kind, rule_for
from supervisor.domain.machines import MachineRecord
from supervisor.domain.observation import BEATS, MACHINES, Absent, Observation, Seen, World
from supervisor.domain.policies import Knobs
from supervisor.lifecycle.decide import decide
from tests.lifecycle.test_dropped_connections import LAUNCH, MACHINE, training
from tests.lifecycle.worlds import NOW

DOUBT = MachineRecord(Cause.HOST_ERROR, "its node is not ready")
BATON = Seen(Baton("supervisor-1", 1, holder=Holder(1, LAUNCH, "id-1")), 0.0, "store")
WORLD = World(
    Knobs("supervisor-1"), observing_since={BEATS: NOW - 1000, MACHINES: NOW - 1000}, fresh=frozenset({BEATS, MACHINES})
)


@pytest.mark.parametrize(
    ("doubt", "silence_s", "cause"),
    [(None, 100.0, None), (DOUBT, 100.0, None), (None, 200.0, Cause.AGENT_LOST), (DOUBT, 200.0, Cause.HOST_ERROR)],
)
def test_two_signals_make_an_end(doubt: MachineRecord | None, silence_s: float, cause: Cause | None) -> None:
    machine = Seen(replace(MACHINE, doubt=doubt), 0.0, "listing")
    obs = Observation(machine, Absent(0.0, "store"), BATON, Absent(0.0, "store"))
    decision = decide(training(), obs, WORLD, NOW + silence_s)
    ended = decision.run.attempt
    assert ended is not None
    assert ended.cause == cause
    if doubt is not None and cause is not None:
        assert ended.evidence == "no beat for 250 s (limit 180 s), and its node is not ready"
        assert rule_for(cause).kind is Kind.FREE
