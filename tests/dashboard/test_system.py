"""The page of the system: ready or not, the loop, the doctor, the user, and what is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.api.wire.deps import with_tokens
from supervisor.dashboard.pages import system
from supervisor.dashboard.rendering import Assets
from supervisor.domain.callers import LOCAL, Scope
from supervisor.domain.findings import FAIL, Finding
from supervisor.ports.store import StoreDown
from supervisor.services.access.tokens import TokenRequest, create
from supervisor.services.reading.health import LoopStatus
from tests.dashboard.document import read
from tests.dashboard.looking import Looking
from tests.services.bed import Bed


def signed_in(bed: Bed, *scopes: Scope, **wish: float) -> Looking:
    looking = Looking(with_tokens(bed.services), now=bed.clock.now)
    asked = TokenRequest(name="eve", owner="lab", scopes=frozenset(scopes), **wish)  # type: ignore[arg-type]
    looking.sign_in(create(bed.parts, asked, LOCAL)["token"])
    return looking


def test_it_tells_of_the_loop(bed: Bed, looking: Looking) -> None:
    bed.loop = LoopStatus(12.0, True, False, 0.25, 1.5, 1234, {"cell": True, "outbox": False})
    page = looking.page("/ui/system")
    loop = page.one("section", id="loop").text
    assert "Last tick 12 s ago" in loop
    assert "250 ms, began 1.5 s late" in loop
    assert "1,234 since the start" in loop
    assert "Lease outbox not held by this process" in loop
    assert page.one("h2", id="fit-title").text == "Ready"
    bed.loop = LoopStatus(120.0, True, False, 0.25)
    page = looking.page("/ui/system")
    assert "late" in page.one("section", id="loop").one("span", class_="bad").text
    assert page.one("h2", id="fit-title").text == "Not ready"


def test_how_many_preemptions_lost_no_step(bed: Bed, looking: Looking) -> None:
    assert "Saved on notice" not in looking.page("/ui/system").one("section", id="loop").text, "there was none"
    bed.submit("digits-7")
    trains = bed.train("digits-7").attempt
    assert trains is not None
    bed.change("digits-7", attempt=replace(trains, preempted_at_step=120, step_from=120))
    bed.clock.advance(61.0)
    shown = looking.page("/ui/system").one("section", id="loop").text
    assert "Saved on notice 1 of 1 preemption of the last 30 days lost no step (100 %)" in shown


def test_a_database_that_is_away_is_told_and_no_bug(
    bed: Bed, looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check() -> None:
        raise StoreDown("disk full <b>")

    monkeypatch.setattr(bed.store, "check", check)
    fit = looking.page("/ui/system").one("section", id="fit").text
    assert "database ✗ broken a write did not commit" in fit


def test_who_looks(bed: Bed) -> None:
    page = signed_in(bed, Scope.READ, Scope.WRITE, expires_in_s=86_400.0, max_active_runs=3).page("/ui/system")
    text = page.one("main").text
    for told in ("Name eve", "Owner lab", "Scopes runs:read, runs:write", "expires in 24 h", "3 runs at the same time"):
        assert told in text
    assert "Nobody is asked" not in text
    assert page.all("form", action="/ui/sign-out")


def test_where_nobody_is_asked_it_says_so_loudly(looking: Looking) -> None:
    page = looking.page("/ui/system")
    assert "No token is required." in page.one("p", role="alert").text


def test_the_doctor_is_asked_by_a_second_request(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Finding("disk", FAIL, "0 GiB <free>", "it is full", "rm -rf 'old'")
    around = replace(bed.services.around, settings=(broken,))
    looking = Looking(replace(bed.services, around=around))
    doctor = looking.page("/ui/system").one("section", id="doctor")
    assert not doctor.all("table")
    assert doctor.one("a").attributes["href"] == "/ui/system?doctor=1"
    assert (doctor.attributes["hx-trigger"], doctor.attributes["hx-get"]) == ("load", "/ui/system?doctor=1")
    page = looking.page("/ui/system?doctor=1")
    doctor = page.one("section", id="doctor")
    assert "hx-trigger" not in doctor.attributes, "it does not ask itself for ever"
    trouble = doctor.all("article")[0]
    assert "0 GiB <free> it is full" in trouble.text
    fix = trouble.one("code")
    assert fix.text == "rm -rf 'old'"
    assert trouble.one("button").attributes["data-copy"] == f"#{fix.attributes['id']}"
    ids = [one.attributes["id"] for one in page.all() if "id" in one.attributes]
    assert len(ids) == len({*ids})


def test_a_test_of_the_alert_address_is_a_change_and_no_link(
    bed: Bed, looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[object]()

    def examine(parts: object, around: object, loop: object, alert_test: bool, more: object) -> dict[str, object]:
        asked.append(alert_test)
        return {"worst": "ok", "checks": []}

    monkeypatch.setattr("supervisor.api.routes.health.examine", examine)
    looking.page("/ui/system?doctor=1&alert_test=true")
    answer = looking.post("/ui/system/alert-test")
    assert (answer.status_code, asked) == (200, [False, True])
    assert read(answer.text).one("section", id="doctor")


def test_the_doctor_is_for_administrators(bed: Bed) -> None:
    looking = signed_in(bed, Scope.READ)
    doctor = looking.page("/ui/system").one("section", id="doctor")
    assert "scope admin" in doctor.text
    assert "hx-get" not in doctor.attributes
    assert looking.get("/ui/system?doctor=1").status_code == 403


def test_scripts_that_are_not_installed_are_named_with_the_cure(
    looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "assets", lambda: Assets({}, {}))
    told = looking.page("/ui/system").one("main").text
    assert "htmx.min.js" in told
    assert "make env" in told


def test_light_dark_or_as_the_system_has_it(looking: Looking) -> None:
    assert looking.page("/ui/system").one("html").attributes.get("data-theme") is None
    for theme, shown in (("dark", "dark"), ("light", "light"), ("", None), ("neon", None)):
        answer = looking.post("/ui/theme", {"theme": theme, "next": "/ui/system"})
        assert answer.headers["location"] == "/ui/system"
        assert looking.page("/ui/system").one("html").attributes.get("data-theme") == shown
