"""Transfers to and from hosts: cut at any byte, and damaged on the way."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Done, FileEntry, Pointer
from supervisor.contract.runfiles import SavedFile, SavedResults, encode_saved
from supervisor.host import stays as host_stays
from supervisor.host.stays import Stays
from supervisor.objectstores import copying
from supervisor.objectstores.copying import Copier
from supervisor.ports.objectstore import ObjectMissing, StoreUnavailable
from supervisor.remote import stays
from supervisor.remote.stays import HostStore
from tests.objectstores.relay_world import CLOUD, CODE, LAB, RUN, RelayWorld, ScriptedAgent, agent_at, began

GPU1 = LAB["gpu1"]


@pytest.fixture
def world(tmp_path: Path) -> RelayWorld:
    return RelayWorld(tmp_path)


SIZE = 3_000_000  # of a checkpoint's model, twice this is its content
PIECE = 256 << 10
KEY = runfiles.checkpoint(RUN, 30, 1) + "model.bin"


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


@pytest.mark.usefixtures("small_pieces")
def test_each_piece_of_a_move_is_noted_and_a_transfer_that_stands_still_is_not(world: RelayWorld) -> None:
    began(world, CLOUD).save(30, size=SIZE)
    pieces: list[int] = []

    def note() -> None:
        pieces.append(world.hosts["gpu1"].all_bytes)

    def settle() -> None:
        world.homes.settle(RUN, "1.1.1", GPU1, holder_gone=True, needs=(CODE,), note=note)

    host = world.hosts["gpu1"]
    host.cut_after = SIZE
    with pytest.raises(StoreUnavailable):
        settle()
    assert len(pieces) >= 8
    assert pieces == sorted(set(pieces)), "each one has brought something"
    count = len(pieces)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            settle()
    assert len(pieces) == count
    host.down, host.cut_after = False, None
    settle()
    assert len(pieces) > count
    count = len(pieces)
    settle()
    assert len(pieces) == count, "it is there already"


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


# --- what a training may write ----------------------------------------------------------------------------------------

FOREIGN = "runs/other/baton.json"
REFUSED = (FOREIGN, runfiles.baton(RUN), runfiles.stop_marker(RUN), runfiles.evidence(RUN, 1), "code/x", "beats/other")


def planted(agent: ScriptedAgent, key: str) -> FileEntry:
    """An object with this key in the folder on the host."""
    path = Path(agent.store.root) / "planted"
    path.write_bytes(b"planted")
    if key != runfiles.baton(RUN):
        agent.store.put_file(key, path)
    return FileEntry(key, 7, hashlib.sha256(b"planted").hexdigest())


def in_checkpoint(agent: ScriptedAgent, entry: FileEntry) -> None:
    agent.keeper.change(batons.move_checkpoint, Pointer(30, "", (entry,)))


def in_results(agent: ScriptedAgent, entry: FileEntry) -> None:
    done = Done(agent.launch_id, "", (entry,))
    agent.keeper.change(lambda baton, _, machine_id: batons.finish(baton, machine_id, done))


def in_manifest(agent: ScriptedAgent, entry: FileEntry) -> None:
    raw = encode_saved(SavedResults(1, 30, (SavedFile("x", entry.size, entry.sha256, entry.name),)))
    key = runfiles.saved_result(RUN, "1.1.1", 99, "manifest.json")
    agent.store.put(key, raw)
    manifest = FileEntry(key, len(raw), hashlib.sha256(raw).hexdigest())
    checkpoint = agent.keeper.read().checkpoint
    assert checkpoint is not None
    agent.keeper.change(batons.move_checkpoint, checkpoint._replace(step=30, results=manifest))


PLANTS = {"checkpoint": in_checkpoint, "results": in_results, "manifest": in_manifest}


@pytest.mark.parametrize("key", REFUSED)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_baton_on_a_host_names_no_other_object_of_our_store(plant: str, key: str, world: RelayWorld) -> None:
    agent = began(world)
    before = objects_of(world)
    PLANTS[plant](agent, planted(agent, key))
    world.mirrors["gpu1"].copy()
    try:
        world.launch("1.2.1", CLOUD)
    except StoreUnavailable:
        assert plant == "results"  # results are never left out
    else:
        named = batons.pointers(world.own_baton())
        assert key not in [pointer.prefix + entry.name for pointer in named for entry in pointer.files]
    after = objects_of(world)
    for other in {key, *before} - {runfiles.baton(RUN)}:
        assert after.get(other) == before.get(other), f"{other} was written"


def test_without_the_check_of_keys_another_run_is_overwritten(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Copier, "_may_copy", lambda copier, key: True)
    agent = began(world)
    in_checkpoint(agent, planted(agent, FOREIGN))
    world.mirrors["gpu1"].copy()
    assert world.own.get(FOREIGN)[0] == b"planted"


def objects_of(world: RelayWorld) -> Mapping[str, bytes]:
    pages = [page for prefix in ("runs/", "code/", "beats/") for page in world.own.pages(prefix)]
    infos = [info for page in pages for info in page.objects]
    return {info.key: world.own.get(info.key)[0] for info in infos}


def test_the_beat_of_one_run_is_never_that_of_another(world: RelayWorld) -> None:
    agent = began(world)
    agent.beat()
    row = next(iter(Stays(world.hosts["gpu1"].root).beats()))
    world.note("gpu1", {"beats": [{**row, "info": {**row["info"], "key": runfiles.beat("other")}}]})
    world.mirrors["gpu1"].copy()
    with pytest.raises(ObjectMissing):
        world.own.get(runfiles.beat("other"))


def test_a_listed_object_is_not_read_beyond_its_listed_size(world: RelayWorld) -> None:
    agent = began(world)
    key = runfiles.log_chunk(RUN, 1, 1)
    info = agent.store.put(key, b"x" * 1000)
    copier = Copier(agent.store, world.own, RUN, world.folder / "parts" / RUN, None)
    with pytest.raises(StoreUnavailable, match="changed while"):
        copier.carry_listed(info._replace(size=10))
    copier.carry_listed(info)
    assert world.own.get(key)[0] == b"x" * 1000


# --- parts of files ---------------------------------------------------------------------------------------------------


def test_a_part_that_does_not_fit_is_no_damage(world: RelayWorld) -> None:
    """A part with another beginning: the object is read again from its first byte, and the newest checkpoint counts."""
    agent = began(world)
    checkpoint = agent.save(30, size=SIZE).checkpoint
    assert checkpoint is not None
    entry = checkpoint.files[0]
    parts = world.folder / "parts" / RUN
    parts.mkdir(parents=True)
    name = hashlib.sha256(f"{checkpoint.prefix}{entry.name} {entry.sha256}".encode()).hexdigest()
    (parts / name).write_bytes(b"other bytes")
    assert agent_at(world.launch("1.2.1", LAB["gpu2"]), "1.2.1").restore() == 30


def test_one_part_is_used_by_one_copy_at_a_time(world: RelayWorld) -> None:
    """While a mirror copies a file of the run, a move does not take over what it has written."""
    agent = began(world)
    agent.save(30, size=SIZE)
    parts = world.folder / "parts" / RUN
    with copying.alone(parts), pytest.raises(StoreUnavailable, match="being copied already"):
        world.launch("1.2.1", CLOUD)
    world.mirrors["gpu1"].copy()  # it finishes what was begun
    assert agent_at(world.launch("1.2.1", CLOUD) or world.own.url, "1.2.1").restore() == 30


# --- a file for a host ------------------------------------------------------------------------------------------------


def sent(world: RelayWorld) -> tuple[HostStore, Path, list[tuple[str, float]]]:
    """A store on a host, a file, and the limits of the calls that carry contents."""
    store, path, limits = world.relay.make("gpu1", "digits-1.1.1", RUN), world.folder / "file", []
    path.write_bytes(b"x" * SIZE)
    host, call = world.hosts["gpu1"], world.hosts["gpu1"].call

    def noted(operation: str, values: Mapping[str, object], within_s: float) -> Mapping[str, object]:
        answer = call(operation, values, within_s)
        limits.append((str(values["method"]), within_s))
        return answer

    host.call = noted  # type: ignore[method-assign]
    return store, path, limits


def test_the_end_of_a_large_file_has_time_to_be_hashed(world: RelayWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stays, "FINISH_BYTES_PER_S", SIZE / 1000)
    monkeypatch.setattr(stays, "FIRST_BYTES", PIECE)
    store, path, limits = sent(world)
    store.put_file(KEY, path)
    first, *pieces, last = [within_s for method, within_s in limits if method == "receive"]
    assert min(first, last) > 1000
    assert set(pieces) == {stays.PIECE_S}


def test_a_file_that_never_fits_is_sent_twice_at_most(world: RelayWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    store, path, _ = sent(world)
    monkeypatch.setattr(host_stays, "_sha256", lambda chunks: "another")
    with pytest.raises(StoreUnavailable, match="2 times"):
        store.put_file(KEY, path)
    assert world.hosts["gpu1"].all_bytes < 4 / 3 * 2 * SIZE + 100_000


def test_a_file_that_is_being_finished_is_not_finished_beside_it(world: RelayWorld) -> None:
    store, path, _ = sent(world)
    incoming = world.hosts["gpu1"].root / "stays" / "digits-1.1.1" / "incoming"
    name = hashlib.sha256(f"{KEY} {hashlib.sha256(path.read_bytes()).hexdigest()}".encode()).hexdigest()
    with open(incoming / name, "wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StoreUnavailable, match="being received"):
            store.put_file(KEY, path)
    store.put_file(KEY, path)
    assert store.stat(KEY).size == SIZE


def test_a_stay_that_vanishes_hides_no_other_one(world: RelayWorld) -> None:
    agent = began(world)
    agent.beat()
    root = world.hosts["gpu1"].root
    for name, content in (("a-torn", "{"), ("b-other", "[]"), ("c-none", '{"supervisor_id": "sup-1"}')):
        (root / "stays" / name).mkdir()
        (root / "stays" / name / host_stays.OWNER).write_text(content)
    (root / "stays" / "d-gone").mkdir()
    (root / "stays" / "d-gone" / host_stays.OWNER).symlink_to("nothing")
    assert [row["run_id"] for row in Stays(root).beats()] == [RUN]
    assert [stay.run_id for stay in world.relay.stays("gpu1")] == [RUN]
