"""`spot why`: the answer of the API as lines for people, at any width, and whole for programs."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli import output
from supervisor.cli.views.show import why_lines as lines
from tests.cli.test_terminal import COLOUR, at_a_terminal

PATH = "/v1/runs/llm-a/diagnosis"
VERDICT: dict[str, Any] = {
    "rule": "U9.counter", "certainty": "certain", "cause": "host_oom", "where": "data", "goes_on": True,
    "retry": "never",
    "sentence": "memory limit hit (certain: the kernel counted 1 kill, 0 → 1; 62.9 of 64 GiB in use)",
    "quotes": [
        {"item": "oom.kills", "text": "1", "source": "agent", "where": "memory.events",
         "at": "2026-01-01T03:12:07.000Z", "up_s": 41.0},
        {"item": "exit", "text": "Killed", "source": "log", "where": "", "at": None, "up_s": 42.0},
        {"item": "worker_killed", "text": "Killed", "source": "log", "where": "", "at": None, "up_s": 42.0},
    ],
    "remedies": [
        {"word": "fewer_workers", "text": "num_workers ≤ 16 fits this machine; the batch can stay", "ours": False,
         "setting": "num_workers"},
        {"word": "larger_shape", "text": "a shape with at least 96 GiB of memory", "ours": True, "setting": "shapes"},
        {"word": "smaller_batch", "text": "leave the batch size", "ours": False, "setting": "batch size"},
    ],
    "rejected": [{"rule": "U9.memory", "cause": "host_oom", "why": "the counter was read"},
                 {"rule": "U3.killed", "cause": "killed", "why": "the counter rose"}],
    "hints": [], "page": "docs/causes/host_oom.md",
}  # fmt: skip
DIAGNOSIS: dict[str, Any] = {
    "run_id": "llm-a", "generation": 1, "attempt": 3, "ended": True,
    "text": "llm-a, attempt 3, ended: host_oom (certain). Restarted? No: the same configuration would be killed again.",
    "verdict": VERDICT, "acted_on": {"cause": "host_oom", "detail": "memory limit hit"}, "revised": False,
    "findings": [], "unread": [],
}  # fmt: skip


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.cli.views.show.clock", lambda moment: moment[11:19])


def with_(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(DIAGNOSIS), **changes}


def test_the_sentence_comes_first_then_evidence_remedy_and_rule(api: Any, spot: Any) -> None:
    api.respond("GET", PATH, DIAGNOSIS)
    shown = spot("why", "llm-a", "--attempt", "3")
    assert (shown.code, shown.err) == (0, "")
    assert shown.lines == [
        DIAGNOSIS["text"],
        f"  verdict   {VERDICT['sentence']}",
        "  evidence  oom.kills: 1 at 03:12:07 (agent, memory.events) · Killed, 42 s after the agent's start (log)",
        "  by us     a shape with at least 96 GiB of memory (`shapes`)",
        "  remedy    num_workers ≤ 16 fits this machine; the batch can stay · leave the batch size",
        "  [rule U9.counter · docs/causes/host_oom.md]",
    ]
    assert [request.query for request in api.requests if request.path == PATH] == [{"attempt": ["3"]}]


def test_the_page_shows_it_as_it_is(api: Any, spot: Any) -> None:
    api.respond("GET", PATH, DIAGNOSIS)
    page = (Path(__file__).parents[2] / "docs" / "evidence.md").read_text(encoding="utf-8")
    on_page = page.partition("$ spot why llm-a --attempt 3\n")[2].partition("```")[0]
    assert spot("why", "llm-a", "--attempt", "3").out == on_page


def test_what_the_supervisor_or_the_platform_noted_is_named_in_plain_words() -> None:
    """Broken variant: a noted text was its own place, and stood there twice."""
    quotes = [
        {"item": "own.end", "text": "10 polls", "source": "own", "where": "10 polls", "at": None, "up_s": None},
        {"item": "platform.state", "text": "TIMEOUT", "source": "provider", "where": "", "at": None, "up_s": None},
    ]
    shown = lines(with_(verdict={**VERDICT, "quotes": quotes}))
    assert shown[2] == "  evidence  own.end: 10 polls (supervisor) · platform.state: TIMEOUT (platform)"


def test_programs_get_the_answer_as_it_is(api: Any, spot: Any) -> None:
    api.respond("GET", PATH, DIAGNOSIS)
    assert json.loads(spot("why", "llm-a", "-o", "json").out) == DIAGNOSIS
    assert spot("why", "llm-a", "-o", "name").out == "llm-a\n"


def test_what_the_evidence_says_later_is_told_apart_from_what_was_acted_on() -> None:
    """Broken variant: the headline named the cause of the fuller evidence, which decided nothing."""
    text = "llm-a, attempt 3, ended: killed. Restarted? Yes: as attempt 4 in us-east1-b."
    diagnosis = with_(text=text, revised=True, acted_on={"cause": "killed", "detail": "SIGKILL came from outside"})
    shown = lines(diagnosis)
    assert shown[:3] == [
        text,
        "  acted on  SIGKILL came from outside",
        f"  fuller    evidence that came later says host_oom (certain): {VERDICT['sentence']}",
    ]


def test_an_end_that_is_easily_mistaken_says_what_it_is_not() -> None:
    rejected = [{"rule": "U9.counter", "cause": "host_oom", "why": "the kernel's counter stood still"},
                {"rule": "U9.memory", "cause": "host_oom", "why": "memory was not at its limit"}]  # fmt: skip
    shown = lines(with_(verdict={**VERDICT, "cause": "killed", "rejected": rejected}))
    assert "  not this  host_oom (the kernel's counter stood still)" in shown


def test_an_unknown_end_says_what_comes_nearest_and_what_would_have_told_more() -> None:
    verdict = {
        **VERDICT, "rule": "UNKNOWN", "certainty": "hint", "cause": None, "page": None, "quotes": [], "remedies": [],
        "sentence": "no rule explains this end", "rejected": [],
        "hints": [{"rule": "U9.counter", "cause": "host_oom"}, {"rule": "SLOW.io", "cause": None}],
    }  # fmt: skip
    shown = lines(with_(verdict=verdict, unread=[{"name": "oom.kills", "why": "no memory cgroup here"}]))
    assert shown[1:] == [
        "  verdict   no rule explains this end",
        "  nearest   host_oom (rule U9.counter) · rule SLOW.io",
        "  not read  oom.kills: no memory cgroup here",
        "  [rule UNKNOWN]",
    ]


def test_an_attempt_that_goes_on_has_findings_and_no_evidence_of_an_end() -> None:
    finding = {**VERDICT, "rule": "U24.starved", "cause": None, "certainty": "hint", "sentence": "it waits for data",
               "quotes": [], "remedies": VERDICT["remedies"][:1], "page": None}  # fmt: skip
    shown = lines(with_(ended=False, verdict=None, acted_on=None, findings=[finding], text="llm-a goes on."))
    assert shown == [
        "llm-a goes on.", "  notice    it waits for data",
        "  remedy    num_workers ≤ 16 fits this machine; the batch can stay",
    ]  # fmt: skip


def test_a_refusal_has_the_exit_code_of_every_command(api: Any, spot: Any) -> None:
    for status, code, exit_code in ((404, "EVIDENCE_NOT_FOUND", 5), (410, "FILES_PURGED", 5), (503, "UNAVAILABLE", 1)):
        api.refuse("GET", PATH, status, code, "is not kept yet")
        refused = spot("why", "llm-a")
        assert (refused.code, refused.out) == (exit_code, "")
        assert "is not kept yet" in refused.err


def test_what_a_log_says_cannot_drive_the_terminal() -> None:
    diagnosis = with_()
    diagnosis["verdict"]["quotes"][1]["text"] = "\x1b]0;owned\x07\x1b[2J\u202eevil\nsecond"
    text = "\n".join(lines(diagnosis))
    assert "\x1b" not in text
    assert "⟨U+202E⟩evil second" in text


def test_a_narrow_terminal_breaks_between_words_below_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "terminal_columns", lambda: 60)
    shown = lines(DIAGNOSIS)
    assert max(map(len, shown)) <= 60
    assert all(line.startswith(" " * 12) for line in shown if line.startswith("   "))


def test_no_color_where_it_is_piped_and_the_next_command_at_a_terminal(api: Any, spot: Any) -> None:
    api.respond("GET", PATH, DIAGNOSIS)
    assert "\x1b" not in spot("why", "llm-a").out
    with at_a_terminal(api.url, "why", "llm-a", COLUMNS="100") as terminal:
        assert terminal.code() == 0
        assert "next: spot show llm-a --evidence 3" in COLOUR.sub("", terminal.text)
