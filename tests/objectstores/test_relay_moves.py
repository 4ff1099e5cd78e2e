"""Moves of relayed runs: in, out and across hosts, killed at any step, and only one place counts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import CLAIM_WAIT_S, BatonRefused
from supervisor.domain.machines import Placement
from supervisor.domain.observation import Seen
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.reconciler.acting import batonwork
from supervisor.reconciler.observing.readers import read_baton
from tests.objectstores.relay_world import CLOUD, LAB, RUN, Killed, RelayWorld, ScriptedAgent, agent_at, began

GPU1, GPU2 = LAB["gpu1"], LAB["gpu2"]


@pytest.fixture
def world(tmp_path: Path) -> RelayWorld:
    return RelayWorld(tmp_path)


def moved(world: RelayWorld, placement: Placement) -> ScriptedAgent:
    return agent_at(world.launch("1.2.1", placement) or world.own.url, "1.2.1")


def check_fence(old: ScriptedAgent, new: ScriptedAgent, world: RelayWorld) -> None:
    """The old agent cannot write any more, and what the new one does counts."""
    with pytest.raises(BatonRefused):
        old.save(99)
    new.save(40)
    part = read_baton(world.objects, RUN)
    assert isinstance(part, Seen)
    assert part.value.checkpoint is not None
    assert (part.value.checkpoint.step, part.value.checkpoint.prefix) == (40, runfiles.checkpoint(RUN, 40, 2))


MOVES = {"in": (CLOUD, GPU1), "out": (GPU1, CLOUD), "across": (GPU1, GPU2)}


@pytest.mark.parametrize("move", MOVES)
def test_a_run_moves_and_only_one_place_counts(move: str, world: RelayWorld) -> None:
    source, target = MOVES[move]
    old = began(world, source)
    old.save(30)
    new = moved(world, target)
    assert new.restore() == 30
    check_fence(old, new, world)


def crashes(tmp_path: Path, source: Placement, target: Placement) -> Iterator[tuple[RelayWorld, ScriptedAgent]]:
    """A world for each step of a move, in which the process was killed before or after that step."""
    base = RelayWorld(tmp_path / "base")
    began(base, source).save(30)
    for number in range(1, 200):
        for after in (False, True):
            folder = tmp_path / f"{number}-{after}"
            shutil.copytree(base.folder, folder)
            world = RelayWorld(folder)
            place = world.own if source == CLOUD else world.hosts[source.zone].store(f"{RUN}-1.1.1")
            old = ScriptedAgent(place.url, "1.1.1")
            steps = world.steps
            steps.count, steps.kill_at, steps.after = 0, number, after
            try:
                world.launch("1.2.1", target)
            except Killed:
                world.restart()
                yield world, old
                continue
            assert number > 8  # else nothing was enumerated
            return


@pytest.mark.parametrize("move", MOVES)
def test_a_move_that_is_killed_at_any_step_is_finished_by_its_repeat(move: str, tmp_path: Path) -> None:
    for world, old in crashes(tmp_path, *MOVES[move]):
        for mirror in world.mirrors.values():
            mirror.copy()
        world.whole()
        new = moved(world, MOVES[move][1])
        assert new.restore() == 30
        check_fence(old, new, world)
        for mirror in world.mirrors.values():
            mirror.copy()
        assert world.whole().checkpoint is not None


@pytest.mark.parametrize("move", MOVES)
def test_a_move_that_is_killed_may_end_elsewhere(move: str, tmp_path: Path) -> None:
    """The next try has another placement: the run goes back. The next tick's mirror finishes what was begun."""
    source, target = MOVES[move]
    for world, old in crashes(tmp_path, source, target):
        for mirror in world.mirrors.values():
            mirror.copy()
        url = world.launch("1.3.1", source) or world.own.url
        new = agent_at(url, "1.3.1")
        assert new.restore() == 30
        with pytest.raises(BatonRefused):
            old.save(99)
        new.save(50)
        assert (world.homes.settle(RUN, "1.3.1", source, holder_gone=True) or world.own.url) == url


@pytest.mark.parametrize("move", MOVES)
def test_a_move_without_a_fence_is_caught(move: str, world: RelayWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batons, "fence", lambda baton: baton)
    monkeypatch.setattr(batons, "move_out", lambda baton: baton)
    monkeypatch.setattr(batons, "is_moved", lambda baton: False)
    source, target = MOVES[move]
    old = began(world, source)
    old.save(30)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):  # the old agent writes
        check_fence(old, moved(world, target), world)


@pytest.mark.parametrize("move", MOVES)
def test_a_move_waits_until_the_old_agent_has_left_or_may_be_overtaken(move: str, world: RelayWorld) -> None:
    source, target = MOVES[move]
    old = began(world, source)
    with pytest.raises(StoreUnavailable, match="has not left yet"):
        world.launch("1.2.1", target, holder_gone=False)
    old.save(30)  # its last save counts
    world.now += CLAIM_WAIT_S - 1
    with pytest.raises(StoreUnavailable, match="has not left yet"):
        world.launch("1.2.1", target, holder_gone=False)
    world.now += 1
    new = agent_at(world.launch("1.2.1", target, holder_gone=False) or world.own.url, "1.2.1")
    assert new.restore() == 30


def test_a_move_begins_at_once_when_the_old_agent_has_left(world: RelayWorld) -> None:
    began(world).leave()
    assert agent_at(world.launch("1.2.1", GPU2, holder_gone=False), "1.2.1").restore() == 20


def test_a_stop_that_meets_a_move_wins(world: RelayWorld) -> None:
    began(world)
    batonwork.change(
        world.objects, RUN, lambda baton: baton and batons.raise_next(baton, "1.2.1", "nonce", holder_gone=True)
    )
    batonwork.change(world.objects, RUN, lambda baton: baton and batons.close(baton, "stopped"))
    with pytest.raises(BatonRefused, match="stopped"):
        world.homes.settle(RUN, "1.2.1", GPU2, holder_gone=True)
