"""Runs at home on a host: no order of crashes gives two places the right to write, and nothing verified is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.heartbeat import Beat
from supervisor.domain.observation import Seen, Unknown
from supervisor.host.stays import Stays
from supervisor.objectstores.relay import RelayedStore
from supervisor.ports.objectstore import PreconditionFailed, StoreUnavailable
from supervisor.reconciler.acting import batonwork
from supervisor.reconciler.observing.beats import BeatReader
from supervisor.reconciler.observing.readers import read_baton
from tests.fakes.clock import FakeClock
from tests.objectstores.relay_world import (
    CLOUD,
    CODE,
    LAB,
    OURS,
    RUN,
    RelayWorld,
    ScriptedAgent,
    agent_at,
    began,
    relay_of,
)

GPU1, GPU2 = LAB["gpu1"], LAB["gpu2"]


@pytest.fixture
def world(tmp_path: Path) -> RelayWorld:
    return RelayWorld(tmp_path)


def test_an_agent_on_a_host_works_in_its_own_folder_and_is_mirrored(world: RelayWorld) -> None:
    agent = began(world)
    agent.beat()
    world.probe()
    agent.store.put(runfiles.log_chunk(RUN, 1, 1), b"a line\n")
    assert agent.store.get(CODE)[0] == b"the code"
    world.mirrors["gpu1"].copy()
    copy = world.whole()
    assert copy.home is not None
    assert (copy.home.zone, copy.checkpoint and copy.checkpoint.step) == ("gpu1", 20)
    assert world.own.get(runfiles.log_chunk(RUN, 1, 1))[0] == b"a line\n"
    data, info = world.own.get(runfiles.beat(RUN))
    assert dict(info.metadata) == {"beat": data.decode()}


def test_an_old_beat_does_not_become_young_by_a_copy(world: RelayWorld) -> None:
    agent = began(world)
    agent.beat()
    world.probe()
    before = world.own.stat(runfiles.beat(RUN)).generation
    world.probe()
    world.restart()
    world.probe()
    world.mirrors["gpu1"].copy()
    assert world.own.stat(runfiles.beat(RUN)).generation == before
    agent.beat()
    world.probe()
    assert world.own.stat(runfiles.beat(RUN)).generation != before


def test_a_listing_only_hands_beats_over_and_the_tick_has_them_at_once(world: RelayWorld) -> None:
    """Also those of the last moment of a machine that the same listing shows gone: no request to our store is needed,
    and none is made, also when another thread lists the machines."""
    agent = began(world)
    mirror, reader = world.mirrors["gpu1"], BeatReader(world.own, FakeClock(), OURS, "")
    rows = [beaten(world, agent) for _ in range(3)]
    world.steps.count = 0
    for rows_of in (rows[1], rows[2], rows[1]):  # of two listings at once the older one may come last
        world.note("gpu1", {"beats": rows_of})
    assert world.steps.count == 0
    assert reader.read().beats == {}
    assert [beat.beat.sequence for beat in reader.with_relayed(reader.read(), mirror.beats()).beats.values()] == [3]
    mirror.copy_beats()
    world.note("gpu1", {"beats": [{**rows[2][0], "info": "torn"}, {}]})
    assert mirror.beats() == []


def beaten(world: RelayWorld, agent: ScriptedAgent) -> list[Any]:
    """What a probe reads after the next beat of this agent."""
    agent.sequence += 1
    data = heartbeat.encode(Beat(RUN, 1, agent.launch_id, "machine-1.1.1", "boot", agent.sequence, "training"))
    agent.store.put(runfiles.beat(RUN), data, metadata={"beat": data.decode()})
    return Stays(world.hosts["gpu1"].root).beats()


def test_a_beat_in_a_folder_that_the_run_has_left_is_none_of_the_run(world: RelayWorld) -> None:
    old = began(world)
    world.launch("1.2.1", GPU2)
    world.mirrors["gpu1"].copy()
    old.beat()
    world.probe()
    assert world.mirrors["gpu1"].beats() == []


def test_a_beat_from_a_folder_that_the_run_has_left_is_not_copied(world: RelayWorld) -> None:
    old = began(world)
    new = agent_at(world.launch("1.2.1", GPU2), "1.2.1")
    new.beat()
    old.beat()
    world.probe()
    assert json.loads(world.own.get(runfiles.beat(RUN))[0])["launch_id"] == "1.2.1"


def test_a_further_attempt_on_the_same_host_goes_on_in_the_same_folder(world: RelayWorld) -> None:
    first = began(world)
    first.save(30)
    url = world.launch("1.2.1", GPU1)
    assert url == first.store.url
    assert agent_at(url, "1.2.1").restore() == 30


def test_zones_of_one_cluster_are_one_place(tmp_path: Path) -> None:
    """A further attempt in another zone goes on in the same folder, and nothing is sent. A home there is busy while a
    later try may have a machine in any of its zones."""
    world = RelayWorld(tmp_path, lambda zone: "gpu1")
    began(world).save(30)
    url = world.launch("1.2.1", GPU2)
    home = world.own_baton().home
    assert home is not None
    assert (home.zone, home.stay) == ("gpu1", f"{RUN}-1.1.1")
    assert agent_at(url, "1.2.1").restore() == 30
    assert world.hosts["gpu2"].calls == []
    world.hosts["gpu1"].down = True
    world.homes.write_off(RUN, "1.1.1", GPU2)
    assert world.own_baton().home == home


def test_a_host_that_cannot_be_reached_leaves_the_baton_unknown_and_nothing_starts_elsewhere(world: RelayWorld) -> None:
    agent = began(world)
    world.hosts["gpu1"].down = True
    agent.save(30)
    assert isinstance(read_baton(world.objects, RUN), Unknown)
    for placement in (GPU2, CLOUD):
        with pytest.raises(StoreUnavailable):
            world.launch("1.2.1", placement)
        with pytest.raises(StoreUnavailable):
            world.homes.settle(RUN, "1.2.1", placement, holder_gone=True)
    assert world.hosts["gpu2"].calls == []
    world.hosts["gpu1"].down = False
    assert isinstance(read_baton(world.objects, RUN), Seen)
    world.mirrors["gpu1"].copy()
    assert world.whole().checkpoint == agent.keeper.read().checkpoint


def test_a_run_whose_provider_relays_no_longer_waits_for_the_setting(world: RelayWorld) -> None:
    """Broken variant: the copy here would pass for the truth, and a second attempt would start beside the first."""
    began(world)
    part = read_baton(RelayedStore(world.own, {}), RUN)
    assert isinstance(part, Unknown)
    assert "relays none with these settings" in part.reason


def test_done_is_not_shown_before_its_results_are_here(world: RelayWorld) -> None:
    agent = began(world)
    agent.finish()
    part = read_baton(world.objects, RUN)
    assert isinstance(part, Unknown)
    assert "results" in part.reason
    world.mirrors["gpu1"].copy()
    assert world.whole().done is not None
    assert isinstance(read_baton(world.objects, RUN), Seen)


def test_a_stop_marker_reaches_the_host_and_a_used_up_one_leaves_it(world: RelayWorld) -> None:
    agent = began(world)
    batonwork.write_stop(world.objects, RUN, "ada")
    world.mirrors["gpu1"].copy()
    key = runfiles.stop_marker(RUN)
    assert agent.store.get(key)[0] == world.own.get(key)[0]
    consumed = world.own.stat(key).generation
    reopen = lambda baton: baton and batons.open_generation(baton, 2, False, consumed)  # noqa: E731
    batonwork.change(world.objects, RUN, reopen)
    world.launch("2.2.1", GPU1)
    assert runfiles.stop_marker(RUN) not in [info.key for page in agent.store.pages("runs/") for info in page.objects]


def test_a_stay_ends_when_its_run_is_closed_and_its_machine_gone(world: RelayWorld) -> None:
    agent = began(world)
    agent.finish()
    world.mirrors["gpu1"].copy()
    batonwork.change(world.objects, RUN, lambda baton: baton and batons.close(baton, "completed"))
    world.mirrors["gpu1"].copy()
    assert world.own_baton().home is not None  # its machine is there
    world.hosts["gpu1"].machines = []
    world.mirrors["gpu1"].copy()
    after = world.whole()
    assert (after.home, after.closed, after.done is not None) == (None, "completed", True)
    world.mirrors["gpu1"].copy()
    assert world.relay.stays("gpu1") == ()
    assert not (world.hosts["gpu1"].root / "stays" / f"{RUN}-1.1.1").exists()


def test_a_resume_that_meets_the_end_of_a_stay_has_one_place(world: RelayWorld) -> None:
    """The mirror has read the closed baton, and ends the stay after the resume has opened it again."""
    began(world)
    batonwork.change(world.objects, RUN, lambda baton: baton and batons.close(baton, "stopped"))
    world.hosts["gpu1"].machines = []
    mirror, relay = world.mirrors["gpu1"], world.relay

    def resumed(zone: str, stay: str) -> object:
        there = type(relay).store(relay, zone, stay)
        look = there.look

        def look_then_resume(*values: object) -> object:
            seen = look(*values)  # type: ignore[arg-type]
            batonwork.change(world.objects, RUN, lambda baton: baton and batons.open_generation(baton, 2, False, None))
            return seen

        there.look = look_then_resume  # type: ignore[method-assign, assignment]
        return there

    relay.store = resumed  # type: ignore[method-assign, assignment]
    mirror.copy()
    del relay.store  # type: ignore[method-assign]
    assert world.own_baton().home is not None
    assert agent_at(world.launch("2.2.1", GPU1), "2.2.1").restore() == 20


def test_logs_and_records_of_the_last_minutes_outlive_a_move(world: RelayWorld) -> None:
    """The run is moved before a pass of the mirror has seen them, and by a process that has copied none of them."""
    agent = began(world)
    last = {runfiles.log_chunk(RUN, 1, 2): b"the last line\n", runfiles.exit_record(RUN, 1): b"{}"}
    for key, data in last.items():
        agent.store.put(key, data)
    world.restart()
    world.launch("1.2.1", CLOUD)
    world.hosts["gpu1"].machines = []
    world.mirrors["gpu1"].copy()
    assert {key: world.own.get(key)[0] for key in last} == last
    assert world.relay.stays("gpu1") == ()


def test_files_that_the_baton_does_not_name_any_more_are_deleted_here_too(world: RelayWorld) -> None:
    agent = began(world)
    for step in range(30, 80, 10):
        agent.save(step)
    world.mirrors["gpu1"].copy()
    named = {pointer.prefix for pointer in batons.pointers(world.whole())}
    here = {
        info.key.rpartition("/")[0] + "/"
        for page in world.own.pages(f"runs/{RUN}/checkpoints/")
        for info in page.objects
    }
    assert here == named
    assert len(named) == 3


def test_a_host_that_was_written_off_counts_no_more_when_it_comes_back(world: RelayWorld) -> None:
    old = began(world)
    world.hosts["gpu1"].down = True
    old.save(30)
    world.homes.write_off(RUN, "1.1.1", None)
    new = agent_at(world.launch("1.2.1", GPU2), "1.2.1")
    assert new.restore() == 20
    world.hosts["gpu2"].down = True
    world.homes.write_off(RUN, "1.1.1", None)
    world.hosts["gpu2"].down = False
    new.save(25)
    world.hosts["gpu1"].down = False
    old.save(40)  # in its own folder
    for mirror in world.mirrors.values():
        mirror.copy()
    copy = world.whole().checkpoint
    assert copy is not None
    assert copy.step == 25
    world.hosts["gpu1"].machines = []
    world.mirrors["gpu1"].copy()
    assert [stay.name for stay in world.relay.stays("gpu1")] == [f"{RUN}-1.1.1"], "what is only there stays"


def test_a_home_is_forgotten_only_where_it_is_lost(world: RelayWorld) -> None:
    began(world).save(30)
    for down, busy in ((False, None), (True, GPU1)):
        world.hosts["gpu1"].down = down
        world.homes.write_off(RUN, "1.1.1", busy)
        assert world.own_baton().home is not None, (down, busy)
    world.homes.write_off(RUN, "1.1.1", GPU2)
    after = world.own_baton()
    assert after.home is None
    assert after.holder is not None
    assert after.holder.left


def test_a_host_that_responds_after_a_write_off_gives_its_newest_checkpoint(world: RelayWorld) -> None:
    """The row says so first; nothing is lost when the host is there again before the attempt has ended."""
    began(world).save(30)
    world.homes.write_off(RUN, "1.1.1", None)
    assert agent_at(world.launch("1.2.1", GPU2), "1.2.1").restore() == 30


def test_a_write_to_a_baton_that_was_moved_in_between_fails(world: RelayWorld) -> None:
    began(world)
    raw, info = world.objects.get(runfiles.baton(RUN))
    world.launch("1.2.1", CLOUD)
    with pytest.raises(PreconditionFailed):
        world.objects.put(runfiles.baton(RUN), raw, info.generation)
    before = world.own.get(runfiles.baton(RUN))[1]
    world.launch("1.3.1", GPU2)
    with pytest.raises(PreconditionFailed):
        world.objects.put(runfiles.baton(RUN), raw, before.generation)


def test_a_stay_of_another_supervisor_is_never_listed_or_touched(world: RelayWorld) -> None:
    began(world)
    other = relay_of(world, "sup-2")
    assert other.stays("gpu1") == ()
    other.forget("gpu1", f"{RUN}-1.1.1")
    with pytest.raises(Exception, match="belongs to another supervisor"):
        other.make("gpu1", f"{RUN}-1.1.1", RUN)
    assert [stay.run_id for stay in world.relay.stays("gpu1")] == [RUN]
    assert OURS not in str(other.stays("gpu1"))
