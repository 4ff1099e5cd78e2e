"""A console that is followed by its offset, and the one that the cloud's log service kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.ports.platform import ConsolePart
from supervisor.ports.provider import NotSupported, ProviderUnavailable
from supervisor.providers.gce.traits import TRAITS
from tests.services.bed import Bed, Client

NAME = "digits-7"


@pytest.fixture
def run(bed: Bed) -> Bed:
    bed.submit(NAME)
    bed.train(NAME)
    bed.platform.consoles["m-a1"] = b"one\ntwo\n"
    return bed


def ask(bed: Bed, query: str, status: int = 200) -> dict[str, Any]:
    answer = Client(bed.services).get(f"/v1/runs/{NAME}/console?{query}")
    assert answer.status_code == status, answer.text
    console: dict[str, Any] = answer.json()
    return console


def gone(bed: Bed) -> None:
    attempt = bed.run(NAME).attempt
    assert attempt is not None
    bed.change(NAME, attempt=replace(attempt, ended_at=bed.clock.now(), gone_at=bed.clock.now()))
    bed.platform.consoles.clear()


def test_what_came_after_an_offset(run: Bed) -> None:
    told = ask(run, "after=4")
    assert (told["text"], told["start"], told["next_offset"], told["lost_bytes"]) == ("two\n", 4, 8, 0)
    assert (told["live"], told["machine"], told["attempt"]) == (True, "m-a1", 1)
    run.platform.consoles["m-a1"] += b"three\n"
    assert ask(run, "after=8")["text"] == "three\n"
    assert ask(run, "after=14")["text"] == ""
    assert ask(run, "after=-6")["text"] == "three\n"
    assert len(ask(run, "after=0&limit=5")["text"]) == 5


def test_what_the_platform_has_dropped_is_said(run: Bed) -> None:
    run.platform.lost_bytes["m-a1"] = 6
    told = ask(run, "after=2")
    assert (told["text"], told["start"], told["lost_bytes"]) == ("o\n", 6, 4)
    assert ask(run, "after=-8")["lost_bytes"] == 0, "nobody had read up to there"


def test_a_torn_character_stays_for_the_next_question(run: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    part = ConsolePart("a🚂".encode()[:3], 10, 13)
    monkeypatch.setattr(run.platform, "console_after", lambda *_: part)
    told = ask(run, "after=10")
    assert (told["text"], told["next_offset"]) == ("a", 11)


def test_a_machine_that_is_gone_says_nothing_more(run: Bed) -> None:
    gone(run)
    told = ask(run, "after=8")
    assert (told["live"], told["text"], told["next_offset"], told["lost_bytes"]) == (False, "", 8, 0)


def test_a_machine_without_a_console_yet_may_still_speak(run: Bed) -> None:
    run.platform.consoles.clear()
    assert ask(run, "after=0")["live"] is True


def test_no_answer_is_no_silence(run: Bed) -> None:
    run.platform.trouble = ProviderUnavailable("away")
    assert ask(run, "after=0", 503)["code"] == "UNAVAILABLE"
    run.platform.trouble = NotSupported("nobody can look into it")
    assert ask(run, "after=0", 409)["code"] == "NOT_SUPPORTED"
    run.platform.trouble = AssertionError("asked")
    run.change(NAME, cell="gce elsewhere gs://other")
    assert ask(run, "after=0", 409)["code"] == "NOT_SUPPORTED"


def test_the_log_service_has_what_was_lost_also_when_the_machine_is_gone(run: Bed) -> None:
    run.platform.log_service = "Cloud Logging"
    run.platform.archives["m-a1"] = b"".join(b"line %d\n" % n for n in range(50))
    gone(run)
    told = ask(run, "source=cloud_logging&lines=2&attempt=1")
    assert (told["text"], told["source"], told["live"]) == ("line 48\nline 49\n", "cloud_logging", False)


def test_it_is_asked_from_when_the_machine_was_asked_for_or_since_then(
    run: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def archive(ref: object, since: float, lines: int) -> bytes:
        asked.append(since)
        return b"x\n"

    monkeypatch.setattr(run.platform, "console_archive", archive)
    attempt = run.run(NAME).attempt
    assert attempt is not None
    ask(run, "source=cloud_logging")
    ask(run, "source=cloud_logging&since=2026-01-01T00:00:00Z")
    assert asked == [attempt.requested_at, 1767225600.0]
    ask(run, "source=cloud_logging&since=0001-01-01T00:00:00%2B23:59")
    ask(run, "source=cloud_logging&since=9999-12-31T23:59:59-23:59")
    assert asked[2:] == [0.0, run.clock.now()], "moments that no calendar has are none to ask about"


def test_a_place_without_a_log_service_and_one_that_has_nothing(run: Bed) -> None:
    assert ask(run, "source=cloud_logging", 409)["code"] == "NOT_SUPPORTED"
    run.platform.archives["m-a1"] = b""
    run.provider.traits = replace(run.provider.traits, log_keeps=TRAITS.log_keeps)
    told = ask(run, "source=cloud_logging", 404)
    assert told["code"] == "EVIDENCE_NOT_FOUND"
    assert "gce_serial_logging" in told["detail"]
    run.platform.trouble = ProviderUnavailable("Cloud Logging: HTTP 403; it needs logging.logEntries.list")
    told = ask(run, "source=cloud_logging", 503)
    assert "logging.logEntries.list" in told["detail"]


def test_where_nothing_was_kept_the_log_service_is_named(run: Bed) -> None:
    run.platform.log_service = "Cloud Logging"
    gone(run)
    command = f"spot serial {NAME} -a 1 --cloud-logging"
    assert command in ask(run, "", 404)["detail"]
    run.objects.put(runfiles.console(NAME, 1), b"the last words\n")
    told = ask(run, "limit=6")
    assert (told["text"], told["source"], told["log_service"]) == ("words\n", "kept", "Cloud Logging")


@pytest.mark.parametrize("query", ["after=x", "limit=0", "lines=0", "source=mars", "since=yesterday", "after=-2000000"])
def test_bad_questions_are_refused(run: Bed, query: str) -> None:
    assert ask(run, query, 422)["code"] == "INVALID_REQUEST"
