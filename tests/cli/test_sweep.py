"""spot submit of a sweep file: a submit for each cell, a repeat makes nothing twice, a refusal names cell and line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.wording.figures import DASH
from tests.acceptance.daemon import QUICK, Daemon
from tests.cli.fake_api import FakeApi, Request, a_page, a_run, squeezed
from tests.waiting import wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "sweep.yaml"
FILE = """group: digits
max_parallel: 2
matrix:
  lr: [0.1, 0.01]
lines:
  - values: {lr: 3}
    limits:
      max_runtime_s: -1
command: [python, train.py, "--lr={lr}"]
"""


@pytest.fixture
def file(clean: Path) -> str:
    path = clean / "sweep.yaml"
    path.write_text(FILE)
    return str(path)


def serve(api: FakeApi, *ended: dict[str, Any], refused: str = "") -> None:
    """A submit makes the run; the runs that have `ended` are there before."""

    def submitted(request: Request) -> tuple[int, Any]:
        assert request.body is not None
        name = request.body["run_id"]
        if name == refused:
            pointer = {"pointer": "#/spec/limits/max_runtime_s", "detail": "must be greater than 0"}
            text = "The body is refused: #/spec/limits/max_runtime_s must be greater than 0."
            return 422, {"title": "x", "detail": text, "code": "INVALID_REQUEST", "errors": [pointer]}
        run = a_run(run_id=name, status="pending", status_text="Accepted.", labels=request.body["spec"]["labels"])
        return 200 if name in {one["run_id"] for one in ended} else 201, {**run, "warnings": [], "differs": []}

    api.responses[("POST", "/v1/runs")] = submitted
    api.respond("GET", "/v1/runs", a_page(*ended))


def test_one_submit_for_each_cell(api, spot, file) -> None:
    serve(api)
    ended = spot("submit", file, "--venv", "none")
    assert ended.code == 0, ended.err
    bodies = [body for body in api.bodies("/v1/runs") if body]
    assert [body["run_id"] for body in bodies] == ["digits-lr0-1", "digits-lr0-01", "digits-lr3"]
    first = bodies[0]["spec"]
    assert (first["group"], first["max_parallel"], first["labels"]) == ("digits", 2, {"lr": "0.1"})
    assert first["command"] == ["python", "train.py", "--lr=0.1"]
    assert "matrix" not in first
    keys = {request.headers["idempotency-key"] for request in api.requests if request.method == "POST"}
    assert len(keys) == 3
    assert [squeezed(line) for line in ended.lines] == [
        "RUN STATUS SUBMIT", "digits-lr0-1 ○ pending new", "digits-lr0-01 ○ pending new", "digits-lr3 ○ pending new",
    ]  # fmt: skip
    assert ended.err.splitlines()[-1] == "3 runs of group digits: 3 new."


def test_an_option_wins_over_the_file(api, spot, file) -> None:
    serve(api)
    spot("submit", file, "--venv", "none", "--max-parallel", "7", "--", "echo", "{lr}")
    spec = next(body for body in api.bodies("/v1/runs") if body)["spec"]
    assert (spec["max_parallel"], spec["command"]) == (7, ["echo", "0.1"])


def test_runs_that_have_ended_are_left_alone(api, spot, file) -> None:
    serve(api, a_run(run_id="digits-lr0-1", status="failed"), a_run(run_id="digits-lr3", status="completed"))
    ended = spot("submit", file, "--venv", "none")
    assert [body["run_id"] for body in api.bodies("/v1/runs") if body] == ["digits-lr0-01"]
    assert ended.err.splitlines()[-1] == (
        "3 runs of group digits: 1 new, 2 left alone. Runs that have ended are left alone; "
        "`spot resume --group digits` continues them."
    )
    assert api.requests[-2].query["run_id"] == ["digits-lr0-1", "digits-lr0-01", "digits-lr3"]
    again = spot("submit", file, "--venv", "none", "--replace-spec")
    assert "1 new, 2 resumed" in again.err


def test_a_refused_cell_stops_no_other_and_is_named_with_its_line(api, spot, file) -> None:
    serve(api, refused="digits-lr3")
    ended = spot("submit", file, "--venv", "none", "-o", "json")
    assert ended.code == 1
    document = json.loads(ended.out)
    assert [run["run_id"] for run in document["runs"]] == ["digits-lr0-1", "digits-lr0-01"]
    assert document["refused"][0]["run_id"] == "digits-lr3"
    assert f"digits-lr3: {file}, line 8: limits.max_runtime_s must be greater than 0" in ended.err
    assert ended.err.splitlines()[-1] == "3 runs of group digits: 2 new, 1 refused."


def test_a_refusal_that_every_cell_would_meet_ends_the_submit(api, spot, file) -> None:
    serve(api)
    api.refuse("POST", "/v1/runs", 403, "SCOPE_MISSING", "This needs the scope runs:write.")
    ended = spot("submit", file, "--venv", "none")
    assert ended.code == 4
    assert len([body for body in api.bodies("/v1/runs") if body]) == 1
    assert "3 not submitted" in ended.err


def test_a_dry_run_shows_the_cells_and_their_commands(api, spot, file) -> None:
    serve(api)
    ended = spot("submit", file, "--venv", "none", "--dry-run")
    assert [squeezed(line) for line in ended.lines] == [
        "RUN lr COMMAND",
        "digits-lr0-1 0.1 python train.py --lr=0.1",
        "digits-lr0-01 0.01 python train.py --lr=0.01",
        "digits-lr3 3 python train.py --lr=3",
    ]
    assert ended.err.splitlines()[-1] == "3 runs of group digits. This is a dry run: nothing is submitted."
    (asked,) = [request for request in api.requests if request.method == "POST"]
    assert asked.query == {"validate_only": ["true"]}
    cells = json.loads(spot("submit", file, "--venv", "none", "--dry-run", "-o", "json").out)["cells"]
    assert cells[2]["values"] == {"lr": "3"}


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("lr: [0.1, 0.01]", "lr: 0.1", "line 4: matrix.lr must be a list of values."),
        ("--lr={lr}", "--lr={lrr}", "line 4: nothing uses the axis lr"),
        ("values: {lr: 3}", "values: {lr: 0.1}", "line 6: two cells have the name digits-lr0-1"),
        ("group: digits\n", "", "a sweep needs a group"),
        ("group: digits\n", "group: digits\nrun_id: digits-7\n", "give `group` instead of run_id"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_before_anything_is_sent(api, spot, file, old, new, error) -> None:
    Path(file).write_text(FILE.replace(old, new))
    ended = spot("submit", file, "--venv", "none")
    assert ended.code == 2
    assert error in ended.err
    assert [request for request in api.requests if request.method == "POST"] == []


@pytest.mark.parametrize("flag", ["--watch", "--cleanup-all"])
def test_options_for_one_run_are_refused(api, spot, file, flag) -> None:
    ended = spot("submit", file, "--venv", "none", flag)
    assert (ended.code, f"{flag} is for one run" in ended.err) == (2, True)


def test_the_fields_of_a_group_as_options_of_one_run(api, spot) -> None:
    serve(api)
    api.respond("POST", "/v1/runs", {**a_run(), "warnings": [], "differs": []}, 201)
    words = ("--group", "digits", "--max-parallel", "2", "--after", "one", "--after", "two", "--", "echo")
    assert spot("submit", "--venv", "none", *words).code == 0
    spec = next(body for body in api.bodies("/v1/runs") if body)["spec"]
    assert (spec["group"], spec["max_parallel"], spec["after"]) == ("digits", 2, ["one", "two"])


def test_a_list_of_a_group_shows_the_cells(api, spot) -> None:
    first = a_run(run_id="digits-lr0-1", labels={"lr": "0.1", "team": "vision"})
    last = a_run(
        run_id="digits-lr3", labels={"lr": "3", "team": "vision"}, status="waiting", progress=None,
        status_text="Waiting.", cost={"usd": 0.0, "on_demand_usd": 0.0, "budget_usd": None, "known": True},
    )  # fmt: skip
    page = a_page(first, last)
    api.respond("GET", "/v1/runs", {**page, "summary": {**page["summary"], "counts": {"running": 1, "waiting": 1}}})
    ended = spot("ls", "--group", "digits")
    assert [squeezed(line) for line in ended.lines] == [
        "RUN lr STATUS STEP LOSS COST NOW",
        f"digits-lr0-1 0.1 ● running 12,300 of 50,000 0.5 $2.10 {first['status_text']}",
        f"digits-lr3 3 ○ waiting {DASH} {DASH} $0.00 Waiting.",
        "digits: 2 runs · 1 waiting, 1 running · $2.10",
    ]
    query = api.requests[-1].query
    assert (query["group"], query["sort"]) == (["digits"], ["created"])


def test_a_whole_group_is_stopped_after_a_question_with_its_count(api, spot) -> None:
    done = {"dry_run": False, "matched": 3, "changed": 2, "unchanged": 1, "refused": [], "runs": ["a", "b"],
            "more": False, "next_cursor": None}  # fmt: skip
    api.respond("POST", "/v1/runs/stop", done)
    ended = spot("stop", "--group", "digits")
    assert "Stop 2 runs (a, b; 1 other matches and stays unchanged)? Add --yes" in ended.err
    assert spot("stop", "--group", "digits", "-y").out == "stop: 2 runs, 1 unchanged.\n"
    assert api.requests[-1].query == {"group": ["digits"]}
    assert api.bodies("/v1/runs/stop") == [{"dry_run": True}, {"dry_run": True}, {"expect": 3}]


def test_a_new_limit_for_every_live_run_of_a_group(api, spot) -> None:
    names = ("digits-a", "digits-b", "digits-c")
    api.respond("GET", "/v1/runs", a_page(*(a_run(run_id=name) for name in names)))
    for name in names:
        api.respond("GET", f"/v1/runs/{name}", a_run(run_id=name))
        done = {**a_run(run_id=name), "warnings": [], "before": {"max_parallel": 2}, "after": {"max_parallel": 4}}
        api.respond("PATCH", f"/v1/runs/{name}", done)
    api.refuse("PATCH", "/v1/runs/digits-c", 409, "RUN_ENDED", "digits-c is completed: only its labels can be changed.")
    asked = spot("change", "--group", "digits", "--max-parallel", "4")
    assert (asked.code, "Change 3 live runs of group digits? Add --yes" in asked.err) == (2, True)
    ended = spot("change", "--group", "digits", "--max-parallel", "4", "-y")
    assert (ended.code, ended.out) == (1, "change: 2 runs, 0 unchanged.\n")
    assert "digits-c: digits-c is completed" in ended.err
    assert api.bodies("/v1/runs/digits-a") == [None, {"max_parallel": 4}]
    assert spot("change", "digits-a", "--after", "default").code == 0
    assert api.bodies("/v1/runs/digits-a")[-1] == {"after": None}
    assert spot("change", "digits-a", "--group", "digits", "--after", "x").code == 2


# --- a real supervisor ------------------------------------------------------------------------------------------------

REAL = """group: short
max_parallel: 1
matrix:
  word: [one, two]
lines:
  - name: report
    command: [{python}, -c, "print('report')"]
    after: [short-word-one, short-word-two]
  - name: wrong
    command: [{python}, -c, "raise SystemExit('wrong')"]
command: [{python}, -c, "print('word {{word}}')"]
"""


@pytest.fixture
def daemon(clean: Path) -> Iterator[Daemon]:
    served = Daemon(clean / "data", {**QUICK, "SPOT_POLL_INTERVAL_S": "1"})
    try:
        served.start()
        yield served
    finally:
        served.close()


def test_a_sweep_on_this_computer(daemon: Daemon, run_cli, clean: Path) -> None:
    here = ("--data-dir", str(daemon.data_dir))
    path = clean / "sweep.yaml"
    path.write_text(REAL.format(python=sys.executable))
    example = run_cli("submit", str(EXAMPLE), "--dry-run", *here)
    assert (example.code, len(example.lines)) == (0, 7), example.err
    assert json.loads(run_cli("ls", "-o", "json", *here).out)["runs"] == []
    first = run_cli("submit", str(path), *here)
    assert first.code == 0, first.err
    assert "4 runs of group short: 4 new." in first.err

    def statuses() -> dict[str, str]:
        runs = json.loads(run_cli("ls", "--group", "short", "-o", "json", *here).out)["runs"]
        return {run["run_id"]: run["status"] for run in runs}

    wait_for(lambda: statuses().get("short-report") == "completed", 120, "the report after the two words")
    wait_for(lambda: statuses().get("short-wrong") == "failed", 60, "the failed cell")
    assert run_cli("logs", "short-word-two", *here).out == "word two\n"
    again = run_cli("submit", str(path), *here)
    assert "4 runs of group short: 4 left alone." in again.err
    assert "short: 4 runs · 3 completed, 1 failed" in run_cli("ls", "--group", "short", *here).out
    resumed = run_cli("resume", "--group", "short", "-y", *here)
    assert resumed.out.startswith("resume: 1 run, 3 unchanged.")
