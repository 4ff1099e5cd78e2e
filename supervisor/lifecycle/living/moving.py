"""`on_slow: move`: a run whose GPU is throttled moves at its next checkpoint, when the gain pays for the restart.

The agent says that a card is throttled: a clock event reason of the hardware, and steps slower than 75 % of the run's
own pace, for 15 minutes (agent/watch/slow.py). Left at this pace are the steps up to `total`, the rest of `max_runtime`
and the time to the deadline, whichever is least; where none of them is known, HORIZON_S. A move saves the share of that
time that throttling costs, and takes one changeover, which this attempt's own start has shown. It pays where it saves
PAYS times as much, because nobody knows the next machine.

The plan is written with its event before anything happens. The first newer checkpoint carries it out: the attempt ends
like a preemption with notice, so the old machine goes on until the next one claims the run. A card that recovers ends
the plan; while no other zone has a machine like its own, the plan waits. A run moves once in PAUSE_S, and not again
where the last move brought no better pace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from supervisor.contract.heartbeat import TRAINING, Beat
from supervisor.contract.signs import THROTTLED
from supervisor.domain.attempt import Attempt, Pulse, training_s
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Offer
from supervisor.domain.observation import World
from supervisor.domain.run import Run, with_pulse
from supervisor.lifecycle.offers.choosing import choose
from supervisor.wording.attempt import MOVED
from supervisor.wording.figures import age_text, count_text, rate_text
from supervisor.wording.stalls import slow_in, slow_text

MOVE = "move"
HORIZON_S = 4 * 3600.0  # of work, where nothing says how much is left
CHANGEOVER_S = 600.0  # where the start of this attempt was not seen
PAYS = 2.0
PAUSE_S = 6 * 3600.0
BETTER = 1.1  # the pace after a move, against the one before
NEVER_SAVED = -1
# In Attempt.alerted: each of these events comes once an attempt.
PLANNED, STAYS, RECOVERED = "on_slow moves", "on_slow stays", "on_slow recovered"


class Move(NamedTuple):
    """`why`: the attempt ends now to move; "" = it goes on."""

    run: Run
    events: tuple[Event, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Sum:
    """What a move would bring. `what` makes it slow. `usual`: steps a second of a well card; None = not known."""

    what: str
    share: float
    left_s: float
    takes_s: float
    usual: float | None

    @property
    def saves_s(self) -> float:
        return self.left_s * (1.0 - self.share)

    @property
    def text(self) -> str:
        saves, left, takes = (age_text(seconds) for seconds in (self.saves_s, self.left_s, self.takes_s))
        return f"a move saves {saves} of the {left} that are left, and takes {takes}"


def may_move(run: Run, beat: Beat) -> bool:
    """`follow_slow` has something to say of this beat."""
    return run.policy.on_slow == MOVE and (run.moving.after_step is not None or '"slow"' in beat.signs)


def follow_slow(run: Run, beat: Beat | None, world: World, now: float) -> Move:
    """What a run whose machine is up makes of its newest beat. `beat` None: it was not read, so nothing changes."""
    pulse, attempt = run.pulse, run.live_attempt
    if run.policy.on_slow != MOVE or beat is None or pulse is None or attempt is None:
        return Move(run)
    slow = next((each for each in slow_in(pulse) if each.word == THROTTLED), None)
    share = None if slow is None else slow.figures[1]
    if slow is None or share is None:
        if run.moving.after_step is None or pulse.phase != TRAINING:
            return Move(run)
        return _said(_unplanned(run), RECOVERED, "The GPU is not throttled any more: the run stays where it is.")
    usual = None if pulse.steps_per_s is None or share <= 0 else pulse.steps_per_s / share
    takes_s = _changeover_s(attempt)
    move = _Sum(_sentence(slow_text(slow)), share, _left_s(run, pulse, world, now), takes_s, usual)
    return _planned(run, pulse, move, world, now)


def _planned(run: Run, pulse: Pulse, move: _Sum, world: World, now: float) -> Move:
    newest = NEVER_SAVED if pulse.checkpoint_step is None else pulse.checkpoint_step
    after_step = run.moving.after_step
    if after_step is not None and newest <= after_step:
        return Move(run)
    reason = _not_worth(run, move, now)
    no_place = "" if reason else _no_place(run, world, now)
    if reason or (no_place and after_step is None):
        text = f"{move.what}. The run stays: {reason or no_place}; {move.text}."
        return _said(_unplanned(run), STAYS, text, move)
    if after_step is None or no_place:  # without a place, the checkpoint after the next one may find one
        text = f"{move.what}. The run moves at its next checkpoint: {move.text}."
        return _said(replace(run, moving=replace(run.moving, after_step=newest)), PLANNED, text, move)
    moved = replace(run, moving=replace(run.moving, after_step=None, moved_at=now, pace=pulse.steps_per_s))
    pace = f"its GPU was throttled to {100 * move.share:.0f} % of the usual pace"
    saves, takes = age_text(move.saves_s), age_text(move.takes_s)
    return Move(moved, (), f"{MOVED}{count_text(newest)}: {pace}; that saves {saves} and takes {takes}")


def _sentence(text: str) -> str:
    """Without the setting in brackets."""
    what = text.partition(" (")[0]
    return what[:1].upper() + what[1:]


def _unplanned(run: Run) -> Run:
    return run if run.moving.after_step is None else replace(run, moving=replace(run.moving, after_step=None))


def _said(run: Run, about: str, text: str, move: _Sum | None = None) -> Move:
    """With the event, once an attempt."""
    attempt = run.live_attempt
    if attempt is None or about in attempt.alerted:
        return Move(run)
    facts: dict[str, float] = {}
    if move is not None:
        facts = {"share": move.share, "left_s": round(move.left_s), "saves_s": round(move.saves_s)}
        facts["takes_s"] = round(move.takes_s)
    event = Event(EventKind.FINDING, text, data={"found": about, **facts})
    return Move(with_pulse(run, run.pulse, replace(attempt, alerted=(*attempt.alerted, about))), (event,))


def _not_worth(run: Run, move: _Sum, now: float) -> str:
    """Why a move is not worth its time; "" = it is."""
    before = run.moving
    if before.moved_at is not None and abs(now - before.moved_at) < PAUSE_S:
        return f"it moved {age_text(now - before.moved_at)} ago, and moves once in {age_text(PAUSE_S)}"
    if before.pace is not None and (move.usual is None or move.usual < BETTER * before.pace):
        return f"its last move brought no better pace than {rate_text(before.pace)}"
    pays = move.saves_s > 0 and move.saves_s >= PAYS * move.takes_s
    return "" if pays else f"a move must save {PAYS:.0f} times what it takes"


def _no_place(run: Run, world: World, now: float) -> str:
    """Why no machine like its own is free elsewhere; "" = one is."""
    assert run.attempt is not None
    own = run.attempt.placement
    choice = choose(replace(run, avoid_zone=own.zone), world, now)
    place = choice.placement if isinstance(choice, Offer) else own
    is_elsewhere = place.zone != own.zone or place.provider != own.provider
    is_alike = (place.shape, place.market) == (own.shape, own.market)
    return "" if is_elsewhere and is_alike else f"no other zone has a free {own.market} {own.shape} now"


def _left_s(run: Run, pulse: Pulse, world: World, now: float) -> float:
    limits, lefts = run.policy.limits, []
    if pulse.total is not None and pulse.step is not None and pulse.steps_per_s:
        lefts.append((pulse.total - pulse.step) / pulse.steps_per_s)
    if limits.max_runtime_s is not None:
        lefts.append(limits.max_runtime_s - run.training_s - training_s(run.live_attempt, now))
    if limits.deadline is not None:
        lefts.append(limits.deadline - now - world.wall_ahead_s)
    return max(0.0, min(lefts, default=HORIZON_S))


def _changeover_s(attempt: Attempt) -> float:
    """From the request of its machine to its training: boot, image and restore."""
    if attempt.training_at is None:
        return CHANGEOVER_S
    return max(0.0, attempt.training_at - attempt.requested_at - attempt.drift_s)
