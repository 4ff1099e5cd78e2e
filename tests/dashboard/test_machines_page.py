"""The machines page: each of our machines and its use; leftovers stand out, and are released only after a question."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.api.wire.deps import with_tokens
from supervisor.domain.callers import LOCAL, Scope
from supervisor.domain.machines import Machine, MachineState
from supervisor.services.access.tokens import TokenRequest, create
from supervisor.services.bases import requests as bases
from tests.dashboard.document import Element
from tests.dashboard.looking import Looking
from tests.fakes.meters import meters_of
from tests.services.bed import Bed


def put(bed: Bed, name: str, run_id: str = "", launch_id: str = "1.1.1", **fields: Any) -> None:
    given = {
        "machine_id": f"id-of-{name}", "zone": "local-a", "state": MachineState.UP,
        "supervisor_id": bed.store.supervisor_id, "created_at": bed.clock.now() - 3600, **fields,
    }  # fmt: skip
    bed.provider.add(Machine(name=name, run_id=run_id, launch_id=launch_id, **given))


@pytest.fixture
def house(bed: Bed) -> Looking:
    """digits-7 trains; one leftover, one stranger with a name that means harm."""
    bed.submit("digits-7")
    bed.train("digits-7")
    put(bed, "m-a1", "digits-7", machine_id="id-1")
    put(bed, "left-1", "gone-run", shape="cpu", spot=True)
    put(bed, "<b>web-1</b>", supervisor_id="")
    return Looking(bed.services, now=bed.clock.now)


def names(page: Element) -> list[str]:
    return [row.one("th").text.split()[0] for row in page.all("table")[0].one("tbody").all("tr")]


def test_each_machine_says_what_it_is_for_and_leftovers_come_first(house: Looking) -> None:
    page = house.page("/ui/machines")
    assert names(page) == ["left-1", "m-a1"]
    left, serving = page.all("table")[0].one("tbody").all("tr")
    assert "orphan" in left.attributes["class"]
    assert left.one("span", class_="chip").text == "▲ leftover"
    assert serving.one("a").attributes["href"] == "/ui/runs/digits-7"
    assert "serves attempt 1 of digits-7" in serving.text
    assert serving.all("td")[-1].text == "$0.10"
    sums = [one.text for one in page.one("dl", class_="cloud-sums").all("dd")]
    assert sums == ["2", "$0.20/h", "1", "1"]
    assert "1 leftover:" in page.one("div", class_="notice").text
    billing = page.all("table")[1]
    assert billing.one("tbody").text == "digits-7 ● running m-a1 $0.10"


def test_hosts_that_are_billed_until_somebody_stops_them(house: Looking, bed: Bed) -> None:
    bed.provider.meters = meters_of("local-a", "local-z")
    used, idle = house.page("/ui/machines").all("table")[1].one("tbody").all("tr")
    assert used.text.startswith("local-a used by digits-7 terminate 1 min ago $0.10")
    assert idle.text.startswith("local-z nothing of ours runs on local-z; whether it is billed is not known")


def test_others_are_shown_on_request_as_text(house: Looking) -> None:
    page = house.page("/ui/machines?all=true")
    assert names(page) == ["left-1", "m-a1", "<b>web-1</b>"]
    assert not page.all("b")
    assert page.all("table")[0].one("tr", class_="foreign").one("span", class_="chip").text == "· not ours"


def test_what_was_not_read_and_what_is_missing_is_said(house: Looking, bed: Bed) -> None:
    bed.provider.lose("m-a1")
    bed.provider.unreachable.add("local-c")
    page = house.page("/ui/machines")
    told = " ".join(one.text for one in page.all(class_="notice"))
    assert "Could not be read: local-c. This page does not include them" in told
    assert "Missing, although a run still has it: digits-7 : m-a1 in local-a" in told
    bed.provider.down = True
    answer = house.get("/ui/machines")
    assert answer.status_code == 503
    assert "There may be machines" in answer.text


def test_leftovers_go_after_a_question_only(house: Looking, bed: Bed) -> None:
    asked = house.page("/ui/machines/release")
    assert names(asked) == ["left-1"]
    assert asked.one("main").one("button", class_="danger").text == "Release 1 machine ($0.10/h)"
    assert bed.provider.calls["release"] == 0
    done = house.post("/ui/machines/release")
    assert done.status_code == 200
    assert "has accepted the release of 1 machine ($0.10/h)" in done.text
    assert bed.provider.calls["release"] == 1
    assert "Nothing to release: 1 machine in use." in house.page("/ui/machines/release").text


def test_a_page_of_another_site_releases_nothing(house: Looking, bed: Bed) -> None:
    answer = house.request("POST", "/ui/machines/release", headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403
    assert bed.provider.calls["release"] == 0


def test_an_empty_house_says_so(bed: Bed) -> None:
    page = Looking(bed.services, now=bed.clock.now).page("/ui/machines")
    assert "This supervisor has no machines." in page.text
    assert not page.all("table")


@pytest.mark.parametrize("path", ["/ui/machines", "/ui/machines/release"])
def test_without_the_scope_the_page_names_it(bed: Bed, path: str) -> None:
    wish = TokenRequest(name="ann", owner="ann", scopes=frozenset({Scope.READ, Scope.WRITE}))
    token = create(bed.parts, wish, LOCAL)["token"]
    looking = Looking(with_tokens(bed.services), now=bed.clock.now)
    looking.sign_in(token)
    answer = looking.get(path)
    assert answer.status_code == 403
    assert "needs a token with the scope <code>admin</code>" in answer.text


def test_bases_are_shown_with_their_state_and_none_without_one(house: Looking, bed: Bed) -> None:
    assert "Bases" not in house.page("/ui/machines").text
    wanted = bases.CreateRequest("torch", "pip install timm")
    bases.create(bed.parts, wanted, LOCAL)
    [row] = house.page("/ui/machines").all("table")[-2].one("tbody").all("tr")
    assert row.text.startswith("torch-v1 ready local")
