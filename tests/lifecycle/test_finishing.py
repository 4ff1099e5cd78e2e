"""A run whose command has ended: an unread source decides nothing, and no run waits for a person without end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract.baton import Baton, Done
from supervisor.domain.actions import ForgetHome
from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState
from supervisor.domain.observation import WRITTEN_OFF, Absent, Observation, Part, Seen, Unknown, Verification
from supervisor.domain.run import Person, Run, WriteOff
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.phases.finishing import _missing
from tests.lifecycle.sample_runs import NOW, WORLD, H, attempt, ended, machine_of, open_try, run_in

DONE = Done("1.4.1", "runs/digits-7/results/g1/", ())
DIFFERS = Verification("1.4.1", "ab", (), ("a.txt is missing",))
AWAY = Unknown("the object store cannot be read")


def ticked(run: Run, baton: Part[Baton], machine: MachineState | None = MachineState.UP) -> Decision:
    obs = Observation(
        machine=Absent(source="listing") if machine is None else Seen(machine_of(attempt(), state=machine)),
        beat=Absent(source="listing"),
        baton=baton,
        stop=Absent(source="store"),
        lookup=Absent(source="lookup"),
        verification=Seen(DIFFERS),
    )
    return decide(run, obs, WORLD, NOW)


def finishing(**fields: object) -> Run:
    return run_in(Status.FINISHING, **{"attempt": attempt(), "try_": open_try(attempt_number=4), **fields})


@pytest.mark.parametrize("baton", [Baton("s", 1, done=DONE), Baton("s", 1)])
def test_without_a_decision_of_a_person_the_run_ends_after_a_day(baton: Baton) -> None:
    waiting_run = ticked(finishing(status_since=NOW - 2 * H), Seen(baton)).run
    assert (waiting_run.status, waiting_run.person.since) == (Status.FINISHING, NOW)
    assert waiting_run.person.why
    waiting = ticked(finishing(person=Person(why=waiting_run.person.why, since=NOW - 23 * H)), Seen(baton))
    assert (waiting.run.status, waiting.check_after) == (Status.FINISHING, NOW + 1 * H)
    over = ticked(finishing(person=Person(why=waiting_run.person.why, since=NOW - 24 * H)), Seen(baton)).run
    assert (over.status, over.cause) == (Status.FAILED, Cause.RESULTS_UNVERIFIED)


def test_the_problem_of_results_that_are_given_up_is_reported_once() -> None:
    why = "results are not verified: verify of model.npz ended with exit code 1"
    waiting_run = finishing(person=Person(why=why, since=NOW - 24 * H))
    over = ticked(waiting_run, Seen(Baton("s", 1))).run
    assert over.detail == "verify of model.npz ended with exit code 1; no decision within 24 h"


@pytest.mark.parametrize("machine", [MachineState.ENDED, None])
def test_an_unreadable_baton_may_hold_done_so_a_lost_machine_ends_nothing(machine: MachineState | None) -> None:
    assert ticked(finishing(), Seen(Baton("s", 1)), machine).run.status == Status.RECOVERING
    assert ticked(finishing(), AWAY, machine).run.live_attempt is not None


def test_results_on_a_host_that_was_written_off_are_awaited_no_more() -> None:
    """Its baton stays unknown until the attempt has ended: then its home is forgotten, whatever was read."""
    lost = WriteOff("ops", NOW - 9, "1.4.1", "it burned")
    assert ticked(finishing(), AWAY, None).run.status == Status.FINISHING
    obs = Observation(machine=Absent(source=WRITTEN_OFF), beat=Absent(), baton=AWAY, stop=Absent(), lookup=Absent())
    first = decide(finishing(written_off=lost), obs, WORLD, NOW)
    assert (first.run.status, first.run.live_attempt) == (Status.RECOVERING, None)
    for baton in (AWAY, Seen(Baton("s", 1))):
        assert ForgetHome("1.4.1") in decide(first.run, replace(obs, baton=baton), WORLD, NOW).actions
    assert first.run.attempt is not None
    later = replace(first.run, attempt=replace(first.run.attempt, launch_id="1.5.1"))
    assert ForgetHome("1.4.1") not in decide(later, obs, WORLD, NOW).actions


def test_a_record_that_cannot_be_read_is_not_called_gone() -> None:
    over = finishing(attempt=ended(Cause.ORPHANED, H), try_=None)
    assert ticked(over, AWAY).run == over
    assert "record is gone" in ticked(over, Seen(Baton("s", 1))).run.person.why


def test_a_tick_without_news_leaves_the_run_as_it_is() -> None:
    run = finishing()
    assert ticked(run, Seen(Baton("s", 1))).run is run


@pytest.mark.parametrize(
    ("step", "from_zero", "missing"),
    [
        (10, False, ""),
        (9, True, ""),
        (10, True, ""),  # an index of 0 at the start, and a count at the end
        (9, False, "last step 9 of 10"),
        (8, True, "last step 8 of 10"),
    ],
)
def test_steps_counted_from_zero_are_complete_one_before_the_total(step: int, from_zero: bool, missing: str) -> None:
    done = DONE._replace(step=step, total=10, from_zero=from_zero)
    assert "; ".join(_missing(run_in(Status.FINISHING), done, 0.0)) == missing


def test_results_that_were_lost_with_a_machine_make_the_run_partial() -> None:
    done = DONE._replace(lost=("results big.bin: 300000000 bytes is more than is left of results_save_max_mb",))
    assert _missing(run_in(Status.FINISHING), done, 0.0) == done.lost
