"""The curves of a run: joined over attempts without overlap and gap, filled from samples, and honest about what could
not be read."""

import csv
import io
import math
from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.contract.metric_series import last_counted
from supervisor.services.reading import curves as curves_of
from supervisor.services.reading.curves import RunMetrics, higher_is_better
from tests.services.bed import Bed, Client
from tests.services.curves_bed import line, sampled, stored, trained


def shown(bed: Bed, run_id: str = "digits-7", *names: str, points: int = 2000) -> RunMetrics:
    return bed.services.curves.show(run_id, names, points)


def steps(metrics: RunMetrics, name: str = "loss") -> list[int]:
    return next(metric["steps"] for metric in metrics["metrics"] if metric["name"] == name)


def values(metrics: RunMetrics, name: str = "loss") -> list[Any]:
    return next(metric["values"] for metric in metrics["metrics"] if metric["name"] == name)


def thrice(bed: Bed) -> None:
    """Two preemptions: steps 101 to 115 and 151 to 160 were done twice."""
    first, second = stored({"loss": line(1, 115, 1.0)}), stored({"loss": line(101, 160, 2.0)}, 100)
    trained(bed, "digits-7", (None, first), (100, second), (150, stored({"loss": line(151, 200, 3.0)}, 150)))


def test_what_a_resume_did_again_is_cut_at_the_restored_step(bed: Bed) -> None:
    thrice(bed)
    metrics = shown(bed)
    assert steps(metrics) == list(range(1, 201)), "overlap or gap"
    assert values(metrics) == [1.0] * 100 + [2.0] * 50 + [3.0] * 50
    assert [(each["resumed_from"], each["first_step"], each["last_step"]) for each in metrics["attempts"]] == [
        (None, 1, 100), (100, 101, 150), (150, 151, 200),
    ]  # fmt: skip
    assert not metrics["partial"]
    (loss,) = metrics["metrics"]
    assert loss["reports"] == 225
    assert sorted(loss["seconds"]) == loss["seconds"]


@pytest.mark.parametrize(
    "broken",
    [
        lambda begins: [None] * len(begins),
        lambda begins: [None if end is None else end - 1 for end in last_counted(begins)],
        lambda begins: [None if end is None else end + 1 for end in last_counted(begins)],
        lambda begins: [*begins[1:2], *[None] * (len(begins) - 1)],
    ],
    ids=["no cut", "the restored step too", "one step too late", "only the first attempt"],
)
def test_a_wrong_cut_shows(bed: Bed, monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    monkeypatch.setattr(curves_of, "last_counted", broken)
    thrice(bed)
    assert steps(shown(bed)) != list(range(1, 201))


def test_a_checkpoint_that_was_rejected_cuts_every_earlier_attempt(bed: Bed) -> None:
    trained(
        bed, "digits-7",
        (None, stored({"loss": line(1, 110, 1.0)})),
        (100, stored({"loss": line(101, 150, 2.0)}, 100)),
        (50, stored({"loss": line(51, 60, 3.0)}, 50)),
    )  # fmt: skip
    assert values(shown(bed)) == [1.0] * 50 + [3.0] * 10


@pytest.mark.parametrize("restored", [None, 100])
def test_a_training_that_began_anew_shows_its_last_story(bed: Bed, restored: "int | None") -> None:
    """From zero, or beside a checkpoint that it ignored."""
    again = stored({"loss": line(1, 20, 2.0)}, restored)
    trained(bed, "digits-7", (None, stored({"loss": line(1, 115, 1.0)})), (restored, again))
    metrics = shown(bed)
    assert steps(metrics) == list(range(1, 21))
    assert set(values(metrics)) == {2.0}


def test_an_attempt_without_a_training_cuts_nothing(bed: Bed) -> None:
    trained(bed, "digits-7", (None, stored({"loss": line(1, 115)})))
    bed.train("digits-7", 2)
    run = bed.run("digits-7")
    assert run.attempt is not None
    bed.change("digits-7", attempt=replace(run.attempt, training_at=None))
    assert steps(shown(bed))[-1] == 115


def test_extremes_survive_a_thinned_response(bed: Bed) -> None:
    points = line(1, 20_000, 1.0)
    points[7_000], points[9_999] = (7_001, 99.0), (10_000, -99.0)
    trained(bed, "digits-7", (None, stored({"loss": points})))
    metrics = shown(bed, points=50)
    assert len(steps(metrics)) <= 50
    assert {99.0, -99.0} <= set(values(metrics))
    (loss,) = metrics["metrics"]
    assert (loss["highest"], loss["lowest"]) == ({"step": 7_001, "value": 99.0}, {"step": 10_000, "value": -99.0})
    assert loss["last"] == {"step": 20_000, "value": 1.0}
    assert loss["reports"] == 20_000


@pytest.mark.parametrize("points", [10, 11, 37, 500])
def test_never_more_points_than_asked_for(bed: Bed, points: int) -> None:
    odd = [(step, math.nan if step % 3 else 1.0) for step in range(1, 3_000)]
    trained(bed, "digits-7", (None, stored({"loss": odd, "acc": line(1, 3_000)})))
    metrics = shown(bed, points=points)
    assert 2 <= len(steps(metrics)) <= points
    assert 2 <= len(steps(metrics, "acc")) <= points


def test_values_that_are_not_finite_are_words(bed: Bed) -> None:
    odd = [(1, 1.0), (2, math.inf), (3, math.nan), (4, -math.inf)]
    trained(bed, "digits-7", (None, stored({"loss": odd, "all": [(1, math.nan)]})))
    metrics = shown(bed)
    assert values(metrics) == [1.0, "inf", "nan", "-inf"]
    only, loss = sorted(metrics["metrics"], key=lambda metric: metric["name"])
    assert (loss["odd_step"], loss["lowest"], loss["last"]) == (
        2, {"step": 1, "value": 1.0}, {"step": 4, "value": "-inf"},
    )  # fmt: skip
    assert (only["lowest"], only["highest"], only["odd_step"]) == (None, None, 1)


def test_named_metrics_alone_have_points_and_a_loss_comes_first(bed: Bed) -> None:
    trained(bed, "digits-7", (None, stored({"acc": line(1, 9), "eval_loss": line(1, 9), "lr": line(1, 9)})))
    metrics = shown(bed, "digits-7", "acc", "nothing")
    assert [(metric["name"], len(metric["steps"])) for metric in metrics["metrics"]] == [
        ("eval_loss", 0), ("acc", 9), ("lr", 0),
    ]  # fmt: skip


def test_an_older_agent_and_the_end_of_a_killed_one_are_filled_from_samples(bed: Bed) -> None:
    """Attempt 1: an agent without series. Attempt 2: killed after step 120 was stored."""
    trained(bed, "digits-7", (None, None), (100, stored({"loss": line(101, 120, 2.0)}, 100, complete=False)))
    run = bed.run("digits-7")
    start = run.created_at
    sampled(bed, run, [(start + 10, 1, 50, {"loss": 1.0}), (start + 70, 1, 110, {"loss": 1.1})])
    sampled(bed, run, [(start + 3700, 2, 110, {"loss": 9.0}), (start + 3760, 2, 130, {"loss": 2.5})])
    metrics = shown(bed)
    assert [(step, value) for step, value in zip(steps(metrics), values(metrics), strict=True) if step < 102] == [
        (50, 1.0), (101, 2.0),
    ]  # fmt: skip
    assert (steps(metrics)[-1], values(metrics)[-1]) == (130, 2.5)
    assert 9.0 not in values(metrics)
    assert [each["source"] for each in metrics["attempts"]] == ["samples", "series"]
    assert not metrics["partial"]


def test_a_store_that_does_not_answer_is_no_empty_run(bed: Bed) -> None:
    trained(bed, "digits-7", (None, stored({"loss": line(1, 10)})))
    bed.objects.fail_reads = True
    metrics = shown(bed)
    assert metrics["partial"]
    assert metrics["attempts"][0]["problem"] == curves_of.UNREAD
    bed.objects.fail_reads = False
    assert not shown(bed)["partial"]


def test_a_damaged_object_is_said(bed: Bed) -> None:
    trained(bed, "digits-7", (None, b"no gzip"))
    assert [each["problem"] for each in shown(bed)["attempts"]] == [curves_of.DAMAGED]


def test_an_object_is_read_once_until_it_changes(bed: Bed) -> None:
    trained(bed, "digits-7", (None, stored({"loss": line(1, 10)})))
    key = runfiles.metrics("digits-7", 1)
    shown(bed)
    reads = bed.objects.calls["read", key]
    shown(bed)
    assert bed.objects.calls["read", key] == reads
    bed.objects.put(key, stored({"loss": line(1, 12)}))
    assert steps(shown(bed))[-1] == 12


def test_what_is_kept_in_memory_is_bounded(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves_of, "KEPT_POINTS", 100)
    for number in range(5):
        trained(bed, f"digits-{number}", (None, stored({"loss": line(1, 60)})))
        shown(bed, f"digits-{number}")
    assert len(bed.services.curves._kept) == 1


@pytest.mark.parametrize(
    ("name", "higher"),
    [("loss", False), ("eval/accuracy", True), ("val_acc", True), ("mAP", True), ("perplexity", False), ("r2", True)],
)
def test_which_values_are_better_by_the_name(name: str, higher: bool) -> None:
    assert higher_is_better(name) is higher


# --- by HTTP ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def client(bed: Bed) -> Client:
    return Client(bed.services)


def test_csv_by_query_and_by_header(bed: Bed, client: Client) -> None:
    trained(
        bed,
        "digits-7",
        (None, stored({"loss": line(1, 3), '=1+"x"': [(1, math.nan)]})),
        (2, stored({"loss": line(3, 4)}, 2)),
    )
    by_query = client.get("/v1/runs/digits-7/metrics?format=csv")
    by_header = client.get("/v1/runs/digits-7/metrics", headers={"Accept": "text/csv"})
    assert by_query.text == by_header.text
    assert by_query.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(by_query.text)))
    assert [(row["metric"], row["step"], row["attempt"], row["value"]) for row in rows] == [
        ("loss", "1", "1", "1.0"), ("loss", "2", "1", "1.0"), ("loss", "3", "2", "1.0"), ("loss", "4", "2", "1.0"),
        ('=1+"x"', "1", "1", "nan"),
    ]  # fmt: skip
    assert rows[0]["time"].endswith("Z")


def test_an_unchanged_response_is_not_sent_again(bed: Bed, client: Client) -> None:
    trained(bed, "digits-7", (None, stored({"loss": line(1, 3)})))
    tag = client.get("/v1/runs/digits-7/metrics").headers["etag"]
    again = client.get("/v1/runs/digits-7/metrics", headers={"If-None-Match": tag})
    assert (again.status_code, again.text) == (304, "")
    bed.objects.put(runfiles.metrics("digits-7", 1), stored({"loss": line(1, 4)}))
    assert client.get("/v1/runs/digits-7/metrics", headers={"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize("query", ["points=9", "points=x", "metric=", "format=xml", "metrics=loss"])
def test_a_query_that_cannot_be_meant_is_refused(bed: Bed, client: Client, query: str) -> None:
    trained(bed, "digits-7", (None, None))
    answer = client.get(f"/v1/runs/digits-7/metrics?{query}")
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")


def test_an_unknown_run(client: Client) -> None:
    assert client.get("/v1/runs/digits-9/metrics").json()["code"] == "RUN_NOT_FOUND"
