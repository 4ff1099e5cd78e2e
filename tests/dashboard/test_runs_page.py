"""The runs page: rows, counts that filter, filters in the address, and unknown filters."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from supervisor.api.wire.deps import with_tokens
from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api
from supervisor.domain.callers import LOCAL, Scope
from supervisor.domain.incidents import Common, Incident, Member, Signature
from supervisor.domain.run import Money
from supervisor.domain.status import Status
from supervisor.services.access.tokens import TokenRequest, create
from tests.dashboard.document import Element
from tests.dashboard.looking import Looking
from tests.services.bed import COMMAND, Bed
from tests.services.test_series import kept


@pytest.fixture
def look(bed: Bed) -> Looking:
    """The time of day of these pages is the bed's."""
    looking = Looking(bed.services)
    looking.app.state.now = bed.clock.now
    return looking


def rows(page: Element) -> list[str]:
    return [one.attributes["id"].removeprefix("run-") for one in page.all("tr", role="row") if "id" in one.attributes]


def cell(page: Element, run_id: str, name: str) -> str:
    return page.one("tr", id=f"run-{run_id}").one(class_=name).text


def counts(page: Element) -> dict[str, str]:
    """Text of each choice -> where it leads."""
    return {one.text: one.attributes["href"] for one in page.one("nav", class_="choices").all("a")}


def test_a_row_says_all_of_a_run(bed: Bed, look: Looking) -> None:
    bed.submit("digits-7", {**COMMAND, "labels": {"team": "vision", "a": "1", "b": "2", "c": "3"}})
    bed.train("digits-7")
    run = bed.run("digits-7")
    assert run.pulse is not None
    bed.change(
        "digits-7", pulse=replace(run.pulse, stall_polls=3), counters=replace(run.counters, attempts=4, preemptions=2)
    )
    bed.submit("probe-2")
    bed.change("probe-2", status=Status.WAITING, cause="no_capacity", next_at=bed.clock.now() + 40)
    page = look.page("/ui/runs")
    assert rows(page) == ["probe-2", "digits-7"]
    assert cell(page, "digits-7", "state") == "● running"
    assert cell(page, "digits-7", "progress").startswith("12 % 120 of 1,000")
    assert cell(page, "digits-7", "beat") == "Beat 8 s ago ▲ stall 3/10"
    assert cell(page, "digits-7", "where") == "Where local-a cpu"
    assert cell(page, "digits-7", "tries") == "Attempts 4 2 preemptions"
    assert cell(page, "digits-7", "cost").endswith("$0.10/h")
    named = page.one("tr", id="run-digits-7").one(class_="name")
    assert [one.text for one in named.all(class_="label")] == ["a=1", "b=2", "c=3"]
    assert named.one("span", class_="quiet").text == "+1"
    assert named.all(class_="label")[0].attributes["href"] == "/ui/runs?label=a%3D1"
    assert cell(page, "probe-2", "state") == "○ waiting no capacity"
    assert cell(page, "probe-2", "next") == "try in 40 s"
    assert "$0.10 /h now" in page.one(id="summary").text
    assert "last tick 1 s ago" in page.one(id="summary").text


def test_the_line_of_steps_is_broken_at_a_preemption(bed: Bed, look: Looking) -> None:
    bed.submit("digits-7")
    kept(bed, (60, 1, 10), (120, 1, 20), (180, 1, 30), (900, 2, 25), (960, 2, 35))
    bed.train("digits-7")
    bed.clock.advance(1000)
    picture = look.page("/ui/runs").one("tr", id="run-digits-7").one("svg")
    line, band = picture.one("path", class_="line"), picture.one("path", class_="band")
    assert re.fullmatch(r"(M[\d.]+ [\d.]+(L[\d.]+ [\d.]+)+){2}", line.attributes["d"])
    assert band.attributes["d"].count("M") == 1
    assert picture.attributes["aria-label"] == "Steps 10 to 35 in 15 min, 1 interruption"
    assert "style" not in picture.attributes


def test_an_unknown_price_is_a_lower_bound_and_who_must_act_is_marked(bed: Bed, look: Looking) -> None:
    bed.submit("digits-7")
    run = bed.train("digits-7")
    assert run.attempt is not None
    bed.change("digits-7", attempt=replace(run.attempt, price_usd_per_h=None), money=Money(cost_usd=2.5))
    bed.submit("gpu-box")
    bed.train("gpu-box")
    bed.change("gpu-box", status=Status.AWAITING_TEARDOWN)
    page = look.page("/ui/runs")
    assert cell(page, "digits-7", "cost") == "Cost ≥ $2.50"
    assert cell(page, "gpu-box", "next") == "◆ needs you"
    assert "asks" in page.one("tr", id="run-gpu-box").attributes["class"]


def test_counts_lead_to_what_they_count(bed: Bed, look: Looking) -> None:
    for name in ("a-1", "a-2", "b-1"):
        bed.submit(name, {**COMMAND, "labels": {"team": name[0]}})
    bed.train("a-1")
    bed.end("b-1", Status.FAILED)
    told = counts(look.page("/ui/runs?label=team%3Da&page_size=1"))
    assert list(told) == ["All 2", "Live 2", "Over 0", "○ pending 1", "● running 1"]
    for text, address in told.items():
        shown = look.page(address)
        assert dict(parse_qsl(urlsplit(address).query))["label"] == "team=a"
        assert f"of {text.split()[-1]} shown" in shown.text or "No run matches" in shown.text, address
    chosen = look.page(told["● running 1"])
    assert chosen.one("nav", class_="choices").one("a", aria_current="true").text == "● running 1"
    assert rows(chosen) == ["a-1"]
    assert rows(look.page(counts(chosen)["○ pending 1"])) == ["a-2"]
    assert list(counts(look.page("/ui/runs?status=stopped")))[-2:] == ["✗ failed 1", "■ stopped 0"]


def test_every_filter_stands_in_the_address_and_in_the_form(bed: Bed, look: Looking) -> None:
    for name in ("a-1", "a-2"):
        bed.submit(name, {**COMMAND, "labels": {"team": "vision"}})
    address = (
        "/ui/runs?q=a-&label=team%3Dvision&group=sweep&owner=local&zone=x&created_after=2027-01-01T00%3A00%3A00Z"
        "&sort=created&page_size=25&status=pending"
    )
    form = look.page(address).one("form", role="search")
    given = {one.attributes["name"]: one.attributes.get("value", "") for one in form.all("input")}
    assert given | {"label": ""} == {
        "status": "pending", "q": "a-", "label": "", "group": "sweep", "zone": "x", "owner": "local",
        "created_after": "2027-01-01",
    }  # fmt: skip
    assert "team=vision" in [one.attributes.get("value") for one in form.all("input", name="label")]
    assert [one.text for one in form.all("option", selected="")] == ["Oldest first", "25"]
    assert rows(look.page("/ui/runs?sort=created")) == ["a-1", "a-2"]
    assert rows(look.page("/ui/runs?q=a-2")) == ["a-2"]


def test_fields_that_were_left_empty_do_not_stay_in_the_address(look: Looking) -> None:
    answer = look.get("/ui/runs?q=&label=&zone=b&created_after=2026-11-01&sort=")
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/ui/runs?zone=b&created_after=2026-11-01T00%3A00%3A00Z",
    )


def test_pages_go_on_and_back_to_the_first(bed: Bed, look: Looking) -> None:
    for number in range(3):
        bed.submit(f"a-{number}")
    first = look.page("/ui/runs?page_size=2&q=a-")
    assert rows(first) == ["a-2", "a-1"]
    assert first.all("a", rel="first") == []
    second = look.page(first.one("a", rel="next").attributes["href"])
    assert rows(second) == ["a-0"]
    assert second.all("a", rel="next") == []
    assert second.one("a", rel="first").attributes["href"] == "/ui/runs?page_size=2&q=a-"
    assert "1 of 3 shown" in second.text


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ("statuss=running", 422, "did you mean status?"),
        ("status=runing", 422, "did you mean running?"),
        ("colour=red", 422, "?colour"),
        ("label=team", 422, "?label"),
        ("page_size=-1", 422, "?page_size"),
        ("cursor=AAAAAAAAAAAAAAAAAAAA", 400, "CURSOR_INVALID"),
    ],
)
def test_what_the_address_does_not_mean_is_refused_with_a_way_out(
    look: Looking, query: str, status: int, told: str
) -> None:
    answer = look.get(f"/ui/runs?{query}")
    assert (answer.status_code, told in answer.text) == (status, True), answer.text
    assert 'href="/ui/runs"' in answer.text
    assert ("The same list from its beginning" in answer.text) == (status == 400)


def test_without_runs_it_tells_how_to_submit_one_here(look: Looking) -> None:
    page = look.page("/ui/runs")
    told = page.one(id="first-spot").text + page.one(id="first-curl").text
    assert "export SPOT_URL=http://127.0.0.1:8787" in told
    assert "spot submit" in told
    assert "curl http://127.0.0.1:8787/v1/runs" in told
    assert "SPOT_TOKEN" not in told, "nobody has signed in here, no token is needed"


def test_what_is_to_be_copied_holds_no_blank_to_fill(bed: Bed) -> None:
    """The token stands apart, so that what the buttons copy works as it is; and who tries both ways has two runs."""
    looking = Looking(with_tokens(bed.services))
    wish = TokenRequest(name="eve", owner="local", scopes=frozenset({Scope.READ, Scope.WRITE}))
    looking.sign_in(create(bed.parts, wish, LOCAL)["token"])
    page = looking.page("/ui/runs")
    copied = [
        page.one(id=one.attributes["data-copy"].removeprefix("#")).text
        for one in page.all("button")
        if "data-copy" in one.attributes
    ]
    assert len(copied) == 2
    assert all("…" not in text for text in copied)
    assert page.one(id="first-token").text == "export SPOT_TOKEN=sup_…"
    names = [re.search(r'--run-id (\S+)|"run_id": "([^"]+)"', text) for text in copied]
    assert len({found[1] or found[2] for found in names if found}) == 2


def test_the_first_commands_do_what_they_say(bed: Bed, look: Looking) -> None:
    """The request that the empty page suggests submits a run."""
    told = look.page("/ui/runs").one(id="first-curl").text
    sent = re.search(r"--json '(.*)'", told)
    assert sent is not None
    answer = look.request("POST", "/v1/runs", content=sent[1], headers={"content-type": "application/json"})
    assert answer.status_code == 201, answer.text
    assert rows(look.page("/ui/runs")) == ["first"]


def test_nothing_matches(bed: Bed, look: Looking) -> None:
    bed.submit("a-1")
    page = look.page("/ui/runs?status=failed")
    assert "No run matches" in page.text
    assert [(one.text, one.attributes["href"]) for one in page.one(id="rows").all("a")] == [
        ("In any state (1)", "/ui/runs"),
        ("All runs", "/ui/runs"),
    ]


def test_a_loop_that_is_late_is_warned_of(bed: Bed, look: Looking) -> None:
    bed.submit("a-1")
    bed.loop = replace(bed.loop, last_tick_age_s=3600.0)
    late = look.page("/ui/runs").one(id="summary")
    assert late.one("span", class_="bad").text == "▲ last tick 1 h ago"
    bed.loop = replace(bed.loop, last_tick_age_s=None)
    assert "no tick yet" in look.page("/ui/runs").one(id="summary").text
    bed.loop = replace(bed.loop, last_tick_age_s=None, leader=False, follower=True)
    assert look.page("/ui/runs").one(id="summary").all("span", class_="bad") == []


def test_names_and_labels_are_text(bed: Bed, look: Looking) -> None:
    evil = "<script>alert(1)</script>\"'>"
    bed.submit("a-1", {**COMMAND, "labels": {"x": evil, "y": "z" * 255}})
    page = look.page("/ui/runs")
    assert [one for one in page.all("script") if "src" not in one.attributes] == []
    first, second = page.one("tr", id="run-a-1").all("a", class_="label")
    assert first.attributes["title"] == f"x={evil}"
    assert rows(look.page(first.attributes["href"])) == ["a-1"]
    assert len(second.text) < 40
    hostile = look.page('/ui/runs?q="><img src=x>')
    assert hostile.all("img") == []
    assert hostile.one("input", id="q").attributes["value"] == '"><img src=x>'


def test_rows_have_names_for_those_who_do_not_see_them(bed: Bed, look: Looking) -> None:
    bed.submit("a-1")
    page = look.page("/ui/runs")
    table = page.one("table", class_="runs")
    head = table.one("thead").all("th", scope="col")
    row = page.one("tr", id="run-a-1")
    assert len(head) == len(row.all("td")) + len(row.all("th", scope="row"))
    assert row.one("input").attributes["aria-label"] == "Select a-1"
    labelled = {one.attributes["for"] for one in page.all("label") if "for" in one.attributes}
    inside = [field for label in page.all("label") for field in [*label.all("input"), *label.all("select")]]
    for field in [*page.one("form", role="search").all("input"), *page.one("form", role="search").all("select")]:
        hidden = field.attributes.get("type") == "hidden"
        assert hidden or field.attributes.get("id") in labelled or field in inside, field


def test_a_page_is_one_question_to_the_api(bed: Bed, look: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every open page requests it repeatedly."""
    asked: list[str] = []
    real = Api.call

    async def call(self: Api, method: str, path: str, *more: Any, **named: Any) -> Any:
        asked.append(f"{method} {path}")
        return await real(self, method, path, *more, **named)

    monkeypatch.setattr(Api, "call", call)
    for number in range(3):
        bed.submit(f"a-{number}")
    look.page("/ui/runs?status=pending")
    assert asked == ["GET /v1/runs"]


def test_a_row_that_is_pushed_is_the_row_of_the_page(bed: Bed, look: Looking) -> None:
    bed.submit("digits-7", {**COMMAND, "labels": {"team": "vision"}})
    bed.train("digits-7")
    (run,) = look.get("/v1/runs?run_id=digits-7&include=sparkline").json()["runs"]
    row = rendering.environment().get_template("runs_row.html").render(run=run, now=bed.clock.now())
    assert row.startswith('<tr role="row" id="run-digits-7" sse-swap="run-digits-7">')
    assert row.strip() in look.get("/ui/runs").text


def test_open_incidents_are_one_line_each_with_a_way_to_their_runs(bed: Bed, look: Looking) -> None:
    assert look.page("/ui/runs").one(id="incidents").text == ""
    for name in ("digits-7", "digits-8", "digits-9", "other"):
        bed.submit(name)
    lease, now = bed.store.take_lease("local cell", "test", 3600.0, bed.clock.monotonic()), bed.clock.now()
    assert lease is not None
    members = tuple(Member(f"digits-{n}", "local", 1, now, "user_error", at_once=True) for n in (7, 8, 9))
    for text, blocks in (("KeyError: '<b>loss'", True), ("OSError: no space", False)):
        incident = Incident(0, (Signature(Common.ERROR, text),), members, now, now, blocks=blocks)
        bed.store.incidents.write(incident, None, lease, now)
    first, second = look.page("/ui/runs").one(id="incidents").all("p")
    assert first.text.startswith(
        "! Incident 2 : 3 runs ended as user_error with the same error: OSError: no space. Show"
    )
    assert second.text.startswith("✗ Incident 1 : 3 runs ended as user_error with the same error: KeyError: '<b>loss'.")
    page = look.page(second.one("a").attributes["href"])
    assert sorted(rows(page)) == ["digits-7", "digits-8", "digits-9"]
