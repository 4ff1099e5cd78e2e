"""0 double writers and 0 orphans in thousands of races; the same worlds find both where a rule is broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Pointer
from supervisor.lifecycle import decide as rules
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.phases.racing import without_rival
from tests.fakes.objectstore import MemoryStore
from tests.properties import examples
from tests.reconciler.race_world import Race, SimMachine


def left_over(race: Race) -> list[str]:
    """Machines at the end that are not that of the live attempt."""
    live = race.run.live_attempt
    return [m.call.machine_name for m in race._there() if live is None or m.call.launch_id != live.launch_id]


def test_no_race_has_two_writers_and_none_leaves_a_machine() -> None:
    raced = 0
    for seed in range(examples(100, 10_000)):
        race = Race(seed).play()
        assert not race.double, f"seed {seed}: {race.writers}"
        assert not race.orphans, f"seed {seed}: {race.orphans}"
        assert not left_over(race), f"seed {seed}: {left_over(race)}, {race.run.retiring}"
        assert race.run.live_attempt is not None or race.run.terminal, f"seed {seed}: {race.run.status}"
        raced += race.raced
    assert raced >= 0.9 * examples(100, 10_000)


def write_as_read(machine: SimMachine, store: MemoryStore) -> bool:
    """Broken: an agent writes whoever holds the baton."""
    assert machine.read is not None
    step = 1 + (machine.read[0].checkpoint.step if machine.read[0].checkpoint is not None else 0)
    baton = batons.decode(store.get(runfiles.baton("digits"))[0])
    store.put(runfiles.baton("digits"), batons.encode(baton._replace(checkpoint=Pointer(step, "x/", ()))))
    return True


def test_a_loser_that_is_not_fenced_is_seen() -> None:
    assert any(Race(seed, write=write_as_read, fenced=False).play().double for seed in range(100))


def forgotten(decision: Decision, *more: Any) -> Decision:
    """Broken: the request that lost is closed, and nobody watches what it makes."""
    after = without_rival(decision, *more)
    return replace(after, run=replace(after.run, retiring=decision.run.retiring))


def test_a_request_that_nobody_watches_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "without_rival", forgotten)
    assert any(Race(seed).play().orphans for seed in range(20))
