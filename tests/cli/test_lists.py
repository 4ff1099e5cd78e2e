"""ls, show, cost and events: what people read, and what programs get."""

import json

from supervisor.cli import output
from supervisor.cli.runs.runs import next_command
from supervisor.cli.views import runs as views
from supervisor.domain.events import EventKind
from supervisor.wording.figures import DASH
from tests.cli.fake_api import FIRST_ATTEMPT, SECOND_ATTEMPT, SUMMARY, a_page, a_run, an_event, serve_run, squeezed


def test_ls_is_one_line_a_run_and_a_summary(api, spot, monkeypatch) -> None:
    waiting = a_run(
        run_id="probe-2", status="waiting", attempt=None, placement=None, beat=None, progress=None,
        cost={"usd": 0.0, "on_demand_usd": 0.0, "budget_usd": None, "known": True},
        next_action={"what": "us-east1-c in 3 min", "at": None}, cause="no_capacity",
    )  # fmt: skip
    monkeypatch.setattr("time.time", lambda: 1767225600.0 + 7500)
    api.respond("GET", "/v1/runs", a_page(a_run(), waiting))
    ended = spot("ls")
    assert ended.code == 0
    assert [squeezed(line) for line in ended.lines[:3]] == [
        "RUN STATUS AGE PROGRESS BEAT ATT WHERE COST WHY NEXT",
        f"digits-7 ● running 2 h 05 min ▇▇▁▁▁▁▁▁▁▁ 24 % 8 s 2 local-b cpu $2.10 {DASH} ETA 3 h 23 min",
        f"probe-2 ○ waiting 2 h 05 min {DASH} {DASH} {DASH} {DASH} $0.00 no capacity us-east1-c in 3 min",
    ]
    assert ended.lines[3] == "2 running or recovering, 1 waiting · $3.41/h now · last tick 6 s ago"
    assert "\x1b" not in ended.out  # no terminal, no colour


def test_ls_hands_its_filters_to_the_server_and_reads_all_pages(api, spot) -> None:
    api.respond_in_turn("GET", "/v1/runs", a_page(a_run(), cursor="more"), a_page(a_run(run_id="old-1")))
    ended = spot(
        "ls", "-s", "running", "-s", "waiting", "-l", "team=vision", "--zone", "z", "-q", "dig", "--since", "1h",
        "-n", "7", "-o", "name",
    )  # fmt: skip
    assert ended.lines == ["digits-7", "old-1"]
    first, second = (request.query for request in api.requests)
    assert first.pop("created_after")[0].endswith("Z")
    assert first == {
        "status": ["running", "waiting"], "label": ["team=vision"], "zone": ["z"], "q": ["dig"], "page_size": ["7"],
    }  # fmt: skip
    assert (second["cursor"], second["page_size"]) == (["more"], ["6"])


def test_ls_as_json_and_as_json_lines(api, spot) -> None:
    api.respond("GET", "/v1/runs", a_page(a_run(), a_run(run_id="old-1")))
    document = json.loads(spot("ls", "-o", "json").out)
    assert document["summary"] == SUMMARY
    lines = spot("ls", "-o", "jsonl").lines
    assert [json.loads(line) for line in lines] == document["runs"]


def test_ls_without_runs_says_so(api, spot) -> None:
    api.respond("GET", "/v1/runs", a_page())
    assert "There is no run yet." in spot("ls").err
    assert "No run matches." in spot("ls", "-s", "failed").err


def test_show_is_the_sentence_then_the_attempts(api, spot) -> None:
    serve_run(api, a_run())
    ended = spot("show", "digits-7")
    assert ended.lines[0] == "digits-7  ● running"
    assert ended.lines[1] == a_run()["status_text"]
    assert squeezed(ended.lines[3]) == "# WHERE HOW LONG ENDED BY STEPS KEPT LOST COST EVIDENCE"
    assert ended.lines[4].split() == [
        "1",
        "local-a",
        "cpu",
        "2",
        "h",
        "14",
        "min",
        "preempted",
        "0",
        "→",
        "8,120",
        "40",
        "$0.61",
        "notice",
        "of",
        "30",
        "s",
    ]
    assert squeezed(ended.lines[5]) == f"2 local-b cpu now {DASH} 8,120 → … {DASH} $1.49"
    assert ended.lines[6] == ("waiting 3 % ▏boot 6 % ▏restore 1 % ▏training 88 % ▏lost 2 %  effective 88 %")


def test_show_has_the_tries_without_a_machine(api, spot) -> None:
    serve_run(api, a_run())
    tried = {"number": 1, "placement": FIRST_ATTEMPT["placement"], "cause": "no_capacity", "detail": "none left"}
    api.respond("GET", "/v1/runs/digits-7/attempts", {"attempts": [], "next": {"number": 3, "tries": [tried, tried]}})
    assert spot("show", "digits-7").lines[-1] == (
        "attempt 3: 2 tries without a machine, the last in local-a  cpu: no_capacity none left"
    )


def test_show_as_json_holds_the_attempts_too(api, spot) -> None:
    serve_run(api, a_run())
    document = json.loads(spot("show", "digits-7", "-o", "json").out)
    assert document["attempts"] == [FIRST_ATTEMPT, SECOND_ATTEMPT]
    assert spot("show", "digits-7", "-o", "name").out == "digits-7\n"


def test_a_run_without_steps_has_no_bar() -> None:
    assert views.progress_text(a_run(status="completed", progress=None)) == DASH
    assert views.progress_text(a_run(status="completed")).endswith("100 %")


def test_what_a_person_must_do_is_suggested() -> None:
    results = {"files": 2, "size_bytes": 9, "missing": [], "pulled": False, "pull_required": True}
    assert next_command(a_run(status="completed", results=results)) == "spot pull digits-7"
    assert next_command(a_run(status="awaiting_teardown", results=results)) == "spot pull digits-7"
    results["pulled"] = True
    assert next_command(a_run(status="completed", results=results)) == "spot logs digits-7"
    assert next_command(a_run(status="awaiting_teardown", results=results)) == "spot approve digits-7"
    assert next_command(a_run(status="finishing")) == "spot watch digits-7"
    asks = a_run(status="finishing", needs_person="results are not verified")
    assert next_command(asks) == "spot approve digits-7 --accept-loss REASON"


def test_a_long_name_is_cut_on_a_terminal_only(monkeypatch) -> None:
    run = a_run(run_id="r" * 63)
    assert views.run_lines([run], SUMMARY)[1].startswith("r" * 63 + " ")
    monkeypatch.setattr(output, "terminal_columns", lambda: 80)
    assert views.run_lines([run], SUMMARY)[1].startswith("r" * 25 + "… ")


def test_a_bar_is_full_only_at_the_end() -> None:
    assert views.progress_text(a_run(progress={"step": 49_999, "total": 50_000})) == "▇▇▇▇▇▇▇▇▇▁ 99 %"
    assert views.progress_text(a_run(status="completed", progress={"step": 5, "total": None})).endswith("100 %")
    assert views.progress_text(a_run(progress={"step": 4200, "total": None})) == "step 4,200"
    assert views.progress_text(a_run(progress={"step": 9, "total": 0})) == "step 9"


def test_an_unknown_status_word_is_shown_not_refused(api, spot) -> None:
    api.respond("GET", "/v1/runs", a_page(a_run(status="hibernating")))
    assert "? hibernating" in spot("ls").out


def test_text_of_a_run_cannot_drive_the_terminal(api, spot) -> None:
    bad = "bad\x1b]0;title\x07\x1b[2Jtext\r\nforged"
    serve_run(api, a_run(status_text=bad), an_event(1, "failed", bad))
    for ended in (spot("show", "digits-7"), spot("events", "digits-7")):
        assert "\x1b" not in ended.out
        assert "\x07" not in ended.out
        assert "badtext  forged" in ended.out


def test_events(api, spot) -> None:
    serve_run(api, a_run(), an_event(1, "submitted", "Submitted by local."), an_event(2, "launching", "Attempt 1."))
    ended = spot("events", "digits-7")
    assert [line.split("  ", 1)[1] for line in ended.lines] == [
        "attempt 1   submitted            Submitted by local.",
        "attempt 1   launching            Attempt 1.",
    ]
    assert [event["id"] for event in json.loads(spot("events", "digits-7", "-o", "json").out)["events"]] == [1, 2]
    assert [json.loads(line)["id"] for line in spot("events", "digits-7", "-o", "jsonl").lines] == [1, 2]


def test_events_since_says_when_it_shows_only_the_newest(api, spot) -> None:
    api.respond_in_turn(
        "GET", "/v1/runs/digits-7/events",
        {"events": [an_event(1, "waiting", "x")], "complete": False}, {"events": [], "complete": True},
    )  # fmt: skip
    ended = spot("events", "digits-7", "--since", "24h")
    assert "Only the newest 1000 events" in ended.err
    assert "since" in api.requests[0].query
    assert "since" not in api.requests[1].query


def test_cost(api, spot) -> None:
    serve_run(api, a_run())
    ended = spot("cost", "digits-7")
    assert squeezed(ended.lines[1]) == "1 local-a cpu 2 h 14 min $0.30/h $0.61"
    assert ended.lines[-1] == "$2.10 so far, $0.30/h now; on-demand $6.30 (67 % saved); budget $20.00."


def test_a_cost_that_is_a_lower_bound_says_so(api, spot) -> None:
    serve_run(api, a_run(cost={"usd": 2.1, "on_demand_usd": 0.0, "budget_usd": None, "known": False}))
    assert spot("cost", "digits-7").lines[-1] == "at least $2.10 so far, $0.30/h now."
    assert json.loads(spot("cost", "digits-7", "-o", "json").out)["cost"]["known"] is False


def test_all_kinds_of_events_leave_the_texts_below_each_other() -> None:
    longest = max(EventKind, key=len)
    [line], [other_line] = (views.event_lines(an_event(1, kind, "Text.")) for kind in (longest, "started"))
    assert line.index("Text.") == other_line.index("Text.")


def test_where_there_is_little_room_the_bar_gives_way_to_what_is_next(monkeypatch) -> None:
    monkeypatch.setattr(output, "terminal_columns", lambda: 80)
    lines = views.run_lines([a_run(next_action={"what": "ETA 1 min 5 s", "at": None})], SUMMARY)
    assert lines[1].endswith("ETA 1 min 5 s")


def test_show_gives_one_of_facts_and_evidence(api, spot) -> None:
    ended = spot("show", "digits-7", "--facts", "--evidence", "1")
    assert (ended.code, api.requests) == (2, [])


def test_an_unknown_price_is_a_lower_bound_in_the_list_and_never_nothing(api, spot) -> None:
    unknown = {"on_demand_usd": 0.0, "budget_usd": None, "known": False}
    runs = (a_run(cost={**unknown, "usd": 2.1}), a_run(run_id="imported", cost={**unknown, "usd": 0.0}))
    api.respond("GET", "/v1/runs", a_page(*runs))
    _, first, second, _ = spot("ls").lines
    assert "≥ $2.10" in first
    assert "$" not in second
