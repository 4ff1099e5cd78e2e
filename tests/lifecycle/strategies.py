"""Runs, observations and worlds for properties of decide(): any combination that the rows can hold, sensible or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from supervisor.contract import heartbeat, signs
from supervisor.contract.baton import Baton, Done, FileEntry, Holder, Next, Pointer
from supervisor.contract.heartbeat import Beat, Exit, Pruned
from supervisor.domain.attempt import Attempt, Kept, Moving, Pulse, Retiring, Try
from supervisor.domain.causes import FIRST_SIGNAL, Cause
from supervisor.domain.machines import Away, Machine, MachineRecord, MachineState
from supervisor.domain.observation import (
    NOT_READ,
    Absent,
    CreateFailed,
    Observation,
    Part,
    Pinned,
    Seen,
    Unknown,
    Verification,
    World,
)
from supervisor.domain.policies import KeepRule, Limits, Policy
from supervisor.domain.run import Counters, Files, Image, Person, Run, StopRequest, Waiting
from supervisor.domain.status import ACTIVE, TERMINAL, Status
from tests.lifecycle.worlds import IMAGE, NOW, UNKNOWN, ZONES, among, offers, placement, world

OUT_OF_CONTACT = Unknown("no route to host", Away("zone-b", NOW - 500, "no route to host"))
__all__ = ["IMAGE", "NOW", "UNKNOWN", "ZONES", "offers", "placement", "world"]

THROTTLED = signs.encode(signs.Signs(slow=(signs.Slow(signs.THROTTLED, (64.0, 0.5, 88.0)),)))
Situation = tuple[Run, Observation, World]
ages = among(0.0, 5.0, 200.0, 5000.0)
steps = among(None, 0, 100, 200, 300)
moments = among(NOW - 90_000, NOW - 5000, NOW - 200, NOW - 10, NOW)


@st.composite
def runs(draw: st.DrawFn, statuses: frozenset[Status] | None = None) -> Run:
    status = draw(among(*sorted(statuses if statuses is not None else ACTIVE | TERMINAL)))
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
        next_at=draw(among(None, NOW - 1, NOW + 60)),
        try_=try_,
        attempt=attempt,
        pulse=_pulse(draw, launch_id) if draw(st.booleans()) else None,
        retiring=tuple(_retiring(draw) for _ in range(draw(among(0, 1, 2)))),
        counters=Counters(
            attempts=attempt.number if attempt is not None else 0,
            tries=number,
            counted=draw(st.integers(0, 3)),
            no_progress=draw(st.integers(0, 2)),
            user_failures=draw(st.integers(0, 2)),
            preempted_at=draw(among((), (NOW - 90_000, NOW - 300, NOW - 200))),
        ),
        image=Image(digest=draw(among("", f"{IMAGE}@sha256:1111")), pinned_for=draw(among("", IMAGE, "another/image"))),
        files=Files(checkpoint_step=draw(steps)),
        once=draw(among((), tuple(FIRST_SIGNAL + at for at in ("", " @0", " @100", " @200", " @300")))),
        reported=draw(st.booleans()),
        waiting=Waiting(since=draw(among(None, NOW - 90_000, NOW - 10))),
        avoid_zone=draw(among("", *ZONES)),
        stop=_stop(draw, status),
        moving=Moving(after_step=draw(among(None, None, -1, 100)), moved_at=draw(among(None, None, NOW - 90_000))),
        person=Person(why=draw(among("", "results differ")) if status == Status.FINISHING else ""),
        away=draw(among(None, None, Away("zone-a", NOW - 300, "no route to host", True))),
    )


def _policy(draw: st.DrawFn) -> Policy:
    limits = Limits(
        deadline=draw(among(None, NOW - 1, NOW + 1000)),
        budget_usd=draw(among(None, 0.0001, 100.0)),
        max_attempts=draw(among(2, 10)),
    )
    return Policy(
        limits=limits,
        allow_on_demand=draw(st.booleans()),
        on_success=draw(among("release", "keep", "ask")),
        on_failure=draw(among("release", "keep")),
        keep_s=600.0,
        require_pull=draw(st.booleans()),
        image=draw(among("", "", IMAGE)),
        follow_tag=draw(st.booleans()),
        escalate_after=draw(among(0, 2)),
        group=draw(among("", "sweep")),
        after=draw(among((), (), ("prepare",))),
        on_slow=draw(among("off", "move")),
        keep=draw(among(KeepRule(), KeepRule(True), KeepRule(True, fallback="wait"))),
    )


def _stop(draw: st.DrawFn, status: Status) -> StopRequest | None:
    asked = StopRequest("ops", NOW - 5)
    return asked if status == Status.STOPPING else draw(among(None, None, asked))


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
        up_at=draw(among(None, NOW - 5000, NOW - 100)),
        training_at=draw(among(None, NOW - 300)),
        step_from=draw(steps),
        **ended,
    )


def _pulse(draw: st.DrawFn, launch_id: str) -> Pulse:
    return Pulse(
        launch_id=launch_id,
        sequence=draw(st.integers(0, 5)),
        phase=draw(among(*heartbeat.PHASES)),
        phase_since=draw(moments),
        beat_at=draw(moments),
        step=draw(steps),
        checkpoint_step=draw(steps),
        first_progress_at=draw(among(None, NOW - 300)),
        stall_polls=draw(among(0, 9, 10)),
        stall_counted_at=draw(moments),
    )


def _retiring(draw: st.DrawFn) -> Retiring:
    number = draw(st.integers(1, 9))
    name = f"old-{number}"
    ref = Try(number, 1, f"1.{number}.1", name, placement(), NOW).ref
    item = Retiring(ref, f"1.{number}.1", NOW - 100, draw(among(NOW - 100, NOW + 100)))
    return replace(item, kept=draw(among(None, None, *KEPT)))


KEPT = [
    Kept(placement(), NOW - 50, off_at, 0.01, refused_at, given_up=why)
    for off_at in (None, NOW - 40)
    for refused_at in (None, NOW - 2000)
    for why in ("", "on request of ops")
]


def _part(draw: st.DrawFn, value: Callable[[], Any], *more: Unknown) -> Part[Any]:
    """`value()` as it was read, its certain absence, or that it could not be read."""
    kind = draw(among(*more, Seen, Absent, UNKNOWN))
    if kind is UNKNOWN:
        return draw(among(UNKNOWN, OUT_OF_CONTACT))
    if kind is Seen:
        return Seen(value(), draw(ages), "listing")
    return Absent(draw(ages)) if kind is Absent else kind


def _maybe_read(draw: st.DrawFn, value: Callable[[], Any]) -> Part[Any]:
    return _part(draw, value, NOT_READ)


def _machine(draw: st.DrawFn, run: Run) -> Machine:
    state = draw(among(*MachineState))
    record = None
    if state in (MachineState.ENDING, MachineState.ENDED) and draw(st.booleans()):
        cause = draw(among(Cause.PREEMPTED, Cause.HOST_ERROR, Cause.EXPIRED, Cause.MACHINE_DELETED))
        record = MachineRecord(cause, "the platform says so")
    launch_id = run.try_.launch_id if run.try_ is not None else "1.1.1"
    return Machine("id-x", "m-x", "zone-a", state, "supervisor-1", "digits", launch_id, NOW - 300, record)


def _beat(draw: st.DrawFn, run: Run) -> Beat:
    launch_id = run.try_.launch_id if run.try_ is not None and draw(st.integers(0, 4)) else "1.9.9"
    exit_ = Exit(draw(among(0, 0, 1, 127)), None, draw(st.booleans()), draw(st.booleans()))
    exit_ = draw(among(exit_, exit_, exit_, KILLED, FULL_DISK))
    return Beat(
        run_id="digits",
        attempt=int(launch_id.split(".")[1]),
        launch_id=launch_id,
        machine_id="id-x",
        boot_id="b",
        sequence=draw(st.integers(1, 9)),
        phase=draw(among(*heartbeat.PHASES)),
        step=draw(steps),
        checkpoint_step=draw(steps),
        notice_s=draw(among(None, None, 30.0)),
        left=draw(among(None, None, *heartbeat.LEFT)),
        stop_generation=draw(among(None, None, "77")),
        exit=draw(among(None, exit_)),
        pruned=draw(among(*PRUNED)) if draw(st.booleans()) else None,
        steps_per_s=draw(among(None, 0.01, 5.0)),
        signs=draw(among("", "", THROTTLED)),
    )


def _baton(draw: st.DrawFn, run: Run) -> Baton:
    launch_id = run.try_.launch_id if run.try_ is not None else "1.1.1"
    attempt = int(launch_id.split(".")[1])
    done = Done(launch_id, "runs/digits/results/g1/", (FileEntry("weights", 3, "x"),), 300, 300)
    return Baton(
        supervisor_id="supervisor-1",
        generation=1,
        next=draw(among(None, Next(attempt, 1, launch_id, "n"))),
        holder=Holder(attempt, launch_id, "id-x", draw(st.booleans())) if draw(st.booleans()) else None,
        checkpoint=draw(among(None, Pointer(100, "p", ()))),
        done=draw(among(None, None, done)),
        closed=draw(among(None, "stopped")),
    )


def _observation(draw: st.DrawFn, run: Run) -> Observation:
    launch_id = run.try_.launch_id if run.try_ is not None else "1.1.1"
    files = (FileEntry("weights", 3, "x"),)
    verified = [Seen(Verification(launch_id, "sha", files, problems)) for problems in ((), ("weights is missing",))]
    failed = [Seen(CreateFailed(launch_id, cause, "none left")) for cause in (Cause.NO_CAPACITY, Cause.QUOTA)]
    return Observation(
        machine=_part(draw, lambda: _machine(draw, run)),
        beat=_part(draw, lambda: _beat(draw, run)),
        baton=_maybe_read(draw, lambda: _baton(draw, run)),
        stop=_maybe_read(draw, lambda: "77"),
        lookup=_maybe_read(draw, lambda: _machine(draw, run)),
        # A call that was never made has no response: the first try of a run would take it for its own.
        create=NOT_READ if run.try_ is None else draw(among(NOT_READ, NOT_READ, *failed)),
        pin=draw(among(*PINNED[run.counters.attempts])) if draw(st.booleans()) else NOT_READ,
        verification=draw(among(NOT_READ, NOT_READ, *verified)),
        finalised=draw(among(NOT_READ, Seen(True))),
        retiring=tuple(_part(draw, lambda: _machine(draw, run)) for _ in run.retiring),
    )


KILLED = Exit(None, 15, False, 40.0)
FULL_DISK = Exit(1, None, False, 40.0, "OSError: [Errno 28] No space left on device")
PRUNED = [Pruned(count, ((100, "keep_last 3"),)) for count in range(4)]
# By the attempts of the run, what a registry may say to the look-ups for them.
PINNED = [
    [
        Seen(Pinned(asked, digest, problem, "says the registry", at))
        for asked in (IMAGE, f"{IMAGE} for attempt {attempts + 1}")
        for digest, problem, at in (
            (f"{IMAGE}@sha256:2222", "", NOW), ("", "missing", NOW), ("", "hidden", NOW),
            ("", "unavailable", NOW - 5), ("", "unavailable", NOW - 300), ("", "", NOW),
        )
    ]
    for attempts in range(5)
]  # fmt: skip


@st.composite
def situations(draw: st.DrawFn, statuses: frozenset[Status] | None = None) -> Situation:
    run = draw(runs(statuses))
    return run, _observation(draw, run), world(draw)
