"""Runs beside each other: curves, differing specs, the best value and the best checkpoint that is kept."""

import math
from typing import Any

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, Pointer
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.services.reading import comparing
from tests.services.bed import Bed, Client
from tests.services.curves_bed import line, stored, train_on


def spec(lr: str, **more: Any) -> dict[str, Any]:
    return {"command": ["python", "train.py", "--lr", lr], "labels": {"lr": lr}, "group": "digits", **more}


def checkpoints(bed: Bed, run_id: str, *steps: int) -> None:
    made = [Pointer(step, runfiles.checkpoint(run_id, step, 1), ()) for step in steps]
    baton = Baton(supervisor_id="s", generation=1, checkpoint=made[0], previous=tuple(made[1:]))
    bed.objects.put(runfiles.baton(run_id), batons.encode(baton))


@pytest.fixture
def two(bed: Bed) -> Bed:
    loss = {"digits-a": [(1, 3.0), (2, 0.5), (3, 2.0)], "digits-b": [(1, 3.0), (2, 1.5), (3, 1.0)]}
    for run_id, lr in (("digits-a", "0.1"), ("digits-b", "0.01")):
        more = {} if run_id == "digits-a" else {"limits": {"budget_usd": 5.0}}
        bed.submit(run_id, spec(lr, **more))
        train_on(bed, run_id, (None, stored({"loss": loss[run_id], "acc": line(1, 3, float(lr))})))
    checkpoints(bed, "digits-a", 3, 1)
    checkpoints(bed, "digits-b", 3, 2)
    return bed


@pytest.fixture
def client(two: Bed) -> Client:
    return Client(two.services)


def compared(client: Client, query: str = "run_id=digits-a&run_id=digits-b") -> Any:
    answer = client.get(f"/v1/compare?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_best_value_and_the_best_checkpoint_are_of_different_runs(client: Client) -> None:
    """The lowest loss of digits-a came at a step of which no checkpoint is kept."""
    told = compared(client)
    assert (told["by"], told["better"], told["metrics"]) == ("loss", "min", ["loss", "acc"])
    assert (told["best_run"], told["best_checkpoint_run"]) == ("digits-a", "digits-b")
    first, second = told["runs"]
    assert first["best"] == {"step": 2, "value": 0.5}
    assert first["best_checkpoint"] == {"step": 3, "value": 2.0, "path": "checkpoints/3-a1"}
    assert second["best_checkpoint"] == {"step": 3, "value": 1.0, "path": "checkpoints/3-a1"}


def test_only_the_metric_in_question_has_points(client: Client) -> None:
    assert [[len(row["steps"]) for row in run["metrics"]] for run in compared(client)["runs"]] == [[3, 0], [3, 0]]
    both = compared(client, "group=digits&metric=loss&metric=acc")
    assert [[len(row["steps"]) for row in run["metrics"]] for run in both["runs"]] == [[3, 3], [3, 3]]


def test_a_metric_whose_name_says_that_more_is_better(client: Client) -> None:
    told = compared(client, "group=digits&by=acc")
    assert (told["by"], told["better"], told["best_run"]) == ("acc", "max", "digits-a")
    assert compared(client, "group=digits&by=acc&better=min")["best_run"] == "digits-b"


def test_a_metric_that_no_run_has_decides_nothing(client: Client) -> None:
    told = compared(client, "group=digits&by=los&metric=los")
    assert (told["by"], told["best_run"], told["best_checkpoint_run"]) == ("los", None, None)


def test_what_differs_is_shown_and_nothing_else(client: Client) -> None:
    told = compared(client)
    assert told["differs"] == [
        {"name": "labels.lr", "values": ["0.1", "0.01"]},
        {"name": "command", "values": ['["python","train.py","--lr","0.1"]', '["python","train.py","--lr","0.01"]']},
        {"name": "limits.budget_usd", "values": [None, "5.0"]},
    ]
    assert (told["differs_left_out"], told["left_out"]) == (0, 0)


def test_the_order_is_the_one_that_was_asked_for(client: Client) -> None:
    assert [run["run_id"] for run in compared(client, "run_id=digits-b&run_id=digits-a")["runs"]] == [
        "digits-b", "digits-a",
    ]  # fmt: skip
    assert [run["run_id"] for run in compared(client, "group=digits")["runs"]] == ["digits-a", "digits-b"]


def test_a_group_beyond_the_first_twenty_says_so(two: Bed, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "RUNS_MAX", 1)
    told = compared(client, "group=digits")
    assert ([run["run_id"] for run in told["runs"]], told["left_out"]) == (["digits-a"], 1)


def test_values_that_are_not_finite_win_nothing(two: Bed, client: Client) -> None:
    two.objects.put(runfiles.metrics("digits-a", 1), stored({"loss": [(1, -math.inf), (2, math.nan)]}))
    told = compared(client)
    assert (told["runs"][0]["best"], told["runs"][0]["best_checkpoint"], told["best_run"]) == (None, None, "digits-b")
    assert told["runs"][0]["metrics"][0]["values"] == ["-inf", "nan"]


def test_a_run_that_cannot_be_read_does_not_hide_the_others(
    two: Bed, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = two.objects.pages

    def pages(prefix: str, *args: Any, **more: Any) -> Any:
        if "digits-a" in prefix:
            raise StoreUnavailable("away")
        return before(prefix, *args, **more)

    monkeypatch.setattr(two.objects, "pages", pages)
    first, second = compared(client)["runs"]
    assert first["problem"]
    assert not first["metrics"]
    assert not second["problem"]
    assert second["best"] == {"step": 3, "value": 1.0}


def test_runs_without_metrics(bed: Bed) -> None:
    bed.submit("digits-a", spec("0.1"))
    told = compared(Client(bed.services), "run_id=digits-a")
    assert (told["metrics"], told["by"], told["best_run"], told["best_checkpoint_run"]) == ([], None, None, None)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 422, "INVALID_REQUEST"),
        ("run_id=digits-a&group=digits", 422, "INVALID_REQUEST"),
        ("group=none-there", 422, "INVALID_REQUEST"),
        ("run_id=digits-a&better=most", 422, "INVALID_REQUEST"),
        ("run_id=digits-a&run_id=digits-z", 404, "RUN_NOT_FOUND"),
        ("run_id=Digits", 422, "INVALID_REQUEST"),
        ("&".join(f"run_id=digits-{n}" for n in range(21)), 422, "INVALID_REQUEST"),
    ],
)
def test_a_query_that_cannot_be_answered(client: Client, query: str, status: int, code: str) -> None:
    answer = client.get(f"/v1/compare?{query}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
