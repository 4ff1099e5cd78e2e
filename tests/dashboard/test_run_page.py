"""The page of one run: what it says first, and what it offers to do."""

from __future__ import annotations

from tests.dashboard.looking import Looking
from tests.services.bed import Bed


def test_the_page_begins_with_the_sentence_and_what_is_next(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    page = looking.page("/ui/runs/digits-7")
    assert page.one("h1").text == "digits-7"
    assert page.one(id="run-chip").text == "● running"
    assert page.one(id="run-sentence").text.startswith("Training at step 120 of 1,000")
    assert page.one(id="run-next").text.startswith("Next: ETA in ")
    assert page.one("a", href="/ui/runs/digits-7", aria_current="page").text == "Overview"


def test_an_unknown_run_is_a_page_that_says_so(looking: Looking) -> None:
    answer = looking.get("/ui/runs/nobody")
    assert answer.status_code == 404
    assert "RUN_NOT_FOUND" in answer.text or "NOT_FOUND" in answer.text
