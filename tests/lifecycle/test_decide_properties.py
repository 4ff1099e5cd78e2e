"""The invariants of docs/architecture.md as properties of decide(), for every run, observation and world.

Each property is checked twice: on the real rules, where it must hold, and on rules that were broken on purpose, where
it must fail. A property that no broken rule can fail would prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from supervisor.contract.baton import FileEntry
from supervisor.domain.actions import CloseBaton, Finalise, Launch, Release
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Verdict, Where
from supervisor.domain.observation import NOT_READ, Absent, Observation, Seen, Unknown, Verification, World
from supervisor.domain.policies import Limits
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import ACTIVE, TERMINAL, Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from tests.lifecycle.strategies import IMAGE, NOW, UNKNOWN, Situation, situations

Decide = Callable[[Run, Observation, World, float], Decision]
EFFECTS = (Launch, Release, CloseBaton, Finalise)  # they start, end or delete something
READINGS = ("machine", "beat", "baton", "stop", "lookup", "pin")


Property = Callable[[Decide, Situation], None]
Change = Callable[[Situation], Situation]


def anywhere(situation: Situation) -> Situation:
    return situation


def where_a_machine_is_due(situation: Situation) -> Situation:
    """Nothing of the run's own keeps it from a machine: no stop, no pause, no limit, no order among runs."""
    run, obs, world = situation
    policy = replace(run.policy, limits=Limits(), group="", after=(), image=IMAGE)
    run = replace(run, policy=policy, stop=None, next_at=None, retiring=())
    return run, replace(obs, stop=Absent(), retiring=()), replace(world, no_slot={}, without_offer=frozenset())


def where_results_differ(situation: Situation) -> Situation:
    run, obs, world = situation
    files = (FileEntry("weights", 3, "x"),)
    launch_id = run.try_.launch_id if run.try_ is not None else ""
    differ = Seen(Verification(launch_id, "sha", files, ("weights is missing",)))
    return run, replace(obs, verification=differ, stop=Absent()), world


def check(
    property_: Property,
    rules: Decide,
    *statuses: Status,
    examples: int = 200,
    shrink: bool = True,
    where: Change = anywhere,
) -> None:
    wanted = frozenset(statuses) if statuses else None
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)

    @settings(
        max_examples=examples, phases=phases, suppress_health_check=list(HealthCheck), deadline=None, database=None
    )
    @given(situations(wanted))
    def holds(situation: Situation) -> None:
        property_(rules, where(situation))

    holds()


def fails(property_: Property, rules: Decide, *statuses: Status, where: Change = anywhere) -> None:
    """`where`: the search looks only at situations that the broken rule is about; anywhere it may need thousands."""
    with pytest.raises(AssertionError):
        # It ends with the first one that is wrong.
        check(property_, rules, *statuses, examples=40_000, shrink=False, where=where)


def effects_of(decision: Decision) -> set[tuple[str, str]]:
    found = set()
    for action in decision.actions:
        if isinstance(action, EFFECTS):
            target = action.ref.name if isinstance(action, Release) else ""
            found.add((type(action).__name__, target))
    return found


def settle(rules: Decide, run: Run, obs: Observation, world: World) -> Decision:
    """Decide until nothing wants to be decided again at once, as the tick does."""
    decision = rules(run, obs, world, NOW)
    for _ in range(12):
        if not decision.again:
            break
        obs = still_true(obs, run, decision.run)
        decision = rules(decision.run, obs, world, NOW)
    assert not decision.again, "the rules do not settle"
    return decision


def still_true(obs: Observation, before: Run, after: Run) -> Observation:
    """The same observation for the changed run, as the tick passes it: a machine that retires is observed as such, and
    the machine of a new try is still unknown."""
    missing = len(after.retiring) - len(obs.retiring)
    if missing > 0:
        obs = replace(obs, retiring=obs.retiring + (obs.machine,) * missing)
    if before.try_ is None or after.try_ is None or after.try_.launch_id != before.try_.launch_id:
        obs = replace(obs, machine=UNKNOWN, lookup=NOT_READ)
    return obs


# --- invariant 5: less knowledge, fewer actions -------------------------------------------------------------------


def less_knowledge_fewer_actions(rules: Decide, situation: Situation) -> None:
    run, obs, world = situation
    decision = rules(run, obs, world, NOW)
    if decision.wants:
        return  # no action before more has been read
    effects = effects_of(decision)
    for name in READINGS:
        if isinstance(getattr(obs, name), Seen | Absent):
            blind = effects_of(rules(run, replace(obs, **{name: UNKNOWN}), world, NOW))
            assert blind <= effects, f"{name} unknown adds {blind - effects}"
    blind = effects_of(rules(run, replace(obs, retiring=(UNKNOWN,) * len(run.retiring)), world, NOW))
    assert blind <= effects
    ended_blind = rules(run, replace(obs, machine=UNKNOWN, beat=UNKNOWN, baton=UNKNOWN, lookup=UNKNOWN), world, NOW)
    if run.live_attempt is not None and run.stop is None and ended_blind.run.live_attempt is None:
        assert run.approval is not None or run.person.why, "an attempt was ended without any reading"


def unknown_is_absent(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Broken: could not read counts as absent."""
    guess = {name: Absent() for name in READINGS if isinstance(getattr(obs, name), Unknown)}
    return decide(run, replace(obs, **guess), world, now)


def test_less_knowledge_means_fewer_actions() -> None:
    check(less_knowledge_fewer_actions, decide)
    fails(less_knowledge_fewer_actions, unknown_is_absent)


# --- invariant 4: intent first ------------------------------------------------------------------------------------


def intent_first(rules: Decide, situation: Situation) -> None:
    run, obs, world = situation
    decision = rules(run, obs, world, NOW)
    for action in decision.actions:
        if isinstance(action, Launch):
            assert decision.run.open_try == action.try_, "a launch that is not the row's try"
    if decision.run.try_ is not run.try_ and decision.run.open_try is not None:
        assert run.open_try is None, "a new try while the last one has not ended definitely"


def next_zone_at_once(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Broken: an ambiguous create call is followed by the next zone."""
    if run.status == Status.LAUNCHING and run.open_try is not None and run.live_attempt is None:
        other = replace(run.open_try, number=run.open_try.number + 1, launch_id="1.1.2", machine_name="m-2")
        return Decision(replace(run, try_=other), actions=(Launch(other, True),))
    return decide(run, obs, world, now)


def test_the_row_comes_before_the_call_and_one_try_at_a_time() -> None:
    check(intent_first, decide)
    fails(intent_first, next_zone_at_once, Status.LAUNCHING)


# --- invariant 8: stop wins ---------------------------------------------------------------------------------------

UNDECIDED = tuple(ACTIVE - {Status.AWAITING_TEARDOWN})


def stop_wins(rules: Decide, situation: Situation) -> None:
    run, obs, world = situation
    run = replace(run, stop=StopRequest("ops", NOW - 5), approval=None)
    decision = settle(rules, run, obs, world)
    assert not any(isinstance(action, Launch) for action in decision.actions)
    moved_on = {Status.LAUNCHING, Status.RUNNING, Status.RECOVERING, Status.WAITING}
    if decision.run.status != run.status:
        assert decision.run.status not in moved_on, f"a stopped run went from {run.status} to {decision.run.status}"


def restart_wins(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Broken: a restart ignores the stop."""
    if run.status in (Status.PENDING, Status.WAITING, Status.RECOVERING):
        run = replace(run, stop=None)
        obs = replace(obs, stop=Absent())
    return decide(run, obs, world, now)


def test_stop_wins_over_every_restart() -> None:
    check(stop_wins, decide, *UNDECIDED)
    fails(stop_wins, restart_wins, *UNDECIDED)


# --- invariant 9: nothing is torn down before it is safe ----------------------------------------------------------


def safe_teardown(rules: Decide, situation: Situation) -> None:
    run, obs, world = situation
    run = replace(run, stop=None, approval=None, person=replace(run.person, why=""))
    decision = settle(rules, run, obs, world)
    if decision.run.status in (Status.COMPLETED, Status.PARTIAL, Status.AWAITING_TEARDOWN):
        assert isinstance(obs.verification, Seen)
        assert not obs.verification.value.problems, "finished on results that differ from their manifest"


def trusting(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Broken: the agent's report is enough."""
    if isinstance(obs.verification, Seen):
        obs = replace(obs, verification=Seen(replace(obs.verification.value, problems=())))
    return decide(run, obs, world, now)


def test_nothing_is_torn_down_before_it_is_verified() -> None:
    check(safe_teardown, decide, Status.FINISHING, Status.RUNNING, Status.RECOVERING, Status.LAUNCHING)
    fails(safe_teardown, trusting, Status.FINISHING, where=where_results_differ)


# --- invariant 12: terminal is terminal ---------------------------------------------------------------------------


def terminal_is_terminal(rules: Decide, situation: Situation) -> None:
    run, obs, world = situation
    decision = settle(rules, run, obs, world)
    assert (decision.run.status, decision.run.cause) == (run.status, run.cause)
    assert not any(isinstance(action, Launch) for action in decision.actions)


def revived(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Broken: a beat brings a terminal run back."""
    if run.terminal and isinstance(obs.beat, Seen):
        return Decision(replace(run, status=Status.RUNNING))
    return decide(run, obs, world, now)


def test_no_observation_changes_a_terminal_status() -> None:
    check(terminal_is_terminal, decide, *TERMINAL)
    fails(terminal_is_terminal, revived, *TERMINAL)


# --- invariant 13: twice is once ----------------------------------------------------------------------------------


def twice_is_once(rules: Decide, situation: Situation) -> None:
    run, obs, world = situation
    once = settle(rules, run, obs, world).run
    obs = still_true(obs, run, once)
    twice = settle(rules, once, obs, world).run
    assert twice.counters == once.counters
    assert twice.status == once.status or once.live_attempt is None
    if once.pulse is not None and twice.pulse is not None:
        assert twice.pulse.stall_polls == once.pulse.stall_polls


def forgetful(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Broken: stall polls are counted by ticks, not by beats."""
    if run.status == Status.RUNNING and run.pulse is not None:
        run = replace(run, pulse=replace(run.pulse, stall_polls=run.pulse.stall_polls + 1))
    return decide(run, obs, world, now)


def test_deciding_twice_on_one_observation_counts_once() -> None:
    check(twice_is_once, decide)
    fails(twice_is_once, forgetful, Status.RUNNING)


# --- invariant 7: free and paid failures differ -------------------------------------------------------------------


def free_ends_spend_nothing(rules: Decide, situation: Situation) -> None:
    run, obs, world = situation
    run = replace(run, stop=None)
    after = rules(run, obs, world, NOW).run
    ended = after.attempt if run.live_attempt is not None and after.live_attempt is None else None
    if ended is not None and ended.cause in (Cause.PREEMPTED, Cause.HOST_ERROR, Cause.SUPERSEDED, Cause.CUT_OFF):
        assert after.counters.counted == run.counters.counted
        assert after.counters.no_progress == run.counters.no_progress
        assert after.counters.user_failures == run.counters.user_failures
        assert after.status == Status.RECOVERING
    if run.status == Status.LAUNCHING and run.live_attempt is None and isinstance(obs.create, Seen):
        assert after.counters.counted == run.counters.counted


def all_failures_equal(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Broken: a preemption spends the failure budget."""
    decision = decide(run, obs, world, now)
    if run.live_attempt is not None and decision.run.live_attempt is None:
        counters = decision.run.counters
        return replace(
            decision, run=replace(decision.run, counters=replace(counters, counted=run.counters.counted + 1))
        )
    return decision


def test_preemptions_and_stockouts_spend_nothing() -> None:
    check(free_ends_spend_nothing, decide, Status.RUNNING, Status.LAUNCHING, Status.FINISHING)
    fails(free_ends_spend_nothing, all_failures_equal, Status.RUNNING)


# --- Kind.ASK: a person decides -----------------------------------------------------------------------------------

ASKED = Verdict("U3.signal", Certainty.CERTAIN, Cause.KILLED, Where.MACHINE, True, Retry.ASK, "SIGTERM")


def a_question_waits(rules: Decide, situation: Situation) -> None:
    """Whatever is observed and how long it lasts: nothing is requested, and no counter moves. A stop, a limit of time
    and finished work end the wait."""
    run, obs, world = situation
    if run.attempt is None or run.attempt.number != run.counters.attempts:
        return
    killed = replace(run.attempt, cause=Cause.KILLED, verdict=ASKED)
    run = replace(run, attempt=killed, cause=Cause.KILLED, next_at=None)
    assert run.asks
    decision = settle(rules, run, obs, world)
    assert not any(isinstance(action, Launch) for action in decision.actions)
    goes_on = {Status.PENDING, Status.LAUNCHING, Status.RUNNING, Status.RECOVERING}
    assert decision.run.asks or decision.run.status not in {*goes_on, Status.WAITING}, decision.run.status
    assert decision.run.counters == run.counters
    if decision.run.status in (Status.STOPPED, Status.STOPPING):
        assert decision.run.stop is not None


def forgets_the_question(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Broken: it waits for a machine like others."""
    return decide(replace(run, cause=Cause.NO_CAPACITY), obs, world, now)


def test_a_run_that_asks_requests_nothing() -> None:
    check(a_question_waits, decide, Status.WAITING)
    fails(a_question_waits, forgets_the_question, Status.WAITING)


@given(st.data())
def test_every_situation_has_a_decision(data: st.DataObject) -> None:
    run, obs, world = data.draw(situations())
    decision = settle(decide, run, obs, world)
    assert decision.run.key == run.key
