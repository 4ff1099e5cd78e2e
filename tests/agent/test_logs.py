"""The log in the store: complete, in order, few objects, and no line that hurts."""

from pathlib import Path

import pytest

from supervisor.agent.watch.output import CHUNK_BYTES, LINE_BYTES, SEAL_BYTES, LineCutter, LogShipper
from supervisor.contract import runfiles
from supervisor.contract.stores.promise import StoreUnavailable
from tests.agent.desk import RUN, store_in


class Desk:
    def __init__(self, folder: Path) -> None:
        self.store = store_in(folder)
        self.path = folder / "output.log"
        self.path.touch()
        self.shipper = LogShipper(self.store, RUN, 1, str(self.path))

    def out(self, data: bytes) -> None:
        with self.path.open("ab") as target:
            target.write(data)

    def log(self) -> bytes:
        return b"".join(self.chunks())

    def chunks(self) -> list[bytes]:
        return [self.store.calm.get(key)[0] for key in self.store.keys(runfiles.logs(RUN, 1))]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_quiet_log_is_one_object_that_grows(desk: Desk) -> None:
    for number in range(100):
        desk.out(b"line %d\n" % number)
        desk.shipper.ship()
    assert desk.chunks() == [b"".join(b"line %d\n" % number for number in range(100))]


def test_nothing_new_writes_nothing(desk: Desk) -> None:
    desk.shipper.ship()
    desk.out(b"x\n")
    desk.shipper.ship()
    desk.shipper.ship()
    assert len(desk.store.calls) == 1


def test_a_chunk_is_sealed_when_it_is_big_enough(desk: Desk) -> None:
    line = b"x" * 1023 + b"\n"
    for _ in range(200):
        desk.out(line)
        desk.shipper.ship()
    assert desk.log() == line * 200
    assert [len(chunk) for chunk in desk.chunks()] == [SEAL_BYTES, SEAL_BYTES, SEAL_BYTES, 200 * 1024 - 3 * SEAL_BYTES]


def test_a_flood_comes_in_chunks_of_at_most_a_megabyte(desk: Desk) -> None:
    data = b"".join(b"line %d\n" % number for number in range(400_000))
    desk.out(data)
    desk.shipper.ship()
    assert desk.log() == data
    assert max(len(chunk) for chunk in desk.chunks()) <= CHUNK_BYTES
    assert len(desk.chunks()) <= len(data) // CHUNK_BYTES + 1


@pytest.mark.parametrize("piece", [1 << 20, 50_000, 7_777])
def test_a_long_line_is_cut_wherever_it_is_torn(piece: int) -> None:
    cutter = LineCutter()
    data = b"before\n" + b"x" * (1 << 20) + b"\nafter\n"
    out = b"".join(cutter.feed(data[at : at + piece]) for at in range(0, len(data), piece))
    cut = (1 << 20) - LINE_BYTES
    assert out == b"before\n" + b"x" * LINE_BYTES + b" [... %d bytes of this line were cut]\nafter\n" % cut


def test_a_long_line_without_an_end_is_marked_at_the_end(desk: Desk) -> None:
    desk.out(b"y" * (LINE_BYTES + 5))
    desk.shipper.ship()
    desk.shipper.ship(last=True)
    desk.shipper.ship(last=True)
    assert desk.log() == b"y" * LINE_BYTES + b" [... 5 bytes of this line were cut]"


def test_an_outage_loses_nothing_and_remembers_little(desk: Desk) -> None:
    data = b"".join(b"line %d\n" % number for number in range(600_000))
    desk.store.away = True
    for at in range(0, len(data), 500_000):
        desk.out(data[at : at + 500_000])
        with pytest.raises(StoreUnavailable):
            desk.shipper.ship()
    assert len(desk.shipper._chunk) <= 2 * CHUNK_BYTES
    desk.store.away = False
    desk.shipper.ship(last=True)
    assert desk.log() == data


def test_a_lost_answer_doubles_no_line(desk: Desk) -> None:
    desk.out(b"one\n")
    desk.store.lose_answers = 1
    with pytest.raises(StoreUnavailable):
        desk.shipper.ship()
    desk.out(b"two\n")
    desk.shipper.ship()
    assert desk.log() == b"one\ntwo\n"


def test_a_log_that_was_emptied_goes_on_from_its_beginning(desk: Desk) -> None:
    desk.out(b"before\n")
    desk.shipper.ship()
    desk.path.write_bytes(b"after\n")
    desk.shipper.ship(last=True)
    assert desk.log() == b"before\nafter\n"


@pytest.mark.parametrize("last", [False, True])
def test_a_call_ends_though_somebody_writes_faster_than_it_ships(desk: Desk, last: bool) -> None:
    line = b"x" * 1023 + b"\n"
    desk.out(line * 2000)
    put, calls = desk.store.put, 0

    def flood(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        assert calls < 20, "it never ends"
        desk.out(line * 2000)
        return put(*arguments)

    desk.store.put = flood  # type: ignore[method-assign, assignment]
    desk.shipper.ship(last)
    assert desk.log() == line * 2000
    desk.shipper.ship()
    assert len(desk.log()) > len(line) * 2000


def test_a_log_that_became_a_link_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("root")
    desk.path.unlink()
    desk.path.symlink_to(tmp_path / "passwd")
    desk.shipper.ship(last=True)
    assert desk.log() == b""
