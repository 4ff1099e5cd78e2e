"""The log in the store: complete, in order, few objects, and robust against any line."""

from pathlib import Path

import pytest

from supervisor.agent.watch.output import CHUNK_BYTES, LINE_BYTES, SEAL_BYTES, LineCutter, LogShipper
from supervisor.contract import runfiles
from supervisor.contract.stores.promise import StoreUnavailable
from tests.agent.bench import RUN, store_in


class Bench:
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
        return [self.store.inner.get(key)[0] for key in self.store.keys(runfiles.logs(RUN, 1))]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_quiet_log_is_one_object_that_grows(bench: Bench) -> None:
    for number in range(100):
        bench.out(b"line %d\n" % number)
        bench.shipper.ship()
    assert bench.chunks() == [b"".join(b"line %d\n" % number for number in range(100))]


def test_nothing_new_writes_nothing(bench: Bench) -> None:
    bench.shipper.ship()
    bench.out(b"x\n")
    bench.shipper.ship()
    bench.shipper.ship()
    assert len(bench.store.calls) == 1


def test_a_chunk_is_sealed_when_it_is_big_enough(bench: Bench) -> None:
    line = b"x" * 1023 + b"\n"
    for _ in range(200):
        bench.out(line)
        bench.shipper.ship()
    assert bench.log() == line * 200
    assert [len(chunk) for chunk in bench.chunks()] == [SEAL_BYTES, SEAL_BYTES, SEAL_BYTES, 200 * 1024 - 3 * SEAL_BYTES]


def test_a_flood_comes_in_chunks_of_at_most_a_megabyte(bench: Bench) -> None:
    data = b"".join(b"line %d\n" % number for number in range(400_000))
    bench.out(data)
    bench.shipper.ship()
    assert bench.log() == data
    assert max(len(chunk) for chunk in bench.chunks()) <= CHUNK_BYTES
    assert len(bench.chunks()) <= len(data) // CHUNK_BYTES + 1


@pytest.mark.parametrize("piece", [1 << 20, 50_000, 7_777])
def test_a_long_line_is_cut_wherever_it_is_torn(piece: int) -> None:
    cutter = LineCutter()
    data = b"before\n" + b"x" * (1 << 20) + b"\nafter\n"
    out = b"".join(cutter.feed(data[at : at + piece]) for at in range(0, len(data), piece))
    cut = (1 << 20) - LINE_BYTES
    assert out == b"before\n" + b"x" * LINE_BYTES + b" [... %d bytes of this line were cut]\nafter\n" % cut


def test_a_long_line_without_an_end_is_marked_at_the_end(bench: Bench) -> None:
    bench.out(b"y" * (LINE_BYTES + 5))
    bench.shipper.ship()
    bench.shipper.ship(last=True)
    bench.shipper.ship(last=True)
    assert bench.log() == b"y" * LINE_BYTES + b" [... 5 bytes of this line were cut]"


def test_an_outage_loses_nothing_and_uses_little_memory(bench: Bench) -> None:
    data = b"".join(b"line %d\n" % number for number in range(600_000))
    bench.store.away = True
    for at in range(0, len(data), 500_000):
        bench.out(data[at : at + 500_000])
        with pytest.raises(StoreUnavailable):
            bench.shipper.ship()
    assert len(bench.shipper._chunk) <= 2 * CHUNK_BYTES
    bench.store.away = False
    bench.shipper.ship(last=True)
    assert bench.log() == data


def test_a_lost_response_doubles_no_line(bench: Bench) -> None:
    bench.out(b"one\n")
    bench.store.lose_answers = 1
    with pytest.raises(StoreUnavailable):
        bench.shipper.ship()
    bench.out(b"two\n")
    bench.shipper.ship()
    assert bench.log() == b"one\ntwo\n"


def test_a_log_that_was_emptied_continues_from_its_beginning(bench: Bench) -> None:
    bench.out(b"before\n")
    bench.shipper.ship()
    bench.path.write_bytes(b"after\n")
    bench.shipper.ship(last=True)
    assert bench.log() == b"before\nafter\n"


@pytest.mark.parametrize("last", [False, True])
def test_a_call_ends_although_the_log_grows_faster_than_it_ships(bench: Bench, last: bool) -> None:
    line = b"x" * 1023 + b"\n"
    bench.out(line * 2000)
    put, calls = bench.store.put, 0

    def flood(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        assert calls < 20, "it never ends"
        bench.out(line * 2000)
        return put(*arguments)

    bench.store.put = flood  # type: ignore[method-assign, assignment]
    bench.shipper.ship(last)
    assert bench.log() == line * 2000
    bench.shipper.ship()
    assert len(bench.log()) > len(line) * 2000


def test_a_log_that_became_a_link_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("root")
    bench.path.unlink()
    bench.path.symlink_to(tmp_path / "passwd")
    bench.shipper.ship(last=True)
    assert bench.log() == b""
