"""Evidence: composed from all present sources, never replaced by less, bounded, and written in time."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract.baton import Done
from supervisor.contract.beat_telemetry import Cgroup, Telemetry, encode
from supervisor.contract.heartbeat import Exit
from supervisor.domain.actions import KeepEvidence, VerifyResults
from supervisor.domain.attempt import Retiring
from supervisor.domain.causes import Cause
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import with_evidence
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.evidence import attempt_evidence as evidence
from supervisor.lifecycle.evidence.attempt_evidence import Found, compose, encoded, final
from supervisor.lifecycle.evidence.facts import DEPTH, read_object
from tests.lifecycle.sample_runs import attempt, ended, pulse, run_in

END: dict[str, Any] = {"version": 1, "when": "end", "launch_id": "1.4.1", "log_tail": ["one", "two"]}
STALL: dict[str, Any] = {**END, "when": "stall", "log_tail": ["one"], "stall": {"step": 2}}
OVER = ended(
    Cause.HOST_OOM,
    60.0,
    evidence="memory limit hit",
    readings=("listing: up, 1.0 s old",),
    exit=Exit(None, 9, False, 40.0, "Killed", oom_kills=1),
)
TELEMETRY = Telemetry(cgroup=Cgroup(memory_bytes=1e9, memory_max_bytes=1e9, oom_kills=1))
RUN = run_in(Status.RECOVERING, attempt=OVER, pulse=pulse(step=300, telemetry=encode(TELEMETRY)))


def test_it_contains_the_end_its_readings_the_last_beat_and_the_agents_part() -> None:
    kept = compose(RUN, OVER, Found(END), ("listing: up, 2 s old",), None)
    assert (kept["version"], kept["attempt"], kept["cause"], kept["detail"]) == (
        1, 4, "host_oom", "memory limit hit",
    )  # fmt: skip
    assert kept["exit"]["oom_kills"] == 1
    assert kept["readings"] == {"end": ["listing: up, 1.0 s old"], "release": ["listing: up, 2 s old"]}
    assert (kept["beat"]["phase"], kept["beat"]["step"]) == ("training", 300)
    assert kept["beat"]["telemetry"]["cgroup"]["oom_kills"] == 1
    assert kept["agent"] == {"version": 1, "when": "end", "launch_id": "1.4.1"}
    assert kept["log_tail"] == ["one", "two"]
    assert kept["machine"]["zone"] == "us-east1-c"
    assert final(kept)
    assert json.loads(encoded(kept)) == kept, "what is read back is what was composed"


def test_a_fuller_document_is_never_replaced_by_a_poorer_one() -> None:
    full = compose(RUN, OVER, Found(END, console="console.log"), ("listing: up",), None)
    later = replace(RUN, pulse=None)
    again = compose(later, OVER, Found(None, "it could not be read: away"), ("listing: ended",), full)
    assert again == {**full, "readings": {**full["readings"], "release": ["listing: up", "listing: ended"]}}
    assert compose(later, OVER, Found(STALL), (), full)["agent"]["when"] == "end"
    assert compose(RUN, OVER, Found(END), ("listing: up",), full)["readings"] == full["readings"]


def test_more_replaces_less() -> None:
    first = compose(RUN, OVER, Found(None, "it could not be read: away"), (), None)
    assert (first["agent"], first["agent_missing"]) == (None, "it could not be read: away")
    assert not final(first)
    stalled = compose(RUN, OVER, Found(STALL, log_tail=("one", "newer")), (), first)
    assert (stalled["agent"]["stall"], stalled["agent_missing"]) == ({"step": 2}, "")
    assert stalled["log_tail"] == ["one", "newer"], "the stored log is longer than at the stall"
    assert compose(RUN, OVER, Found(END), (), stalled)["log_tail"] == ["one", "two"]


def test_a_beat_of_another_launch_is_not_its_last_one() -> None:
    assert compose(replace(RUN, pulse=pulse(launch_id="1.5.1")), OVER, Found(), (), None)["beat"] is None


@pytest.mark.parametrize("char", ["x", "\x1b", "😀", "\ud800"])
def test_it_is_bounded(char: str) -> None:
    agent = {**END, "log_tail": [char * 5000] * 5000}
    kept = compose(RUN, OVER, Found(agent), (), None)
    assert len(kept["log_tail"]) == 200
    data = encoded(kept)
    assert len(data) <= evidence.MAX_BYTES
    assert json.loads(data)["agent"]["when"] == "end"
    huge = compose(RUN, OVER, Found({**END, "more": char * 300_000}), (), None)
    data = encoded(huge)
    assert len(data) <= evidence.MAX_BYTES
    assert json.loads(data)["cause"] == "host_oom"


def test_what_was_kept_is_read_back_however_deep_the_agents_part_is() -> None:
    deep: Any = 1
    for _ in range(DEPTH - 1):
        deep = [deep]
    part = read_object(json.dumps({**END, "deep": deep}).encode(), evidence.AGENT_BYTES)
    kept = compose(RUN, OVER, Found(part), (), None)
    assert evidence.read(encoded(kept)) == kept


def test_odd_kinds_in_an_agents_part_break_nothing() -> None:
    for tail in (None, 7, "text", {"a": 1}, [1, None, {"x": 2}, "said"]):
        kept = compose(RUN, OVER, Found({"when": "end", "log_tail": tail}), (), None)
        assert kept["log_tail"] in ([], ["said"])


# --- when it is asked for ---------------------------------------------------------------------------------------------

LIVE = run_in(Status.RUNNING, attempt=attempt())
KEEP = (KeepEvidence("1.4.1"),)


def due(before: Any, after: Any) -> tuple[Any, ...]:
    return with_evidence(before, Decision(after)).actions


def test_it_is_due_when_an_attempt_is_over_and_again_when_its_machine_is_gone() -> None:
    over = replace(LIVE, attempt=OVER)
    leaves = replace(over, retiring=(Retiring(OVER.ref, OVER.launch_id, 0.0, 0.0),))
    following = replace(LIVE, attempt=attempt(number=5))
    assert due(LIVE, over) == KEEP
    assert due(LIVE, leaves) == KEEP
    assert due(LIVE, following) == KEEP
    assert due(leaves, over) == KEEP
    assert due(leaves, replace(following, retiring=leaves.retiring)) == ()
    assert due(leaves, leaves) == ()
    assert due(LIVE, LIVE) == ()
    assert due(over, following) == ()


def test_the_other_actions_of_the_decision_stay() -> None:
    other = VerifyResults(Done("1.4.1", "", (), None, None, 0.0))
    assert with_evidence(LIVE, Decision(replace(LIVE, attempt=OVER), actions=(other,))).actions == (*KEEP, other)
