"""A command that starts over beside its checkpoint: told from one that goes on, and from one that only counts anew."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.agent.watch import resumecheck
from supervisor.agent.watch.resumecheck import PENDING_S, STOP, WARN, Opens, ResumeCheck
from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, signs
from supervisor.contract.baton import FileEntry, Pointer
from tests.agent.machine_rig import Rig

FILES = (FileEntry("step-400/model", 5, "x"), FileEntry("step-400/optimizer", 5, "x"))
SAVED = Pointer(400, "p/", FILES, None, reported=400, total=1000)


class Started:
    """A command in whose folder SAVED was restored."""

    def __init__(self, folder: Path, mode: str = STOP, pointer: "Pointer | None" = SAVED, mount: str = "ext4") -> None:
        self.folder, self.ran_s, self.total = folder, 0.0, 1000
        (folder / "step-400").mkdir()
        self.model, self.optimizer = (folder / entry.name for entry in SAVED.files)
        for path in (self.model, self.optimizer):
            path.write_bytes(b"state")
        self.check = ResumeCheck(mode, lambda: self.ran_s, lambda: self.total)
        self.check.restored(pointer, str(folder), mount)
        self.ran_s = 1.0

    def reports(self, *steps: int) -> bool:
        """Whether it must be ended then."""
        for step in steps:
            self.check.add(step, {}, None)
        return self.check.must_end


def test_a_command_that_opens_nothing_and_counts_from_the_start_has_started_over(tmp_path: Path) -> None:
    started = Started(tmp_path)
    assert not started.reports(1), "one report may come before it loads"
    assert started.reports(2)
    assert started.check.ignored == (400, 1)
    assert started.check.held() == (
        "the command began again at step 1 beside the restored checkpoint of step 400, and opened no file of it"
    )


def test_rare_reports_show_it_too(tmp_path: Path) -> None:
    assert Started(tmp_path).reports(150, 300)


def overwritten(started: Started) -> None:
    started.optimizer.write_bytes(b"another")


def renamed(started: Started) -> None:
    (started.folder / "step-400").rename(started.folder / "x")


@pytest.mark.parametrize("first", [overwritten, renamed])
def test_to_overwrite_it_is_not_to_load_it(tmp_path: Path, first: "Callable[[Started], object]") -> None:
    started = Started(tmp_path)
    first(started)
    assert started.reports(1, 2)


def loads(started: Started) -> None:
    started.optimizer.read_bytes()


def maps(started: Started) -> None:
    """As libraries do that read by mmap: the file is opened, and neither read nor closed yet."""
    started.kept = started.model.open("rb", buffering=0)  # type: ignore[attr-defined]


def loads_a_copy(started: Started) -> None:
    (started.folder / "link").hardlink_to(started.model)
    (started.folder / "link").read_bytes()


def loads_and_overwrites(started: Started) -> None:
    started.model.read_bytes()
    started.model.write_bytes(b"another")


@pytest.mark.parametrize("loading", [loads, maps, loads_a_copy, loads_and_overwrites])
@pytest.mark.parametrize("steps", [(1, 2, 3), (1, 2, 1, 2), (399, 400)])
def test_what_is_opened_may_count_as_it_likes(
    tmp_path: Path, loading: "Callable[[Started], None]", steps: "tuple[int, ...]"
) -> None:
    """Each epoch from 1, or only what is left. Broken variant: a fall of the steps alone ended such trainings."""
    started = Started(tmp_path)
    loading(started)
    assert not started.reports(*steps)
    assert started.check.held() == ""
    if hasattr(started, "kept"):
        started.kept.close()


def test_a_report_before_it_loads(tmp_path: Path) -> None:
    started = Started(tmp_path)
    assert not started.reports(0)
    loads(started)
    assert not started.reports(401, 402, 1, 2)


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((401, 402), "it goes on: by names alone, or from a place of its own"),
        ((390, 391), "a few steps back"),
        ((201, 202, 1, 2), "not far enough, so it is not judged at all"),
        ((0, 401, 402), "a report before it goes on"),
        ((0, 390, 391), "the same, some steps back"),
        ((1, 1, 1), "it does not count up"),
        ((), "it reports nothing"),
    ],
)
def test_what_is_no_start_over(tmp_path: Path, steps: "tuple[int, ...]", why: str) -> None:
    assert not Started(tmp_path).reports(*steps), why


@pytest.mark.parametrize(
    ("pointer", "mount", "total"),
    [
        (None, "ext4", 1000),  # a fresh start; every checkpoint was rejected
        (SAVED._replace(reported=None), "ext4", 1000),  # saved by an older agent, or before the first report
        (SAVED._replace(reported=4), "ext4", 1000),  # epochs are reported, and steps are in the name
        (SAVED, "nfs4", 1000),  # another computer may have opened it
        (SAVED, "ext4", 600),  # it reports what is left
        (SAVED._replace(files=(*SAVED.files, FileEntry("step-400/gone", 1, "x"))), "ext4", 1000),
    ],
)
def test_what_cannot_be_compared_is_not_judged(
    tmp_path: Path, pointer: "Pointer | None", mount: str, total: int
) -> None:
    started = Started(tmp_path, pointer=pointer, mount=mount)
    started.total = total
    assert not started.reports(3, 4, 5, 6)
    assert started.check.held() == ""


def test_a_kernel_that_does_not_report_opens_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: no event meant no open, so inside some sandboxes every resume was ended."""
    monkeypatch.setattr(Opens, "_read", lambda self: {})
    started = Started(tmp_path)
    loads(started)
    assert not started.reports(1, 2, 3)


def test_a_queue_that_was_full_lost_an_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(tmp_path)
    monkeypatch.setattr(Opens, "_read", lambda self: {-1: resumecheck._LOST})
    assert not started.reports(1, 2)


def test_checkpoints_are_held_back_until_it_is_clear(tmp_path: Path) -> None:
    """Broken variant: a training that saves before its second report had replaced the newest checkpoint by then."""
    started = Started(tmp_path)
    assert started.check.held().startswith("the restored checkpoint was not opened")
    started.reports(1)
    assert started.check.held()
    started.reports(2)
    assert "began again" in started.check.held()


@pytest.mark.parametrize("clear", [lambda started: started.reports(401), loads])
def test_nothing_is_held_back_once_it_goes_on(tmp_path: Path, clear: "Callable[[Started], object]") -> None:
    started = Started(tmp_path)
    clear(started)
    assert started.check.held() == ""


def test_a_command_without_reports_is_held_back_for_a_while_only(tmp_path: Path) -> None:
    started = Started(tmp_path)
    started.ran_s = PENDING_S - 1
    assert started.check.held()
    started.ran_s = PENDING_S
    assert started.check.held() == ""
    assert not started.reports(1, 2), "too late to say how it began"


def test_a_command_that_a_drill_starts_again_is_held_back_anew(tmp_path: Path) -> None:
    """Broken variant: the time counted from the first start, so after 15 min no drill held back a start-over."""
    started = Started(tmp_path)
    started.ran_s = 10 * PENDING_S
    started.check.restored(SAVED, str(tmp_path), "ext4")
    started.ran_s += 1.0
    assert started.check.held()
    assert started.reports(1, 2)
    assert "began again" in started.check.held()


def test_warn_holds_back_and_ends_nothing(tmp_path: Path) -> None:
    started = Started(tmp_path, WARN)
    assert started.check.held() == ""
    assert not started.reports(1, 2)
    assert started.check.ignored == (400, 1)
    assert started.check.held() == ""


def test_a_baton_says_what_was_reported_when_it_was_saved() -> None:
    baton = rules.create("sup-1", 1)._replace(checkpoint=SAVED, previous=(SAVED._replace(reported=None, total=None),))
    assert rules.decode(rules.encode(baton)) == baton


# --- many trainings ---------------------------------------------------------------------------------------------------


class Reported:
    """What the kernel says of the restored files."""

    is_watched, opened = True, False

    def look(self) -> bool:
        return self.opened

    def close(self) -> None:
        pass


Make = Callable[[random.Random, Reported, int], "list[int]"]


def goes_on(draw: random.Random, files: Reported, saved: int) -> "list[int]":
    """From the step that was saved, or some steps before it; it may take its state from names alone."""
    files.opened = draw.random() < 0.7
    stride = draw.choice((1, 10, 100))
    begin = saved - draw.randint(0, saved // 3)
    zero = [0] if draw.random() < 0.3 else []
    return zero + [begin + stride * number for number in range(1, 30)]


def counts_epochs_anew(draw: random.Random, files: Reported, saved: int) -> "list[int]":
    """Each epoch from 0 or 1, in whatever epoch it is; it loads before it trains."""
    files.opened = True
    length, first = draw.randint(2, 2 * saved), draw.choice((0, 1))
    return [first + number % length for number in range(60)]


def reports_late(draw: random.Random, files: Reported, saved: int) -> "list[int]":
    files.opened = True
    return [] if draw.random() < 0.5 else [draw.randint(0, 10)]


def counts_what_is_left(draw: random.Random, files: Reported, saved: int) -> "list[int]":
    files.opened = True
    return list(range(1, draw.randint(3, 50)))


def starts_over(draw: random.Random, files: Reported, saved: int) -> "list[int]":
    stride = draw.choice((1, 2, max(1, saved // 3)))
    return [draw.choice((0, 1)), *range(stride + 1, saved + 50, stride)]


def judged(make: Make, number: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    draw, files = random.Random(number), Reported()
    monkeypatch.setattr(resumecheck, "Opens", lambda paths, kind: files)
    saved = draw.randint(10, 5000)
    check = ResumeCheck(STOP, lambda: 5.0, lambda: None)
    check.restored(SAVED._replace(step=draw.choice((saved, 7)), reported=saved, total=None), "/x", "ext4")
    for step in make(draw, files, saved):
        check.add(step)
    return check.must_end


@pytest.mark.parametrize("make", [goes_on, counts_epochs_anew, reports_late, counts_what_is_left])
def test_no_training_that_goes_on_is_ended(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [number for number in range(500) if judged(make, number, monkeypatch)] == []


def test_each_training_that_starts_over_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [number for number in range(500) if not judged(starts_over, number, monkeypatch)] == []


# --- the agent --------------------------------------------------------------------------------------------------------

STARTS_OVER = """
import os, sys, time
import spot_progress
folder, results = os.environ["SPOT_CHECKPOINT_DIR"], os.environ["SPOT_RESULTS_DIR"]
def save(name, step):
    path = os.path.join(folder, name)
    with open(path + ".tmp", "w") as target: target.write(str(step))
    os.rename(path + ".tmp", path)
    spot_progress.checkpoint(path, step)
if len(sys.argv) > 1 and os.listdir(folder):
    open(os.path.join(folder, max(os.listdir(folder)))).read()
with open(os.path.join(results, "rows.csv"), "w") as target: target.write("attempt %s" % os.environ["SPOT_ATTEMPT"])
step = 0
while step < 9:
    step += 1
    save("step-%d" % step, step)
    save("best-%d" % step, step)
    spot_progress.report(step, total=9, loss=1.0 / step)
    while step == 8 and os.environ["SPOT_ATTEMPT"] == "1": time.sleep(0.05)
    time.sleep(0.5)
"""


@pytest.fixture
def lost(rig: Rig) -> Rig:
    """The machine of the first attempt was preempted at step 8."""
    rig.start(sys.executable, "-c", STARTS_OVER)
    rig.beat_with("checkpoint 8", lambda beat: beat.checkpoint_step == 8)
    rig.notice(8.0)
    rig.ended()
    newest = rig.baton.checkpoint
    assert newest is not None
    assert (newest.step, newest.total) == (8, 9)
    assert newest.reported in (7, 8), "it saves before it reports"
    return rig


def test_it_is_ended_before_it_replaces_anything(lost: Rig) -> None:
    """Neither the newest nor the best checkpoint, nor the results that are kept."""
    before = lost.baton
    lost.start(sys.executable, "-c", STARTS_OVER, attempt=2, holder_gone=True)
    last = lost.ended()
    assert last.left == heartbeat.RESUME_IGNORED
    notes = dict(signs.decode(last.signs).notes)
    assert (notes["step.from"], notes["step.first_after_restore"], notes["checkpoint.opened"]) == (8, 1, 0)
    after = lost.baton
    assert (after.checkpoint, after.best, after.previous, after.last) == (
        before.checkpoint, before.best, before.previous, before.last,
    )  # fmt: skip
    assert last.exit is not None
    assert (last.exit.signal, last.exit.sent_by_us) == (9, True)


def test_warn_lets_it_finish(lost: Rig) -> None:
    lost.start(sys.executable, "-c", STARTS_OVER, attempt=2, holder_gone=True, on_resume_ignored="warn")
    last = lost.ended()
    assert (last.left, last.step) == (None, 9)
    assert dict(signs.decode(last.signs).notes)["checkpoint.opened"] == 0


def test_one_that_loads_and_counts_anew_goes_on(lost: Rig) -> None:
    lost.start(sys.executable, "-c", STARTS_OVER, "loads", attempt=2, holder_gone=True)
    last = lost.ended()
    assert (last.left, last.step) == (None, 9)
    assert "checkpoint.opened" not in dict(signs.decode(last.signs).notes)
