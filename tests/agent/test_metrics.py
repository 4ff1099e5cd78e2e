"""Metrics that are NaN, infinite or jump: what the agent notes, in real reports and in one whole life."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent import spot_progress
from supervisor.agent.machine.masking import Masker
from supervisor.agent.watch.metrics import NAMES, SAME, MetricWatch
from supervisor.agent.watch.metrics import Reports as StepReports
from supervisor.agent.watch.output import Progress
from supervisor.contract import runfiles, signs
from supervisor.contract.signs import INF, MAX_BYTES, NAN, SPIKE, OddMetric, Signs
from supervisor.wording.stalls import odd_text
from tests.agent.bench import ManualClock
from tests.agent.machine_rig import RUN, Rig

SPIKES = {"loss": {"spike": "alert", "nan": "alert"}}


class Reports:
    def __init__(self, folder: Path, watched: "dict[str, dict[str, str]] | None" = None) -> None:
        self.path = folder / "progress.jsonl"
        self.watch = MetricWatch(watched or {}, lambda: 12.34)
        self.beat: dict[str, Any] = {}
        self.progress = Progress(str(self.path), self.beat.update, ManualClock(), metrics=self.watch)

    def read(self) -> "list[OddMetric]":
        self.progress.poll()
        return list(self.watch.signs().get("metrics", ()))


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reports:
    made = Reports(tmp_path, SPIKES)
    monkeypatch.setenv("SPOT_PROGRESS_FILE", str(made.path))
    return made


def test_nan_survives_spot_progress(reports: Reports) -> None:
    spot_progress.report(1239, loss=2.31, accuracy=0.5)
    spot_progress.report(1240, loss=math.nan, accuracy=0.6)
    [odd] = reports.read()
    assert odd == OddMetric("loss", NAN, 1240, 12.34, 2.31, 1239)
    assert odd_text(odd) == "loss is NaN since step 1,240; the last finite value was 2.31 at step 1,239"
    assert reports.watch.signs()["nonfinite"] == ("loss",)
    assert reports.beat["metrics"] == {"accuracy": 0.6}


def test_an_older_agent_reads_the_same_line_as_before(reports: Reports) -> None:
    spot_progress.report(3, loss=math.inf, accuracy=0.5)
    line = json.loads(reports.path.read_text())
    assert line == {"step": 3, "metrics": {"accuracy": 0.5}, "nonfinite": {"loss": "inf"}}
    spot_progress.report(4, loss=0.4)
    assert "nonfinite" not in reports.path.read_text().splitlines()[1]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"step": 5, "metrics": {"loss": NaN}}', NAN),
        ('{"step": 5, "metrics": {"loss": -Infinity}}', INF),
        ('{"step": 5, "metrics": {"loss": 1e999}}', INF),
        ('{"step": 5, "nonfinite": ["loss"]}', NAN),
        ('{"step": 5, "nonfinite": {"loss": "inf"}}', INF),
        ('{"step": 5, "nonfinite": "loss"}', None),
        ('{"step": 5, "metrics": [NaN], "nonfinite": [[], 7, null, {}]}', None),
        ('{"step": 5, "metrics": {"loss": "nan"}}', None),
        ('{"step": 5, "metrics": {"loss": null, "": NaN}}', None),
        ('{"step": -5, "metrics": {"loss": NaN}}', None),
    ],
)
def test_lines_that_a_training_writes_itself(reports: Reports, line: str, found: "str | None") -> None:
    reports.path.write_text(line + "\n")
    assert [odd.kind for odd in reports.read()] == ([] if found is None else [found])


def test_the_first_one_stays_and_a_recovery_shows() -> None:
    watch = MetricWatch({}, lambda: 1.0)
    for step, value in enumerate([1.0, math.inf, 0.9, math.inf, math.nan]):
        watch.add(step, {"loss": value}, None)
    [odd] = watch.signs()["metrics"]
    assert (odd.kind, odd.step, odd.before, odd.back_step) == (INF, 1, 1.0, None)
    watch.add(9, {"loss": 0.8}, None)
    [odd] = watch.signs()["metrics"]
    assert odd_text(odd) == (
        "loss was infinite at step 1, and is finite again since step 9; the last finite value was 1 at step 0"
    )


def test_one_life_of_an_agent(rig: Rig) -> None:
    """The loss becomes NaN: the beat names it, the evidence keeps it, and the command ends as it would have."""
    code = (
        "import spot_progress\nfor step in range(4): spot_progress.report(step, loss=2.5 if step < 2 else float('nan'))"
    )
    rig.start(sys.executable, "-c", code, watch={"loss": {"nan": "alert"}})
    beat = rig.ended()
    assert beat.exit is not None
    assert (beat.exit.code, beat.step) == (0, 3)
    found = signs.decode(beat.signs)
    assert found.nonfinite == ("loss",)
    [odd] = found.metrics
    assert (odd.kind, odd.step, odd.before, odd.before_step, odd.back_step) == (NAN, 2, 2.5, 1, None)
    part = json.loads(rig.store.get(runfiles.agent_evidence(RUN, 1))[0])
    assert signs.decode(json.dumps(part["signs"])).metrics == (odd,)


# --- jumps ------------------------------------------------------------------------------------------------------------


def jumps(values: "list[float]", watched: "dict[str, dict[str, str]]" = SPIKES) -> "list[OddMetric]":
    watch = MetricWatch(watched, lambda: 1.0)
    for step, value in enumerate(values):
        watch.add(step, {"loss": value}, None)
    return [odd for odd in watch.signs().get("metrics", ()) if odd.kind == SPIKE]


def test_a_jump_is_noted_once_with_its_median() -> None:
    [odd] = jumps([2.0] * 30 + [21.0, 400.0])
    assert (odd.step, odd.value, odd.before) == (30, 21.0, 2.0)
    assert odd_text(odd) == "loss jumped to 21 at step 30; the median before was 2"


@pytest.mark.parametrize(
    "values",
    [
        [2.0] * 30 + [19.0],  # below ten times the median
        [2.0] * 10 + [900.0],  # the training warms up
        [1.0, 1.0, 15.0] * 15 + [20.0],  # noisy by its nature
        [0.0] * 40 + [5.0],  # no magnitude to compare with
        [50.0 * 0.8**step for step in range(60)],  # a fall
        [-2.0] * 40 + [3.0],  # another sign
    ],
)
def test_what_is_no_jump(values: "list[float]") -> None:
    assert jumps(values) == []


def test_a_metric_that_is_not_watched_may_jump() -> None:
    steady = [2.0] * 30
    assert jumps([*steady, 900.0], {"loss": {"nan": "alert"}}) == []
    assert jumps([*steady, 900.0], {}) == []


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_watched_metrics_come_first_and_secrets_are_masked() -> None:
    watch = MetricWatch(SPIKES, lambda: 1.0, Masker({"TOKEN": "hunter2hunter2"}))
    watch.add(1, {"hunter2hunter2/auc": math.nan}, ["a", "b", "c", "d", "loss"])
    names = [odd.name for odd in watch.signs()["metrics"]]
    assert names[0] == "loss"
    assert not any("hunter2" in name for name in (*names, *watch.signs()["nonfinite"]))


def test_a_training_that_makes_new_names_all_the_time() -> None:
    watch = MetricWatch({}, lambda: 1.0)
    for step in range(300):
        watch.add(step, {"m%d" % step: math.nan}, None)
    assert len(watch.signs()["metrics"]) == NAMES
    text = signs.encode(Signs(**watch.signs()))
    assert len(text) <= MAX_BYTES
    assert [odd.name for odd in signs.decode(text).metrics] == ["m0", "m1", "m2", "m3"]


@pytest.mark.parametrize("name", ["\u00e9" * 64, "x" * 64])
def test_signs_stay_within_their_bytes(name: str) -> None:
    odd = OddMetric(name, NAN, 10**15, 1e9, -1.23456789e17, 10**15, None, 10**15)
    hits = tuple(signs.Hit("gpu_oom", signs.CAUSE, 1, "x" * 300, 1.0, 2.0, 0, at) for at in range(6))
    full = Signs(hits=hits, error="y" * 300, began="gpu_oom", metrics=(odd,) * 4, nonfinite=(name,) * 8)
    text = signs.encode(full)
    assert len(text) <= MAX_BYTES
    assert signs.decode(text).began == "gpu_oom"
    [kept] = signs.decode(signs.encode(Signs(metrics=(odd,)))).metrics
    assert (kept.name, kept.before) == (name, -1.23457e17)


@pytest.mark.parametrize(
    "row", [[], ["loss"], ["", "nan", 1, 1, None, None, None, None], ["loss", "odd", 1, 1, None, None, None, None],
            ["loss", "nan", -1, 1, None, None, None, None], ["loss", "nan", 1, None, None, None, None, None],
            ["loss", "nan", 1, 1, None, "x", None, None], [7, "nan", 1, 1, None, None, None, None], None, "loss"],
)  # fmt: skip
def test_a_forged_row_is_dropped(row: object) -> None:
    good = ["loss", "nan", 1, 1.0, None, None, None, None]
    assert signs.decode(json.dumps({"metrics": [row, good]})).metrics == (OddMetric("loss", NAN, 1, 1.0),)


# --- flat -------------------------------------------------------------------------------------------------------------


def flat(values: "list[float]", name: str = "train/loss", every_s: float = 10.0) -> "list[OddMetric]":
    up_s = 0.0
    watch = MetricWatch({"reward": {"nan": "alert"}}, lambda: up_s)
    for step, value in enumerate(values, 500):
        watch.add(step, {name: value, "noise": float(step)}, None)
        up_s += every_s
    return list(watch.signs().get("metrics", ()))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("train/loss", 0.693147, "train/loss is 0.6931 in every report since step 501"),
        ("Loss", 0.0, "Loss is 0 in every report since step 501"),
        ("reward", -0.0, "reward is 0 in every report since step 501"),  # because it is watched
    ],
)
def test_a_metric_that_does_not_change_at_all(name: str, value: float, text: str) -> None:
    [odd] = flat([1.0] + [value] * SAME, name)
    assert odd.kind == (signs.ZERO if value == 0 else signs.FLAT)
    assert odd_text(odd) == text
    assert signs.decode(signs.encode(Signs(metrics=(odd,)))).metrics == (odd,)
    assert flat([1.0] + [value] * SAME + [2.0], name) == [], "it changes again"


@pytest.mark.parametrize(
    ("values", "name", "every_s"),
    [
        ([0.7] * (SAME - 1), "loss", 60.0),
        ([0.7] * 2000, "loss", 0.2),  # reports of a few minutes
        ([0.7, 0.7001] * SAME, "loss", 60.0),
        ([0.7] * 99 + [math.nan] + [0.7] * 99, "loss", 60.0),
        ([0.7] * 500, "val_loss", 60.0),  # repeated until the next evaluation
        ([0.7] * 500, "eval/loss", 60.0),
        ([0.7] * 500, "best_loss", 60.0),
        ([65536.0] * 500, "loss_scale", 60.0),
        ([1.0] * 500, "loss/weight", 60.0),
        ([3e-4] * 500, "lr", 60.0),
        ([7.0] * 500, "epoch", 60.0),
        ([0.7] * 500, "accuracy", 60.0),  # neither a loss nor watched
    ],
)
def test_what_may_stay_the_same(values: "list[float]", name: str, every_s: float) -> None:
    assert [odd for odd in flat(values, name, every_s) if odd.kind in (signs.FLAT, signs.ZERO)] == []


@pytest.mark.parametrize(
    ("steps", "stride"),
    [
        ((), 1),
        ((5,), 1),
        ((5, 6, 7), 1),
        ((10, 20, 30), 10),
        ((18, 35, 46, 64), 36),  # by the clock: a restored one may take longer to its first report
    ],
)
def test_the_usual_distance_between_two_reports(steps: tuple[int, ...], stride: int) -> None:
    reports = StepReports()
    for step in steps:
        reports.add(step, {}, None)
    assert reports.stride == stride


# --- the reports around a drill ---------------------------------------------------------------------------------------


def test_reports_that_come_with_the_first_one_leave_no_gap() -> None:
    """Broken variant: they were dropped, and the gap counted as a usual distance: a skip in the next drill was none."""
    reports = StepReports()
    for step in (1, 2, 3):
        reports.add(step, {}, None)
    reports.wait()
    for step in (4, 5, 6, 7):  # read at once
        reports.add(step, {}, None)
    assert reports.compared(3).first == 4
    reports.go_on()
    reports.add(8, {}, None)
    assert reports.stride == 1


def test_what_lies_between_two_starts_is_no_usual_distance() -> None:
    """Broken variant: a training that skipped steps in one drill skipped them "as usual" in the next, and survived."""
    reports = StepReports()
    step = shift = 0
    for restored in (20, 40, 60):
        while step < restored:
            step += 1
            reports.add(step, {"data_position": 8 * step + shift}, None)
        reports.wait()
        step, shift = step + 6, shift + 24
        reports.add(step, {"data_position": 8 * step + shift}, None)
        shown = reports.compared(restored)
        assert (shown.first, shown.stride, shown.data_off) == (restored + 6, 1, 24.0)
        reports.go_on()
