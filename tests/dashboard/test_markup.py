"""All pages for thirty runs in all conditions: well-formed, with names, nothing inline, and no dead links."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from supervisor.api.wire.deps import with_tokens
from supervisor.dashboard.app import PAGES
from supervisor.domain.status import Status
from tests.dashboard.dataset.house import NOW, House
from tests.dashboard.document import Element
from tests.dashboard.looking import Looking
from tests.dashboard.markup import faults, links, looked_at
from tests.dashboard.serve_dataset import filled

MORE = ("/ui/runs?status=failed", "/ui/runs?q=nothing-is-named-so", "/ui/many/stop?status=running")
NO_PAGES = {"ui_sign_in", "ui_static", "ui_relay", "ui_live", "ui_document"}
RUN = "/runs/{run_id}"
# Of these every page is looked at, of the others the first one.
SEVERAL = ("llm-a", "vit-l-finetune", "xss-probe", "probe-2")
ALIKE = 2  # links that differ in names and numbers only: so many of them are followed
GOOD = """<!doctype html><html lang="en"><head><title>t</title></head><body><main><h1>One</h1>
<form><label>Name <input name="n"></label><button>Go</button></form>
<table><tr><th scope="col">A</th></tr><tr><td><a href="/ui/x#y">x</a></td></tr></table></main></body></html>"""


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with filled(NOW) as found:
        yield found


@pytest.fixture(scope="module")
def pages(house: House) -> dict[str, tuple[Element, list[str]]]:
    """address -> the page and its faults"""
    looking = Looking(house.services, now=house.clock.now)
    gets = [(path, name) for path, methods, _, name in PAGES if "GET" in methods]
    paths = [path for path, name in gets if name not in NO_PAGES and not path.endswith("/lines")]
    addresses = [f"/ui{path}" for path in paths if "{" not in path]
    addresses += [f"/ui/runs/{run_id}" for run_id in house.told]
    tabs = [path for path in paths if path.startswith(f"{RUN}/") and path.count("{") == 1]
    addresses += [f"/ui{path.replace('{run_id}', run_id)}" for run_id in SEVERAL for path in tabs]
    answers = {address: looking.get(address) for address in (*addresses, *MORE)}
    # A deed that does not fit its run is refused on a page of its own.
    codes = {address: answer.status_code for address, answer in answers.items()}
    refused = {address: code for address, code in codes.items() if code not in (200, 409)}
    assert refused == {}
    return {address: looked_at(answer.text) for address, answer in answers.items()}


def test_the_thirty_runs_are_in_all_conditions(house: House) -> None:
    listed = Looking(house.services, now=house.clock.now).get("/v1/runs?page_size=100").json()
    assert {run["status"] for run in listed["runs"]} == {str(status) for status in Status}
    assert sum(listed["summary"]["counts"].values()) == len(listed["runs"]) == len(house.told) == 30


def test_every_page_is_well_made(pages: dict[str, tuple[Element, list[str]]]) -> None:
    assert {address: wrong for address, (_, wrong) in pages.items() if wrong} == {}


def test_the_form_of_the_sign_in_is_well_made(house: House) -> None:
    asked = Looking(with_tokens(house.services), now=house.clock.now)
    assert faults(asked.get("/ui/sign-in").text) == []
    assert faults(asked.get("/ui/no-such-page").text) == []


def test_no_link_leads_nowhere(pages: dict[str, tuple[Element, list[str]]], house: House) -> None:
    looking = Looking(house.services, now=house.clock.now)
    names = re.compile("|".join(sorted(map(re.escape, house.told), key=len, reverse=True)))
    operation = re.compile(r"(?<=^/ui/docs/)\w+$")  # test_docs_page.py reads the page of each
    followed: dict[str, list[str]] = {}
    for page, _ in pages.values():
        for address in links(page):
            form = operation.sub("*", names.sub("RUN", address))
            alike = followed.setdefault(re.sub(r"\d+|=[^&]*", "*", form), [])
            if address not in pages and address not in alike and len(alike) < ALIKE:
                alike.append(address)
    asked = [address for alike in followed.values() for address in alike]
    assert len(asked) > 20
    assert {address: code for address in asked if (code := looking.get(address).status_code) >= 400} == {}


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("</h1>", "</h1><h1>Two</h1>", "2 x <h1>"),
        ("</td>", "", "</tr> while"),
        ("<label>Name ", "<label>", "has no label"),
        ("<form>", '<form onsubmit="x()">', "<form onsubmit>"),
        ("<form>", '<form style="color:red">', "<form style>"),
        ("<h1>", "<script>1</script><h1>", "a <script> inside"),
        ("<form>", '<p id="a"></p><p id="a"></p><form>', "the id a stands 2 times"),
        ("<form>", '<img src="/x"><form>', "without alt"),
        ("<form>", '<a href="javascript:x()">y</a><form>', "javascript:"),
        (' scope="col"', "", "without scope"),
        ("<form>", "<h3>Deep</h3><form>", "skips a level"),
        ("<button>Go</button>", "<button></button>", "without a word"),
    ],
)
def test_a_fault_is_found(before: str, after: str, complaint: str) -> None:
    assert faults(GOOD) == []
    (fault, *_more) = faults(GOOD.replace(before, after, 1))
    assert complaint in fault
