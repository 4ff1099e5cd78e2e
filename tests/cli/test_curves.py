"""metrics and compare: what a training reported, and runs beside each other."""

import json

import pytest

from supervisor.cli.views.runs import curve_text
from supervisor.wording.figures import DASH
from tests.cli.fake_api import squeezed

PATH = "/v1/runs/digits-7/metrics"


def metric(name, values, odd_step=None):
    finite = [(step, value) for step, value in enumerate(values, 1) if not isinstance(value, str)]
    lowest, highest = min(finite, key=lambda point: point[1]), max(finite, key=lambda point: point[1])
    shown = {
        key: {"step": step, "value": value} for key, (step, value) in (("lowest", lowest), ("highest", highest))
    }  # fmt: skip
    last = {"step": len(values), "value": values[-1]}
    steps = list(range(1, len(values) + 1))
    points = {"steps": steps, "seconds": [float(step) for step in steps], "values": values}
    return {"name": name, "reports": len(values), "last": last, **shown, "odd_step": odd_step, **points}


def serve_metrics(api, *metrics, problem="", left_out=0):
    attempts = [{
        "attempt": 1, "resumed_from": None, "first_step": 1, "last_step": 9, "source": "series", "problem": problem,
    }]  # fmt: skip
    shown = {"run_id": "digits-7", "since": "2026-01-02T00:00:00.000Z", "metrics": list(metrics), "attempts": attempts}
    api.respond("GET", PATH, {**shown, "names_left_out": left_out, "partial": bool(problem)})


def test_metrics_are_a_table_with_their_extremes(api, spot) -> None:
    serve_metrics(api, metric("loss", [3.0, 1.0, 0.5, 2.0]), metric("acc\x1b[31m", [0.1, 0.9]))
    ended = spot("metrics", "digits-7")
    assert squeezed(ended.lines[0]) == "METRIC REPORTS LAST LOWEST HIGHEST CURVE"
    assert squeezed(ended.lines[1]) == "loss 4 2 at step 4 0.5 at step 3 3 at step 1 █▂▁▅"
    assert "\x1b" not in ended.out
    assert api.requests[-1].query == {"points": ["2000"]}


def test_what_is_not_finite_or_could_not_be_read_is_said(api, spot) -> None:
    serve_metrics(api, metric("loss", [3.0, "nan"], odd_step=2), problem="It cannot be read now.", left_out=2)
    ended = spot("metrics", "digits-7")
    assert "NaN at step 2" in ended.out
    assert ended.err.splitlines() == [
        "Attempt 1: It cannot be read now.",
        "loss is not finite at step 2 for the first time.",
        "Beyond the first 64, 2 metrics left out.",
    ]


def test_a_run_without_metrics_says_so(api, spot) -> None:
    serve_metrics(api)
    ended = spot("metrics", "digits-7")
    assert (ended.out, ended.err) == ("", "digits-7 has reported no metrics yet.\n")


def test_a_metric_that_is_not_there_is_answered_with_those_that_are(api, spot) -> None:
    serve_metrics(api, metric("loss", [1.0]), metric("acc", [1.0]))
    ended = spot("metrics", "digits-7", "-m", "los")
    assert (ended.out, ended.err) == ("", "digits-7 has no such metric. It has: loss, acc.\n")


def test_csv_goes_out_as_it_came(api, spot) -> None:
    api.responses["GET", PATH] = lambda request: (
        200,
        {"format": request.query["format"], "m": request.query["metric"]},
    )
    ended = spot("metrics", "digits-7", "--csv", "-m", "loss", "-m", "acc")
    assert json.loads(ended.out) == {"format": ["csv"], "m": ["loss", "acc"]}
    assert spot("metrics", "digits-7", "--csv", "-o", "json").code == 2


def serve_comparison(api, **changes):
    runs = []
    for run_id, values in (("digits-a", [3.0, 0.5, 2.0]), ("digits-b", [3.0, 1.5, 1.0])):
        row = metric("loss", values)
        kept = {"step": 3, "value": values[-1], "path": "checkpoints/3-a1"}
        more = {"metrics": [row], "best": row["lowest"], "best_checkpoint": kept, "problem": ""}
        runs.append({"run_id": run_id, "status": "running", "since": "2026-01-02T00:00:00.000Z", **more})
    differs = [{"name": "labels.lr", "values": ["0.1", None]}]
    best = {"best_run": "digits-a", "best_checkpoint_run": "digits-b"}
    shown = {"runs": runs, "metrics": ["loss"], "by": "loss", "better": "min", **best, "differs": differs}
    api.respond("GET", "/v1/compare", {**shown, "differs_left_out": 0, "left_out": 0, **changes})


def test_compare_shows_values_differences_and_the_best_checkpoint(api, spot) -> None:
    serve_comparison(api, left_out=3)
    ended = spot("compare", "digits-a", "digits-b")
    assert api.requests[-1].query == {"run_id": ["digits-a", "digits-b"]}
    lines = [squeezed(line) for line in ended.lines]
    assert lines[0] == "RUN STATUS BEST loss LAST loss"
    assert lines[1] == "digits-a ● running 0.5 at step 2 2"
    assert lines[4:6] == ["DIFFERS digits-a digits-b", f"labels.lr 0.1 {DASH}"]
    kept = "The best checkpoint that is kept: step 3 of digits-b (loss 1), checkpoints/3-a1."
    assert lines[7:] == [
        "The lowest loss: digits-a, 0.5 at step 2.",
        f"{kept} Get it: spot pull digits-b --kind checkpoints",
        "3 runs of the group left out: name the runs to compare others.",
    ]


def test_a_group_and_its_options(api, spot) -> None:
    serve_comparison(api)
    ended = spot("compare", "--group", "digits", "--by", "loss", "--better", "max", "-m", "loss", "-o", "name")
    assert ended.lines == ["digits-a", "digits-b"]
    asked = {"group": ["digits"], "by": ["loss"], "better": ["max"], "metric": ["loss"]}
    assert api.requests[-1].query == asked


@pytest.mark.parametrize("words", [("compare",), ("compare", "a-1", "--group", "g-1")])
def test_runs_or_a_group(spot, words) -> None:
    assert spot(*words).code == 2


@pytest.mark.parametrize(
    ("values", "text"), [([], ""), ([1.0], "▁"), ([1.0, 1.0], "▁▁"), (["nan", 1.0, 2.0], "▁█"), ([-1e308, 1e308], "▁▁")]
)
def test_a_curve_in_a_line(values, text) -> None:
    assert curve_text(values) == text
    assert len(curve_text(list(range(1000)))) == 24
