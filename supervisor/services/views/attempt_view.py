"""The attempts of a run: where the time went, what was kept and lost, what each cost, and which tries failed before.

`phase_s` splits an attempt's whole time: waiting (from the end of the attempt before, or the start of the generation,
until the machine was obtained), boot, restore, training, and lost: the stalls of the training, and where it ended
without saving or stalls now, the time since its newest checkpoint. `spans` says the same in stretches on the clock
(services/views/attempt_view.py).

Where the time of an attempt went, as stretches on the clock: what a time line draws.

`waiting` ends with the request that brought the machine; `provisioning` ends when the machine was obtained; `pull` is
the part of `boot` in which the image is pulled, as far as beats told of it; `lost` is laid at the end of the training,
which is where the steps were that had to be done again. The stretches of an attempt follow each other without a gap,
and their sums are those of its `phase_s`, in which `waiting` holds provisioning and `boot` holds the pull.

How a run's machine is, as the API shows it: one object for each GPU, null for what is not known.

The figures are those of the newest beat that told any, and its shape is `Telemetry` in openapi/openapi.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from supervisor.contract.beat_telemetry import Cgroup, Disk, Gpus, Telemetry, Tree, decode
from supervisor.domain.attempt import Attempt, Try, kept_step
from supervisor.domain.causes import Cause
from supervisor.domain.figures import disks_of
from supervisor.domain.run import Run, attempt_cost_usd
from supervisor.domain.status import PLACING, Status
from supervisor.services.views import rfc3339
from supervisor.services.views.run_view import GpuOf, Json, not_known, placement_json, usd
from supervisor.wording.forecast import live_pulse, stalling

_GPU_NAMES = tuple(field.name for field in fields(Gpus))


def telemetry_json(run: Run) -> dict[str, Any] | None:
    """Of the live attempt; None when there is none, or when its beats have told nothing yet."""
    pulse = live_pulse(run)
    telemetry = decode(pulse.telemetry) if pulse is not None else None
    if telemetry is None:
        return None
    disks = disks_of(telemetry)
    return {
        "gpus": _gpus(telemetry),
        "cgroup": _part(telemetry.cgroup),
        "disks": {role: _part(disks.get(role)) for role in ("checkpoints", "results", "scratch")},
        "tree": _part(telemetry.tree),
        "uptime_s": telemetry.uptime_s,
        "log_bytes": _whole(telemetry.log_bytes),
        "shm_bytes": _whole(telemetry.shm_bytes),
        "shm_free_bytes": _whole(telemetry.shm_free_bytes),
    }


def _gpus(telemetry: Telemetry) -> list[dict[str, Any]]:
    """One object for each card that any column tells of: forged columns may differ in length."""
    if telemetry.gpus is None:
        return []
    columns = {name: getattr(telemetry.gpus, name) for name in _GPU_NAMES}
    count = max(len(column) for column in columns.values())
    return [
        {name: _whole(column[n]) if n < len(column) else None for name, column in columns.items()} for n in range(count)
    ]


def _part(part: Cgroup | Disk | Tree | None) -> dict[str, Any] | None:
    return None if part is None else {name: _whole(figure) for name, figure in vars(part).items()}


def _whole(figure: float | None) -> float | int | None:
    """Read back from a row, whole figures are int already."""
    return int(figure) if isinstance(figure, float) and figure.is_integer() else figure


WAITING, PROVISIONING, BOOT, PULL = "waiting", "provisioning", "boot", "pull"
RESTORE, TRAINING, LOST = "restore", "training", "lost"

Border = tuple[str, float]  # a phase, and when it ended


def attempt_spans(attempt: Attempt, waits_since: float, lost_s: float, now: float) -> list[Json]:
    """`[{"phase", "since", "until"}]`, oldest first, none of them empty; of a live attempt until `now`."""
    end = now if attempt.ended_at is None else attempt.ended_at
    running = end if attempt.running_at is None else min(attempt.running_at, end)
    training = end if attempt.training_at is None else min(attempt.training_at, end)
    borders = [
        (WAITING, min(attempt.requested_at, attempt.started_at)),
        (PROVISIONING, attempt.started_at),
        *_boot(attempt, running),
        (RESTORE, training),
        (TRAINING, end - lost_s),
        (LOST, end),
    ]
    return spans(waits_since, borders)


def placing_spans(waits_since: float, try_: Try | None, now: float) -> list[Json]:
    """Of the attempt that is being placed. `asked`: its request that is in flight."""
    return spans(waits_since, [(WAITING, now if try_ is None else try_.requested_at), (PROVISIONING, now)])


def _boot(attempt: Attempt, until: float) -> list[Border]:
    if attempt.pull_at is None:
        return [(BOOT, until)]
    pulled_at = until if attempt.pulled_at is None else attempt.pulled_at
    return [(BOOT, min(attempt.pull_at, until)), (PULL, min(pulled_at, until)), (BOOT, until)]


def spans(since: float, borders: Sequence[Border]) -> list[Json]:
    """Each border ends one stretch; a border before the last one, which a clock set back leaves, makes none."""
    shown = []
    for phase, until in borders:
        if until > since:
            shown.append({"phase": phase, "since": rfc3339.text(since), "until": rfc3339.text(until)})
            since = until
    return shown


TRIES_SHOWN = 50  # failed tries of one attempt: the newest


def attempts_json(
    run: Run, attempts: Sequence[Attempt], tries: Sequence[Try], now: float, gpu_of: GpuOf = not_known
) -> Json:
    """`attempts` in order; `next`: the attempt that is being placed now, null when there is none."""
    by_attempt: dict[int, list[Try]] = {}
    for try_ in tries:
        by_attempt.setdefault(try_.attempt, []).append(try_)
    shown = []
    before: Attempt | None = None
    for position, attempt in enumerate(attempts):
        after = attempts[position + 1] if position + 1 < len(attempts) else None
        failed = _failed(by_attempt.pop(attempt.number, []), gpu_of)
        shown.append(_attempt(run, attempt, before, after, failed, now, gpu_of))
        before = attempt
    placing = _placing(run, before, by_attempt, now, gpu_of)
    return {"run_id": run.run_id, "attempts": shown, "next": placing}


def _placing(
    run: Run, last: Attempt | None, by_attempt: Mapping[int, Sequence[Try]], now: float, gpu_of: GpuOf
) -> Json | None:
    """`by_attempt`: tries that belong to no attempt yet."""
    number = max(by_attempt, default=0)
    placed = run.status in PLACING or (run.status == Status.LAUNCHING and run.live_attempt is None)
    if not number and not placed:
        return None
    since = run.generation_at
    if last is not None and last.generation == run.generation and last.ended_at is not None:
        since = last.ended_at
    return {
        "number": number or run.counters.attempts + 1,
        "tries": _failed(by_attempt.get(number, ()), gpu_of),
        "spans": placing_spans(since, run.open_try, now) if placed else [],
    }


def _attempt(
    run: Run,
    attempt: Attempt,
    before: Attempt | None,
    after: Attempt | None,
    failed: list[Json],
    now: float,
    gpu_of: GpuOf,
) -> Json:
    lost = _steps_lost(run, attempt, after)
    phases = _phases(run, attempt, before, lost, now)
    cost = attempt_cost_usd(attempt, now)
    return {
        "number": attempt.number,
        "generation": attempt.generation,
        "placement": placement_json(attempt.placement, gpu_of),
        "machine": attempt.machine_name,
        "machine_id": attempt.machine_id,
        "requested_at": rfc3339.text(attempt.requested_at),
        "started_at": rfc3339.text(attempt.started_at),
        "ended_at": rfc3339.maybe(attempt.ended_at),
        "gone_at": rfc3339.maybe(attempt.gone_at),
        "cause": attempt.cause,
        "evidence": attempt.evidence,
        "code": attempt.code,
        "phase_s": phases,
        "spans": attempt_spans(attempt, _waits_since(run, attempt, before), phases["lost"], now),
        "step_from": attempt.step_from,
        "step_last": _step_last(run, attempt),
        "step_kept": kept_step(attempt, after),
        "steps_lost": lost,
        "cost_usd": usd(cost),
        "price_usd_per_h": usd(attempt.price_usd_per_h),
        "exit": None if attempt.exit is None else asdict(attempt.exit),
        "tries": failed,
    }


def _step_last(run: Run, attempt: Attempt) -> int | None:
    """The row learns it when the attempt ends; until then the pulse knows it."""
    pulse = run.pulse
    if attempt.ended_at is None and pulse is not None and pulse.launch_id == attempt.launch_id:
        return pulse.step
    return attempt.step_last


def _steps_lost(run: Run, attempt: Attempt, after: Attempt | None) -> int | None:
    """Last reported step minus the step that the next attempt resumed from. None = not known (yet)."""
    if attempt.ended_at is None or attempt.step_last is None:
        return None
    if after is None:
        return 0 if attempt.cause == "finished" else None
    if after.training_at is None or _starts_over(run, attempt, after):
        return None
    return max(0, attempt.step_last - (after.step_from or 0))


def _starts_over(run: Run, attempt: Attempt, after: Attempt) -> bool:
    """True when a person asked for a start from nothing: that is no loss. Of generations that are over it is no longer
    known, so a start from nothing is not counted there either."""
    if after.generation == attempt.generation:
        return False
    return run.rerun if after.generation == run.generation else after.step_from is None


def _phases(run: Run, attempt: Attempt, before: Attempt | None, lost: int | None, now: float) -> dict[str, float]:
    end = attempt.ended_at if attempt.ended_at is not None else now
    running = attempt.running_at if attempt.running_at is not None else end
    training = attempt.training_at if attempt.training_at is not None else end
    trained_s = max(0.0, end - training)
    lost_s = _lost_s(run, attempt, lost, training, end)
    spans = {
        "waiting": attempt.started_at - _waits_since(run, attempt, before),
        "boot": min(running, end) - attempt.started_at,
        "restore": min(training, end) - min(running, end),
        "training": trained_s - lost_s,
        "lost": lost_s,
    }
    return {name: round(max(0.0, span_s), 3) for name, span_s in spans.items()}


def _lost_s(run: Run, attempt: Attempt, lost: int | None, training: float, end: float) -> float:
    """How much of the training did not count. `lost`: steps, None = not known yet."""
    trained_s = max(0.0, end - training)
    live = live_pulse(run) if attempt.ended_at is None else None
    if attempt.ended_at is None:
        progress_at = None if live is None else live.progress_at
        kept_at, stalled_s = (None, 0.0) if live is None else (live.checkpoint_at, live.stalled_s)
        lost_all = live is not None and stalling(run)  # its restart goes back to the newest checkpoint
    else:
        progress_at, kept_at, stalled_s = attempt.progress_at, attempt.kept_at, attempt.stalled_s
        unsaved = (attempt.step_kept or 0) < (attempt.step_last or 0)
        lost_all = lost > 0 if lost is not None else unsaved and attempt.cause != Cause.FINISHED
    if progress_at is None:  # no steps, or a row from before these times were kept
        return trained_s * _share(lost, attempt)
    tail_s = 0.0
    if lost_all:
        tail_s = end - max(training, training if kept_at is None else kept_at)
    elif attempt.cause == Cause.STALLED:
        tail_s = end - max(training, progress_at)
    return min(trained_s, stalled_s + max(0.0, tail_s))


def _waits_since(run: Run, attempt: Attempt, before: Attempt | None) -> float:
    if before is None:
        return run.created_at
    if before.generation == attempt.generation and before.ended_at is not None:
        return before.ended_at
    # Of an earlier generation only the request is on record.
    return run.generation_at if attempt.generation == run.generation else attempt.requested_at


def _share(lost: int | None, attempt: Attempt) -> float:
    """Which part of the attempt's steps was lost, 0 to 1."""
    done = (attempt.step_last or 0) - (attempt.step_from or 0)
    return min(1.0, lost / done) if lost and done > 0 else 0.0


def _failed(tries: Sequence[Try], gpu_of: GpuOf) -> list[dict[str, Any]]:
    """Create calls that brought no machine."""
    failed = [try_ for try_ in tries if try_.outcome is not None]
    return [
        {
            "number": try_.number,
            "placement": placement_json(try_.placement, gpu_of),
            "cause": try_.outcome,
            "detail": try_.detail,
            "requested_at": rfc3339.text(try_.requested_at),
            "ended_at": rfc3339.maybe(try_.ended_at),
        }
        for try_ in failed[-TRIES_SHOWN:]
    ]
