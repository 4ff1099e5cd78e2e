"""Every limit and every knob has an effect: the decision changes when only this number changes.

A limit without a case here fails the test, so that no knob can be added that does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from supervisor.contract.baton import Baton, Done, FileEntry
from supervisor.contract.heartbeat import Beat, Exit
from supervisor.contract.identifiers import machine_name
from supervisor.domain.actions import Launch, Release
from supervisor.domain.attempt import Attempt, Pulse, Retiring, Try
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineRecord, MachineState, ZoneRecord, offer_key
from supervisor.domain.observation import BEATS, MACHINES, Absent, CreateFailed, Observation, Seen, Verification, World
from supervisor.domain.policies import Knobs, Limits, Policy, ResultRule, StallLimits
from supervisor.domain.run import Counters, Person, Run, StopRequest, Waiting
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.offers.turns import with_limits
from tests.lifecycle.strategies import NOW, offers, placement

LAUNCH = "1.1.1"
TRY = Try(1, 1, LAUNCH, "m-1", placement(), NOW - 5000, 0.1, 0.3)
ATTEMPT = Attempt(1, 1, LAUNCH, "m-1", "id-1", placement(), NOW - 5000, NOW - 4900, 3.6, 9.0, up_at=NOW - 4900)
TRAINING = replace(ATTEMPT, running_at=NOW - 4800, training_at=NOW - 4700, step_from=None)
DONE = Done(LAUNCH, "p/", (FileEntry("a.txt", 1, "x"),), 90, 100)


class Case:
    """One situation; the test sets policy and knobs."""

    def __init__(self, status: Status, phase: str = "training", **run: Any) -> None:
        self.status, self.phase, self.run_fields = status, phase, run
        self.knobs = Knobs("supervisor-1")
        self.policy = Policy()
        self.obs: dict[str, Any] = {}
        self.zones: dict[Any, ZoneRecord] = {}
        self.others: tuple[Case, ...] = ()  # further runs of the same owner

    def seeing(self, **obs: Any) -> Case:
        self.obs.update(obs)
        return self

    def beside(self, *others: Case) -> Case:
        self.others = others
        return self

    def run(self, key: int = 1) -> Run:
        attempt = ATTEMPT if self.status == Status.LAUNCHING else TRAINING
        base: dict[str, Any] = {"try_": TRY, "attempt": attempt, "status_since": NOW - 4000, **self.run_fields}
        return Run(
            key=key, run_id="r", owner="o", cell="c", provider="local", generation=1, status=self.status,
            policy=self.policy, created_at=NOW - 9000, generation_at=NOW - 9000, **base,
        )  # fmt: skip

    def decide(self) -> Decision:
        run = self.run()
        machine = Machine("id-1", "m-1", "zone-a", MachineState.UP, "supervisor-1", "r", LAUNCH, NOW - 5000)
        parts: dict[str, Any] = {"machine": Seen(machine), "beat": Seen(beat(self.phase), 1.0), "baton": Absent()}
        parts.update(self.obs)
        since = {BEATS: NOW - 90_000, MACHINES: NOW - 90_000}
        world = World(self.knobs, {"local": offers()}, self.zones, since, frozenset({BEATS, MACHINES}))
        runs = [run, *(other.run(key) for key, other in enumerate(self.others, 2))]
        world = with_limits(world, runs, {}, NOW)
        return decide(run, Observation(**parts), world, NOW)


def beat(phase: str = "training", sequence: int = 5, **fields_: Any) -> Beat:
    return Beat("r", 1, LAUNCH, "id-1", "b", sequence, phase, **fields_)


def pulse(phase: str = "training", **fields_: Any) -> Pulse:
    values = {"sequence": 5, "phase_since": NOW - 2000, "beat_at": NOW - 1, "step": 10, **fields_}
    return Pulse(LAUNCH, phase=phase, **values)


def ended(cause: Cause) -> Callable[[Decision], bool]:
    return lambda decision: decision.run.attempt is not None and decision.run.attempt.cause == cause


def failed(cause: Cause) -> Callable[[Decision], bool]:
    return lambda decision: (decision.run.status, decision.run.cause) == (Status.FAILED, cause)


def stops_for(cause: Cause) -> Callable[[Decision], bool]:
    return lambda decision: decision.run.stop is not None and decision.run.stop.cause == cause


def phase_case(phase: str) -> Case:
    return Case(Status.RUNNING, phase, pulse=pulse(phase))


def exit_case(**counters: int) -> Case:
    end = Exit(1, None, False, 5.0, "boom", retry_named=True)
    return Case(Status.RUNNING, counters=Counters(**counters)).seeing(beat=Seen(beat(sequence=9, exit=end)))


def lost_case(**fields_: Any) -> Case:
    return Case(Status.RUNNING, **fields_).seeing(machine=Absent(), lookup=Absent(), beat=Absent())


def noticed_case() -> Case:
    record = MachineRecord(Cause.PREEMPTED, "taken")
    machine = Machine("id-1", "m-1", "zone-a", MachineState.ENDING, "supervisor-1", "r", LAUNCH, 0.0, record)
    return Case(Status.RUNNING).seeing(machine=Seen(machine))


def finishing_case(**policy: Any) -> Case:
    check = Verification(LAUNCH, "sha", DONE.results, ())
    done = Baton("supervisor-1", 1, done=DONE)
    case = Case(Status.FINISHING).seeing(baton=Seen(done), stop=Absent(), verification=Seen(check))
    case.policy = Policy(**policy)
    return case


def unfinished_case(**fields_: Any) -> Case:
    return Case(Status.FINISHING, "finishing", **fields_).seeing(baton=Seen(Baton("supervisor-1", 1)), stop=Absent())


def waiting_case(**fields_: Any) -> Case:
    values = {"attempt": None, "try_": None, "waiting": Waiting(since=NOW - 1000), **fields_}
    return Case(Status.WAITING, **values).seeing(stop=Absent(), baton=Absent(), machine=Absent(), beat=Absent())


def pending_case() -> Case:
    machine = Machine("id-1", "m-1", "zone-a", MachineState.ASKED, "supervisor-1", "r", LAUNCH, NOW - 5000)
    return Case(Status.LAUNCHING, attempt=None).seeing(machine=Seen(machine), stop=Absent(), beat=Absent())


def refused_case(cause: Cause, failures: int) -> Case:
    refusal = CreateFailed(LAUNCH, cause, "none left")
    case = Case(Status.LAUNCHING, attempt=None).seeing(create=Seen(refusal), machine=Absent(), beat=Absent())
    case.zones = {offer_key(placement()): ZoneRecord(failures, NOW - 1, cause, "none left")}
    return case


def waits_for_a_place(decision: Decision) -> bool:
    return (decision.run.status, decision.run.cause) == (Status.WAITING, Cause.MACHINE_LIMIT)


def lesson_s(decision: Decision) -> float:
    record = decision.lessons[0][1]
    assert record is not None
    return record.cool_until - NOW


STALL: dict[str, tuple[Callable[[], Case], float, float, Callable[[Decision], bool]]] = {
    "polls": (
        lambda: Case(Status.RUNNING, pulse=pulse(first_progress_at=1.0, stall_polls=5)), 5, 6, ended(Cause.STALLED),
    ),
    "boot_timeout_s": (
        lambda: Case(Status.LAUNCHING, "boot").seeing(baton=Absent()), 4900, 4901, ended(Cause.BOOT_TIMEOUT),
    ),
    "first_progress_s": (
        lambda: Case(Status.RUNNING, reported=True, pulse=pulse(step=None)), 1999, 2000, ended(Cause.STALLED),
    ),
    "silence_s": (
        lambda: Case(Status.RUNNING, pulse=pulse(beat_at=NOW - 500)).seeing(beat=Absent()), 499, 500,
        ended(Cause.AGENT_LOST),
    ),
    "setup_s": (lambda: phase_case("setup"), 1879, 1880, ended(Cause.STALLED)),  # after the agent's own limit
    "restore_s": (lambda: phase_case("restore"), 1999, 2000, ended(Cause.STALLED)),
    "checkpoint_s": (lambda: phase_case("checkpoint"), 1999, 2000, ended(Cause.STALLED)),
    "evaluation_s": (lambda: phase_case("evaluation"), 1999, 2000, ended(Cause.STALLED)),
    "finishing_s": (unfinished_case, 4000, 4001, lambda decision: bool(decision.run.person.why)),
}  # fmt: skip

LIMITS: dict[str, tuple[Callable[[], Case], float, float, Callable[[Decision], bool]]] = {
    "max_runtime_s": (lambda: Case(Status.RUNNING), 4820, 4821, stops_for(Cause.MAX_RUNTIME)),
    "deadline": (lambda: Case(Status.RUNNING), NOW + 120, NOW + 121, stops_for(Cause.DEADLINE)),
    "budget_usd": (lambda: Case(Status.RUNNING), 4.916, 5.2, stops_for(Cause.BUDGET)),
    "max_attempts": (lambda: lost_case(counters=Counters(counted=4)), 5, 6, failed(Cause.LIMIT_REACHED)),
    "max_user_failures": (lambda: exit_case(user_failures=1), 2, 3, failed(Cause.USER_ERROR)),
    "wait_for_capacity_s": (waiting_case, 1000, 1001, failed(Cause.NO_CAPACITY)),
}

KNOBS: dict[str, tuple[Callable[[], Case], Any, Any, Callable[[Decision], bool]]] = {
    "supervisor_id": (
        waiting_case, "me", "you", lambda d: d.run.try_.machine_name == machine_name("spot", "me", "r", 1, 1),
    ),
    "machine_prefix": (waiting_case, "train", "spot", lambda d: d.run.try_.machine_name.startswith("train-")),
    "poll_interval_s": (
        lambda: Case(Status.RUNNING, pulse=pulse(first_progress_at=1.0, stall_counted_at=NOW - 10)).seeing(
            beat=Seen(beat(sequence=6, step=10))
        ),
        10.0, 30.0, lambda d: d.run.pulse.stall_polls == 1,
    ),
    "recovery_backoff_s": (lost_case, 100.0, 10.0, lambda d: d.run.next_at - NOW > 50),
    "recovery_backoff_max_s": (
        lambda: lost_case(counters=Counters(streak=9)), 20.0, 600.0, lambda d: d.run.next_at - NOW < 50,
    ),
    "cooldown_min_s": (lambda: refused_case(Cause.NO_CAPACITY, 0), 60.0, 180.0, lambda d: lesson_s(d) == 60),
    "cooldown_max_s": (lambda: refused_case(Cause.NO_CAPACITY, 9), 200.0, 1800.0, lambda d: lesson_s(d) == 200),
    "quota_retry_s": (lambda: refused_case(Cause.QUOTA, 0), 50.0, 600.0, lambda d: lesson_s(d) == 50),
    "launch_timeout_s": (
        pending_case, 5000.0, 5001.0, lambda d: [type(action) for action in d.actions] == [Release],
    ),
    "notice_overlap_s": (noticed_case, 60.0, 150.0, lambda d: d.run.retiring[0].until == NOW + 60),
    "ask_limit_s": (
        lambda: Case(
            Status.AWAITING_TEARDOWN, try_=None,
            retiring=(Retiring(ATTEMPT.ref, LAUNCH, NOW - 4000, NOW + 9e9),),
        ),
        4000.0, 4001.0, lambda d: d.run.status == Status.COMPLETED,
    ),
    "unverified_limit_s": (
        lambda: unfinished_case(person=Person(why="upload failed", since=NOW - 500), ), 500.0, 501.0,
        failed(Cause.RESULTS_UNVERIFIED),
    ),
    "max_parallel_runs": (lambda: waiting_case().beside(Case(Status.RUNNING)), 1, 2, waits_for_a_place),
    "max_parallel_per_owner": (lambda: waiting_case().beside(Case(Status.RUNNING)), 1, 2, waits_for_a_place),
}  # fmt: skip

# Not used by the decisions: they go to the agent or to the loop, whose own tests show their effect.
ELSEWHERE = {"machine_max_s", "beat_push_s", "beat_store_s", "stop_poll_s", "quiet_s", "hang"}


@pytest.mark.parametrize("name", [f.name for f in fields(StallLimits) if f.name not in ELSEWHERE])
def test_every_stall_limit_has_an_effect(name: str) -> None:
    build, bites, spares, happened = STALL[name]
    assert _with_policy(build(), stall=StallLimits(**{name: bites}), happened=happened)
    assert not _with_policy(build(), stall=StallLimits(**{name: spares}), happened=happened)


@pytest.mark.parametrize("name", [f.name for f in fields(Limits) if f.name not in ELSEWHERE])
def test_every_limit_has_an_effect(name: str) -> None:
    build, bites, spares, happened = LIMITS[name]
    assert _with_policy(build(), limits=Limits(**{name: bites}), happened=happened)
    assert not _with_policy(build(), limits=Limits(**{name: spares}), happened=happened)


@pytest.mark.parametrize("name", [f.name for f in fields(Knobs) if f.name not in ELSEWHERE])
def test_every_knob_has_an_effect(name: str) -> None:
    build, bites, spares, happened = KNOBS[name]
    for value, expected in ((bites, True), (spares, False)):
        case = build()
        case.knobs = replace(case.knobs, **{name: value})
        assert happened(case.decide()) == expected, f"{name} = {value}"


def _with_policy(case: Case, happened: Callable[[Decision], bool], **changes: Any) -> bool:
    case.policy = replace(case.policy, **changes)
    return happened(case.decide())


# --- choices of a policy ------------------------------------------------------------------------------------------


def test_stop_grace_is_waited_for_and_no_longer() -> None:
    case = Case(Status.STOPPING, stop=StopRequest("ops", NOW - 4000)).seeing(
        baton=Seen(Baton("supervisor-1", 1)), stop=Absent()
    )
    for grace_s, over in ((4000.0, True), (4001.0, False)):
        case.policy = Policy(stop_grace_s=grace_s)
        names = {type(action).__name__ for action in case.decide().actions}
        assert ("CloseBaton" in names) == over


@pytest.mark.parametrize(
    ("wish", "missing"),
    [
        ({"results": (ResultRule("*.npz"),)}, "results *.npz: 0 of 1 file"),
        ({"results": (ResultRule("*.txt", 2),)}, "results *.txt: 1 of 2 files"),
        ({"expect_runtime_s": 9401.0}, "trained for 4700 s where 9401 s were expected"),
    ],
)
def test_what_was_promised_and_is_missing_makes_it_partial(wish: dict[str, Any], missing: str) -> None:
    decision = finishing_case(**wish).decide()
    assert decision.run.status == Status.PARTIAL
    assert missing in decision.run.detail
    assert "last step 90 of 100" in decision.run.detail


def test_success_may_release_keep_or_ask() -> None:
    kept = finishing_case(on_success="keep", keep_s=60.0).decide().run
    assert (kept.kept_until, kept.retiring[0].until) == (NOW + 60, NOW + 60)
    assert finishing_case(on_success="ask").decide().run.status == Status.AWAITING_TEARDOWN
    assert finishing_case().decide().run.retiring[0].until == NOW


def test_a_failed_machine_may_be_kept_for_inspection() -> None:
    case = exit_case(user_failures=9)
    case.policy = Policy(on_failure="keep", keep_s=60.0)
    assert case.decide().run.kept_until == NOW + 60


def test_a_launch_requires_the_stop_marker_and_the_baton() -> None:
    decision = waiting_case().decide()
    assert isinstance(decision.actions[0], Launch)
    unread = waiting_case()
    del unread.obs["stop"]
    assert unread.decide().wants == {"stop"}
