"""Many runs at once: the question with its number, the result, and nothing that the question did not show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from supervisor.dashboard.pages import run_change
from supervisor.domain.callers import Caller, Scope
from supervisor.domain.status import Status
from supervisor.services.runs import many as service
from tests.dashboard.document import Element, read
from tests.dashboard.looking import Looking
from tests.services.bed import COMMAND, Bed


@pytest.fixture
def fleet(bed: Bed) -> Bed:
    """Two live runs of one team, a failed run, and a run without a team."""
    for name in ("a-1", "a-2", "a-3"):
        bed.submit(name, {**COMMAND, "labels": {"team": "vision"}})
    bed.submit("b-1")
    bed.end("a-3", Status.FAILED)
    return bed


def fields(page: Element) -> dict[str, list[str]]:
    """Of the form that would do it."""
    return sent_by(page.one("form", method="post", class_="row"))


def sent_by(form: Element) -> dict[str, list[str]]:
    sent: dict[str, list[str]] = {}
    for one in form.all("input", type="hidden"):
        sent.setdefault(one.attributes["name"], []).append(one.attributes["value"])
    return sent


def way_back(page: Element) -> Element:
    return page.one("section").one("a", class_="button")


def send(looking: Looking, question: str) -> tuple[Element, Element]:
    """(the question, what became of it), as a browser goes there."""
    asked = looking.page(question)
    answer = looking.post(question.partition("?")[0], fields(asked))
    assert answer.status_code == 200, answer.text[:500]
    return asked, read(answer.text)


def test_selected_runs_are_stopped_after_a_question(fleet: Bed, looking: Looking) -> None:
    page = looking.page("/ui/runs?label=team%3Dvision")
    form = page.one("form", id="pick")
    assert [one.attributes["formaction"] for one in form.all("button")] == ["/ui/many/stop", "/ui/many/resume"]
    boxes = page.all("input", form="pick", name="run_id")
    assert [one.attributes["value"] for one in boxes] == ["a-3", "a-2", "a-1"]
    back = form.one("input", name="back").attributes["value"]
    asked, done = send(looking, f"/ui/many/stop?run_id=a-1&run_id=a-3&back={quote(back)}")
    assert asked.one("h1").text == "Stop 1 run?"
    assert [one.text for one in asked.one("ul").all("a")] == ["a-1"]
    assert "1 more run matches and stays as it is." in asked.text
    assert way_back(asked).attributes["href"] == "/ui/runs?label=team%3Dvision"
    assert done.one("h1").text == "1 run told to stop"
    assert fleet.run("a-1").stop is not None
    assert fleet.run("a-2").stop is None
    assert fleet.run("b-1").stop is None


def test_a_question_changes_nothing(fleet: Bed, looking: Looking) -> None:
    looking.page("/ui/many/stop?all=true")
    assert all(fleet.run(name).stop is None for name in ("a-1", "a-2", "b-1"))


def test_all_that_match_are_stopped(fleet: Bed, looking: Looking) -> None:
    page = looking.page("/ui/runs?label=team%3Dvision")
    forms = {one.one("button").text: one for one in page.one(id="matching").all("form")}
    assert list(forms) == ["Stop all 2 live that match…", "Resume the one ended that matches…"]
    sent = sent_by(forms["Stop all 2 live that match…"])
    assert sent == {"label": ["team=vision"], "back": ["/ui/runs?label=team%3Dvision"]}
    _, done = send(looking, "/ui/many/stop?label=team%3Dvision")
    assert done.one("h1").text == "2 runs told to stop"
    assert "1 run stayed as it was." in done.text
    assert fleet.run("b-1").stop is None


def test_without_a_filter_it_says_that_all_are_meant(fleet: Bed, looking: Looking) -> None:
    form = looking.page("/ui/runs").one(id="matching").all("form")[0]
    assert form.one("button").text == "Stop all 3 live…"
    assert form.one("input", name="all").attributes["value"] == "true"
    asked = looking.page("/ui/many/stop?all=true")
    assert "this applies to every run that you may see" in asked.text


def test_resumed_runs_and_those_that_refuse(fleet: Bed, looking: Looking) -> None:
    fleet.end("a-2", Status.STOPPED)
    looking.post("/ui/many/stop", {"run_id": "b-1", "expect": "1"})
    asked, done = send(looking, "/ui/many/resume?all=true")
    assert asked.one("h1").text == "Resume 2 runs?"
    assert "b-1" in asked.one("table").text
    assert done.one("h1").text == "2 runs resumed"
    assert "RUN_STOPPING" in done.one("table").one("tbody").text
    assert [fleet.run(name).generation for name in ("a-1", "a-2", "a-3", "b-1")] == [1, 2, 2, 1]


def test_where_others_match_by_then_it_is_asked_again(fleet: Bed, looking: Looking) -> None:
    asked = looking.page("/ui/many/stop?label=team%3Dvision")
    fleet.submit("a-4", {**COMMAND, "labels": {"team": "vision"}})
    answer = looking.post("/ui/many/stop", fields(asked))
    again = read(answer.text)
    assert answer.status_code == 409
    assert again.one("h1").text == "Stop 3 runs?"
    assert "4 runs match, and you have seen 3" in again.one("p", role="alert").text
    assert fleet.run("a-1").stop is None
    assert looking.post("/ui/many/stop", fields(again)).status_code == 200
    assert fleet.run("a-4").stop is not None


NAMED = {"label": "team=vision"}


@pytest.mark.parametrize("form", [{}, {"expect": "3"}, NAMED, {**NAMED, "expect": "x"}])
def test_half_a_form_does_nothing(fleet: Bed, looking: Looking, form: dict[str, Any]) -> None:
    assert looking.post("/ui/many/stop", form).status_code == 200
    assert fleet.run("a-1").stop is None


def test_nothing_selected_and_nothing_to_do(fleet: Bed, looking: Looking) -> None:
    page = looking.page("/ui/many/stop?back=%2Fui%2Fruns%3Fq%3Da")
    assert page.one("h1").text == "No run is selected"
    assert way_back(page).attributes["href"] == "/ui/runs?q=a"
    elsewhere = looking.page("/ui/many/stop?back=%2F%2Fevil.example")
    assert way_back(elsewhere).attributes["href"] == "/ui/runs"
    none = looking.page("/ui/many/stop?run_id=a-3")
    assert none.one("h1").text == "Nothing to stop"
    assert none.one("form", class_="row").all("button") == []


def test_unknown_deeds_and_filters_are_refused(fleet: Bed, looking: Looking) -> None:
    assert looking.get("/ui/many/purge?all=true").status_code == 404
    assert looking.post("/ui/many/purge", {"all": "true", "expect": "4"}).status_code == 404
    assert looking.get("/ui/many/stop?status=runing").status_code == 422
    assert looking.request("POST", "/ui/many/stop", data={"all": "true", "expect": "4"}).status_code == 403
    assert fleet.run("a-1").stop is None


def test_what_does_not_fit_into_one_request_goes_on(
    fleet: Bed, looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST", 1)
    asked, done = send(looking, "/ui/many/stop?all=true")
    assert asked.one("h1").text == "Stop 1 and more runs?"
    assert done.one("h1").text == "3 runs told to stop"
    assert all(fleet.run(name).stop is not None for name in ("a-1", "a-2", "b-1"))


def test_what_takes_too_long_goes_on_by_a_button(fleet: Bed, looking: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST", 1)
    monkeypatch.setattr(run_change, "WITHIN_S", -1.0)
    _, done = send(looking, "/ui/many/stop?all=true")
    assert done.one("h1").text == "1 run told to stop"
    told = 1
    while "cursor" in (sent := fields(done)):
        assert "expect" not in sent
        done = read(looking.post("/ui/many/stop", sent).text)
        told += 1
    assert told == 3
    assert all(fleet.run(name).stop is not None for name in ("a-1", "a-2", "b-1"))


def test_who_may_only_read_is_told_so(fleet: Bed) -> None:
    reader = Caller(owner="local", scopes=frozenset({Scope.READ}))
    looking = Looking(replace(fleet.services, identify=lambda _authorization, _request_id: reader))
    answer = looking.get("/ui/many/stop?all=true")
    assert (answer.status_code, "SCOPE_MISSING" in answer.text) == (403, True)
