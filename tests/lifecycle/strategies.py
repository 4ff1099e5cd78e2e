"""Runs, observations and worlds for properties of decide(): any combination that the rows can hold, sensible or not."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from supervisor.contract import heartbeat
from supervisor.contract.baton import Baton, Done, FileEntry, Holder, Next, Pointer
from supervisor.contract.heartbeat import Beat, Exit, Pruned
from supervisor.domain.attempt import Attempt, Pulse, Retiring, Try
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineRecord, MachineState
from supervisor.domain.observation import NOT_READ, Absent, CreateFailed, Observation, Pinned, Seen, Verification, World
from supervisor.domain.policies import Limits, Policy
from supervisor.domain.run import Counters, Files, Image, Person, Run, StopRequest, Waiting
from supervisor.domain.status import ACTIVE, TERMINAL, Status
from tests.lifecycle.worlds import IMAGE, NOW, UNKNOWN, ZONES, offers, placement, worlds

__all__ = ["IMAGE", "NOW", "UNKNOWN", "ZONES", "offers", "placement", "worlds"]

Situation = tuple[Run, Observation, World]
ages = st.sampled_from([0.0, 5.0, 200.0, 5000.0])
steps = st.sampled_from([None, 0, 100, 200, 300])
moments = st.sampled_from([NOW - 90_000, NOW - 5000, NOW - 200, NOW - 10, NOW])


@st.composite
def runs(draw: st.DrawFn, statuses: frozenset[Status] | None = None) -> Run:
    status = draw(st.sampled_from(sorted(statuses if statuses is not None else ACTIVE | TERMINAL)))
    number = draw(st.integers(1, 4))
    has_try = status not in (Status.PENDING, Status.AWAITING_TEARDOWN)
    live = status in (Status.RUNNING, Status.FINISHING) or (
        status in (Status.LAUNCHING, Status.STOPPING) and draw(st.booleans())
    )
    launch_id = f"1.{number}.1"
    over = not live and (status not in (Status.LAUNCHING, Status.STOPPING) or draw(st.booleans()))
    try_ = Try(number, 1, launch_id, f"m-{number}", placement(), NOW - 400, 0.1, 0.3) if has_try else None
    if try_ is not None and over:
        try_ = replace(try_, ended_at=NOW - 50)
    attempt = None
    if live or (has_try and draw(st.booleans())):
        attempt = _attempt(draw, number if live or over else max(1, number - 1), live)
    policy = _policy(draw)
    return Run(
        key=1,
        run_id="digits",
        owner="local",
        cell="local",
        provider="local",
        generation=1,
        status=status,
        policy=policy,
        created_at=NOW - 100_000,
        generation_at=NOW - 100_000,
        status_since=draw(moments),
        next_at=draw(st.sampled_from([None, NOW - 1, NOW + 60])),
        try_=try_,
        attempt=attempt,
        pulse=draw(st.none() | pulses(launch_id)),
        retiring=draw(st.lists(retiring(), max_size=2).map(tuple)),
        counters=Counters(
            attempts=attempt.number if attempt is not None else 0,
            tries=number,
            counted=draw(st.integers(0, 3)),
            no_progress=draw(st.integers(0, 2)),
            user_failures=draw(st.integers(0, 2)),
            preempted_at=draw(st.sampled_from([(), (NOW - 90_000, NOW - 300, NOW - 200)])),
        ),
        image=Image(
            digest=draw(st.sampled_from(["", f"{IMAGE}@sha256:1111"])),
            pinned_for=draw(st.sampled_from(["", IMAGE, "another/image"])),
        ),
        files=Files(checkpoint_step=draw(steps)),
        reported=draw(st.booleans()),
        waiting=Waiting(since=draw(st.sampled_from([None, NOW - 90_000, NOW - 10]))),
        avoid_zone=draw(st.sampled_from(["", *ZONES])),
        stop=_stop(draw, status),
        person=Person(why=draw(st.sampled_from(["", "results differ"])) if status == Status.FINISHING else ""),
    )


def _policy(draw: st.DrawFn) -> Policy:
    limits = Limits(
        deadline=draw(st.sampled_from([None, NOW - 1, NOW + 1000])),
        budget_usd=draw(st.sampled_from([None, 0.0001, 100.0])),
        max_attempts=draw(st.sampled_from([2, 10])),
    )
    return Policy(
        limits=limits,
        allow_on_demand=draw(st.booleans()),
        on_success=draw(st.sampled_from(["release", "keep", "ask"])),
        on_failure=draw(st.sampled_from(["release", "keep"])),
        keep_s=600.0,
        require_pull=draw(st.booleans()),
        image=draw(st.sampled_from(["", "", IMAGE])),
        follow_tag=draw(st.booleans()),
        escalate_after=draw(st.sampled_from([0, 2])),
    )


def _stop(draw: st.DrawFn, status: Status) -> StopRequest | None:
    asked = StopRequest("ops", NOW - 5)
    return asked if status == Status.STOPPING else draw(st.sampled_from([None, None, asked]))


def _attempt(draw: st.DrawFn, number: int, live: bool) -> Attempt:
    ended = {} if live else {"ended_at": NOW - 50, "cause": Cause.PREEMPTED}
    return Attempt(
        number=number,
        generation=1,
        launch_id=f"1.{number}.1",
        machine_name=f"m-{number}",
        machine_id=f"id-{number}",
        placement=placement(),
        requested_at=NOW - 400,
        started_at=NOW - 390,
        price_usd_per_h=0.1,
        on_demand_usd_per_h=0.3,
        up_at=draw(st.sampled_from([None, NOW - 5000, NOW - 100])),
        training_at=draw(st.sampled_from([None, NOW - 300])),
        step_from=draw(steps),
        **ended,
    )


@st.composite
def pulses(draw: st.DrawFn, launch_id: str) -> Pulse:
    return Pulse(
        launch_id=launch_id,
        sequence=draw(st.integers(0, 5)),
        phase=draw(st.sampled_from(heartbeat.PHASES)),
        phase_since=draw(moments),
        beat_at=draw(moments),
        step=draw(steps),
        checkpoint_step=draw(steps),
        first_progress_at=draw(st.sampled_from([None, NOW - 300])),
        stall_polls=draw(st.sampled_from([0, 9, 10])),
        stall_counted_at=draw(moments),
    )


@st.composite
def retiring(draw: st.DrawFn) -> Retiring:
    number = draw(st.integers(1, 9))
    name = f"old-{number}"
    ref = Try(number, 1, f"1.{number}.1", name, placement(), NOW).ref
    return Retiring(ref, f"1.{number}.1", NOW - 100, draw(st.sampled_from([NOW - 100, NOW + 100])))


def parts(seen: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(seen.map(lambda v: Seen(v[0], v[1], "listing")), ages.map(Absent), st.just(UNKNOWN))


def maybe_read(seen: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(st.just(NOT_READ), parts(seen))


@st.composite
def machines(draw: st.DrawFn, run: Run) -> Machine:
    state = draw(st.sampled_from(list(MachineState)))
    record = None
    if state in (MachineState.ENDING, MachineState.ENDED) and draw(st.booleans()):
        cause = draw(st.sampled_from([Cause.PREEMPTED, Cause.HOST_ERROR, Cause.EXPIRED, Cause.MACHINE_DELETED]))
        record = MachineRecord(cause, "the platform says so")
    launch_id = run.try_.launch_id if run.try_ is not None else "1.1.1"
    return Machine("id-x", "m-x", "zone-a", state, "supervisor-1", "digits", launch_id, NOW - 300, record)


@st.composite
def beats(draw: st.DrawFn, run: Run) -> Beat:
    launch_id = run.try_.launch_id if run.try_ is not None and draw(st.integers(0, 4)) else "1.9.9"
    exits = st.builds(
        Exit,
        code=st.sampled_from([0, 0, 1, 127]),
        signal=st.none(),
        sent_by_us=st.booleans(),
        retry_named=st.booleans(),
    )
    return Beat(
        run_id="digits",
        attempt=int(launch_id.split(".")[1]),
        launch_id=launch_id,
        machine_id="id-x",
        boot_id="b",
        sequence=draw(st.integers(1, 9)),
        phase=draw(st.sampled_from(heartbeat.PHASES)),
        step=draw(steps),
        checkpoint_step=draw(steps),
        notice_s=draw(st.sampled_from([None, None, 30.0])),
        left=draw(st.sampled_from([None, None, *heartbeat.LEFT])),
        stop_generation=draw(st.sampled_from([None, None, "77"])),
        exit=draw(st.none() | exits),
        pruned=draw(st.none() | st.builds(Pruned, st.integers(0, 3), st.just(((100, "keep_last 3"),)))),
    )


@st.composite
def batons(draw: st.DrawFn, run: Run) -> Baton:
    launch_id = run.try_.launch_id if run.try_ is not None else "1.1.1"
    attempt = int(launch_id.split(".")[1])
    done = Done(launch_id, "runs/digits/results/g1/", (FileEntry("weights", 3, "x"),), 300, 300)
    return Baton(
        supervisor_id="supervisor-1",
        generation=1,
        next=draw(st.none() | st.just(Next(attempt, 1, launch_id, "n"))),
        holder=draw(
            st.none() | st.builds(Holder, st.just(attempt), st.just(launch_id), st.just("id-x"), st.booleans())
        ),
        checkpoint=draw(st.none() | st.just(Pointer(100, "p", ()))),
        done=draw(st.sampled_from([None, None, done])),
        closed=draw(st.sampled_from([None, "stopped"])),
    )


@st.composite
def observations(draw: st.DrawFn, run: Run) -> Observation:
    launch_id = run.try_.launch_id if run.try_ is not None else "1.1.1"
    problems = st.sampled_from([(), ("weights is missing",)])
    verified = st.builds(
        Verification, st.just(launch_id), st.just("sha"), st.just((FileEntry("weights", 3, "x"),)), problems
    )
    failed = st.builds(
        CreateFailed, st.just(launch_id), st.sampled_from([Cause.NO_CAPACITY, Cause.QUOTA]), st.just("none left")
    )
    answer = st.sampled_from(
        [
            Pinned(asked, digest, problem, "says the registry", at)
            for asked in (IMAGE, f"{IMAGE} for attempt {run.counters.attempts + 1}")
            for digest, problem, at in (
                (f"{IMAGE}@sha256:2222", "", NOW), ("", "missing", NOW), ("", "hidden", NOW),
                ("", "unavailable", NOW - 5), ("", "unavailable", NOW - 300), ("", "", NOW),
            )
        ]
    )  # fmt: skip
    machine = st.tuples(machines(run), ages)
    return Observation(
        machine=draw(parts(machine)),
        beat=draw(parts(st.tuples(beats(run), ages))),
        baton=draw(maybe_read(st.tuples(batons(run), ages))),
        stop=draw(maybe_read(st.tuples(st.just("77"), ages))),
        lookup=draw(maybe_read(machine)),
        # A call that was never made has no response: the first try of a run would take it for its own.
        create=NOT_READ if run.try_ is None else draw(st.just(NOT_READ) | failed.map(Seen)),
        pin=draw(st.just(NOT_READ) | answer.map(Seen)),
        verification=draw(st.just(NOT_READ) | verified.map(Seen)),
        finalised=draw(st.sampled_from([NOT_READ, Seen(True)])),
        retiring=tuple(draw(parts(machine)) for _ in run.retiring),
    )


@st.composite
def situations(draw: st.DrawFn, statuses: frozenset[Status] | None = None) -> tuple[Run, Observation, World]:
    run = draw(runs(statuses))
    return run, draw(observations(run)), draw(worlds())
