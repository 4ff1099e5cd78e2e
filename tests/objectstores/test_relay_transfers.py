"""Transfers to and from hosts: cut at any byte, and damaged on the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from supervisor.ports.objectstore import StoreUnavailable
from supervisor.providers.ssh import stays
from tests.objectstores.relay_world import CLOUD, LAB, RelayWorld, agent_at, began

GPU1 = LAB["gpu1"]


@pytest.fixture
def world(tmp_path: Path) -> RelayWorld:
    return RelayWorld(tmp_path)


SIZE = 3_000_000  # of a checkpoint's model, twice this is its content
PIECE = 256 << 10


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEAST_BYTES", "FIRST_BYTES", "MOST_BYTES"):
        monkeypatch.setattr(stays, name, PIECE)


def check_bytes(world: RelayWorld, cuts: int) -> None:
    """In base64. Each cut may cost the piece that it met."""
    assert cuts > 2
    assert world.hosts["gpu1"].all_bytes < 4 / 3 * (2 * SIZE + cuts * PIECE) + 100_000


@pytest.mark.usefixtures("small_pieces")
def test_a_transfer_that_is_cut_goes_on_at_its_byte(world: RelayWorld) -> None:
    agent = began(world)
    host = world.hosts["gpu1"]
    agent.save(30, size=SIZE)
    before, cuts, host.all_bytes = world.own_baton(), 0, 0
    while world.own_baton().checkpoint == before.checkpoint:
        host.down, host.bytes, host.cut_after = False, 0, SIZE // 2
        world.mirrors["gpu1"].copy()
        cuts += host.down
        world.whole()
        assert cuts < 20
    check_bytes(world, cuts)
    assert world.whole().checkpoint == agent.keeper.read().checkpoint
    assert list((world.folder / "parts").iterdir()) == []


@pytest.mark.usefixtures("small_pieces")
def test_files_for_a_host_go_on_at_their_byte_too(world: RelayWorld) -> None:
    direct = began(world, CLOUD)
    direct.save(30, size=SIZE)
    host, cuts = world.hosts["gpu1"], 0
    while True:
        host.down, host.bytes, host.cut_after = False, 0, SIZE // 2
        try:
            url = world.launch("1.2.1", GPU1)
            break
        except StoreUnavailable:
            cuts += 1
            assert cuts < 20
    check_bytes(world, cuts)
    assert agent_at(url, "1.2.1").restore() == 30


def test_a_content_that_is_damaged_on_the_way_is_never_taken(world: RelayWorld) -> None:
    agent = began(world)
    before = world.own_baton()
    after = agent.save(30)
    assert after.checkpoint is not None
    path = Path(agent.store.root) / (after.checkpoint.prefix + "model.bin")
    path.write_bytes(path.read_bytes()[::-1])
    world.mirrors["gpu1"].copy()
    assert world.whole() == before
    new = agent_at(world.launch("1.2.1", LAB["gpu2"]), "1.2.1")
    assert new.restore() == 20, "the one before it, as an agent does"


def test_of_checkpoints_that_come_too_fast_the_newest_is_copied(world: RelayWorld) -> None:
    """While a pass fetches one, the training saves the next ones and deletes it: the next pass takes the newest."""
    agent = began(world)
    step = 20
    host, call = world.hosts["gpu1"], world.hosts["gpu1"].call

    def slow(operation: str, values: Mapping[str, object], within_s: float) -> Mapping[str, object]:
        nonlocal step
        if values["method"] == "read" or (values["method"] == "look" and len(values["keys"]) > 2):  # type: ignore[arg-type]
            step += 10
            agent.save(step, size=100_000)
        return call(operation, values, within_s)

    host.call = slow  # type: ignore[method-assign]
    agent.save(21, size=100_000)
    parts = world.folder / "parts"
    for _ in range(3):
        world.mirrors["gpu1"].copy()
        world.whole()
        assert len([path for path in parts.rglob("*") if path.is_file()]) <= 1
    copy = world.own_baton().checkpoint
    assert copy is not None
    assert copy.step > 21
