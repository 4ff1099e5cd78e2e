"""The property of machines that cannot be had back: no sequence of events gives one back without verified results and
an approval of that very machine with those results, in that order.

A host that is billed until somebody stops it is given back by its verb (`StopMeter`), and the run ends only when that
is confirmed or somebody else uses the host. A machine whose release is the end is given back by `Release`, once the
work is verified: a failed attempt, a stop before that, or results that a person gives up end their machine as anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from supervisor.domain.actions import Release, StopMeter
from supervisor.domain.machines import How, MachineState
from supervisor.domain.observation import NOT_READ, Absent, Part, Seen, Unknown, Verification, World
from supervisor.domain.run import Approval, Outcome, Run, StopRequest
from supervisor.domain.status import Status
from supervisor.lifecycle.phases import finishing
from supervisor.storage.engine.codec import from_plain, to_plain
from tests.lifecycle.hosts_world import BAD, DONE, GOOD, MACHINE, NOW, SHA, H, Rounds, approval, metered, report, saving
from tests.properties import examples

MACHINES: tuple[Part[object], ...] = (
    Seen(MACHINE),
    Seen(replace(MACHINE, state=MachineState.ENDED)),
    Absent(0.0, "listing"),
    Unknown("the host cannot be reached"),
)
CHECKS: tuple[Part[Verification], ...] = (Seen(GOOD), Seen(BAD), NOT_READ)
WORLDS = {how: metered(how) for how in (How.COMMAND, How.WEBHOOK, How.ASK)}
WORLDS[How.RELEASE] = replace(metered(), meters={}, irreplaceable=frozenset({"lab"}))


class Tick(NamedTuple):
    """What happens before one tick, and what the tick sees. `approves`: (machine, results, the rest)."""

    after_s: float
    machine: Part[object]
    done: bool
    check: Part[Verification]
    approves: tuple[str, str, bool, str] | None
    stops: bool
    pulls: bool
    restarts: bool
    verb: bool | None
    meter: bool | None
    shared: bool


TICKS = st.builds(
    Tick,
    after_s=st.sampled_from((1.0, 30.0, 1000.0, 30 * H)),
    machine=st.sampled_from(MACHINES),
    done=st.sampled_from((True, True, False)),
    check=st.sampled_from(CHECKS),
    approves=st.one_of(
        st.none(),
        st.none(),
        st.tuples(
            st.sampled_from(("id-1", "id-1", "id-0")),
            st.sampled_from((SHA, SHA, "of before", "")),
            st.sampled_from((False, False, True)),
            st.sampled_from(("", "", "gave up")),
        ),
    ),
    stops=st.sampled_from((False, False, False, True)),
    pulls=st.booleans(),
    restarts=st.booleans(),
    verb=st.sampled_from((None, True, False)),
    meter=st.sampled_from((None, True, False)),
    shared=st.sampled_from((False, False, False, True)),
)


class Person:
    """What really happened, told apart from what the row says."""

    def __init__(self) -> None:
        self.verified_at: float | None = None
        self.approvals: list[Approval] = []
        self.gave_up = False

    def may_give_back(self) -> bool:
        """The results were verified, and then this machine was approved with them."""
        verified_at = self.verified_at
        return verified_at is not None and any(
            each.machine_id == "id-1" and (each.results_sha256 == SHA or each.accept_loss) and each.at > verified_at
            for each in self.approvals
        )


def play(how: How, ticks: list[Tick], require_pull: bool) -> Status:
    person, world, now = Person(), WORLDS[how], NOW
    run, part, read = saving(require_pull=require_pull), NOT_READ, NOT_READ
    other = replace(saving(2, "second"), status=Status.RUNNING)
    for tick in ticks:
        now += tick.after_s
        run = _asked(run, tick, person, now)
        if tick.restarts:
            run, part, read = from_plain(Run, to_plain(run)), NOT_READ, NOT_READ
        part = part if tick.verb is None else report(now - 0.2, tick.verb)
        read = read if tick.meter is None else report(now - 0.1, tick.meter)
        before = run
        result = Rounds(
            run, tick.machine, world, now, [other] if tick.shared else [],
            done=tick.done, check=tick.check, verb=part, meter=read,
        )  # fmt: skip
        run = result.run
        if tick.done and tick.check == Seen(GOOD) and run.files.outcome is not None and person.verified_at is None:
            person.verified_at = now
        _check(result, person, how, before, world)
        if run.terminal:
            break
    return run.status


def _asked(run: Run, tick: Tick, person: Person, now: float) -> Run:
    """What a person does at any time, also what the API would refuse."""
    if tick.approves is not None:
        machine_id, results, confirms, loss = tick.approves
        given_ = approval(
            now - 0.5, machine_id=machine_id, results_sha256=results, meter_stopped=confirms, accept_loss=loss
        )
        person.approvals.append(given_)
        person.gave_up |= bool(loss) and run.status == Status.FINISHING
        run = replace(run, approval=given_)
    if tick.stops and not run.terminal:
        person.gave_up |= run.status == Status.FINISHING
        run = replace(run, stop=StopRequest("ann", now))
    if tick.pulls and run.files.outcome is not None:
        run = replace(run, files=replace(run.files, pulled_sha256=SHA))
    return run


def _check(result: Rounds, person: Person, how: How, before: Run, world: World) -> None:
    given_back = result.did(StopMeter)
    if how is How.RELEASE and before.files.outcome is not None and not person.gave_up:
        given_back = given_back + result.did(Release)
    assert not given_back or person.may_give_back(), f"given back without results and approval: {given_back}"
    over = result.run.status in (Status.COMPLETED, Status.PARTIAL)
    if over and not person.may_give_back():
        shared = "is still used by second" in result.events[-1].text
        gone = how is How.RELEASE and (not before.retiring or any("is gone" in each.text for each in result.events))
        assert shared or gone, f"ended without results and approval: {result.events[-1].text}"


STORIES = st.lists(TICKS, min_size=2, max_size=12)


def no_sequence_gives_a_machine_back(how: How, count: int, phases: tuple[Phase, ...] = tuple(Phase)) -> set[Status]:
    ends: set[Status] = set()

    checks = list(HealthCheck)

    @settings(max_examples=count, phases=phases, suppress_health_check=checks, deadline=None, database=None)
    @given(ticks=STORIES, require_pull=st.sampled_from((False, False, True)))
    def found(ticks: list[Tick], require_pull: bool) -> None:
        ends.add(play(how, ticks, require_pull))

    found()
    return ends


@pytest.mark.parametrize("how", How)
def test_no_sequence_of_events_gives_a_machine_back_without_results_and_approval(how: How) -> None:
    ends = no_sequence_gives_a_machine_back(how, examples(400, 10_000))
    assert {Status.COMPLETED, Status.AWAITING_TEARDOWN, Status.FINISHING} <= ends, "the sequences get that far"


def any_approval_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Run, "approved_end", property(lambda run: run.approval))


def none_is_needed(patch: pytest.MonkeyPatch) -> None:
    nobody = Approval("nobody", NOW, "id-1", SHA, verb="terminate")
    patch.setattr(Run, "approved_end", property(lambda run: run.approval or nobody))


def results_need_not_be_verified(patch: pytest.MonkeyPatch) -> None:
    def verified(run: Run, done: object, obs: object, world: World, now: float) -> object:
        outcome = Outcome(SHA, 1, 3, now, DONE.step)
        good = replace(GOOD, results_sha256=outcome.results_sha256)
        return finishing._verified(run, DONE, good, world, now)

    patch.setattr(finishing, "_verify", verified)


@pytest.mark.parametrize("how", [How.COMMAND, How.RELEASE])
@pytest.mark.parametrize("broken", [any_approval_counts, none_is_needed, results_need_not_be_verified])
def test_a_mutant_without_a_half_is_caught(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None], how: How
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError, match="without results and approval"):
        no_sequence_gives_a_machine_back(how, 5000, (Phase.generate,))
