"""A machine's console as a page: its source, lost bytes, and new output."""

from __future__ import annotations

import pytest

from supervisor.contract import runfiles
from supervisor.ports.provider import NotSupported
from tests.dashboard.looking import Looking
from tests.services.bed import Bed
from tests.services.test_console_following import gone, run

__all__ = ["run"]
PAGE = "/ui/runs/digits-7/console"


def test_a_live_console_is_followed_from_where_it_was_read(run: Bed, looking: Looking) -> None:
    run.platform.consoles["m-a1"] = b"one\n\x1b[31mtwo\x1b[0m <b>\nthr"
    page = looking.page(PAGE)
    assert "m-a1 in local-a, read from the machine just now" in page.text
    log = page.one("div", id="log")
    assert [row.text for row in log.all("div", class_="log-row")] == ["one", "two <b>", "thr"]
    run.platform.consoles["m-a1"] += b"ee\nfour\n"
    made = looking.page(f"{log.attributes['data-lines']}&{log.attributes['data-resume']}").one(data_more="0")
    assert [row.text for row in made.all("div", class_="log-row")] == ["three", "four"]
    assert made.attributes["data-complete"] == "0"
    run.platform.lost_bytes["m-a1"] = 20
    made = looking.page(f"{log.attributes['data-lines']}&after=5").one(data_more="0")
    assert "15 bytes were lost between two requests" in made.text
    gone(run)
    made = looking.page(f"{log.attributes['data-lines']}&after=5").one(data_more="0")
    assert made.attributes["data-complete"] == "1"


def test_a_platform_without_offsets_shows_the_newest_part_again(
    run: Bed, looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotSupported("no offsets here")

    monkeypatch.setattr(run.platform, "console_after", refuse)
    monkeypatch.setattr(run.provider, "console", lambda ref, most: b"all of it\n")
    log = looking.page(PAGE).one("div", id="log")
    assert (log.text, log.attributes["data-resume"]) == ("all of it", "")
    made = looking.page(log.attributes["data-lines"]).one(data_whole="1")
    assert made.text == "all of it"


def test_a_console_that_was_kept_says_so(run: Bed, looking: Looking) -> None:
    gone(run)
    assert "Nothing of the console of attempt 1 of digits-7 was kept" in looking.page(PAGE).text
    run.objects.put(runfiles.console("digits-7", 1), b"boot\nthe last words\n")
    page = looking.page(PAGE)
    assert "kept before the machine was released" in page.text
    log = page.one("div", id="log")
    assert (log.text, "data-lines" in log.attributes) == ("boot the last words", False)


def test_before_there_is_a_machine(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7")
    assert "There was no machine yet" in looking.page(PAGE).text
