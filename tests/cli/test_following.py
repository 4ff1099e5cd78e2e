"""watch, wait, logs -f, events -f: to the end, through a restart of the supervisor, and away by Ctrl-C."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from supervisor.cli import client
from supervisor.cli.runs import logs, watch
from tests.cli.fake_api import Request, a_page, a_run, an_event, serve_run

END = a_run(status="completed", cause="finished", status_text="Completed after 9 h 41 min.")


def in_turn(*answers: tuple[int, Any]) -> Callable[[Request], tuple[int, Any]]:
    """The responses one after the other; the last one stays."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


class TestWatchWithoutATerminal:
    def test_each_event_is_a_line_and_the_sentence_comes_when_the_status_changes(self, api, spot) -> None:
        serve_run(api, a_run(), an_event(1, "started", "Attempt 1 started."), an_event(2, "completed", "Done."))
        running = a_run(status_text="Training.")
        api.respond_in_turn("GET", "/v1/runs/digits-7", running, running, running, END)
        ended = spot("watch", "digits-7")
        assert ended.code == 0
        assert [line.rpartition("  ")[2] for line in ended.lines] == [
            "Attempt 1 started.", "Done.", "Training.", "Completed after 9 h 41 min.",
        ]  # fmt: skip

    def test_many_events_are_read_to_the_end(self, api, spot) -> None:
        serve_run(api, END)
        pages = [[an_event(1, "waiting", "one")], [an_event(2, "waiting", "two")]]
        api.responses[("GET", "/v1/runs/digits-7/events")] = in_turn(
            (200, {"events": pages[0], "complete": False}), (200, {"events": pages[1], "complete": True})
        )
        assert [line.rpartition("  ")[2] for line in spot("watch", "digits-7").lines[:2]] == ["one", "two"]
        asked = [request.query["after"] for request in api.requests if request.path.endswith("/events")]
        assert asked == [["0"], ["1"]]

    @pytest.mark.parametrize("status", ["failed", "stopped", "partial"])
    def test_any_other_end_is_exit_3(self, api, spot, status: str) -> None:
        serve_run(api, a_run(status=status))
        assert spot("watch", "digits-7").code == 3
        assert spot("wait", "digits-7").code == 3

    def test_ctrl_c_detaches_and_says_so(self, api, spot, monkeypatch) -> None:
        serve_run(api, a_run())
        monkeypatch.setattr(watch.time, "sleep", interrupt)
        for command in ("watch", "wait"):
            ended = spot(command, "digits-7")
            assert ended.code == 130
            assert "Detached from digits-7; it continues. To return: spot watch digits-7" in ended.err

    def test_a_run_that_needs_a_person_is_left(self, api, spot) -> None:
        serve_run(api, a_run(status="waiting", needs_person="the quota allows no L4"))
        ended = spot("watch", "digits-7")
        assert ended.code == 9
        assert "digits-7 needs you: the quota allows no L4" in ended.err

    def test_the_time_is_up(self, api, spot) -> None:
        serve_run(api, a_run())
        ended = spot("watch", "digits-7", "--timeout", "0s")
        assert ended.code == 8
        assert "digits-7 is still running after 0 s; it continues.     (TIMEOUT)" in ended.err


class TestWait:
    def test_it_is_silent_until_the_end(self, api, spot) -> None:
        api.respond_in_turn("GET", "/v1/runs/digits-7", a_run(), a_run(), END)
        ended = spot("wait", "digits-7")
        assert (ended.code, ended.err) == (0, "")
        assert ended.lines == ["digits-7  ✔ completed  Completed after 9 h 41 min."]

    def test_json(self, api, spot) -> None:
        api.respond("GET", "/v1/runs/digits-7", END)
        assert json.loads(spot("wait", "digits-7", "-o", "json").out) == END

    def test_a_run_that_needs_a_person_ends_the_wait_with_a_code_of_its_own(self, api, spot) -> None:
        needy = a_run(status="finishing", needs_person="two files are missing")
        api.respond_in_turn("GET", "/v1/runs/digits-7", a_run(), needy, END)
        ended = spot("wait", "digits-7")
        assert (ended.code, ended.err) == (9, "digits-7 needs you: two files are missing\n")

    def test_an_approval_that_is_awaited_is_said(self, api, spot) -> None:
        asks = a_run(status="awaiting_teardown", next_action={"what": "needs you", "at": None})
        api.respond_in_turn("GET", "/v1/runs/digits-7", asks, END)
        ended = spot("wait", "digits-7")
        assert (ended.code, ended.err) == (9, "digits-7 needs you: its release: spot approve digits-7\n")

    def test_an_approval_that_was_given_is_waited_for(self, api, spot) -> None:
        given = a_run(status="awaiting_teardown", next_action={"what": "release machine", "at": None})
        api.respond_in_turn("GET", "/v1/runs/digits-7", given, END)
        assert spot("wait", "digits-7").code == 0

    def test_a_pull_that_is_awaited_is_said(self, api, spot) -> None:
        results = {"files": 2, "size_bytes": 9, "missing": [], "pulled": False, "pull_required": True}
        needs = {"what": "needs you", "at": None}
        waits = a_run(status="awaiting_teardown", results=results, next_action=needs)
        api.respond_in_turn("GET", "/v1/runs/digits-7", waits, END)
        ended = spot("wait", "digits-7")
        assert (ended.code, ended.err) == (9, "digits-7 needs you: its release: spot pull digits-7\n")

    def test_a_supervisor_that_restarts_is_waited_for(self, api, spot, monkeypatch) -> None:
        monkeypatch.setattr(client, "RETRY_S", 0.0)
        away = (503, {"title": "away", "detail": "away", "code": "UNAVAILABLE"})
        api.responses[("GET", "/v1/runs/digits-7")] = in_turn((200, a_run()), (0, None), away, (0, None), (200, END))
        ended = spot("wait", "digits-7")
        assert ended.code == 0
        assert ended.err.splitlines() == [
            "The supervisor does not respond; retrying. Runs continue without it.",
            "The supervisor responds again.",
        ]

    def test_it_is_not_waited_for_without_end(self, api, spot, monkeypatch) -> None:
        monkeypatch.setattr(client, "RETRY_S", 0.0)
        monkeypatch.setattr(client, "PATIENCE_S", 0.0)
        api.responses[("GET", "/v1/runs/digits-7")] = (0, None)
        assert spot("wait", "digits-7").code == 7

    def test_an_error_is_not_waited_out(self, api, spot) -> None:
        api.refuse("GET", "/v1/runs/digits-7", 404, "RUN_NOT_FOUND", "There is no run digits-7.")
        ended = spot("wait", "digits-7")
        assert (ended.code, ended.err) == (5, "error: There is no run digits-7.     (RUN_NOT_FOUND)\n")


def a_log(texts: dict[int, str], newest: int, over: bool = True) -> Callable[[Request], tuple[int, Any]]:
    """The logs of these attempts in pieces of 4 bytes; the newest ends with the run."""

    def answer(request: Request) -> tuple[int, Any]:
        number = int(request.query.get("attempt", [str(newest)])[0])
        offset = int(request.query["offset"][0])
        raw = texts[number].encode()
        piece = raw[offset : offset + 4]
        end = offset + len(piece)
        return 200, {
            "run_id": "digits-7", "attempt": number, "text": piece.decode(), "offset": offset, "next_offset": end,
            "size": len(raw), "complete": end >= len(raw) and (over or number < newest),
        }  # fmt: skip

    return answer


class TestLogs:
    def test_the_newest_attempt_is_read_to_its_present_end(self, api, spot) -> None:
        api.responses[("GET", "/v1/runs/digits-7/logs")] = a_log({1: "old", 2: "hello, world\n"}, newest=2, over=False)
        ended = spot("logs", "digits-7")
        assert (ended.code, ended.out) == (0, "hello, world\n")
        assert "attempt" not in api.requests[0].query
        assert {request.query["attempt"][0] for request in api.requests[1:]} == {"2"}

    def test_one_attempt(self, api, spot) -> None:
        api.responses[("GET", "/v1/runs/digits-7/logs")] = a_log({1: "old", 2: "new"}, newest=2)
        assert spot("logs", "digits-7", "--attempt", "1").out == "old"
        assert spot("logs", "digits-7", "-f", "--attempt", "1").out == "old"

    def test_the_last_lines_and_what_follows_them(self, api, spot) -> None:
        whole = {"attempt": 2, "text": "two\nthree\n", "next_offset": 14, "size": 14, "complete": False}
        api.respond_in_turn("GET", "/v1/runs/digits-7/logs", whole, {**whole, "text": ""})
        assert spot("logs", "digits-7", "-n", "2").out == "two\nthree\n"
        assert api.requests[0].query == {"tail": ["2"]}
        assert {request.query["offset"][0] for request in api.requests[1:]} <= {"14"}

    def test_following_goes_through_all_attempts_to_the_end(self, api, spot) -> None:
        texts = {1: "first\n", 2: "second\n"}
        first, second = a_log(texts, newest=1), a_log(texts, newest=2)

        def answer(request: Request) -> tuple[int, Any]:
            begun = any(asked.path == "/v1/runs/digits-7" for asked in api.requests)
            return (second if begun else first)(request)

        api.responses[("GET", "/v1/runs/digits-7/logs")] = answer
        api.respond_in_turn("GET", "/v1/runs/digits-7", a_run(attempt=1), a_run(attempt=2), END)
        ended = spot("logs", "digits-7", "-f")
        assert ended.out == "first\nsecond\n"
        assert ended.err == "--- attempt 2 ---\n"

    def test_a_run_without_an_attempt(self, api, spot) -> None:
        nothing = {"run_id": "digits-7", "attempt": None, "text": "", "offset": 0, "next_offset": 0, "size": 0}
        api.respond("GET", "/v1/runs/digits-7/logs", {**nothing, "complete": False})
        api.respond_in_turn("GET", "/v1/runs/digits-7", a_run(status="pending", attempt=None), END)
        assert spot("logs", "digits-7").err == "digits-7 has no log yet.\n"
        assert spot("logs", "digits-7", "-f").code == 0

    def test_ctrl_c_detaches(self, api, spot, monkeypatch) -> None:
        api.responses[("GET", "/v1/runs/digits-7/logs")] = a_log({1: "x"}, newest=1, over=False)
        monkeypatch.setattr(logs.time, "sleep", interrupt)
        ended = spot("logs", "digits-7", "-f")
        assert (ended.code, ended.out) == (130, "x")
        assert "Detached from the log of digits-7; the run continues." in ended.err


def test_events_follow_to_the_end(api, spot) -> None:
    serve_run(api, a_run(), an_event(1, "started", "one"))
    api.respond_in_turn("GET", "/v1/runs/digits-7", a_run(), a_run(), END)
    ended = spot("events", "-f", "digits-7")
    assert [line.rpartition("  ")[2] for line in ended.lines] == ["one"]


class TestHealth:
    READY = {"ready": True, "checks": [{"name": "database", "ok": True, "fact": "a write committed in 1.0 ms"}]}
    UNREADY = {"ready": False, "checks": [{"name": "tick", "ok": False, "fact": "no tick yet"}]}

    def serve(self, api) -> None:
        api.respond("GET", "/readyz", self.READY)
        api.respond("GET", "/v1/runs", a_page())
        api.respond("GET", "/v1/zones", {"zones": []})

    def test_well(self, api, spot) -> None:
        self.serve(api)
        ended = spot("health")
        assert ended.code == 0
        assert ended.lines == [
            "✔ database   a write committed in 1.0 ms",
            "2 running or recovering, 1 waiting · $3.41/h now · last tick 6 s ago · no run needs you",
        ]

    def test_a_host_without_contact_is_named_and_the_supervisor_is_well(self, api, spot) -> None:
        since = datetime.fromtimestamp(time.time() - 7300, UTC).isoformat()
        zone = {"provider": "lab", "zone": "gpu1", "detail": "gpu1 cannot be reached: timed out"}
        self.serve(api)
        api.respond("GET", "/v1/zones", {"zones": [{**zone, "no_contact_since": since}] * 2})
        ended = spot("health")
        assert ended.code == 0
        fact = f"none with gpu1 of lab for 2 h 01 min: {zone['detail']}"
        waits = "Its runs wait for it; nothing is ended or started for that"
        assert ended.lines[1:-1] == [f"! contact    {fact}. {waits}"]
        assert json.loads(spot("health", "-o", "json").out)["no_contact"] == [{**zone, "no_contact_since": since}]

    def test_json_is_spelled_as_everywhere(self, api, spot) -> None:
        self.serve(api)
        old, new = spot("health", "--json"), spot("health", "-o", "json")
        assert json.loads(new.out)["ready"] is True
        assert json.loads(old.out)["ready"] is True, "scripts of before go on"
        assert "--json" not in spot("health", "--help").out

    def test_a_run_needs_the_user(self, api, spot) -> None:
        self.serve(api)
        api.respond("GET", "/v1/runs", a_page(a_run(status="awaiting_teardown"), a_run(run_id="x-1")))
        document = json.loads(spot("health", "--json").out)
        assert document["needs_person"] == ["digits-7"]
        wanted = next(words for each in api.requests if (words := each.query.get("status")))
        assert {"launching", "waiting", "finishing", "awaiting_teardown"} <= set(wanted), "a session waits for its cell"
        assert document["patrol"].endswith("needs you: digits-7")
        assert document["ready"] is True

    def test_unwell_is_an_answer_and_exit_1(self, api, spot) -> None:
        api.respond("GET", "/readyz", self.UNREADY, 503)
        ended = spot("health", "--json")
        assert ended.code == 1
        assert json.loads(ended.out)["ready"] is False
        assert "✗ tick       no tick yet" in spot("health").out


class TestDoctor:
    def test_each_problem_comes_with_its_fix(self, api, spot) -> None:
        checks = [
            {"group": "local", "name": "python", "result": "ok", "fact": "3.11", "cause": "", "fix": ""},
            {"group": "local", "name": "disk", "result": "warn", "fact": "4 GB free", "cause": "full", "fix": "du -sh"},
        ]
        api.respond("GET", "/v1/doctor", {"worst": "warn", "checks": checks})
        ended = spot("doctor")
        assert ended.code == 1
        assert ended.lines == ["✔ python     3.11", "! disk       4 GB free", "    cause: full", "    fix: du -sh"]

    def test_the_exit_code_is_the_worst_finding(self, api, spot) -> None:
        for worst, code in (("ok", 0), ("fail", 2)):
            api.respond("GET", "/v1/doctor", {"worst": worst, "checks": []})
            ended = spot("doctor", "--json")
            assert (ended.code, json.loads(ended.out)["worst"]) == (code, worst)

    def test_no_supervisor_is_a_finding(self, run_cli) -> None:
        ended = run_cli("doctor", "--url", "http://127.0.0.1:1")
        assert ended.code == 2
        assert "✗ supervisor No supervisor responds" in ended.out
        assert "fix: " in ended.out


def test_following_waits_for_the_stream_and_by_the_clock_where_there_is_none(api, spot, monkeypatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(logs.time, "sleep", slept.append)
    serve_run(api, a_run())
    api.respond_in_turn("GET", "/v1/runs/digits-7", a_run(), a_run(), END)
    assert spot("events", "-f", "digits-7").code == 0
    asked = [request.headers for request in api.requests if request.headers["accept"] == "text/event-stream"]
    assert [headers["last-event-id"] for headers in asked] == ["0", "0"]
    assert slept == [logs.POLL_S, logs.POLL_S]  # what answers here knows no streams


@pytest.mark.parametrize(
    ("lines", "has_event"),
    [
        ([b": ping\n", b"id: 7\n", b"\n", b"event: started\n", b"data: {}\n"], True),
        ([b"event: reset\n", b"data: {}\n"], False),  # read again and again, it would never come to rest
        ([b": ping\n", b"\n"], False),
    ],
)
def test_a_stream_has_the_next_event(lines: list[bytes], has_event: bool) -> None:
    assert logs._has_event(lines) is has_event
