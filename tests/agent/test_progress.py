"""The training's reports: accepted within bounds, otherwise counted; and the module that Python trainings use."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent import spot_progress
from supervisor.agent.watch.output import READ_BYTES, REPORT_BYTES, Pace, Progress
from tests.agent.bench import ManualClock


class Bench:
    def __init__(self, path: Path) -> None:
        self.path = path / "progress.jsonl"
        self.clock = ManualClock()
        self.reported: dict[str, Any] = {}
        self.progress = Progress(str(self.path), lambda **changes: self.reported.update(changes), self.clock)

    def line(self, text: "str | bytes") -> None:
        with self.path.open("ab") as target:
            target.write(text.encode() if isinstance(text, str) else text)

    def tell(self, **line: Any) -> dict[str, Any]:
        self.line(json.dumps(line) + "\n")
        self.progress.poll()
        return self.reported


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_no_file_is_no_progress(bench: Bench) -> None:
    bench.progress.poll()
    assert bench.reported == {}


def test_a_report(bench: Bench) -> None:
    reported = bench.tell(step=3, total=10, metrics={"loss": 0.5})
    assert reported == {"step": 3, "total": 10, "metrics": {"loss": 0.5}, "steps_per_s": None, "from_zero": False}


@pytest.mark.parametrize(
    ("restored", "known", "first", "from_zero"),
    [(None, False, 0, True), (None, True, 1, False), (41, True, 42, True), (41, False, 42, False), (0, True, 1, True)],
)
def test_whether_steps_are_counted_from_zero(
    tmp_path: Path, restored: "int | None", known: bool, first: int, from_zero: bool
) -> None:
    bench = Bench(tmp_path)
    bench.progress.from_zero = known
    bench.progress.saved(restored)
    assert bench.tell(step=first, total=50)["from_zero"] is from_zero
    bench.reported.clear()
    assert "from_zero" not in bench.tell(step=first + 1)
    assert bench.progress.from_zero is from_zero


def test_half_a_line_waits_for_the_other_half(bench: Bench) -> None:
    bench.line('{"step": ')
    bench.progress.poll()
    assert bench.reported == {}
    bench.line("4}\n")
    bench.progress.poll()
    assert bench.reported["step"] == 4
    assert bench.progress.ignored == 0


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
def test_garbage_is_ignored_and_counted(bench: Bench, line: str) -> None:
    bench.tell(step=3)
    bench.line(line.encode("latin-1") + b"\n")
    bench.progress.poll()
    assert (bench.reported["step"], bench.progress.ignored) == (3, 1)
    assert bench.tell(step=4)["step"] == 4


def test_a_line_of_a_megabyte_costs_neither_memory_nor_the_next_line(bench: Bench) -> None:
    bench.line(b'{"step": 1, "x": "' + b"x" * (1 << 20) + b'"}\n{"step": 2}\n')
    bench.progress.drain()
    assert (bench.progress.step, bench.progress.ignored) == (2, 1)
    assert len(bench.progress._tail._part) <= REPORT_BYTES


def test_a_flood_is_read_in_pieces(bench: Bench) -> None:
    lines = b"".join(b'{"step": %d}\n' % step for step in range(200_000))
    assert len(lines) > 2 * READ_BYTES
    bench.line(lines)
    bench.progress.poll()
    assert bench.progress.step is not None
    assert bench.progress.step < 199_999
    bench.progress.drain()
    assert bench.progress.step == 199_999
    assert bench.progress.ignored == 0


def test_a_drain_ends_although_a_process_keeps_writing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.line(b'{"step": 1}\n' * 3 * (READ_BYTES // 12))
    poll, polls = bench.progress.poll, 0

    def while_somebody_writes() -> bool:
        nonlocal polls
        polls += 1
        assert polls < 20, "it never ends"
        bench.line(b'{"step": 2}\n' * 3 * (READ_BYTES // 12))
        return poll()

    monkeypatch.setattr(bench.progress, "poll", while_somebody_writes)
    bench.progress.drain()
    assert 3 <= polls <= 4, "what was there at the end of the command was read"


def test_a_file_that_was_started_again_is_read_from_its_beginning(bench: Bench) -> None:
    bench.tell(step=300, total=400)
    bench.path.write_text('{"step": 1}\n')
    bench.progress.poll()
    assert bench.reported["step"] == 1


def test_a_phase_lasts_until_it_is_changed_or_a_new_step(bench: Bench) -> None:
    bench.tell(step=1)
    assert bench.tell(phase="evaluation")["phase"] == "evaluation"
    assert bench.tell(step=1)["phase"] == "evaluation"
    assert bench.tell(step=2)["phase"] == "training"
    assert bench.tell(phase="checkpoint")["phase"] == "checkpoint"
    assert bench.tell(phase="training")["phase"] == "training"


def test_the_step_of_a_checkpoint(bench: Bench) -> None:
    of = bench.progress.step_of
    assert of("last.pt") == 0
    bench.progress.saved(7)
    assert of("last.pt") == 8
    assert of("step-12.pt") == 12
    bench.tell(step=40)
    assert of("last.pt") == 40
    bench.tell(checkpoint="/somewhere/step-12.pt", step=41)
    assert of("step-12.pt") == 41


def test_announcements_are_not_kept_forever(bench: Bench) -> None:
    for number in range(1000):
        bench.line('{"checkpoint": "c%d", "step": 1}\n' % number)
    bench.progress.poll()
    assert len(bench.progress._announced) == 200


def test_the_pace_is_that_of_the_last_minute(bench: Bench) -> None:
    pace = Pace()
    pace.add(0.0, 0)
    assert pace.steps_per_s() is None
    for second in range(1, 200):
        pace.add(float(second), second if second < 100 else 100 + (second - 100) * 5)
    assert pace.steps_per_s() == pytest.approx(5.0)
    pace.add(201.0, 3)  # the training has gone back
    assert pace.steps_per_s() is None


def test_lines_read_in_one_call_show_no_pace() -> None:
    """After a restore the first lines may all be there at once: this once showed 54,436 steps/s."""
    pace = Pace()
    pace.add(10.0, 150)
    pace.add(10.00004, 152)
    assert pace.steps_per_s() is None
    pace.add(11.0, 175)
    assert pace.steps_per_s() == pytest.approx(25.0)


# --- spot_progress ------------------------------------------------------------------------------------------------


def test_the_helper_writes_what_the_agent_reads(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOT_PROGRESS_FILE", str(bench.path))
    spot_progress.report(3, total=9, loss=0.25, bad=float("nan"), word="x")  # type: ignore[arg-type]
    spot_progress.checkpoint("/somewhere/ckpt/epoch-3/", 3)
    spot_progress.phase("evaluation")
    bench.progress.poll()
    assert bench.reported == {
        "step": 3, "total": 9, "metrics": {"loss": 0.25}, "steps_per_s": None, "phase": "evaluation",
            "from_zero": False,
    }  # fmt: skip
    assert bench.progress.step_of("epoch-3") == 3
    assert bench.progress.ignored == 0


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
    assert len(Path(spot_progress.__file__).read_text().splitlines()) <= 130
