"""Input that none of our forms sends: it gets a response, and changes no part of a page."""

from __future__ import annotations

import re
from collections import Counter
from urllib.parse import quote

import pytest

from tests.dashboard.document import read
from tests.dashboard.looking import Looking
from tests.dashboard.raw import FORM, OURS, raw
from tests.services.bed import Bed

LETTERS = ("☃", "é", "\x00", '"1"\r\nX-Odd: 1', "\udc80", "x" * 5000)


@pytest.mark.parametrize("version", LETTERS)
def test_a_version_that_no_header_can_hold_is_no_version(bed: Bed, looking: Looking, version: str) -> None:
    bed.submit("digits-7")
    form = f"budget_usd=77&version={quote(version, errors='surrogatepass')}".encode()
    told = raw(looking, "/ui/runs/digits-7/change", "POST", form, content_type=FORM, **OURS)
    assert told.status in (412, 422)
    assert read(told.body.decode()).one("h1")
    assert "limits" not in looking.get("/v1/runs/digits-7/spec").json()["spec"]


@pytest.mark.parametrize("path", ["/ui/runs", "/ui/runs/digits-7", "/ui/runs/digits-7/spec", "/ui/runs?q=\u202e"])
def test_characters_that_a_reader_does_not_see_are_shown_by_number(bed: Bed, looking: Looking, path: str) -> None:
    hidden = "\u202egnp.exe \x9b31m \u2066\x07"
    bed.submit("digits-7", {"command": ["train", hidden], "labels": {"team": hidden}})
    bed.change("digits-7", detail=hidden)
    page = looking.get(path).text
    assert not re.search("[\x00-\x08\x7f-\x9f\u202e\u2066]", page)
    assert "⟨U+202E⟩" in page or "\\u202e" in page.lower() or path == "/ui/runs"


def test_no_name_of_a_run_takes_the_place_of_a_part_of_the_page(bed: Bed, looking: Looking) -> None:
    """Rows and their boxes have ids with the name of the run in them: nothing else of the page may begin like these."""
    bed.submit("digits-7")
    fixed = [one.attributes["id"] for one in looking.page("/ui/runs").all() if "id" in one.attributes]
    named = {name.partition("-")[2] for name in fixed if name.startswith(("run-", "pick-"))}
    for name in {*named, "all", "rows", "pick"} - {"digits-7"}:
        bed.submit(name)
    ids = Counter(one.attributes["id"] for one in looking.page("/ui/runs").all() if "id" in one.attributes)
    assert [name for name, times in ids.items() if times > 1] == []
