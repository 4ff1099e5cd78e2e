"""`spot show --evidence`, and the last failure in `spot show`; docs/evidence.md shows the real output."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.views.show import evidence_lines
from supervisor.wording.attempt import last_failure
from tests.cli.fake_api import FIRST_ATTEMPT, SECOND_ATTEMPT, a_run, serve_run

PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"
STACK = """Thread 0x00007f24067ad6c0 (most recent call first):
  File "/data/train.py", line 9 in backwards
    with lock_a:
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007f240740eb80 (most recent call first):
  File "/data/train.py", line 18 in <module>
    with lock_b:"""
KEPT: dict[str, Any] = {
    "version": 1, "run_id": "digits-7", "generation": 1, "attempt": 1, "launch_id": "1.1.1",
    "machine": {"name": "m", "machine_id": "local:1:2:3", "zone": "local-a"}, "cause": "stalled",
    "detail": "10 polls without progress at step 300", "exit": None, "step_last": 300, "step_kept": 200,
    "readings": {"end": ["listing: up, 0.4 s old", "beat: phase training, sequence 61, 2.1 s old"],
                 "release": ["listing: up, 1 s old"]},
    "beat": {"at": "2026-01-01T02:14:00Z", "phase": "training", "step": 300, "message": "",
             "telemetry": {"cgroup": {"memory_bytes": 6200000000, "memory_max_bytes": 8000000000}}},
    "agent": {
        "version": 1, "when": "stall", "oom_kills": 0, "boot": {"at_start": "4f1c", "now": "4f1c"},
        "disks": {"checkpoints": {"free_bytes": 81400000000, "free_inodes": 16197977}},
        "stall": {"step": 300, "without_progress_s": 181.0, "threads": [
            {"pid": 4711, "how": "faulthandler", "command": "python train.py", "text": STACK}]},
    },
    "agent_missing": "", "log_tail": [f"step {step}" for step in range(290, 301)],
    "console": "runs/digits-7/instances/1.console.log",
}  # fmt: skip
KILLED: dict[str, Any] = {
    **KEPT, "cause": "host_oom", "detail": "memory limit hit (certain: the kernel counted 1 kill)",
    "exit": {"code": None, "signal": 9, "sent_by_us": False, "ran_s": 95.0, "oom_kills": 1, "disk_full": ""},
    "agent": {"when": "end", "oom_kills": 1},
}  # fmt: skip


def serve(api: Any, kept: dict[str, Any], cause: str = "stalled") -> None:
    serve_run(api, a_run())
    first = {**FIRST_ATTEMPT, "cause": cause}
    api.respond(
        "GET", "/v1/runs/digits-7/attempts", {"run_id": "digits-7", "attempts": [first, SECOND_ATTEMPT], "next": None}
    )
    api.respond("GET", "/v1/runs/digits-7/attempts/1/evidence", kept)


def test_the_page_shows_it_as_it_is(api: Any, spot: Any) -> None:
    serve(api, KEPT)
    shown = spot("show", "digits-7", "--evidence").out
    on_page = PAGE.read_text(encoding="utf-8").partition("$ spot show digits-7 --evidence\n")[2]
    assert shown == on_page.partition("```")[0]


def test_an_attempt_can_be_named_and_programs_get_it_whole(api: Any, spot: Any) -> None:
    serve(api, KEPT)
    assert spot("show", "digits-7", "--evidence", "1").lines[1] == "Evidence of attempt 1: stalled"
    assert json.loads(spot("show", "digits-7", "--evidence", "-o", "json").out) == KEPT
    api.refuse("GET", "/v1/runs/digits-7/attempts/2/evidence", 404, "EVIDENCE_NOT_FOUND", "is not over")
    missing = spot("show", "digits-7", "--evidence", "2")
    assert missing.code != 0
    assert "is not over" in missing.err


def test_before_the_first_end_there_is_none(api: Any, spot: Any) -> None:
    serve_run(api, a_run())
    api.respond("GET", "/v1/runs/digits-7/attempts", {"run_id": "digits-7", "attempts": [SECOND_ATTEMPT], "next": None})
    ended = spot("show", "digits-7", "--evidence")
    assert ended.code != 0
    assert "No attempt of digits-7 has ended yet" in ended.err


def test_show_has_the_main_rows_of_the_last_failure(api: Any, spot: Any) -> None:
    serve(api, KILLED, "host_oom")
    lines = spot("show", "digits-7").lines
    at = lines.index("Evidence of attempt 1: host_oom")
    rows = [" ".join(line.split()) for line in lines[at + 1 :]]
    assert rows == [
        "why memory limit hit (certain: the kernel counted 1 kill)",
        "exit SIGKILL, not sent by us, after 1 min 35 s",
        "memory kills for memory: 1; 5.8 of 7.5 GiB at the last beat",
        "last 5 lines of the log", "step 296", "step 297", "step 298", "step 299", "step 300",
    ]  # fmt: skip


@pytest.mark.parametrize("cause", ["preempted", "finished", "stop_requested"])
def test_an_unremarkable_end_is_not_shown(api: Any, spot: Any, cause: str) -> None:
    serve(api, KEPT, cause)
    assert "Evidence" not in spot("show", "digits-7").out


def test_a_failure_whose_evidence_is_gone_is_shown_without_it(api: Any, spot: Any) -> None:
    serve(api, KEPT)
    api.refuse("GET", "/v1/runs/digits-7/attempts/1/evidence", 404, "EVIDENCE_NOT_FOUND", "none will come")
    ended = spot("show", "digits-7")
    assert (ended.code, ended.err) == (0, "")


def test_long_stacks_are_cut_in_show_and_whole_in_evidence() -> None:
    kept = copy.deepcopy(KEPT)
    kept["agent"]["stall"]["threads"][0]["text"] = "\n".join(f'  File "a.py", line {n} in f' for n in range(50))
    brief = evidence_lines(kept, brief=True)
    assert "    … 39 more lines: spot show RUN --evidence" in brief
    assert len([line for line in evidence_lines(kept) if "a.py" in line]) == 50


ODD: list[Any] = [
    None,
    7,
    "text",
    [],
    {},
    [7],
    {"a": [1]},
    {"stall": 7},
    {"stall": {"threads": [7, None, {"text": 9}]}},
]


@pytest.mark.parametrize("odd", ODD)
def test_whatever_an_agent_wrote_it_is_shown(odd: Any) -> None:
    for name in ("agent", "exit", "beat", "readings", "log_tail"):
        evidence_lines({**KEPT, name: odd})
        evidence_lines({**KEPT, name: odd}, brief=True)
    for name in ("disks", "boot", "stall", "telemetry", "oom_kills"):
        evidence_lines({**KEPT, "agent": {**KEPT["agent"], name: odd}, "beat": None})


def test_no_text_of_a_training_drives_the_terminal() -> None:
    kept = {**KEPT, "log_tail": ["\x1b[2Jgone"], "detail": "\x1b]0;title\x07", "console": "a\nb"}
    kept["agent"] = {"stall": {"threads": [{"pid": 1, "how": "proc", "command": "\x1b[1m", "text": "\x1b[31mred"}]}}
    assert not any(char in line for line in evidence_lines(kept) for char in "\x1b\x07\n")


def test_the_last_failure_is_the_newest_end() -> None:
    failed, preempted = ({**FIRST_ATTEMPT, "cause": "stalled"}, {**FIRST_ATTEMPT, "number": 2, "cause": "preempted"})
    assert last_failure([failed, SECOND_ATTEMPT]) == failed
    assert last_failure([failed, preempted]) is None
    assert last_failure([]) is None
