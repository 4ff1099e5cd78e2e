"""The page of the cost: a bar and a row for each month, owner, group or run; and the completion ratio on System."""

from __future__ import annotations

import pytest

from supervisor.dashboard.pages import cost
from supervisor.domain.causes import Cause
from supervisor.domain.status import Status
from tests.dashboard.looking import Looking
from tests.services.bed import Bed
from tests.services.test_billed import scene
from tests.services.test_ledger import three_runs


def rows(looking: Looking, path: str) -> list[str]:
    table = looking.page(path).one("table", class_="ledger")
    return [row.all("th")[0].text for row in table.all("tr")[1:]]


def test_rows_by_what_was_chosen(bed: Bed, looking: Looking) -> None:
    three_runs(bed)
    assert rows(looking, "/ui/cost?by=group") == ["sweep", "no group"]
    assert rows(looking, "/ui/cost?by=run&days=7") == ["b-1", "a-1", "c-1"]
    assert len(rows(looking, "/ui/cost?by=nonsense&days=-1")) == 1, "the months"
    page = looking.page("/ui/cost?by=run")
    assert page.one("a", href="/ui/runs/a-1").text == "a-1"
    assert "88 %" in page.one("dl", class_="cloud-sums").text, "140 s of 160 s"


def test_the_link_to_the_csv_gives_it(bed: Bed, looking: Looking) -> None:
    three_runs(bed)
    link = next(each for each in looking.page("/ui/cost?by=owner").all("a") if each.text == "CSV")
    answer = looking.get(link.attributes["href"])
    assert answer.text.startswith("owner,runs,attempts,scheduling_s,")


def test_without_runs(looking: Looking) -> None:
    assert "Nothing was billed" in looking.page("/ui/cost").text


def test_a_bar_is_as_long_as_its_dollars() -> None:
    seconds = dict.fromkeys(cost.USES, 0.0) | {"productive": 3000.0, "save": None, "boot": 600.0}
    usd = dict.fromkeys(cost.USES, 0.0) | {"productive": 3.0, "boot": 1.0}
    row = {"name": "a", "seconds": seconds, "usd": usd, "billed_usd": 4.0, "billed_s": 3600.0}
    other = {**row, "usd": {use: value / 2 for use, value in usd.items()}, "billed_usd": 2.0}
    first, second = cost.bars([row, other], "owner")
    assert [(part.phase, part.x, part.width) for part in first.parts] == [("productive", 0, 75.0), ("boot", 75.0, 25.0)]
    assert [part.width for part in second.parts] == [37.5, 12.5]
    free = {**row, "usd": dict.fromkeys(cost.USES, 0.0), "billed_usd": 0.0}
    assert [round(part.width) for part in cost.bars([free], "run")[0].parts] == [83, 17], "by time, without dollars"


@pytest.mark.parametrize("cause", [Cause.NO_CAPACITY, Cause.BUDGET])
def test_who_missed_their_end_is_on_the_page_of_the_system(bed: Bed, looking: Looking, cause: Cause) -> None:
    assert "No run has ended" in looking.page("/ui/system").one("section", id="completion").text
    three_runs(bed)
    bed.end("a-1", Status.COMPLETED, cause=Cause.FINISHED)
    bed.end("b-1", Status.FAILED, cause=cause, detail="why it was <b>")
    shown = looking.page("/ui/system").one("section", id="completion").text
    assert "1 of 2 runs (50.00 %)" in shown
    assert ("1 for the cloud" if cause == Cause.NO_CAPACITY else "1 for their user") in shown
    assert "why it was <b>" in shown


def test_an_address_that_is_not_understood_says_so(looking: Looking) -> None:
    for query, text in (
        ("by=bad", "by=bad is not known: by is one of month, owner, group, run."),
        ("days=-1", "days=-1 is not known: days is one of 7, 30, 90, nothing."),
        ("since=x", "This page knows no since: it takes by, days and billed."),
    ):
        assert text in looking.page(f"/ui/cost?{query}").text
    assert "not known" not in looking.page("/ui/cost?by=run&days=").text


def test_beside_the_bill(bed: Bed, looking: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No provider of this supervisor reads" in looking.page("/ui/cost?billed=1").text
    billed, bills, day = scene(bed)
    monkeypatch.setattr(bed.services.billed, "_parts", billed._parts)
    shown = looking.page("/ui/cost?billed=1").one("section", id="billed").text
    assert "1 machine billed and unknown to us" in shown
    assert f"{day} a-1" in " ".join(shown.split())
    assert "agrees" in shown
    assert f"{day}: $0.30" in shown, "a machine of one day has one date"
    assert "more rows" not in shown
    looking.page("/ui/cost")
    assert len(bills.reads) == 1
    told = bed.services.billed.show(None, again=False)
    many = {**told, "rows": told["rows"] * 203}
    monkeypatch.setattr(bed.services.billed, "show", lambda since, again: many)
    assert "3 more rows are in the CSV" in looking.page("/ui/cost?billed=1").one("section", id="billed").text
