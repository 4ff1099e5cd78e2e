"""The ledger: what the billed seconds of a run were for. Each of them is in exactly one class.

The time of an attempt's machine is cut at the times of its row, from its start to the end of its bill. The part in
which it trained is cut once more: frozen, lost and saving time are known as amounts, and what is left is productive.
They are placed in that order from the end, because lost steps and a silence before an end lie there. Steps of our own
clock (`Attempt.drift_s`) are in no class, as they are in no bill. The time before a machine, `scheduling`, is not
billed and is kept beside. `save` is None where the training names no phase `checkpoint`: then it is a part of
`productive`.

`lost`: steps that were, or will be, made again, stalls, and machines that lost a race (`Beside`). `frozen`: the agent
cannot have run, by the numbers of its beats, or was silent until the end. `finishing`: from the end of the training
until the machine is gone. `idle_kept`: after that it stays for a person or by a rule of its run; the rest of the
platform's minimum is there too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from supervisor.domain.attempt import Attempt, Pulse, billed_h
from supervisor.domain.causes import Cause
from supervisor.domain.policies import STALLING_POLLS
from supervisor.domain.run import Money, Run, attempt_cost_usd, on_demand_usd
from supervisor.domain.status import PLACING, TERMINAL, Status


class Use(StrEnum):
    """The classes, in the order in which people read them."""

    SCHEDULING = "scheduling"  # not billed
    BOOT = "boot"
    PULL = "pull"
    RESTORE = "restore"
    PRODUCTIVE = "productive"
    SAVE = "save"
    FROZEN = "frozen"
    LOST = "lost"
    FINISHING = "finishing"
    IDLE_KEPT = "idle_kept"


BILLED = tuple(use for use in Use if use is not Use.SCHEDULING)
SILENT_S = 120.0  # an attempt whose last beat is older than this at its end was silent until then
_DRIFTING = (Use.PRODUCTIVE, Use.BOOT, *BILLED)  # where a step of our clock most likely lay


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of billed time, or of scheduling, in epoch seconds."""

    use: Use
    since: float
    until: float

    @property
    def seconds(self) -> float:
        return self.until - self.since


@dataclass(frozen=True, slots=True)
class Entry:
    """The ledger of one attempt, or of the wait after the last one (`attempt` None). `saves`: its training names the
    phase of its saves. `first`: of its run."""

    attempt: Attempt | None
    spans: tuple[Span, ...]
    saves: bool = False
    first: bool = False


# --- steps and time that did not count --------------------------------------------------------------------------------


def steps_lost(run: Run, attempt: Attempt, after: Attempt | None) -> int | None:
    """Last reported step minus the step that the next attempt resumed from. None = not known (yet)."""
    if attempt.ended_at is None or attempt.step_last is None:
        return None
    if after is None:
        return 0 if attempt.cause == Cause.FINISHED else None
    if after.training_at is None or _starts_over(run, attempt, after):
        return None
    return max(0, attempt.step_last - (after.step_from or 0))


def _starts_over(run: Run, attempt: Attempt, after: Attempt) -> bool:
    """True when a person requested a start from nothing, which is no loss. The rows of earlier generations do not say
    so; there, every start from nothing counts as requested."""
    if after.generation == attempt.generation:
        return False
    return run.rerun if after.generation == run.generation else after.step_from is None


def lost_s(run: Run, attempt: Attempt, lost: int | None, training: float, end: float) -> float:
    """How much of the training, which ran from `training` to `end`, did not count. `lost`: `steps_lost`."""
    trained_s = max(0.0, end - training)
    live = _live_pulse(run, attempt)
    if attempt.ended_at is None:
        progress_at = None if live is None else live.progress_at
        kept_at, stalled_s = (None, 0.0) if live is None else (live.checkpoint_at, live.stalled_s)
        lost_all = live is not None and live.stall_polls >= STALLING_POLLS  # its restart goes back to its checkpoint
    else:
        progress_at, kept_at, stalled_s = attempt.progress_at, attempt.kept_at, attempt.stalled_s
        unsaved = (attempt.step_kept or 0) < (attempt.step_last or 0)
        lost_all = lost > 0 if lost is not None else unsaved and attempt.cause != Cause.FINISHED
    if progress_at is None:  # no steps, or a row that is older than these times
        return trained_s * _share(lost, attempt)
    tail_s = 0.0
    if lost_all:
        tail_s = end - max(training, training if kept_at is None else kept_at)
    elif attempt.cause == Cause.STALLED:
        tail_s = end - max(training, progress_at)
    return min(trained_s, stalled_s + max(0.0, tail_s))


def _share(lost: int | None, attempt: Attempt) -> float:
    """Which part of the attempt's steps was lost, 0 to 1."""
    steps = (attempt.step_last or 0) - (attempt.step_from or 0)
    return min(1.0, lost / steps) if lost and steps > 0 else 0.0


def _live_pulse(run: Run, attempt: Attempt) -> Pulse | None:
    pulse = run.pulse
    return pulse if attempt.ended_at is None and pulse is not None and pulse.launch_id == attempt.launch_id else None


# --- one attempt ------------------------------------------------------------------------------------------------------


def billed_spans(run: Run, attempt: Attempt, after: Attempt | None, now: float) -> list[Span]:
    """Of its machine. `after`: the next attempt of the run; None = there is none yet."""
    began = attempt.started_at + min(0.0, attempt.drift_s)
    stop = attempt.stopped_at if attempt.stopped_at is not None else attempt.gone_at
    stop = max(began, now if stop is None else stop)
    end = min(stop, now if attempt.ended_at is None else attempt.ended_at)
    finishing = _before(end, attempt.finishing_at, attempt)
    training = _before(finishing, attempt.training_at, attempt)
    running = _before(training, attempt.running_at, attempt)
    pulled = _before(running, attempt.pulled_at, attempt)
    pull = running if attempt.pull_at is None else _before(pulled, attempt.pull_at, attempt)
    idle = stop if attempt.held_at is None else max(end, min(attempt.held_at, stop))
    borders = [
        (Use.BOOT, pull),
        (Use.PULL, pulled),
        (Use.BOOT, running),
        (Use.RESTORE, training),
        *_of_training(run, attempt, after, training, finishing),
        (Use.FINISHING, idle),
        (Use.IDLE_KEPT, stop),
    ]
    spans = _without_drift(_spans(began, borders), attempt.drift_s)
    rest_s = attempt.minimum_s - sum(span.seconds for span in spans)
    if rest_s > 0:
        spans.append(Span(Use.IDLE_KEPT, stop, stop + rest_s))
    return spans


def _before(later: float, at: float | None, attempt: Attempt) -> float:
    """A time of the attempt, not after the next one, `later`. Where our clock was set back, it is from before that."""
    if at is None:
        return later
    return min(later, at if at <= later else at + min(0.0, attempt.drift_s))


def _of_training(
    run: Run, attempt: Attempt, after: Attempt | None, training: float, end: float
) -> list[tuple[Use, float]]:
    left_s = max(0.0, end - training)
    live = _live_pulse(run, attempt)
    source = attempt if live is None else live
    frozen_s, frozen_at = source.frozen_s, source.frozen_at
    kept_at = attempt.kept_at if live is None else live.checkpoint_at
    silent_s = 0.0
    if attempt.ended_at is not None and attempt.beat_at is not None and end - attempt.beat_at > SILENT_S:
        silent_s = end - max(training, attempt.beat_at)
    lost = lost_s(run, attempt, steps_lost(run, attempt, after), training, end - silent_s)
    if frozen_at is not None and frozen_at > (training if kept_at is None else kept_at):
        lost = max(0.0, lost - frozen_s)  # since the checkpoint: these seconds are frozen, and not lost a second time
    frozen_s = min(left_s, frozen_s + silent_s)
    lost = min(left_s - frozen_s, lost)
    save_s = min(left_s - frozen_s - lost, _saving(run, attempt) or 0.0)
    return [
        (Use.PRODUCTIVE, end - frozen_s - lost - save_s),
        (Use.SAVE, end - frozen_s - lost),
        (Use.LOST, end - frozen_s),
        (Use.FROZEN, end),
    ]


def _saving(run: Run, attempt: Attempt) -> float | None:
    """Seconds in saves that are over; None = the training names no phase of its saves."""
    live = _live_pulse(run, attempt)
    return attempt.saving_s if live is None else live.saving_s


def _spans(since: float, borders: Sequence[tuple[Use, float]]) -> list[Span]:
    """None of them empty. A border before the last one, which a clock that was set back leaves, makes none."""
    spans = []
    for use, until in borders:
        if until > since:
            spans.append(Span(use, since, until))
            since = until
    return spans


def _without_drift(spans: list[Span], drift_s: float) -> list[Span]:
    """The spans without a step of our clock ahead: it lay in one of them that is as long, or else in several."""
    for use in _DRIFTING:
        for at, span in enumerate(spans):
            if span.use is use and span.seconds >= drift_s > 0:
                spans[at], drift_s = Span(use, span.since, span.until - drift_s), 0.0
    for at, span in enumerate(spans):
        cut_s = min(max(0.0, drift_s), span.seconds)
        spans[at], drift_s = Span(span.use, span.since, span.until - cut_s), drift_s - cut_s
    return [span for span in spans if span.seconds > 0]


# --- a whole run ------------------------------------------------------------------------------------------------------


def attempts_now(run: Run, attempts: Iterable[Attempt]) -> list[Attempt]:
    """In order, as they are now: the row of an attempt whose machine has stopped is written again when it is gone."""
    retiring = (item.attempt for item in run.retiring if item.lost_until is None)
    newer = {attempt.number: attempt for attempt in retiring if attempt is not None}
    if run.attempt is not None:
        newer[run.attempt.number] = run.attempt
    stored = {attempt.number: attempt for attempt in attempts}
    return [attempt for _, attempt in sorted({**stored, **newer}.items())]


def entries_of(run: Run, attempts: Iterable[Attempt], now: float) -> list[Entry]:
    """Of all its generations, in order."""
    entries: list[Entry] = []
    every = attempts_now(run, attempts)
    before: Attempt | None = None
    for attempt, after in zip(every, [*every[1:], None], strict=False):
        spans = _spans(waits_since(run, attempt, before), [(Use.SCHEDULING, attempt.started_at)])
        spans += billed_spans(run, attempt, after, now)
        entries.append(Entry(attempt, tuple(spans), _saving(run, attempt) is not None, first=before is None))
        before = attempt
    wait = _spans(*_last_wait(run, before, now))
    return [*entries, Entry(None, tuple(wait), first=before is None)] if wait else entries


def waits_since(run: Run, attempt: Attempt, before: Attempt | None) -> float:
    """Since when the run waited for this machine. `before`: its attempt before; None = there was none."""
    if before is None:
        return run.created_at
    if before.generation == attempt.generation and before.ended_at is not None:
        return before.ended_at
    # Of an earlier generation only the request is on record.
    return run.generation_at if attempt.generation == run.generation else attempt.requested_at


def _last_wait(run: Run, last: Attempt | None, now: float) -> tuple[float, list[tuple[Use, float]]]:
    """The wait for the next machine, or that of a run that ended without one."""
    if last is None or last.generation != run.generation:
        since, until = run.generation_at, run.status_since if run.status in TERMINAL else now
        return since, [(Use.SCHEDULING, until)]
    waits = run.live_attempt is None and (run.status in PLACING or run.status == Status.LAUNCHING)
    return last.ended_at or now, [(Use.SCHEDULING, now)] if waits else []


# --- sums -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beside:
    """What runs are billed for beside their attempts. `disks_usd`: of machines that were kept and switched off.
    `races_s`, `races_usd`: of machines that lost a race. `priced` False: something has no known price."""

    disks_usd: float = 0.0
    races_s: float = 0.0
    races_usd: float = 0.0
    priced: bool = True

    def __add__(self, other: Beside) -> Beside:
        return Beside(
            self.disks_usd + other.disks_usd,
            self.races_s + other.races_s,
            self.races_usd + other.races_usd,
            self.priced and other.priced,
        )


@dataclass(frozen=True, slots=True)
class Ledger:
    """Sums of entries. `seconds` and `usd`: by class; what has no known price is left out of `usd`, and `priced` is
    False. `save` has no seconds (None) where no training named the phase of its saves. `disks_usd`: of machines that
    were kept and switched off, a part of `usd` of `idle_kept`. `run_s`: the time from the submits until the work was
    over, `started_s`: from the first starts; without the time in which a run was over and waited for its resume."""

    seconds: Mapping[Use, float | None]
    usd: Mapping[Use, float]
    disks_usd: float = 0.0
    priced: bool = True
    run_s: float = 0.0
    started_s: float = 0.0
    attempts: int = 0

    @property
    def billed_s(self) -> float:
        return sum(self.seconds[use] or 0.0 for use in BILLED)

    @property
    def billed_usd(self) -> float:
        return sum(self.usd.values())

    @property
    def goodput(self) -> float | None:
        """The productive share of the billed time, 0 to 1; None = nothing was billed."""
        return self._productive_share(self.billed_s)

    @property
    def ettr_start(self) -> float | None:
        """The effective training time ratio: the productive share of the time since the first start."""
        return self._productive_share(self.started_s)

    @property
    def ettr_submit(self) -> float | None:
        """The same of the time since the submit."""
        return self._productive_share(self.run_s)

    @property
    def usd_per_productive_h(self) -> float | None:
        """None = nothing was productive, or a price is not known."""
        productive_s = self.seconds[Use.PRODUCTIVE] or 0.0
        return self.billed_usd * 3600.0 / productive_s if self.priced and productive_s > 0 else None

    def _productive_share(self, whole_s: float) -> float | None:
        return min(1.0, (self.seconds[Use.PRODUCTIVE] or 0.0) / whole_s) if whole_s > 0 else None


def sums_of(entries: Iterable[Entry], beside: Beside = Beside()) -> Ledger:
    seconds = dict.fromkeys(Use, 0.0)
    usd: dict[Use, float] = dict.fromkeys(BILLED, 0.0)
    run_s, first_s, saves, lives, priced = 0.0, 0.0, False, 0, beside.priced
    for entry in entries:
        attempt, saves = entry.attempt, saves or entry.saves
        price = None if attempt is None else attempt.price_usd_per_h
        priced = priced and (attempt is None or price is not None)
        ended_at = None if attempt is None else attempt.ended_at
        for span in entry.spans:
            seconds[span.use] += span.seconds
            run_s += max(0.0, (span.until if ended_at is None else min(span.until, ended_at)) - span.since)
            first_s += span.seconds if entry.first and span.use is Use.SCHEDULING else 0.0
            if span.use in usd:
                usd[span.use] += (price or 0.0) * span.seconds / 3600.0
        if attempt is not None:
            lives += 1
    usd[Use.IDLE_KEPT] += beside.disks_usd
    seconds[Use.LOST] += beside.races_s
    usd[Use.LOST] += beside.races_usd
    is_measured = saves or not seconds[Use.PRODUCTIVE]
    return Ledger(
        seconds={**seconds, Use.SAVE: seconds[Use.SAVE] if is_measured else None},
        usd=usd,
        disks_usd=beside.disks_usd,
        priced=priced,
        run_s=run_s,
        started_s=max(0.0, run_s - first_s),
        attempts=lives,
    )


def disks_usd(run: Run, now: float) -> float:
    """Of machines that were kept for its next attempt and switched off."""
    return run.money.disks_usd + (0.0 if run.kept is None else run.kept[1].disks_usd(now))


def beside_of(run: Run, now: float) -> Beside:
    losers = [item.attempt for item in run.retiring if item.lost_until is not None and item.attempt is not None]
    return Beside(
        disks_usd=disks_usd(run, now),
        races_s=run.money.races_s + sum(3600.0 * billed_h(each, now) for each in losers),
        races_usd=run.money.races_usd + sum((each.price_usd_per_h or 0.0) * billed_h(each, now) for each in losers),
        priced=run.money.all_known,
    )


def ledger_of(run: Run, attempts: Iterable[Attempt], now: float) -> Ledger:
    """Of one run, with all its generations. Its `billed_usd` is `run_cost_usd` of the same moment."""
    return sums_of(entries_of(run, attempts, now), beside_of(run, now))


def with_bill_of(money: Money, attempt: Attempt, now: float) -> Money:
    """The bill of an attempt that ended, or of a machine that lost a race, until now."""
    return replace(
        money,
        cost_usd=money.cost_usd + (attempt_cost_usd(attempt, now) or 0.0),
        on_demand_usd=money.on_demand_usd + on_demand_usd(attempt, now),
        all_known=money.all_known and attempt.price_usd_per_h is not None,
    )
