"""The attempts of a run as the API shows them: where the time went, which steps were kept and lost, what each cost, and
which tries failed before.

The time of an attempt is cut into stretches that follow each other without a gap. `waiting` starts at the end of the
attempt before, or at the start of the generation, and ends with the request that brought the machine. `provisioning`
ends when the machine was obtained. `pull` is the part of `boot` in which the image is pulled, as far as beats reported
it. `lost` is training that did not count: stalls, and where the attempt ended without a save or stalls now, the time
since its newest checkpoint. It is drawn at the end of the training, where the steps were that have to be repeated.
`phase_s` has the sums of the same stretches; its `waiting` includes provisioning, and its `boot` the pull.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.contract.heartbeat import Exit
from supervisor.domain.attempt import Attempt, Try, kept_step
from supervisor.domain.ledger import lost_s, steps_lost, waits_since
from supervisor.domain.run import Run, attempt_cost_usd
from supervisor.domain.status import PLACING, Status
from supervisor.services.views import formats
from supervisor.services.views.formats import usd
from supervisor.services.views.run_view import CAUSE, CauseWord, GpuOf, PlacementJson, not_known, placement_json

TRIES_SHOWN = 50  # failed tries of one attempt: the newest
WAITING, PROVISIONING, BOOT, PULL = "waiting", "provisioning", "boot", "pull"
RESTORE, TRAINING, LOST = "restore", "training", "lost"
PARTS = {PROVISIONING: WAITING, PULL: BOOT}  # stretch -> the phase of `phase_s` that includes it

Stretch = tuple[str, float, float]  # a phase, its start and its end


class TryShown(TypedDict):
    number: int
    placement: PlacementJson
    cause: Annotated[str, Field(description=CAUSE)]
    detail: str
    requested_at: formats.Time
    ended_at: formats.Time | None


class PhaseSeconds(TypedDict):
    waiting: float
    boot: float
    restore: float
    training: float
    lost: float


class SpanShown(TypedDict):
    """A stretch of time. `phase`: waiting, provisioning, boot, pull, restore, training or lost; clients must accept
    words that they do not know."""

    phase: str
    since: formats.Time
    until: formats.Time


class CommandEnd(TypedDict):
    code: int | None
    signal: int | None
    sent_by_us: bool
    ran_s: float
    last_line: str
    retry_named: bool
    oom_kills: int | None
    disk_full: str


class ExitShown(CommandEnd):
    """`oom_kills` null: the kernel's counter could not be read. `disk_full`: the folder without space, with figures.
    `after_work`: the command failed after its last step, and its results were there. `in_setup`: the setup ended so,
    and the command was not started."""

    after_work: bool
    in_setup: bool


class AttemptShown(TypedDict):
    number: int
    generation: int
    placement: PlacementJson
    machine: str
    machine_id: str
    requested_at: formats.Time
    started_at: formats.Time
    ended_at: formats.Time | None
    gone_at: formats.Time | None
    cause: CauseWord
    evidence: str
    code: str | None
    phase_s: PhaseSeconds
    spans: list[SpanShown]
    step_from: int | None
    step_last: int | None
    step_kept: int | None
    steps_lost: int | None
    cost_usd: float | None
    price_usd_per_h: float | None
    exit: ExitShown | None
    tries: list[TryShown]


class Placing(TypedDict):
    """`spans`: since the end of the attempt before; empty when it is no longer being placed."""

    number: int
    tries: list[TryShown]
    spans: list[SpanShown]


class AttemptList(TypedDict):
    """In order. `next`: the attempt that is being placed, with its failed tries; null when there is none."""

    run_id: str
    attempts: list[AttemptShown]
    next: Placing | None


def attempts_json(
    run: Run, attempts: Sequence[Attempt], tries: Sequence[Try], now: float, gpu_of: GpuOf = not_known
) -> AttemptList:
    by_attempt: dict[int, list[Try]] = {}
    for try_ in tries:
        by_attempt.setdefault(try_.attempt, []).append(try_)
    shown: list[AttemptShown] = []
    before: Attempt | None = None
    for attempt, after in zip(attempts, [*attempts[1:], None], strict=False):
        failed = _failed(by_attempt.pop(attempt.number, ()), gpu_of)
        shown.append(_attempt(run, attempt, before=before, after=after, failed=failed, now=now, gpu_of=gpu_of))
        before = attempt
    return {"run_id": run.run_id, "attempts": shown, "next": _placing(run, before, by_attempt, now, gpu_of)}


def _placing(
    run: Run, last: Attempt | None, by_attempt: Mapping[int, Sequence[Try]], now: float, gpu_of: GpuOf
) -> Placing | None:
    """`by_attempt`: tries that belong to no attempt yet."""
    number = max(by_attempt, default=0)
    placed = run.status in PLACING or (run.status == Status.LAUNCHING and run.live_attempt is None)
    if not number and not placed:
        return None
    since = run.generation_at
    if last is not None and last.generation == run.generation and last.ended_at is not None:
        since = last.ended_at
    asked_at = now if run.open_try is None else run.open_try.requested_at
    return {
        "number": number or run.counters.attempts + 1,
        "tries": _failed(by_attempt.get(number, ()), gpu_of),
        "spans": _spans(_stretches(since, [(WAITING, asked_at), (PROVISIONING, now)])) if placed else [],
    }


def _attempt(
    run: Run,
    attempt: Attempt,
    *,
    before: Attempt | None,
    after: Attempt | None,
    failed: list[TryShown],
    now: float,
    gpu_of: GpuOf,
) -> AttemptShown:
    lost = steps_lost(run, attempt, after)
    stretches = _of_attempt(run, attempt, waits_since(run, attempt, before), lost, now)
    return {
        "number": attempt.number,
        "generation": attempt.generation,
        "placement": placement_json(attempt.placement, gpu_of),
        "machine": attempt.machine_name,
        "machine_id": attempt.machine_id,
        "requested_at": formats.time_text(attempt.requested_at),
        "started_at": formats.time_text(attempt.started_at),
        "ended_at": formats.maybe_time(attempt.ended_at),
        "gone_at": formats.maybe_time(attempt.gone_at),
        "cause": attempt.cause,
        "evidence": attempt.evidence,
        "code": attempt.code,
        "phase_s": _phase_s(stretches),
        "spans": _spans(stretches),
        "step_from": attempt.step_from,
        "step_last": _step_last(run, attempt),
        "step_kept": kept_step(attempt, after),
        "steps_lost": lost,
        "cost_usd": usd(attempt_cost_usd(attempt, now)),
        "price_usd_per_h": usd(attempt.price_usd_per_h),
        "exit": None if attempt.exit is None else _exit(attempt.exit),
        "tries": failed,
    }


def _exit(end: Exit) -> ExitShown:
    return {
        "code": end.code,
        "signal": end.signal,
        "sent_by_us": end.sent_by_us,
        "ran_s": end.ran_s,
        "last_line": end.last_line,
        "retry_named": end.retry_named,
        "oom_kills": end.oom_kills,
        "disk_full": end.disk_full,
        "after_work": end.after_work,
        "in_setup": end.in_setup,
    }


def _failed(tries: Sequence[Try], gpu_of: GpuOf) -> list[TryShown]:
    """Create calls that brought no machine."""
    failed = [(try_, try_.outcome) for try_ in tries if try_.outcome is not None]
    return [
        {
            "number": try_.number,
            "placement": placement_json(try_.placement, gpu_of),
            "cause": cause,
            "detail": try_.detail,
            "requested_at": formats.time_text(try_.requested_at),
            "ended_at": formats.maybe_time(try_.ended_at),
        }
        for try_, cause in failed[-TRIES_SHOWN:]
    ]


# --- steps ------------------------------------------------------------------------------------------------------------


def _step_last(run: Run, attempt: Attempt) -> int | None:
    """The row has it once the attempt has ended; until then the pulse does."""
    pulse = run.pulse
    if attempt.ended_at is None and pulse is not None and pulse.launch_id == attempt.launch_id:
        return pulse.step
    return attempt.step_last


# --- time -------------------------------------------------------------------------------------------------------------


def _of_attempt(run: Run, attempt: Attempt, since: float, lost: int | None, now: float) -> list[Stretch]:
    """Of a live attempt until `now`."""
    end = now if attempt.ended_at is None else attempt.ended_at
    training = end if attempt.training_at is None else min(attempt.training_at, end)
    running = training if attempt.running_at is None else min(attempt.running_at, end)
    boot = [(BOOT, running)]
    if attempt.pull_at is not None:
        pulled_at = running if attempt.pulled_at is None else min(attempt.pulled_at, running)
        boot = [(BOOT, min(attempt.pull_at, running)), (PULL, pulled_at), *boot]
    borders = [
        (WAITING, min(attempt.requested_at, attempt.started_at)),
        (PROVISIONING, attempt.started_at),
        *boot,
        (RESTORE, training),
        (TRAINING, end - lost_s(run, attempt, lost, training, end)),
        (LOST, end),
    ]
    return _stretches(min(since, attempt.started_at), borders)


def _stretches(since: float, borders: Sequence[tuple[str, float]]) -> list[Stretch]:
    """Oldest first, none of them empty. Each border is a phase and its end; a border before the last one, which a clock
    that was set back leaves, makes none."""
    stretches = []
    for phase, until in borders:
        if until > since:
            stretches.append((phase, since, until))
            since = until
    return stretches


def _spans(stretches: Sequence[Stretch]) -> list[SpanShown]:
    return [
        {"phase": phase, "since": formats.time_text(since), "until": formats.time_text(until)}
        for phase, since, until in stretches
    ]


def _phase_s(stretches: Sequence[Stretch]) -> PhaseSeconds:
    sums: PhaseSeconds = {"waiting": 0.0, "boot": 0.0, "restore": 0.0, "training": 0.0, "lost": 0.0}
    for phase, since, until in stretches:
        name = PARTS.get(phase, phase)
        sums[name] = round(sums[name] + until - since, 3)  # type: ignore[literal-required]
    return sums
