"""Why an attempt ended: first on the overview of a run that does not continue, complete on a page, and not trusted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.contract.heartbeat import Exit
from supervisor.dashboard.pages import evidence as evidence_view
from supervisor.domain.causes import Cause
from supervisor.domain.status import Status
from supervisor.lifecycle.evidence import attempt_evidence
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.reconciler.acting import records
from supervisor.wording.figures import DASH
from tests.dashboard.looking import Looking
from tests.services.bed import Bed

RUN = "digits-7"
OVERVIEW, PAGE = f"/ui/runs/{RUN}", f"/ui/runs/{RUN}/evidence/1"
PART: dict[str, Any] = {
    "version": 1, "when": "end", "launch_id": "1.1.1", "log_tail": ["<b>", "\x1b[31mKilled\x1b[0m"],
    "stall": {"threads": [{"pid": 7, "how": "faulthandler", "command": "python <x>", "text": "Thread 1\n  in <lock>"}]},
    "processes": [{"pid": 7, "state": "S", "rss_bytes": 1e9, "command": "python train.py"}],
    "telemetry": {"gpus": ["\u202e"]}, "boot": {"at_start": "a", "now": "b"}, "disks": {"scratch": {"free_bytes": 5e9}},
}  # fmt: skip


@pytest.fixture
def failed(bed: Bed) -> Bed:
    bed.submit(RUN)
    bed.train(RUN)
    attempt = bed.run(RUN).attempt
    assert attempt is not None
    over = replace(
        attempt,
        ended_at=bed.clock.now(),
        cause=Cause.HOST_OOM,
        evidence="memory limit hit (certain)",
        exit=Exit(None, 9, False, 40.0, "Killed <i>", oom_kills=2),
    )
    bed.end(RUN, Status.FAILED, attempt=over)
    return bed


def keep(bed: Bed, part: object) -> None:
    bed.objects.put(runfiles.agent_evidence(RUN, 1), json.dumps(part).encode())
    run = bed.run(RUN)
    assert run.attempt is not None
    records.keep_evidence(bed.objects, run, run.attempt, bed.clock.monotonic, ("listing: up",))


def test_a_failed_run_begins_with_why(failed: Bed, looking: Looking) -> None:
    keep(failed, PART)
    page = looking.page(OVERVIEW)
    panel = page.one("section", id="evidence")
    assert "Why attempt 1 ended" in panel.text
    assert "SIGKILL, not sent by us, after 40 s" in panel.text
    assert "kills for memory: 2" in panel.text
    assert [row.text for row in panel.all("div", class_="log-row")][:2] == ["<b>", "Killed"]
    assert "in <lock>" in panel.one("details", id="evidence-stacks").text
    headings = [one.text for one in page.all("h2")]
    assert headings.index("Why attempt 1 ended") < headings.index("Attempts")
    assert any(one.attributes["href"] == PAGE for one in panel.all("a"))


def test_the_verdict_of_the_rules_comes_first(failed: Bed, looking: Looking) -> None:
    """The sentence, what proves it with its source, what helps, and the rule; on both pages."""
    keep(failed, {**PART, "oom_kills": 2, "boot": {}})
    for address in (OVERVIEW, PAGE):
        panel = looking.page(address).one("div", id="why")
        assert panel.one("p", class_="evidence-why").text == (
            "digits-7, attempt 1, ended: host_oom (certain). Restarted? "
            "No: the same configuration would be killed again."
        )
        assert [cell.text for cell in panel.one("table", class_="why-quotes").all("td")] == [
            "oom.kills: 2", "agent, memory.events", DASH,
        ]  # fmt: skip
        terms = [term.text for term in panel.all("dt")]
        assert (terms[0], "Evidence" in terms) == ("Verdict", False)
        assert {"By us", "Remedy"} <= set(terms)
        assert "[rule U9.counter · docs/causes/host_oom.md]" in panel.text


def test_words_of_the_log_are_quoted_as_text(failed: Bed, looking: Looking) -> None:
    attempt = failed.run(RUN).attempt
    assert attempt is not None
    line = "RuntimeError: <script>alert(1)</script>\u202e No space left on device"
    over = replace(attempt, cause=Cause.DISK_FULL, exit=Exit(1, None, False, 40.0, line))
    failed.change(RUN, attempt=over)
    keep(failed, {**PART, "exit": over.exit._asdict(), "log_tail": [line], "boot": {}})
    page = looking.page(OVERVIEW)
    assert "<script>alert(1)</script>" in page.one("div", id="why").text
    assert "\u202e" not in page.text


def test_an_end_that_cannot_be_explained_yet_has_no_verdict(failed: Bed, looking: Looking) -> None:
    for address, status in ((OVERVIEW, 200), (PAGE, 200), (f"{PAGE}x", 404), (f"/ui/runs/{RUN}/evidence/0", 404)):
        answer = looking.get(address)
        assert answer.status_code == status
        assert 'id="why"' not in answer.text


def test_a_run_that_goes_on_does_not_begin_with_it(failed: Bed, looking: Looking) -> None:
    keep(failed, PART)
    failed.change(RUN, status=Status.RECOVERING)
    failed.train(RUN, number=2)
    headings = [one.text for one in looking.page(OVERVIEW).all("h2")]
    assert headings.index("Why attempt 1 ended") > headings.index("Attempts")


def test_an_end_that_nobody_asks_about_is_not_shown(bed: Bed, looking: Looking) -> None:
    bed.submit(RUN)
    bed.train(RUN)
    attempt = bed.run(RUN).attempt
    assert attempt is not None
    over = replace(attempt, ended_at=bed.clock.now(), cause=Cause.PREEMPTED)
    bed.end(RUN, Status.RECOVERING, attempt=over)
    assert looking.page(OVERVIEW).all("section", id="evidence") == []


FORGED = (
    {"left": "\ud800", "log_tail": ["\ud800"]}, {"signs": {"error": "\ud800", "began": "gpu_oom"}}, {"\ud800": 1},
    {"oom_kills": 10**400, "disks": {"scratch": {"free_bytes": 10**400, "free_inodes": 10**400}}},
    {"processes": [{"pid": 1, "rss_bytes": 10**400}]}, {"exit": {"code": 1, "ran_s": 10**400}},
    {"boot": {"at_start": float("nan"), "now": float("inf")}}, {"stall": json.loads("[" * 60 + "]" * 60)},
    {"log_hits": "\x00", "code_edited": ["\x00"], "oom": [], "xids": [[None] * 3], "signs": {"notes": [1]}},
)  # fmt: skip


@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
def test_a_forged_part_breaks_no_page_and_is_kept_only_as_what_can_be_read(
    failed: Bed, looking: Looking, forged: dict[str, Any]
) -> None:
    """Broken variant: half a surrogate pair, or a number of 400 digits, made the API and both pages answer 500."""
    keep(failed, {**PART, **forged})
    raw = failed.objects.get(runfiles.evidence(RUN, 1))[0]
    assert attempt_evidence.read(raw) is not None
    for address in (OVERVIEW, PAGE):
        assert looking.get(address).status_code == 200
    for forgery in ({**json.loads(raw), "agent": forged}, {"readings": {"end": [], "release": []}, "log_tail": []}):
        failed.objects.put(runfiles.evidence(RUN, 1), json.dumps(forgery).encode())  # a training may write there
        for address in (OVERVIEW, PAGE):
            assert looking.get(address).status_code == 200


def test_without_what_was_kept_the_cause_is_shown(failed: Bed, looking: Looking) -> None:
    panel = looking.page(OVERVIEW).one("section", id="evidence")
    assert "memory limit hit (certain)" in panel.text
    assert "More is not kept, or not yet." in panel.text
    assert "is not kept yet. Retry in a moment" in looking.page(PAGE).text
    assert looking.get(f"/ui/runs/{RUN}/evidence/2").status_code == 404


def test_all_of_it_on_its_page(failed: Bed, looking: Looking) -> None:
    keep(failed, PART)
    page = looking.page(PAGE)
    for text in ("listing: up", "python <x>", "scratch: 4.7 GiB free", "the machine was rebooted", "\\u202e"):
        assert text in page.text, text
    assert page.one("table", **{"aria-labelledby": "processes-title"}).all("td")[2].text == "1.0 GB"
    assert page.one("a", download="").attributes["href"] == f"/ui/v1/runs/{RUN}/files/evidence/a1.json"
    assert looking.get(f"/ui/v1/runs/{RUN}/files/evidence/a1.json").json()["attempt"] == 1


WRONG = (None, 5, "x\ud800", [], [5, None, {"a": []}], {"text": 5, "pid": [], "rss_bytes": "x", "threads": "x"}, True)


@pytest.mark.parametrize("field", [*PART, "exit", "oom_kills", "left", "signals_sent", "trimmed"])
def test_an_agent_is_believed_in_nothing(field: str) -> None:
    """Any field may be anything, or missing."""
    for wrong in WRONG:
        kept = {"attempt": 1, "cause": None, "agent": {**PART, field: wrong}, field: wrong}
        shown = evidence_view.view(kept)
        assert "\ud800" not in repr(shown).replace("\\ud800", "\ud800"), field
    assert evidence_view.view({"attempt": 1})["cause"] == "unknown"


def test_what_cannot_be_read_now_is_not_said_to_be_absent(
    failed: Bed, looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: object) -> None:
        raise StoreUnavailable("away")

    keep(failed, PART)
    monkeypatch.setattr(failed.objects, "read", away)
    panel = looking.page(OVERVIEW).one("section", id="evidence")
    assert "memory limit hit (certain)" in panel.text
    assert "cannot be read now" in panel.text
    assert "not kept" not in panel.text
