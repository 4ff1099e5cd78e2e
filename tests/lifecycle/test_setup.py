"""A setup that failed: whose fault it is, what follows, and the limits of its phase."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import FINISHED, SETUP, Beat, Exit
from supervisor.contract.signs import Hit, Signs, encode
from supervisor.domain.bases import steps
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.observation import Absent, Observation, Seen
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from supervisor.wording.run import status_text
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, beat_of, machine_of, open_try, pulse, run_in

PIP = Exit(1, None, False, 20.0, "ERROR: No matching distribution found for timmm", oom_kills=0, in_setup=True)
LATE = PIP._replace(code=124, last_line=heartbeat.SETUP_LATE % 1800)
UNREACHED = encode(Signs(hits=(Hit("no_network", "cause", 3, "Temporary failure in name resolution", 5.0, 9.0),)))
LIVE = attempt(running_at=NOW - 100)


def preparing(**fields: object) -> Run:
    return run_in(
        Status.RUNNING, attempt=LIVE, try_=open_try(attempt_number=4), pulse=pulse(phase=SETUP, step=None), **fields
    )


def decided(run: Run, beat: Beat) -> Decision:
    obs = Observation(
        machine=Seen(machine_of(LIVE)),
        beat=Seen(beat, 1.0),
        baton=Absent(),
        stop=Absent(source="store"),
        lookup=Absent(source="lookup"),
    )
    return decide(run, obs, WORLD, NOW)


def after(end: Exit, signs: str = "", before: Run | None = None) -> Run:
    kept = {} if before is None else {"last_failure": before.last_failure, "counters": before.counters}
    return decided(preparing(**kept), beat_of(LIVE, 12, FINISHED, exit=end)._replace(signs=signs)).run


@pytest.mark.parametrize("end", [PIP, LATE])
def test_the_same_failure_twice_is_the_users_and_final(end: Exit) -> None:
    first = after(end)
    assert (first.status, first.attempt and first.attempt.cause) == (Status.RECOVERING, Cause.SETUP_FAILED)
    assert after(end._replace(last_line="another end"), before=first).status == Status.RECOVERING
    second = after(end, before=first)
    assert (second.status, second.cause) == (Status.FAILED, Cause.SETUP_FAILED)
    assert "The setup exited with code" in status_text(second, NOW)
    assert "it ended twice in the same way" in status_text(second, NOW)


def test_an_error_of_the_network_may_pass_although_its_last_line_is_the_same() -> None:
    first = after(PIP, UNREACHED)
    assert (first.status, first.counters.counted, first.counters.user_failures) == (Status.RECOVERING, 1, 0)
    second = after(PIP, UNREACHED, first)
    assert second.status == Status.RECOVERING
    third = after(PIP, UNREACHED, second)
    assert (third.status, third.cause) == (Status.FAILED, Cause.NO_PROGRESS), "three without progress cost enough"


def test_a_command_that_does_not_exist_is_final_at_once() -> None:
    over = after(PIP._replace(code=127, last_line="sh: 1: ptp: not found"))
    assert (over.status, over.cause) == (Status.FAILED, Cause.SETUP_FAILED)


def test_an_older_agent_or_the_command_itself_is_never_blamed_on_the_setup() -> None:
    assert after(PIP._replace(in_setup=False)).cause == Cause.USER_ERROR


def test_exit_0_of_a_setup_is_no_work_that_was_done() -> None:
    assert not PIP._replace(code=0).work_done


def test_no_progress_is_due_while_the_machine_is_prepared_and_it_counts_as_no_training() -> None:
    run = preparing(reported=True)
    quiet = decided(run, beat_of(LIVE, 13, SETUP))
    assert quiet.run.status == Status.RUNNING
    assert quiet.run.attempt is not None
    assert quiet.run.attempt.training_at is None
    assert quiet.run.pulse is not None
    assert quiet.run.pulse.stall_polls == 0
    assert "Preparing the machine for" in status_text(quiet.run, NOW)


def test_a_setup_whose_agent_does_not_end_it_is_stalled() -> None:
    run = preparing()
    assert run.pulse is not None
    run = replace(run, pulse=replace(run.pulse, phase_since=NOW - 1921.0))
    decision = decided(run, beat_of(LIVE, 13, SETUP))
    assert decision.run.attempt is not None
    assert decision.run.attempt.cause == Cause.STALLED
    ended = next(event for event in decision.events if event.kind == EventKind.ATTEMPT_ENDED)
    assert "phase setup, limit 1920 s" in ended.text


SPEC = {"command": "train", "setup": ["pip install -r requirements.txt"], "code": "a" * 64, "env": {"V": "1"}}


def test_the_hash_covers_all_that_the_commands_may_depend_on() -> None:
    own = steps(SPEC, "")[0]["sha256"]
    assert steps({**SPEC, "command": "evaluate", "labels": {"a": "b"}}, "")[0]["sha256"] == own
    others = (
        {**SPEC, "code": "b" * 64},
        {**SPEC, "env": {"V": "2"}},
        {**SPEC, "setup": [*SPEC["setup"], "true"]},
        {**SPEC, "secrets": {"KEY": "env:KEY"}},
        {**SPEC, "venv": "/opt/env"},
    )
    hashes = {own, steps(SPEC, "name@sha256:1")[0]["sha256"], *(steps(other, "")[0]["sha256"] for other in others)}
    assert len(hashes) == 7
    assert steps({"command": "train"}, "") == []
