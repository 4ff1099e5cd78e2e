"""spot serial -f, LINES, --cloud-logging: following by offset, what was lost, and where more may be."""

from __future__ import annotations

import pytest

from supervisor.cli import client
from supervisor.cli.machines import serial
from tests.cli.fake_api import a_page, a_run

PATH = "/v1/runs/digits-7/console"
END = a_run(status="completed", attempt=1)


def part(text: str, start: int = 0, live: bool = True, **more: object) -> dict[str, object]:
    return {
        "run_id": "digits-7", "attempt": 1, "machine": "m-a1", "zone": "us-east1-c", "live": live, "text": text,
        "source": "machine", "log_service": "Cloud Logging", "start": start, "next_offset": start + len(text),
        "lost_bytes": 0, **more,
    }  # fmt: skip


KEPT = part("its last words\n", live=False, source="kept")
GONE = part("", 12, live=False)


def offsets(requests):
    return [request.query.get("after", ["-"])[0] for request in requests if request.path == PATH]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch) -> None:
    monkeypatch.setattr(serial, "POLL_S", 0.0)
    monkeypatch.setattr(client, "RETRY_S", 0.0)


class TestFollow:
    def test_it_reads_from_offset_to_offset_until_the_machine_is_gone(self, api, spot) -> None:
        api.respond_in_turn("GET", PATH, part("one\ntwo\n"), part("thr", 8), part("ee\n", 11), part("", 14), GONE)
        api.respond("GET", "/v1/runs/digits-7", END)
        ended = spot("serial", "digits-7", "-f")
        assert ended.code == 0
        assert ended.out == "one\ntwo\nthree\n"
        assert offsets(api.requests) == ["-65536", "8", "11", "14", "14"]
        assert "m-a1 is gone" in ended.err
        assert "Cloud Logging may have more: spot serial digits-7 -a 1 --cloud-logging" in ended.err

    def test_only_the_last_lines_of_what_was_there_before(self, api, spot) -> None:
        api.respond_in_turn("GET", PATH, part("one\ntwo\nthree\n"), part("four\n", 14), GONE)
        api.respond("GET", "/v1/runs/digits-7", END)
        assert spot("serial", "digits-7", "1", "-f").out == "three\nfour\n"

    def test_what_the_platform_has_dropped_is_said(self, api, spot) -> None:
        lost = part("late\n", 900, lost_bytes=896)
        api.respond_in_turn("GET", PATH, part("one\n"), lost, GONE)
        api.respond("GET", "/v1/runs/digits-7", END)
        ended = spot("serial", "digits-7", "-f")
        assert "896 bytes are lost" in ended.err
        assert ended.out == "one\nlate\n"

    def test_it_continues_with_the_machine_of_the_next_attempt(self, api, spot) -> None:
        second = {"attempt": 2, "machine": "m-a2"}
        api.respond_in_turn(
            "GET", PATH, part("one\n"), GONE, GONE, part("two\n", **second), part("", 4, live=False, **second)
        )
        waiting = a_run(status="recovering", attempt=1)
        api.respond_in_turn("GET", "/v1/runs/digits-7", waiting, a_run(attempt=2), a_run(status="completed", attempt=2))
        ended = spot("serial", "digits-7", "-f")
        assert ended.out == "one\ntwo\n"
        assert ended.err.count("waiting for the machine of the next attempt") == 1
        assert offsets(api.requests) == ["-65536", "4", "12", "0", "4"]
        assert "m-a2 in us-east1-c, attempt 2, now" in ended.err

    def test_one_attempt_is_followed_to_its_own_end_only(self, api, spot) -> None:
        api.respond_in_turn("GET", PATH, part("one\n"), GONE)
        api.respond("GET", "/v1/runs/digits-7", a_run(attempt=2))
        ended = spot("serial", "digits-7", "-a", "1", "-f")
        assert (ended.code, ended.out) == (0, "one\n")

    def test_of_a_machine_that_is_gone_already_what_was_kept_is_shown(self, api, spot) -> None:
        api.respond_in_turn("GET", PATH, GONE, KEPT)
        api.respond("GET", "/v1/runs/digits-7", END)
        ended = spot("serial", "digits-7", "-f")
        assert ended.out == "its last words\n"
        assert "as it was kept" in ended.err

    def test_it_waits_for_the_first_machine(self, api, spot) -> None:
        none = {"title": "x", "code": "EVIDENCE_NOT_FOUND", "detail": "digits-7 has no machine yet.", "status": 404}
        api.responses["GET", PATH] = [(404, none), (404, none), (200, part("boot\n")), (200, GONE)]
        api.respond_in_turn("GET", "/v1/runs/digits-7", a_run(status="waiting", attempt=None), a_run(attempt=1), END)
        ended = spot("serial", "digits-7", "-f")
        assert (ended.code, ended.out) == (0, "boot\n")
        assert ended.err.count("has no machine yet") == 1

    def test_a_restart_of_the_supervisor_loses_nothing(self, api, spot) -> None:
        away = {"title": "x", "code": "UNAVAILABLE", "detail": "away", "status": 503}
        api.responses["GET", PATH] = [(200, part("one\n")), (503, away), (200, part("two\n", 4)), (200, GONE)]
        api.respond("GET", "/v1/runs/digits-7", END)
        assert spot("serial", "digits-7", "-f").out == "one\ntwo\n"

    def test_leaving_changes_nothing_and_says_so(self, api, spot, monkeypatch) -> None:
        def leave(_: float) -> None:
            raise KeyboardInterrupt

        api.respond("GET", PATH, part(""))
        monkeypatch.setattr(serial.time, "sleep", leave)
        ended = spot("serial", "digits-7", "-f")
        assert ended.code == 130
        assert "the run continues" in ended.err


class TestLines:
    TEXT = "".join(f"line {n}\n" for n in range(1, 401))

    def test_a_number_behind_the_run_or_alone_is_the_number_of_lines(self, api, spot) -> None:
        api.respond("GET", PATH, part(self.TEXT))
        api.respond("GET", "/v1/runs", a_page(a_run()))
        for words in (["digits-7", "250"], ["250"], ["digits-7", "-n", "250"]):
            lines = spot("serial", *words).out.splitlines()
            assert (len(lines), lines[-1]) == (250, "line 400")
        assert "limit" in api.requests[-1].query

    def test_few_lines_take_the_ordinary_room(self, api, spot) -> None:
        api.respond("GET", PATH, part(self.TEXT))
        assert len(spot("serial", "digits-7", "3").out.splitlines()) == 3
        assert api.requests[-1].query == {}

    @pytest.mark.parametrize("words", [["digits-7", "x"], ["digits-7", "0"], ["0"], ["digits-7", "5", "6"]])
    def test_what_is_no_number_is_refused(self, api, spot, words) -> None:
        api.respond("GET", "/v1/runs", a_page(a_run()))
        assert spot("serial", *words).code == 2


class TestCloudLogging:
    def test_it_asks_for_the_lines_of_that_time(self, api, spot) -> None:
        api.respond("GET", PATH, part("a\nb\n", live=False, source="cloud_logging"))
        ended = spot("serial", "digits-7", "50", "-a", "1", "--cloud-logging", "--since", "1h")
        assert ended.out == "a\nb\n"
        assert "attempt 1, from Cloud Logging" in ended.err
        query = api.requests[-1].query
        assert (query["source"], query["lines"], query["attempt"]) == (["cloud_logging"], ["50"], ["1"])
        assert query["since"][0].endswith("Z")

    def test_where_there_is_none_the_refusal_says_so(self, api, spot) -> None:
        api.refuse("GET", PATH, 409, "NOT_SUPPORTED", "No log service has the console of m-a1.")
        ended = spot("serial", "digits-7", "--cloud-logging")
        assert ended.code == 6
        assert "NOT_SUPPORTED" in ended.err

    def test_what_was_kept_hints_at_it(self, api, spot) -> None:
        api.respond("GET", PATH, KEPT)
        assert "spot serial digits-7 -a 1 --cloud-logging" in spot("serial", "digits-7").err
        api.respond("GET", PATH, {**KEPT, "log_service": None})
        assert "--cloud-logging" not in spot("serial", "digits-7").err

    @pytest.mark.parametrize("words", [["--cloud-logging", "-f"], ["--since", "1h"]])
    def test_flags_that_do_not_go_together(self, api, spot, words) -> None:
        assert spot("serial", "digits-7", *words).code == 2


def test_a_terminal_is_not_driven_by_what_a_machine_writes(api, spot, monkeypatch) -> None:
    api.respond("GET", PATH, part("\x1b]0;owned\x07\x1b[2Jred \x1b[31mtext\x1b[0m\n"))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    text = spot("serial", "digits-7").out
    assert text == "red \x1b[31mtext\x1b[0m\n"
