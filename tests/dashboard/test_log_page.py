"""The log as a page: numbered windows of limited size, permalinks, a search, and appended lines."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

import pytest

from supervisor.contract import runfiles
from supervisor.dashboard.pages import log as log_view
from supervisor.dashboard.rendering import OURS
from supervisor.domain.run import Files
from supervisor.domain.status import Status
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.services.logs import logs
from tests.dashboard.document import Element, read
from tests.dashboard.looking import Looking
from tests.services.bed import Bed

RUN = "digits-7"
LOG = f"/ui/runs/{RUN}/log"


@pytest.fixture
def trained(bed: Bed) -> Bed:
    bed.submit(RUN)
    bed.train(RUN)
    return bed


def write(bed: Bed, text: str, attempt: int = 1) -> None:
    bed.objects.put(runfiles.log_chunk(RUN, attempt, 0), text.encode())


def thousands(bed: Bed, lines: int = 3000) -> None:
    write(bed, "".join(f"line {number}\n" for number in range(1, lines + 1)))


def numbers(page: Element) -> list[int]:
    return [int(row.one("a").attributes["data-n"]) for row in page.all("div", class_="log-row")]


def link(page: Element, text: str) -> str:
    return next(found.attributes["href"] for found in page.all("a") if found.text == text)


def test_the_newest_lines_come_first_and_every_other_is_a_link_away(trained: Bed, looking: Looking) -> None:
    thousands(trained)
    page = looking.page(LOG)
    assert numbers(page) == list(range(2501, 3001))
    assert "Lines 2,501 to 3,000 of 3,000" in page.one(id="log-place").text
    seen = [numbers(page)]
    while any(one.text == "Older" for one in page.all("a")):
        page = looking.page(link(page, "Older"))
        seen.insert(0, numbers(page))
    assert [number for window in seen for number in window] == list(range(1, 3001))
    page = looking.page(link(page, "Newer"))
    assert numbers(page)[0] == 501
    assert numbers(looking.page(link(page, "First")))[0] == 1
    assert numbers(looking.page(link(page, "Last")))[-1] == 3000


def test_a_permalink_leads_to_its_line_wherever_it_is(trained: Bed, looking: Looking) -> None:
    thousands(trained)
    row = looking.page(LOG).one("div", id="L2600")
    address = urlsplit(row.one("a").attributes["href"])
    assert (dict(parse_qsl(address.query)), address.fragment) == ({"attempt": "1", "line": "2600"}, "L2600")
    page = looking.page(f"{LOG}?attempt=1&line=1234")
    assert page.one("div", id="L1234", aria_current="true").one("code").text == "line 1234"
    assert len(numbers(page)) <= log_view.WINDOW
    assert page.all(data_lines=f"{LOG}/lines?attempt=1") == [], "a part in the middle is not followed"
    beyond = looking.page(f"{LOG}?line=9999")
    assert "There is no line 9,999 yet: the log has 3,000 lines." in beyond.text


def test_long_lines_make_short_windows_that_hold_the_wanted_line(trained: Bed, looking: Looking) -> None:
    """Broken variant: the window began so far before the line that it ended there, too."""
    write(trained, ("x" * 60_000 + "\n") * 60)
    page = looking.page(f"{LOG}?line=50")
    assert 50 in numbers(page)
    assert page.one("div", id="L50").one("span", class_="cut").text == "…(58,000 more characters)"
    older = looking.page(link(page, "Older"))
    assert numbers(older)[-1] == numbers(page)[0] - 1


def test_what_is_not_counted_yet_is_said_and_goes_on_by_itself(
    trained: Bed, looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "COUNTED_BYTES", 70_000)
    write(trained, "123456789\n" * 40_000)
    page = looking.page(f"{LOG}?line=39000")
    assert "so far. This page continues by itself" in page.text
    assert page.one("meta", http_equiv="refresh").attributes["content"] == "1"
    end = looking.page(LOG)
    assert "line numbers appear when the lines are counted" in end.text
    assert len(end.all("div", class_="log-row")) == log_view.WINDOW
    assert numbers(looking.page(link(end, "First")))[0] == 1
    for _ in range(8):
        page = looking.page(f"{LOG}?line=39000")
    assert page.one("div", id="L39000")


def test_what_strangers_wrote_stays_text(trained: Bed, looking: Looking) -> None:
    write(trained, "<script>alert(1)</script>\n\x1b[31mred\x1b[0m \x1b]0;t\x07\n 1%\r 99%\r\nend\u202e\n\xff\n")
    page = looking.page(LOG)
    rows = [row.one("code") for row in page.all("div", class_="log-row")]
    assert [row.text for row in rows] == ["<script>alert(1)</script>", "red", "99%", "end ⟨U+202E⟩", "ÿ"]
    assert rows[1].one("span", class_="a-red").text == "red"
    assert all("alert" not in script.text for script in page.all("script"))


def test_a_search_shows_places_that_lead_to_their_lines(trained: Bed, looking: Looking) -> None:
    thousands(trained)
    page = looking.page(f"{LOG}?q=LINE+2&attempt=1")
    assert "100 lines with LINE 2 in the first" in page.text
    first = page.all("li", class_="log-row")[1]
    assert (first.one("a").attributes["data-n"], first.one("mark").text) == ("20", "line 2")
    there = looking.page(urlsplit(first.one("a").attributes["href"])._replace(fragment="").geturl())
    assert there.one("div", id="L20").one("mark").text == "line 2"
    following = looking.page(link(page, "Continue the search"))
    assert following.all("li", class_="log-row")[0].one("a").attributes["data-n"] == "289"
    assert "No line with LINE 2" in looking.page(f"{LOG}?q=LINE+2&case=match").text
    assert "in all" in looking.page(f"{LOG}?q=nowhere").text
    assert looking.page(f"{LOG}?q=%3Cb%3E").one("input", id="q").attributes["value"] == "<b>"


def test_what_is_new_is_told_as_rows(trained: Bed, looking: Looking) -> None:
    """What static/log.js appends: an incomplete line is sent again when it has grown."""
    write(trained, "one\ntw")
    log = looking.page(LOG).one("div", id="log")
    assert log.one("div", class_="open").text == "tw"
    address = f"{log.attributes['data-lines']}&{log.attributes['data-resume']}"
    write(trained, "one\ntwo\nthree")
    made = looking.page(address).one("div", data_more="0")
    assert [(row.attributes["id"], row.one("code").text) for row in made.all("div", class_="log-row")] == [
        ("L2", "two"),
        ("L3", "three"),
    ]
    assert (made.attributes["data-complete"], made.attributes["data-resume"]) == ("0", "from=3")
    write(trained, "one\ntwo\nthree\n" + "more\n" * 600)
    made = looking.page(f"{log.attributes['data-lines']}&from=3").one("div", data_more="1")
    assert (len(made.all("div", class_="log-row")), made.attributes["data-resume"]) == (500, "from=503")
    trained.end(RUN)
    made = looking.page(f"{log.attributes['data-lines']}&from=604").one("div", data_complete="1")
    assert made.all("div", class_="log-row") == []
    assert looking.page(LOG).one("div", id="log").attributes.get("data-lines") is None, "nothing to follow"


def test_attempts_have_logs_of_their_own(trained: Bed, looking: Looking) -> None:
    write(trained, "first\n")
    trained.end(RUN, Status.RECOVERING)
    trained.train(RUN, number=2)
    write(trained, "second\n", attempt=2)
    page = looking.page(LOG)
    assert page.one("div", class_="log-row").one("code").text == "second"
    assert [one.attributes["value"] for one in page.all("option")] == ["2", "1"]
    first = looking.page(f"{LOG}?attempt=1")
    assert first.one("div", class_="log-row").one("code").text == "first"
    download = link(first, "Download")
    assert looking.get(download).content == b"first\n"
    assert "attachment" in looking.get(download).headers["content-disposition"]
    assert looking.get(f"{LOG}?attempt=3").status_code == 404
    assert looking.get(f"{LOG}?line=x").status_code == 422


def test_empty_purged_and_away(bed: Bed, looking: Looking) -> None:
    bed.submit(RUN)
    assert "There was no machine yet" in looking.page(LOG).text
    bed.train(RUN)
    page = looking.page(LOG)
    assert page.one("p", id="log-empty").text == "Nothing was written yet."
    assert page.one("div", id="log").attributes["data-resume"] == "from=1"
    bed.objects.fail_reads = True
    assert "cannot be read now" in looking.page(LOG).text
    bed.objects.fail_reads = False
    bed.clock.advance(60)
    bed.end(RUN, Status.FAILED, files=Files(purged_at=bed.clock.now()))
    assert "were purged" in looking.page(LOG).text


def test_a_page_that_asks_itself_reads_no_log(trained: Bed, looking: Looking) -> None:
    thousands(trained)
    reads = trained.objects.calls["read"]
    answer = looking.get(LOG, headers={"HX-Request": "true"})
    assert trained.objects.calls["read"] == reads
    assert read(answer.text).one(id="run-chip")


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_of_terminals_can_be_read_on_every_ground() -> None:
    """WCAG 2.2, 1.4.3, in light and dark. Broken variant: a terminal's own yellow on white has 1.1."""
    found = re.compile(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")
    tokens = {name: (light, dark) for name, light, dark in found.findall((OURS / "style.css").read_text())}
    own = {name: (light, dark) for name, light, dark in found.findall((OURS / "log.css").read_text())}
    colours = [name for name in own if name.startswith("a-")]
    assert len(colours) == 16
    for name in colours:
        for ground in ("sunken", "card", "busy-ground"):
            for shade in (0, 1):
                assert contrast(own[name][shade], tokens[ground][shade]) >= 4.5, (name, ground, shade)
    assert all(contrast(own["mark"][shade], tokens["text"][shade]) >= 4.5 for shade in (0, 1))
    assert contrast("#ffff00", "#ffffff") < 1.2


def test_last_lines_that_cannot_be_read_are_not_said_to_be_absent(
    trained: Bed, looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: object) -> None:
        raise StoreUnavailable("away")

    assert looking.page(f"/ui/runs/{RUN}").all(id="log-tail") == [], "nothing was written yet"
    monkeypatch.setattr(trained.objects, "pages", away)
    panel = looking.page(f"/ui/runs/{RUN}").one(id="log-tail")
    assert f"The log of {RUN} cannot be read now." in panel.text
