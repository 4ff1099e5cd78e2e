"""change, zones, and stop and resume by filters: the requests, the questions before them, and the output."""

from __future__ import annotations

import json

import pytest

from supervisor.cli import output
from supervisor.wording.figures import DASH
from tests.cli.fake_api import FakeApi, Request, a_run

RUN = "/v1/runs/digits-7"


def a_change(**more: object) -> dict[str, object]:
    return {**a_run(), "warnings": [], "before": {}, "after": {}, **more}


def tagged(api: FakeApi, *refusals: int) -> None:
    """The run, and a PATCH that is refused so often."""
    api.respond("GET", RUN, a_run())
    problem = {"detail": "It has changed.", "code": "PRECONDITION_FAILED"}
    done = a_change(before={"limits.budget_usd": 20.0, "zones": []}, after={"limits.budget_usd": 50.0, "zones": ["b"]})
    api.responses[("PATCH", RUN)] = [*((status, problem) for status in refusals), (200, done)]


def patches(api: FakeApi) -> list[Request]:
    return [request for request in api.requests if request.method == "PATCH"]


def test_what_is_changed_is_sent_and_shown(api, spot) -> None:
    tagged(api)
    ended = spot(
        "change", "digits-7", "-l", "team=vision", "-l", "old-", "--budget", "50", "--wait", "2h", "--max-attempts",
        "default", "--deadline", "2030-01-31T08:00:00Z", "--zone", "b", "--zone", "a",
    )  # fmt: skip
    assert ended.code == 0
    (sent,) = patches(api)
    assert sent.headers["if-match"] == "*"  # a server that tells no tag
    assert sent.body == {
        "labels": {"team": "vision", "old": None},
        "limits": {
            "budget_usd": 50.0,
            "wait_for_capacity_s": 7200.0,
            "max_attempts": None,
            "deadline": "2030-01-31T08:00:00Z",
        },
        "zones": ["b", "a"],
    }
    assert ended.lines[1:] == ["  limits.budget_usd: 20 → 50", "  zones: all → b"]


def test_a_run_that_changed_meanwhile_is_read_again_once(api, spot) -> None:
    tagged(api, 412)
    assert spot("change", "digits-7", "--zone", "default").code == 0
    assert [request.body for request in patches(api)] == [{"zones": None}] * 2
    tagged(api, 412, 412)
    ended = spot("change", "digits-7", "--zone", "b")
    assert (ended.code, "PRECONDITION_FAILED" in ended.err) == (6, True)


@pytest.mark.parametrize(
    "words",
    [[], ["--label", "team"], ["--label", "-"], ["--budget", "much"], ["--max-attempts", "1.5"], ["--wait", "soon"]],
)
def test_what_is_no_change_is_not_sent(api, spot, words: list[str]) -> None:
    assert spot("change", "digits-7", *words).code == 2
    assert api.requests == []


def page(*names: str, matched: int = 9, cursor: str | None = None, **more: object) -> dict[str, object]:
    return {
        "dry_run": False, "matched": matched, "changed": len(names), "unchanged": 1, "refused": [],
        "runs": list(names), "more": cursor is not None, "next_cursor": cursor, **more,
    }  # fmt: skip


@pytest.mark.parametrize("action", ["stop", "resume"])
def test_all_pages_after_one_question(api, spot, monkeypatch, action: str) -> None:
    questions: list[str] = []
    monkeypatch.setattr(output, "confirmed", lambda question, yes: not questions.append(question))
    pages = [page(*(f"a-{n}" for n in range(6)), cursor="c"), page("b-1", matched=2)]
    api.responses[("POST", f"/v1/runs/{action}")] = [(200, zone) for zone in (*pages, *pages)]
    ended = spot(action, "-l", "team=vision", "--status", "running", "--status", "waiting")
    (question,) = questions
    assert question.startswith(f"{action.capitalize()} 7 runs (a-0, a-1, a-2, a-3, a-4 and 2 more")
    assert [request.body for request in api.requests] == [{"dry_run": True}, {"dry_run": True}, {"expect": 9}, {}]
    assert api.requests[3].query == {"label": ["team=vision"], "status": ["running", "waiting"], "cursor": ["c"]}
    assert ended.lines == [f"{action}: 7 runs, 2 unchanged."]


def test_the_question_comes_before_the_change(api, spot) -> None:
    api.respond("POST", "/v1/runs/stop", page("a-1"))
    ended = spot("stop", "--status", "running")
    assert (ended.code, "Add --yes" in ended.err) == (2, True)
    assert [request.body for request in api.requests] == [{"dry_run": True}]
    assert spot("stop", "--status", "running", "--yes", "-o", "name").out == "a-1\n"


def test_refusals_and_nothing_to_do(api, spot) -> None:
    refused = [{"run_id": "a-2", "code": "RUN_STOPPING", "detail": "It is being stopped."}]
    api.respond("POST", "/v1/runs/resume", page("a-1", refused=refused))
    ended = spot("resume", "-q", "a-", "-y")
    assert (ended.code, ended.err) == (1, "a-2: It is being stopped.     (RUN_STOPPING)\n")
    api.respond("POST", "/v1/runs/stop", page(matched=3))
    ended = spot("stop", "-q", "a-", "-y", "-o", "json")
    assert ended.err == "3 runs match; there is nothing to stop.\n"
    assert json.loads(ended.out)["changed"] == 0


@pytest.mark.parametrize(
    "words",
    [["stop", "digits-7", "-s", "running"], ["resume", "digits-7", "-q", "a"], ["resume", "-q", "a", "--rerun"]],
)
def test_a_name_and_filters_contradict_each_other(api, spot, words: list[str]) -> None:
    assert spot(*words).code == 2
    assert api.requests == []


def test_an_empty_filter_means_no_run(api, spot) -> None:
    api.refuse("POST", "/v1/runs/stop", 422, "INVALID_REQUEST", "A filter is needed.")
    assert spot("stop", "-q", "", "-y").code == 2


def test_zones(api, spot) -> None:
    zone = {
        "provider": "gce", "region": "r", "zone": "r-a", "shape": "t4", "spot": True, "price_usd_per_h": 0.35,
        "state": "cooling", "machines": 2, "failures": 3, "cause": "no_capacity", "detail": "the zone is full",
        "cool_until": "2020-01-01T00:00:00.000Z", "preemptions": 1, "lives": 9, "lives_lost": 3, "returns_after_s": 660,
        "last_stock_out_at": None, "last_preemption_at": None,
    }  # fmt: skip
    other = {
        **zone,
        "spot": False,
        "state": "unknown",
        "machines": 0,
        "cause": None,
        "detail": None,
        "cool_until": None,
        "lives": 0,
        "returns_after_s": None,
    }
    api.respond("GET", "/v1/zones", {"zones": [zone, other], "window_s": 21600.0})
    ended = spot("zones")
    assert [" ".join(line.split()) for line in ended.lines] == [
        "ZONE SHAPE STATE MACHINES LOST LIVES BACK $/H WHY",
        "r-a t4 cooling, retry in 0 s 2 1 3 of 9 11 min $0.35 no_capacity: the zone is full",
        f"r-a t4 on-demand unknown {DASH} 1 {DASH} {DASH} $0.35",
    ]
    assert "within the last 6 h" in ended.err
