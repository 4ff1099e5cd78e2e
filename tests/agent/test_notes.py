"""What a living run shows that is worth a hint: what is noted, what is not, and what the rules say of it."""

import json
import os
import random
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from supervisor.agent.facts.looks import code_files, edited
from supervisor.agent.life import drilling
from supervisor.agent.life.parts import Parts
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.watch.logwatch import LogWatch
from supervisor.agent.watch.metrics import MetricWatch
from supervisor.agent.watch.notes import MISSING, Notes, Seen, shrinks
from supervisor.contract import runfiles, signs
from supervisor.contract.baton import FileEntry
from supervisor.contract.signs import Signs
from supervisor.lifecycle.diagnosis.diagnose import findings
from supervisor.lifecycle.diagnosis.reading import of_document
from tests.agent.bench import IDENTITY, RUN, ManualClock, job, store_in
from tests.agent.checkpoint_bench import Bench
from tests.agent.machine_rig import Rig

NOTHING = Seen(None, False, False)


class Run:
    """A command that has run for `ran_s`, and what the agent has seen of it."""

    def __init__(self) -> None:
        self.ran_s, self.seen = 0.0, NOTHING
        self.notes = Notes(lambda: self.ran_s, lambda: self.seen)

    def noted(self) -> "dict[str, float]":
        return dict(self.notes.signs()["notes"])

    def hints(self) -> "dict[str, str]":
        """Rule -> its sentence, of what comes through a beat."""
        text = signs.encode(Signs(notes=self.notes.signs()["notes"], up_s=9.0))
        document = {"agent": {"signs": json.loads(text)}} if text else {}
        return {verdict.rule: verdict.sentence for verdict in findings(of_document(document))}


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_checkpoint_that_is_rejected_in_a_drill_is_noted_as_at_a_start(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken variant: the note was missing where the same damage ended a drill."""

    def restorer(*_: Any, reject: Any, **__: Any) -> None:
        reject(40, f"checkpoint 40 rejected: model.pt {MISSING}")
        raise InterruptedError

    monkeypatch.setattr(drilling, "Restorer", restorer)
    parts = MagicMock(notes=run.notes)
    parts.reject = partial(Parts.reject, parts)
    with pytest.raises(InterruptedError):
        drilling.Drilling(parts, lambda step: None, lambda: None)._restore()
    assert run.noted() == {"checkpoint.missing": 40}
    parts.beat_state.update.assert_called_once_with(rejected_checkpoint=40)


# --- saving -----------------------------------------------------------------------------------------------------------


def staged(run: Run, folder: Path, content: bytes, name: str = "model.pt") -> None:
    (folder / name).write_bytes(content)
    (folder / "small.json").write_bytes(b"{}")
    run.notes.staged(str(folder), [FileEntry("small.json", 2, "x"), FileEntry(name, len(content), "x")])


def test_saving_that_takes_a_third_of_the_time_and_shrinks(run: Run, tmp_path: Path) -> None:
    staged(run, tmp_path, random.Random(1).randbytes(1 << 19) + bytes(2 << 20))
    run.ran_s = 500.0
    run.notes.saved(170.0)
    assert run.noted() == {}, "after a few minutes a share says nothing"
    run.ran_s = 900.0
    run.notes.saved(127.0)
    assert run.noted()["window.save_share"] == 0.33
    assert run.noted()["checkpoint.shrinks"] < 0.7
    sentence = run.hints()["U15.compress"]
    assert sentence.endswith("of their size, and saving takes 0.33 of the time")
    run.ran_s = 90_000.0
    run.notes.saved(1.0)
    assert run.noted() == {}, "later it is a small part of the time"


def test_saving_that_is_fast_or_cannot_shrink_is_no_hint(run: Run, tmp_path: Path) -> None:
    staged(run, tmp_path, random.Random(1).randbytes(1 << 20))
    run.ran_s = 1000.0
    run.notes.saved(300.0)
    assert run.noted()["checkpoint.shrinks"] > 0.9
    assert run.hints() == {}


def test_the_sample_is_taken_once_and_an_unread_one_is_no_figure(run: Run, tmp_path: Path) -> None:
    assert shrinks(str(tmp_path / "gone"), 1 << 20) is None
    assert shrinks(str(tmp_path), 1 << 20) is None
    (tmp_path / "link").symlink_to("/dev/zero")
    assert shrinks(str(tmp_path / "link"), 1 << 20) is None
    staged(run, tmp_path, bytes(100), "tiny.pt")
    staged(run, tmp_path, bytes(1 << 20))
    run.ran_s = 1000.0
    run.notes.saved(500.0)
    assert run.noted() == {}, "the first checkpoint is the sample"


def test_the_saver_offers_its_copies(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    sizes: list[Any] = []
    bench.saver._staged = lambda folder, entries: sizes.append([os.path.getsize(os.path.join(folder, entries[0].name))])
    bench.write("step-1.pt", "x" * 1000)
    bench.save()
    assert sizes == [[1000]]


# --- metrics ----------------------------------------------------------------------------------------------------------


def log_of(folder: Path, *lines: str) -> LogWatch:
    path = folder / "log"
    path.write_text("".join(line + "\n" for line in lines))
    watch = LogWatch(str(path))
    watch.step()
    return watch


LOSSES = (
    "loss: 0.31", "train_loss=0.3100 lr=1e-4", '{"loss": 2.31, "epoch": 1}', "step 0: train loss 4.2, val loss 4.3",
    "Epoch 1 | Loss = 12.0", "{'loss': 0.3}", "loss/train: 0.52",
)  # fmt: skip
NO_LOSSES = ("packet loss 0%", "using CrossEntropyLoss", "loss_fn: MSELoss()", "lossless 1", "loss: nan", "glossary 3")


def test_lines_with_losses(tmp_path: Path) -> None:
    for line in LOSSES:
        assert log_of(tmp_path, *[line] * 3).shows_losses, line
    for line in NO_LOSSES:
        assert not log_of(tmp_path, *[line] * 9).shows_losses, line
    assert not log_of(tmp_path, *LOSSES[:2]).shows_losses, "two may be a summary"


@pytest.mark.parametrize(
    ("ran_s", "seen", "noted"),
    [
        (1199.0, Seen(None, True, False), False),
        (1200.0, Seen(None, True, False), True),
        (9000.0, Seen(None, False, False), False),
        (9000.0, Seen(None, True, True), False),
    ],
)
def test_losses_that_nobody_reports(run: Run, ran_s: float, seen: Seen, noted: bool) -> None:
    run.ran_s, run.seen = ran_s, seen
    assert run.noted() == ({"metric.reported": 0} if noted else {})
    assert ("U20.metrics" in run.hints()) == noted


def test_a_metric_that_is_not_finite_is_a_metric() -> None:
    watch = MetricWatch({}, ManualClock())
    watch.add(1, {}, None)
    assert not watch.has_any
    watch.add(2, {}, {"loss": "nan"})
    assert watch.has_any


# --- the restore ------------------------------------------------------------------------------------------------------


def test_rejected_checkpoints(run: Run) -> None:
    run.notes.rejected(300, f"checkpoint 300 rejected: model.pt {MISSING}")
    run.notes.rejected(200, "checkpoint 200 rejected: model.pt has another content")
    assert run.noted() == {"checkpoint.missing": 300, "checkpoint.torn": 200}
    assert run.hints() == {
        "SLURM1.torn_checkpoint": "the checkpoint of step 200 is torn; the one before is used",
        "SLURM5.lost": "the checkpoint of step 300 is not there",
    }


def test_the_words_of_a_missing_checkpoint_are_those_of_the_transfer() -> None:
    source = Path(__file__).parents[2] / "supervisor/agent/store/access.py"
    assert f'"%s {MISSING}"' in source.read_text()


@pytest.mark.parametrize(("restored", "first", "noted"), [(1000, 1, True), (1000, 960, False), (None, 1, False)])
def test_a_command_that_begins_anew_after_a_restore(run: Run, restored: "int | None", first: int, noted: bool) -> None:
    run.notes.restored(restored)
    assert run.noted() == {}, "no step yet"
    run.seen = Seen(first, False, False)
    assert run.noted() == ({"step.from": 1000, "step.first_after_restore": first} if noted else {})
    assert ("RESUME.ignored" in run.hints()) == noted


# --- code -------------------------------------------------------------------------------------------------------------


def test_edited_code(tmp_path: Path) -> None:
    for name in ("train.py", "lib/model.py", "lib/gone.py", ".git/hook.py", "data.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a = 1\n")
    before = code_files(str(tmp_path))
    assert set(before) == {"train.py", "lib/model.py", "lib/gone.py"}
    assert edited(str(tmp_path), before) == []
    (tmp_path / "lib/model.py").write_text("a = 12\n")
    (tmp_path / "lib/gone.py").unlink()
    for name in ("made.py", "data.bin"):
        (tmp_path / name).write_text("made by the command\n")
    assert edited(str(tmp_path), before) == ["lib/gone.py", "lib/model.py"]
    [hint] = findings(of_document({"agent": {"code_edited": ["lib/gone.py", "lib/model.py"]}}))
    assert hint.sentence == "the code was edited under a live run: lib/gone.py, lib/model.py"
    assert findings(of_document({"agent": {"code_edited": []}})) == ()
    assert findings(of_document({"agent": {"code_edited": None}})) == ()


EDITING = "import os; open('lib.py', 'w').write('a = 22'); raise SystemExit(1)"


def test_a_command_whose_code_was_edited_and_that_then_fails(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/lib.py").write_text("a = 1\n")
    rig.start(sys.executable, "-S", "-c", EDITING, workdir=str(tmp_path / "code"))
    assert rig.ended().exit is not None
    part = json.loads(rig.store.get(runfiles.agent_evidence(RUN, 1))[0])
    assert part["code_edited"] == ["lib.py"]


# --- in the agent -----------------------------------------------------------------------------------------------------


def test_the_beat_carries_the_notes(tmp_path: Path) -> None:
    """Each source of a note is connected: the log, the reports, the restore."""
    folder = MachineFolder(str(tmp_path))
    parts = Parts(folder, job(), IDENTITY, store=store_in(tmp_path), secrets={})
    Path(folder.output).parent.mkdir()
    Path(folder.output).write_text("loss: 0.5\n" * 3)
    parts.log_watch.step()
    parts.training._started_at -= 1300.0
    parts.training.pid = 1
    assert signs.decode(parts.beat_state.next_beat().signs).notes == (("metric.reported", 0),)
    Path(folder.progress).write_text('{"step": 3, "metrics": {"loss": 0.5}}\n')
    parts.notes.restored(500)
    parts.progress.poll()
    noted = dict(signs.decode(parts.beat_state.next_beat().signs).notes)
    assert noted == {"step.from": 500, "step.first_after_restore": 3}
