"""Every output of the agent is masked: the log however it is cut, beats, names of files. The same checks also catch an
agent that masks nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.agent.checkpoints.snapshots import ResultsFolder
from supervisor.agent.life.results import ResultsUploader, Unverified
from supervisor.agent.machine.masking import NOTHING, Masker
from supervisor.agent.watch import ends
from supervisor.agent.watch.beat_state import BeatState
from supervisor.agent.watch.output import CHUNK_BYTES, LINE_BYTES, LogShipper
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.heartbeat import MAX_TEXT
from tests.agent.bench import IDENTITY, RUN, ManualClock, job, patient, store_in
from tests.agent.checkpoint_bench import Bench

VALUE = "hush-4711-hush-4712"
MASKER = Masker({"API_KEY": VALUE})


class Log:
    def __init__(self, folder: Path, masker: Masker) -> None:
        self.store = store_in(folder)
        self.path = folder / "output.log"
        self.path.touch()
        self.shipper = LogShipper(self.store, RUN, 1, str(self.path), masker)

    def out(self, data: bytes) -> None:
        with self.path.open("ab") as target:
            target.write(data)

    def text(self) -> bytes:
        keys = self.store.keys(runfiles.logs(RUN, 1))
        return b"".join(self.store.inner.get(key)[0] for key in keys)


def test_a_value_in_two_writes_is_masked(tmp_path: Path) -> None:
    for cut in range(1, len(VALUE)):
        (tmp_path / str(cut)).mkdir()
        log = Log(tmp_path / str(cut), MASKER)
        log.out(b"with " + VALUE[:cut].encode())
        log.shipper.ship()
        log.shipper.ship()  # it rests for a while
        log.out(VALUE[cut:].encode() + b" done\n")
        log.shipper.ship(last=True)
        assert VALUE.encode() not in log.text()
        shown = VALUE[:cut] if cut < 4 else ""
        assert log.text() == f"with {shown}[secret API_KEY] done\n".encode()


@pytest.mark.parametrize("before", [LINE_BYTES - 5, CHUNK_BYTES - 5, CHUNK_BYTES - len(VALUE)])
def test_a_value_where_a_line_a_read_or_a_chunk_is_cut_is_masked(tmp_path: Path, before: int) -> None:
    log = Log(tmp_path, MASKER)
    filler = b"x" * (before % 1000) + b"\n" + b"y" * 999 + b"\n"
    lines = b"z" * before if before < LINE_BYTES else (filler * (before // len(filler) + 1))[:before]
    log.out(lines + VALUE.encode() + b"\nend\n")
    log.shipper.ship(last=True)
    shown = log.text()
    assert shown.endswith(b"\nend\n")
    assert VALUE[:6].encode() not in shown
    assert VALUE[-6:].encode() not in shown


def test_a_reader_of_the_log_sees_the_rest_of_a_line_soon(tmp_path: Path) -> None:
    log = Log(tmp_path, MASKER)
    log.out(b"loss 0.3 h")
    log.shipper.ship()
    log.shipper.ship()
    assert log.text() == b"loss 0.3 h"


def beat_text(masker: Masker, say: Callable[[BeatState], None]) -> str:
    beat_state = BeatState(job(), IDENTITY, masker)
    say(beat_state)
    return heartbeat.encode(beat_state.next_beat()).decode()


WAYS: list[Callable[[BeatState], None]] = [
    lambda s: s.note("checkpoint", f"checkpoint {VALUE}.pt was not saved"),
    lambda s: s.note("long", "x" * (MAX_TEXT - 8) + VALUE),
    lambda s: s.update(metrics={f"loss {VALUE}": 1.0}),
]


@pytest.mark.parametrize("way", WAYS)
def test_a_beat_carries_no_value_and_no_half_of_one(way: Callable[[BeatState], None]) -> None:
    assert VALUE[:8] in beat_text(NOTHING, way)  # an agent that masks nothing is caught
    assert VALUE[:8] not in beat_text(MASKER, way)


@pytest.mark.parametrize("cut", range(len(VALUE)))
def test_the_tail_of_an_output_begins_and_ends_without_a_piece_of_a_value(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "output.log"
    path.write_text(f"{VALUE} and then {VALUE} in the end {VALUE[:-1]}")
    kept = ends.masked_tail(str(path), MASKER, path.stat().st_size - cut)
    assert b"4711" not in kept
    assert b"4712" not in kept
    assert kept.endswith(b" in the end [secret API_KEY]")


def test_results_with_a_value_in_their_name_are_stored_under_a_masked_one(tmp_path: Path) -> None:
    store, folder = store_in(tmp_path), tmp_path / "results"
    (folder / VALUE).mkdir(parents=True)
    (folder / VALUE / "a.txt").write_text("a")
    (folder / "b.txt").write_text("b")
    uploader = ResultsUploader(
        store, ResultsFolder(str(folder)), "runs/x/", retrier=patient(ManualClock()), masker=MASKER
    )
    assert [entry.name for entry in uploader.upload()] == ["b.txt", "[secret API_KEY]/a.txt"]
    assert store.keys("runs/x/") == ["runs/x/[secret API_KEY]/a.txt", "runs/x/b.txt"]
    calls = len(store.calls)
    uploader.upload()
    assert len(store.calls) == calls  # a verified file is not uploaded again


def test_two_results_that_differ_in_a_secret_only_are_reported_not_mixed_up(tmp_path: Path) -> None:
    store, folder = store_in(tmp_path), tmp_path / "results"
    folder.mkdir()
    masker = Masker({"K": VALUE, "L": "another-4713"})
    (folder / VALUE).write_text("a")
    (folder / "b").mkdir()
    (folder / "b" / VALUE).write_text("b")
    uploader = ResultsUploader(
        store, ResultsFolder(str(folder)), "runs/x/", retrier=patient(ManualClock()), masker=masker
    )
    assert len(uploader.upload()) == 2
    twin = MaskerOfOne()
    uploader = ResultsUploader(
        store, ResultsFolder(str(folder)), "runs/y/", retrier=patient(ManualClock()), masker=twin
    )
    with pytest.raises(Unverified, match="without secrets it has the name of another file"):
        uploader.upload()


def test_a_result_that_is_called_like_a_mask_does_not_take_its_place(tmp_path: Path) -> None:
    store, folder, masker = store_in(tmp_path), tmp_path / "results", Masker({"PIN": "4711-4712"})
    folder.mkdir()
    (folder / "4711-4712").write_text("a")
    (folder / "[secret PIN]").write_text("b")
    uploader = ResultsUploader(
        store, ResultsFolder(str(folder)), "runs/x/", retrier=patient(ManualClock()), masker=masker
    )
    with pytest.raises(Unverified, match=r"1 of 2 files .* without secrets it has the name of another file"):
        uploader.upload()


def test_files_of_a_checkpoint_that_would_get_one_name_are_reported_and_left_intact(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.saver = bench.new_saver(tmp_path, masker=MaskerOfOne())
    bench.write("step-1/a", "first")
    bench.write("step-1/b", "second")
    bench.save()
    assert bench.notes == ["checkpoint step-1 was not saved: without secrets two of its files have one name"]
    assert (bench.path / "step-1" / "a").read_text() == "first"
    assert bench.files() == []


class MaskerOfOne(Masker):
    """It turns every name into the same text."""

    def __init__(self) -> None:
        super().__init__({})

    def text(self, text: str) -> str:
        return "same"
