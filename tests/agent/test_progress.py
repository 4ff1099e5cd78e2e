"""What the training tells: believed within bounds, counted otherwise; and the module that Python trainings use."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent import spot_progress
from supervisor.agent.watch.output import READ_BYTES, REPORT_BYTES, Pace, Progress
from tests.agent.desk import HandClock


class Desk:
    def __init__(self, path: Path) -> None:
        self.path = path / "progress.jsonl"
        self.clock = HandClock()
        self.told: dict[str, Any] = {}
        self.progress = Progress(str(self.path), lambda **changes: self.told.update(changes), self.clock)

    def line(self, text: "str | bytes") -> None:
        with self.path.open("ab") as target:
            target.write(text.encode() if isinstance(text, str) else text)

    def tell(self, **line: Any) -> dict[str, Any]:
        self.line(json.dumps(line) + "\n")
        self.progress.poll()
        return self.told


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_no_file_is_no_progress(desk: Desk) -> None:
    desk.progress.poll()
    assert desk.told == {}


def test_a_report(desk: Desk) -> None:
    told = desk.tell(step=3, total=10, metrics={"loss": 0.5})
    assert told == {"step": 3, "total": 10, "metrics": {"loss": 0.5}, "steps_per_s": None, "from_zero": False}


@pytest.mark.parametrize(
    ("restored", "known", "first", "from_zero"),
    [(None, False, 0, True), (None, True, 1, False), (41, True, 42, True), (41, False, 42, False), (0, True, 1, True)],
)
def test_whether_steps_are_counted_from_zero(
    tmp_path: Path, restored: "int | None", known: bool, first: int, from_zero: bool
) -> None:
    desk = Desk(tmp_path)
    desk.progress.from_zero = known
    desk.progress.saved(restored)
    assert desk.tell(step=first, total=50)["from_zero"] is from_zero
    desk.told.clear()
    assert "from_zero" not in desk.tell(step=first + 1)
    assert desk.progress.from_zero is from_zero


def test_half_a_line_waits_for_its_other_half(desk: Desk) -> None:
    desk.line('{"step": ')
    desk.progress.poll()
    assert desk.told == {}
    desk.line("4}\n")
    desk.progress.poll()
    assert desk.told["step"] == 4
    assert desk.progress.ignored == 0


@pytest.mark.parametrize(
    "line",
    [
        "hello",
        "[1, 2]",
        "null",
        "{}",
        '{"step": "3"}',
        '{"step": true}',
        '{"step": 3.5}',
        '{"step": -1}',
        '{"step": 1000000000000000000}',
        '{"step": NaN}',
        '{"step": 3, "total": -1}',
        '{"phase": "finished"}',
        '{"phase": 3}',
        '{"phase": []}',
        '{"checkpoint": 3, "step": 3}',
        '{"checkpoint": "x"}',
        "[" * 100_000,
        "\xff\xfe",
    ],
)
def test_garbage_is_ignored_and_counted(desk: Desk, line: str) -> None:
    desk.tell(step=3)
    desk.line(line.encode("latin-1") + b"\n")
    desk.progress.poll()
    assert (desk.told["step"], desk.progress.ignored) == (3, 1)
    assert desk.tell(step=4)["step"] == 4


def test_a_line_of_a_megabyte_costs_neither_memory_nor_the_next_line(desk: Desk) -> None:
    desk.line(b'{"step": 1, "x": "' + b"x" * (1 << 20) + b'"}\n{"step": 2}\n')
    desk.progress.drain()
    assert (desk.progress.step, desk.progress.ignored) == (2, 1)
    assert len(desk.progress._tail._part) <= REPORT_BYTES


def test_a_flood_is_read_in_pieces(desk: Desk) -> None:
    lines = b"".join(b'{"step": %d}\n' % step for step in range(200_000))
    assert len(lines) > 2 * READ_BYTES
    desk.line(lines)
    desk.progress.poll()
    assert desk.progress.step is not None
    assert desk.progress.step < 199_999
    desk.progress.drain()
    assert desk.progress.step == 199_999
    assert desk.progress.ignored == 0


def test_a_drain_ends_though_somebody_goes_on_writing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.line(b'{"step": 1}\n' * 3 * (READ_BYTES // 12))
    poll, polls = desk.progress.poll, 0

    def while_somebody_writes() -> bool:
        nonlocal polls
        polls += 1
        assert polls < 20, "it never ends"
        desk.line(b'{"step": 2}\n' * 3 * (READ_BYTES // 12))
        return poll()

    monkeypatch.setattr(desk.progress, "poll", while_somebody_writes)
    desk.progress.drain()
    assert 3 <= polls <= 4, "what was there at the end of the command was read"


def test_a_file_that_was_begun_anew_is_read_from_its_beginning(desk: Desk) -> None:
    desk.tell(step=300, total=400)
    desk.path.write_text('{"step": 1}\n')
    desk.progress.poll()
    assert desk.told["step"] == 1


def test_a_phase_lasts_until_it_is_changed_or_the_training_steps_on(desk: Desk) -> None:
    desk.tell(step=1)
    assert desk.tell(phase="evaluation")["phase"] == "evaluation"
    assert desk.tell(step=1)["phase"] == "evaluation"
    assert desk.tell(step=2)["phase"] == "training"
    assert desk.tell(phase="checkpoint")["phase"] == "checkpoint"
    assert desk.tell(phase="training")["phase"] == "training"


def test_the_step_of_a_checkpoint(desk: Desk) -> None:
    of = desk.progress.step_of
    assert of("last.pt") == 0
    desk.progress.saved(7)
    assert of("last.pt") == 8
    assert of("step-12.pt") == 12
    desk.tell(step=40)
    assert of("last.pt") == 40
    desk.tell(checkpoint="/somewhere/step-12.pt", step=41)
    assert of("step-12.pt") == 41


def test_announcements_are_not_kept_for_ever(desk: Desk) -> None:
    for number in range(1000):
        desk.line('{"checkpoint": "c%d", "step": 1}\n' % number)
    desk.progress.poll()
    assert len(desk.progress._announced) == 200


def test_the_pace_is_that_of_the_last_minute(desk: Desk) -> None:
    pace = Pace()
    pace.add(0.0, 0)
    assert pace.steps_per_s() is None
    for second in range(1, 200):
        pace.add(float(second), second if second < 100 else 100 + (second - 100) * 5)
    assert pace.steps_per_s() == pytest.approx(5.0)
    pace.add(201.0, 3)  # the training has gone back
    assert pace.steps_per_s() is None


def test_lines_read_in_one_go_tell_no_pace() -> None:
    """After a restore the first lines may all be there at once: 54,436 steps/s were told so."""
    pace = Pace()
    pace.add(10.0, 150)
    pace.add(10.00004, 152)
    assert pace.steps_per_s() is None
    pace.add(11.0, 175)
    assert pace.steps_per_s() == pytest.approx(25.0)


# --- spot_progress ------------------------------------------------------------------------------------------------


def test_the_helper_writes_what_the_agent_reads(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOT_PROGRESS_FILE", str(desk.path))
    spot_progress.report(3, total=9, loss=0.25, bad=float("nan"), word="x")  # type: ignore[arg-type]
    spot_progress.checkpoint("/somewhere/ckpt/epoch-3/", 3)
    spot_progress.phase("evaluation")
    desk.progress.poll()
    assert desk.told == {
        "step": 3, "total": 9, "metrics": {"loss": 0.25}, "steps_per_s": None, "phase": "evaluation",
            "from_zero": False,
    }  # fmt: skip
    assert desk.progress.step_of("epoch-3") == 3
    assert desk.progress.ignored == 0


def test_the_helper_does_nothing_without_a_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPOT_PROGRESS_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    spot_progress.report(3)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_does_not_reach_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOT_PROGRESS_FILE", "/dev/full")
    spot_progress.report(3)


def test_the_helper_stays_small() -> None:
    assert spot_progress.__file__ is not None
    assert len(Path(spot_progress.__file__).read_text().splitlines()) <= 120
