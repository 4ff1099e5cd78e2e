"""The page of one run: its headline, its actions, and its history."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.attempt import Attempt, Try
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.status import Status
from supervisor.services.runs.changing import change
from supervisor.services.runs.waiving import WaiveRequest, waive
from tests.dashboard.document import Element
from tests.dashboard.looking import Looking
from tests.fakes.callers import MEMBER
from tests.services.bed import PLACE, Bed
from tests.services.test_pasting import waits_for_notebook

RUN = "/ui/runs/digits-7"
HOSTILE = "<script>alert(1)</script>"


def test_the_page_begins_with_the_sentence_and_what_is_next(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    page = looking.page(RUN)
    assert page.one("h1").text == "digits-7"
    assert page.one(id="run-chip").text == "● running"
    assert page.one(id="run-sentence").text.startswith("Training at step 120 of 1,000")
    assert page.one(id="run-next").text.startswith("Next: ETA in ")
    assert page.one(class_="duty").text == "You need to do nothing."
    assert page.one("a", href=RUN, aria_current="page").text == "Overview"


def test_an_unknown_run_is_a_page_that_says_so(looking: Looking) -> None:
    for path in ("", "/events", "/spec", "/stop"):
        answer = looking.get(f"/ui/runs/nobody{path}")
        assert answer.status_code == 404
        assert "RUN_NOT_FOUND" in answer.text


def facts(page: Element) -> dict[str, str]:
    listed = page.one(id="run-facts").one("dl")
    names = [one.text for one in listed.all("dt")]
    return dict(zip(names, [one.text for one in listed.all("dd")], strict=True))


def test_the_facts_have_units_and_what_is_not_known_is_not_zero(bed: Bed, looking: Looking) -> None:
    spec = {"command": ["x"], "limits": {"budget_usd": 1.0}, "labels": {"team": HOSTILE}}
    bed.submit("digits-7", spec)
    page = looking.page(RUN)
    shown = facts(page)
    assert shown["Progress"] == "no steps reported"
    assert (shown["Machine"], shown["Checkpoint"]) == ("none", "none yet")
    assert shown["Labels"] == f"team={HOSTILE}"
    bed.train("digits-7")
    shown = facts(looking.page(RUN))
    assert "120 of 1,000 steps (12 %), 3.0 steps/s" in shown["Progress"]
    assert shown["Machine"].startswith("local-a · cpu · spot")
    assert shown["Stall polls"] == "0/10"
    assert "$1.00 budget" in shown["Cost"]
    assert shown["Price now"] == "$0.10 per hour"


def two_attempts(bed: Bed) -> None:
    """The first was preempted, the second trains; a request in between brought no machine."""
    bed.submit("digits-7")
    bed.train("digits-7", 1)
    bed.clock.advance(600)
    run, now = bed.run("digits-7"), bed.clock.now()
    assert run.attempt is not None
    over = replace(
        run.attempt, ended_at=now - 100, gone_at=now - 90, cause=Cause.PREEMPTED, evidence=f"27 s {HOSTILE}",
        step_last=900, step_kept=890,
    )  # fmt: skip
    failed = Try(2, 1, "1.2.1", "m", PLACE, now - 99, ended_at=now - 95, outcome=Cause.NO_CAPACITY, detail="none")
    bed.change("digits-7", attempt=over, try_=failed)
    call = Try(2, 2, "1.2.2", "m-a2", PLACE, now - 90, 0.1, 0.3)
    second = Attempt(
        2, 1, "1.2.2", "m-a2", "id-2", PLACE, now - 90, now - 80, 0.1, 0.3, now - 70, now - 60, now - 50, step_from=890
    )
    bed.change("digits-7", attempt=second, try_=call)


def test_the_attempts_as_bars_and_the_same_in_words(bed: Bed, looking: Looking) -> None:
    two_attempts(bed)
    page = looking.page(RUN)
    bars = page.one(id="attempts").all("div", class_="tl-row")[1:]
    assert [bar.one(class_="tl-who").text for bar in bars] == ["#1 local-a", "#2 local-a"]
    assert [bar.one(class_="tl-end").text for bar in bars] == ["preempted · $0.02", "training · <$0.01"]
    titles = [title.text for title in bars[0].all("title")]
    assert any(title.startswith("#1 training ") for title in titles)
    assert any(
        title.startswith("no machine in local-a: no_capacity") for title in [t.text for t in bars[1].all("title")]
    )
    second, first = page.one("table", class_="attempts").one("tbody").all("tr")
    cells = [cell.text for cell in first.all("td")]
    assert cells[:6] == ["local-a cpu", "9 min 20 s", "preempted", "0 → 890", "10", "$0.02"]
    assert cells[6].startswith(f"27 s {HOSTILE}")
    assert "1 request without a machine" in second.text
    assert [cell.attributes["scope"] for cell in page.one("table", class_="attempts").all("th")]
    assert "effective time" in page.one(class_="shares").text


def test_no_picture_needs_a_style_of_its_own(bed: Bed, looking: Looking) -> None:
    two_attempts(bed)
    page = looking.page(RUN)
    assert [one for one in page.all() if "style" in one.attributes or one.tag == "style"] == []
    assert all(one.attributes.get("src") for one in page.all("script"))
    assert HOSTILE not in looking.get(RUN).text


def many_attempts(bed: Bed, count: int) -> None:
    bed.submit("digits-7")
    for number in range(1, count + 1):
        bed.train("digits-7", number)
        bed.end("digits-7", Status.RECOVERING)
        bed.clock.advance(100)


def test_of_many_attempts_the_newest_are_shown_and_all_can_be(bed: Bed, looking: Looking) -> None:
    many_attempts(bed, 15)
    page = looking.page(RUN)
    rows = page.one("table", class_="attempts").one("tbody").all("tr")
    assert len(rows) == 13, "twelve, and the one that is being placed"
    (link,) = [a for a in page.one(id="attempts").all("a") if "not shown" in a.text]
    assert link.text == "3 older attempts not shown: show all"
    rows = looking.page(link.attributes["href"].partition("#")[0]).one("table", class_="attempts").one("tbody")
    assert len(rows.all("tr")) == 16


def test_a_run_that_waits_has_a_bar_and_one_that_never_did_has_none(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7")
    bed.clock.advance(5)
    assert looking.page(RUN).one(class_="tl-end").text == "waiting"
    bed.end("digits-7", Status.STOPPED)
    assert "No attempt yet" in looking.page(RUN).one(id="attempts").text


# --- the history ------------------------------------------------------------------------------------------------------


def told(bed: Bed, count: int) -> None:
    bed.submit("digits-7")
    new = [
        Event(EventKind.LATE_BEAT, f"line {n} {HOSTILE}", "supervisor" if n % 10 else "eve", {"n": HOSTILE})
        for n in range(count)
    ]
    bed.store.add_events(bed.run("digits-7").key, new, bed.clock.now())


def lines(page: Element) -> list[str]:
    return [line.text for line in page.one("ol", class_="events").all("li")]


def test_the_history_is_read_page_by_page_newest_first(bed: Bed, looking: Looking) -> None:
    told(bed, 60)
    page = looking.page(f"{RUN}/events")
    first = lines(page)
    assert len(first) == 50
    assert "line 59" in first[0]
    (older,) = page.all("a", rel="next")
    page = looking.page(older.attributes["href"])
    second = lines(page)
    assert "line 9 " in second[0]
    assert "submitted" in second[-1]
    assert len(first) + len(second) == 61
    assert page.all("a", rel="next") == []
    assert [a.text for a in page.all("nav", aria_label="Pages of events")[0].all("a")] == ["Newest"]


def test_the_history_of_one_actor_with_the_data_folded(bed: Bed, looking: Looking) -> None:
    told(bed, 30)
    page = looking.page(f"{RUN}/events?actor=eve")
    assert len(lines(page)) == 3
    assert all("by eve" in line for line in lines(page))
    assert page.one("input", id="actor").attributes["value"] == "eve"
    assert page.all("details")[0].one("pre").text == f'{{ "n": "{HOSTILE}" }}'
    assert HOSTILE not in looking.get(f"{RUN}/events").text
    assert lines(looking.page(f"{RUN}/events?actor=nobody")) == ["Nothing has happened with these filters."]


def test_what_the_api_refuses_of_the_address_is_told(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7")
    assert looking.get(f"{RUN}/events?before=never").status_code == 422
    assert looking.page(f"{RUN}/events?cloud=true").one("input", name="cloud").attributes["checked"] == ""


def test_the_last_events_stand_on_the_page_with_their_actor(bed: Bed, looking: Looking) -> None:
    told(bed, 1)
    page = looking.page(RUN)
    assert "by eve" in lines(page)[0]
    assert page.one("ol", class_="events").all("details") == []


# --- the gates --------------------------------------------------------------------------------------------------------


def test_the_gates_are_one_row_with_words(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    gates = looking.page(RUN).one(id="run-gates")
    texts = [gate.text for gate in gates.one("ol", class_="gates").all("li")]
    assert [text.split()[:2] for text in texts] == [
        ["G0", "audit"], ["G1", "access"], ["G2", "smoke"], ["G3", "launch"], ["G4", "monitor"], ["G5", "verify"],
        ["G6", "teardown"],
    ]  # fmt: skip
    assert texts[2] == "G2 smoke ◌ partly read"
    assert texts[6] == "G6 teardown · not reached"


def test_a_check_shows_its_fact_its_fix_and_who_waived_it(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7", {"command": "pip install torch; python train.py"})
    [row] = [row for row in looking.page(RUN).one(id="gates-checks").all("tr") if "own_environment" in row.text]
    assert "! warn" in row.text
    assert "the command runs pip install" in row.text
    assert "Use the environment of the image" in row.text
    change(bed.parts, "digits-7", waive(WaiveRequest("own_environment", HOSTILE), MEMBER))
    gates = looking.page(RUN).one(id="run-gates")
    [waived] = [line.text for line in gates.all("p")]
    assert waived.startswith(f"own_environment waived by {MEMBER.actor} ")
    assert waived.endswith(f": {HOSTILE}")
    [row] = [row for row in gates.all("tr") if "own_environment" in row.text]
    assert "~ waived" in row.text
    assert HOSTILE not in looking.get(RUN).text


def test_a_run_that_waits_for_a_notebook_shows_its_cell_and_until_when(bed: Bed, looking: Looking) -> None:
    waits_for_notebook(bed)
    page = looking.page(RUN)
    assert page.one(class_="duty").text == "You must act."
    card = page.one(id="run-cell")
    assert page.one(id="cell-text").text.strip() == 'ticket = "1f3c" # claims the job'
    assert "First choose a T4 GPU" in card.text
    assert card.one("time").attributes["data-tick"] == ""
    assert card.one("a", href="https://example.com/new").text == "New notebook"
    assert card.one("button").attributes["data-copy"] == "#cell-text"
    bed.train("digits-7")
    assert not looking.page(RUN).all(id="run-cell")
