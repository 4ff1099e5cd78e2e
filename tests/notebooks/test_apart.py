"""What a session without a network leaves: what counts most is packed first, and a failure says so in the cell."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from supervisor.agent.notebook import apart, session
from supervisor.contract import baton as batons
from supervisor.contract import parcel, runfiles
from supervisor.contract.baton import FileEntry, Pointer
from supervisor.contract.stores.folder import FolderStore

RUN = "digits"
JOB = {"run_id": RUN, "launch_id": "1.1.1"}
CONTENT = bytes(1000)


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    """Of a session that has saved its newest checkpoint at step 200, with an older and a half-written one."""
    store = FolderStore.create(tmp_path / "store")
    for step in (100, 200, 300):
        store.put(checkpoint(step), CONTENT)
    store.put(runfiles.results(RUN, 1) + "weights.npz", CONTENT)
    store.put(runfiles.log_chunk(RUN, 1, 1), b"a line")
    store.put(runfiles.beat(RUN), b"a beat", None, {"beat": "a beat"})
    entry = FileEntry("last.bin", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    newest = Pointer(200, runfiles.checkpoint(RUN, 200, 1), (entry,))
    store.put(runfiles.baton(RUN), batons.encode(batons.create("supervisor-one", 1)._replace(checkpoint=newest)))
    return store


def checkpoint(step: int) -> str:
    return runfiles.checkpoint(RUN, step, 1) + "last.bin"


def test_an_archive_without_room_has_the_baton_the_results_and_the_newest_checkpoint(
    store: FolderStore, tmp_path: Path
) -> None:
    every = apart.pack(JOB, str(tmp_path), str(tmp_path / "output"))
    assert (len(every.objects), every.left_out) == (7, 0)
    assert [each.key for each in every.objects][3:5] == [runfiles.results(RUN, 1) + "weights.npz", checkpoint(200)]
    index = apart.pack(JOB, str(tmp_path), str(tmp_path / "output"), every.size - 2 * len(CONTENT))
    assert (len(index.objects), index.left_out) == (5, 2)
    assert {checkpoint(100), checkpoint(300)}.isdisjoint(index.by_key())
    assert parcel.decode_index((tmp_path / "output" / parcel.INDEX).read_bytes()) == index
    archive = (tmp_path / "output" / parcel.ARCHIVE).read_bytes()
    assert len(archive) == index.size
    for each in index.objects:
        content = archive[each.offset : each.offset + each.size]
        assert (content, hashlib.sha256(content).hexdigest()) == (store.get(each.key)[0], each.sha256)
    assert {path.name for path in (tmp_path / "output").iterdir()} == {parcel.INDEX, parcel.ARCHIVE}


def test_an_output_that_cannot_be_written_has_no_index_and_the_cell_says_so(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    apart.pack(JOB, str(tmp_path), str(tmp_path / "output"))

    def full(*words: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    session._pack(str(tmp_path), str(tmp_path / "output"))
    assert "could not be packed, and is lost: [Errno 28] No space left" in capsys.readouterr().out
    assert not (tmp_path / "output" / parcel.INDEX).exists(), "of the earlier try"


def test_a_session_that_was_refused_before_it_had_a_job_packs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "parcel.json").write_text("[]")
    words = ["--parcel", tmp_path / "parcel.json", "--folder", tmp_path / "machine", "--output", tmp_path / "output"]
    assert session.main([str(word) for word in words]) == 0
    shown = capsys.readouterr().out
    assert "cannot be used" in shown
    assert "lost" not in shown
    assert not (tmp_path / "output").exists()
