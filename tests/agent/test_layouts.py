"""Checkpoints of frameworks that write in place: what counts, when it is whole, and the results of that moment."""

import json
import os
import zipfile
from pathlib import Path

import pytest

from supervisor.agent.checkpoints import layouts
from supervisor.agent.checkpoints.folder import CheckpointFolder, Renames
from supervisor.agent.checkpoints.layouts import LAST_FILES, MARKER, is_torn

TRAINERS = ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "trainer_state.json")


class Bench:
    def __init__(self, folder: Path) -> None:
        self.path, self.clock = folder, 1
        self.entries = CheckpointFolder(str(folder), 10.0, set)

    def write(self, *names: str, text: str = "{}") -> None:
        for name in names:
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            self.clock += 1
            os.utime(path, (self.clock, self.clock))

    def ready(self, now: float = 0.0, last: bool = False) -> list[str]:
        return [candidate.name for candidate in self.entries.ready(now, last)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_folder_is_whole_with_its_last_file_and_is_copied_not_linked(bench: Bench) -> None:
    bench.write(*(f"checkpoint-20/{name}" for name in TRAINERS[:-1]))
    assert bench.ready() == []
    bench.write("checkpoint-20/trainer_state.json")
    (candidate,) = bench.entries.ready(0.1)
    assert (candidate.name, candidate.in_place) == ("checkpoint-20", True), "it may still be overwritten"


def test_a_folder_that_is_overwritten_is_not_whole_until_its_last_file_is_new(bench: Bench) -> None:
    bench.write("backup/latest.weights.h5", "backup/training_metadata.json")
    assert bench.ready(0.0) == ["backup"]
    bench.write("backup/latest.weights.h5")
    assert bench.ready(1.0) == [], "the last file is an older one"
    bench.write("backup/training_metadata.json")
    assert bench.ready(2.0) == ["backup"]


def test_a_folder_with_its_marker_is_never_taken(bench: Bench) -> None:
    bench.write(f"checkpoint-20/{MARKER}", *(f"checkpoint-20/{name}" for name in TRAINERS))
    assert bench.ready(0.0) == []
    assert bench.ready(100.0) == []
    assert bench.ready(101.0, last=True) == [], "not even when nobody writes any more"
    (bench.path / "checkpoint-20" / MARKER).unlink()
    assert bench.ready(102.0) == ["checkpoint-20"]


def test_a_trainers_folder_without_its_state_is_never_taken(bench: Bench) -> None:
    bench.write("checkpoint-20/pytorch_model.bin", "checkpoint-20/training_args.bin")
    assert bench.ready(0.0) == []
    assert bench.ready(100.0, last=True) == []


def test_what_the_trainer_writes_beside_its_checkpoints_is_none(bench: Bench) -> None:
    bench.write(*(f"checkpoint-20/{name}" for name in TRAINERS))
    bench.write("model.safetensors", "config.json", "training_args.bin", "all_results.json", "runs/events.1", "best.pt")
    assert sorted(bench.ready(0.0, last=True)) == ["best.pt", "checkpoint-20"]


def test_other_files_beside_folders_with_such_names_count(bench: Bench) -> None:
    """A script of its own, or Accelerate, may name its folders so."""
    bench.write("checkpoint-20/optimizer.bin", "checkpoint-20/random_states_0.pkl", "last.pt", "wandb/run.log")
    assert sorted(bench.ready(0.0, last=True)) == ["checkpoint-20", "last.pt"]


def cut(path: Path) -> bool:
    """Whole files are not torn, and each that lost its end is."""
    content = path.read_bytes()
    assert not is_torn(str(path), len(content))
    torn = []
    for size in (len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        torn.append(is_torn(str(path), size))
    return all(torn)


def test_a_file_that_lost_its_end_is_torn(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("model/data.pkl", "x" * 100_000)
    assert cut(tmp_path / "model.pt")
    header = json.dumps({"w": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}, "__metadata__": {}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(256))
    assert cut(tmp_path / "model.safetensors")
    (tmp_path / "state.json").write_text('{"epoch": 3,\n "batch": 17}\n')
    assert cut(tmp_path / "state.json") is False, "its last byte is a line's end"
    (tmp_path / "state.json").write_text('{"epoch": 3, "batch": 17}')
    assert cut(tmp_path / "state.json")
    superblock = b"\x89HDF\r\n\x1a\n" + bytes([0, 0, 0, 0, 0, 8, 8, 0]) + bytes(8)
    whole = superblock + (0).to_bytes(8, "little") + b"\xff" * 8 + (4096).to_bytes(8, "little")
    (tmp_path / "weights.h5").write_bytes(whole.ljust(4096, b"\0"))
    assert cut(tmp_path / "weights.h5")


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"PK", b"12\n", b'"text"', os.urandom(1000)])
def test_other_content_is_not_judged(content: bytes, tmp_path: Path) -> None:
    for name in ("last.pt", "model.bin", "x.npy"):
        (tmp_path / name).write_bytes(content)
        assert not is_torn(str(tmp_path / name), len(content))
    assert not is_torn(str(tmp_path / "missing.pt"), 5)


def test_a_torn_checkpoint_leaves_the_one_before_it(bench: Bench) -> None:
    bench.write("checkpoint-20/training_args.bin", "checkpoint-20/trainer_state.json")
    assert bench.ready(0.0) == ["checkpoint-20"]
    bench.write("checkpoint-40/trainer_state.json", text='{"global_step": 40, "log_hist')
    assert bench.ready(1.0, last=True) == ["checkpoint-20"]


def test_the_kernel_tells_the_moment_of_what_is_written_in_place(tmp_path: Path) -> None:
    renames = Renames(str(tmp_path))
    bench = Bench(tmp_path)
    bench.write("last.pt")
    assert renames.poll() == ["last.pt/"]
    (tmp_path / "checkpoint-1").mkdir()
    assert renames.poll() == []
    for last in sorted(LAST_FILES):
        bench.write("checkpoint-1/model.bin", f"checkpoint-1/{last}")
        assert renames.poll() == ["checkpoint-1/"]
    bench.write(f"checkpoint-1/{MARKER}", "checkpoint-1/trainer_state.json")
    assert renames.poll() == []
    (tmp_path / "checkpoint-1" / MARKER).unlink()
    assert renames.poll() == ["checkpoint-1/"]
    (tmp_path / ".half").mkdir()
    bench.write(".half/trainer_state.json")
    (tmp_path / ".half").rename(tmp_path / "checkpoint-2")
    assert renames.poll() == ["checkpoint-2"], "it was written before its watch began"
    bench.write("checkpoint-2/trainer_state.json")
    assert renames.poll() == ["checkpoint-2/"]
    bench.write("checkpoint-3/trainer_state.json")  # before anybody has seen the folder
    assert renames.poll() == ["checkpoint-3/"]
    renames.close()


def test_a_layout_without_its_newest_rule_takes_half_an_overwrite(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: the last file alone does not say that the others are of the same save."""
    monkeypatch.setattr(layouts, "is_sealed", lambda rows: any(row[0].rpartition("/")[2] in LAST_FILES for row in rows))
    bench.write("backup/latest.weights.h5", "backup/training_metadata.json")
    bench.ready(0.0)
    bench.write("backup/latest.weights.h5")
    assert bench.ready(1.0) == ["backup"]
