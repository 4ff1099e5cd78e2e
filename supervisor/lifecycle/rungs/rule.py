"""The rule of rungs: which kind of machine keeps the deadline at the lowest cost.

Spot is taken whenever it can be had. A run without a machine waits for spot while it has slack, because what it does
not pay for now it may get for a third of the price later. It pays for on-demand as soon as the slack gets scarce: a
share of the work that is left, and of the restarts which that work would have where machines live as short as here. On
on-demand it stays until spot is back and a move pays both its restart and the slack that it takes.

Over all of that stands the guarantee. A choice is made only when a worst case can follow it: the machine is lost at
once, nobody looks for one tick, and on-demand with one changeover must then still end in time. So a deadline that
on-demand could keep at the first decision is kept, as far as no changeover takes longer than `changeover_s`.

The rule has no clock and no memory, and knows no provider. The reconciler, the simulator of `make policy` and the
forecast call this same function.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from supervisor.lifecycle.rungs.numbers import FROZEN, Numbers
from supervisor.wording.figures import age_text, clock_text, money_text

# For how long a platform lets a request wait: the provider's folder names the page.
SHORTEST_FLEX_START_S, LONGEST_FLEX_START_S = 90.0, 7_200.0
DOUBLINGS = 10  # of a pause; it is then longer than any training


class Rung(StrEnum):
    SPOT = "spot"
    ON_DEMAND = "on_demand"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Situation:
    """What a choice rests on. Times are seconds on one clock.

    `left_s`: the work that is left, at the pace that was measured. `changeover_s`: from the loss of a machine to the
    step at which it was lost, the worst that this run's history allows for. `tick_s`: until the next decision.
    `held`: the machine that the run has now; None = none. `spot_is_up`: a spot machine is held, or can be had now.
    `spot_life_s`: how long a spot machine lives here, as measured (`life_s`); None = nothing was measured.
    A price of None is not known; on-demand then counts as the dearer one."""

    now: float
    left_s: float
    deadline: float | None
    changeover_s: float
    tick_s: float
    held: Rung | None
    spot_is_up: bool
    spot_usd_per_h: float | None
    on_demand_usd_per_h: float | None
    spot_life_s: float | None = None

    @property
    def slack_s(self) -> float:
        """The time until the deadline minus the work that is left. Below 0 the deadline is lost."""
        assert self.deadline is not None
        return self.deadline - self.now - self.left_s


class Reason(StrEnum):
    CHEAPEST = "spot is up"
    NO_DEADLINE = "nothing is due"
    CHEAPER_TO_WAIT = "the slack allows to wait"
    LITTLE_SLACK = "the slack is a small share of the work"
    LAST_MOMENT = "after the next tick it would be too late"
    HELD_IN_TIME = "only the machine that is held ends in time"
    STAYS = "the saving does not pay the restart"
    NO_DEARER = "on-demand costs no more than spot"
    LOST = "the deadline is lost"


@dataclass(frozen=True, slots=True)
class Choice:
    """`until`: for WAIT with a deadline, the moment at which the rule takes on-demand if spot is not back before; None
    = never, or not waiting."""

    rung: Rung
    until: float | None
    reason: Reason
    situation: Situation

    @property
    def why(self) -> str:
        """One clause with the figures."""
        return _clause(self)


def choose(situation: Situation, numbers: Numbers = FROZEN) -> Choice:
    """The rung for the next tick."""
    rung, reason = _chosen(situation, numbers)
    until = None
    if rung is Rung.WAIT and situation.deadline is not None:
        until = max(situation.now, latest_wait_s(situation, numbers))
    return Choice(rung, until, reason, situation)


def choose_return(up: Situation, numbers: Numbers = FROZEN) -> Choice | None:
    """What a run on on-demand hears before it leaves its machine to request spot, which is up as far as it can guess;
    None = it stays. It leaves only where the rule would still take spot, or wait for it, after some refused requests:
    else it would pay for two starts."""
    choice = choose(up, numbers)
    later = replace(up, held=None, now=up.now + numbers.refusals_s)
    leaves = choice.rung is Rung.SPOT and choose(later, numbers).rung is Rung.SPOT
    return choice if leaves else None


def return_pause_s(refused: int, numbers: Numbers = FROZEN) -> float:
    """How long a run on on-demand stays there since it last left a machine for the other market. `refused`: its
    returns to spot in a row that brought no spot machine."""
    return numbers.change_pause_s * 2.0 ** min(max(0, refused - 1), DOUBLINGS)


def latest_wait_s(situation: Situation, numbers: Numbers = FROZEN) -> float:
    """When a run that gets no spot machine takes on-demand. The work that is left does not change while it waits."""
    assert situation.deadline is not None
    reserve_s = max(_scarce_s(situation, numbers), situation.changeover_s + situation.tick_s)
    return situation.deadline - situation.left_s - reserve_s


def flex_start_s(choice: Choice, withdrawal_s: float) -> float:
    """For how long one flex-start request may wait in place of doing nothing; 0 = not at all. It waits only where the
    rule itself waits, and is withdrawn so early that on-demand is still taken at `until`: the guarantee stays that of
    `choose`. `withdrawal_s`: from its end until another machine may be requested."""
    if choice.rung is not Rung.WAIT:
        return 0.0
    if choice.until is None:
        return LONGEST_FLEX_START_S
    return flex_start_within(choice.until - choice.situation.now - withdrawal_s)


def flex_start_within(most_s: float) -> float:
    """The longest wait of whole seconds that the platform lets a request have, of at most `most_s`; 0 = none."""
    return 0.0 if most_s < SHORTEST_FLEX_START_S else min(LONGEST_FLEX_START_S, float(int(most_s)))


def waits_for_cheaper(situation: Situation, cheapest_usd_per_h: float, numbers: Numbers = FROZEN) -> bool:
    """Whether a run without a machine leaves a spot machine that it can have now, since another zone costs less. The
    dearer machine takes the place of on-demand; the guarantee has been given by `choose` before."""
    offered = situation.spot_usd_per_h
    if situation.held is not None or offered is None or offered <= cheapest_usd_per_h * (1 + numbers.same_price):
        return False
    dearer = replace(
        situation, spot_is_up=False, spot_usd_per_h=cheapest_usd_per_h, on_demand_usd_per_h=situation.spot_usd_per_h
    )
    return situation.deadline is not None and choose(dearer, numbers).rung is Rung.WAIT


def life_s(held_s: float, losses: int, numbers: Numbers = FROZEN) -> float:
    """How long a spot machine lives, from the time for which machines were held and how many of them were lost. The
    number before any measurement counts as one loss. The expected life of `survival` is another figure: it stops at two
    hours, since it only compares zones with each other."""
    return (held_s + numbers.spot_life_s) / (losses + 1)


def _scarce_s(now: Situation, numbers: Numbers) -> float:
    """Below this slack a run does not wait any more."""
    lives_s = numbers.spot_life_s if now.spot_life_s is None else now.spot_life_s
    share = numbers.idle_share + numbers.restart_share * now.changeover_s / max(1.0, lives_s)
    return numbers.reserve_s + share * now.left_s


class _Pick(NamedTuple):
    rung: Rung
    reason: Reason


def _chosen(now: Situation, numbers: Numbers) -> _Pick:
    if now.deadline is None:
        return _Pick(Rung.SPOT, Reason.CHEAPEST) if now.spot_is_up else _Pick(Rung.WAIT, Reason.NO_DEADLINE)
    if now.held is Rung.ON_DEMAND:
        return _from_on_demand(now, numbers)
    if now.slack_s < now.changeover_s:
        return _late(now)
    return _with_spot(now) if now.spot_is_up else _without_spot(now, numbers)


def _with_spot(now: Situation) -> _Pick:
    """A machine that is held loses at most this tick; a new one may use up a changeover of its own before."""
    if now.held is None and _costs_no_more(now):
        return _Pick(Rung.ON_DEMAND, Reason.NO_DEARER)
    reserve_s = now.changeover_s + now.tick_s + (now.changeover_s if now.held is None else 0.0)
    if now.slack_s < reserve_s:
        return _Pick(Rung.ON_DEMAND, Reason.LAST_MOMENT)
    return _Pick(Rung.SPOT, Reason.CHEAPEST)


def _without_spot(now: Situation, numbers: Numbers) -> _Pick:
    if now.slack_s < now.changeover_s + now.tick_s:
        return _Pick(Rung.ON_DEMAND, Reason.LAST_MOMENT)
    if now.slack_s < _scarce_s(now, numbers):
        return _Pick(Rung.ON_DEMAND, Reason.LITTLE_SLACK)
    return _Pick(Rung.WAIT, Reason.CHEAPER_TO_WAIT)


def _late(now: Situation) -> _Pick:
    """A new machine may end too late. One that is held may still end in time."""
    if now.slack_s < 0:
        return _Pick(Rung.SPOT if now.spot_is_up else Rung.ON_DEMAND, Reason.LOST)
    if now.held is Rung.SPOT and now.spot_is_up:
        return _Pick(Rung.SPOT, Reason.HELD_IN_TIME)
    return _Pick(Rung.ON_DEMAND, Reason.LAST_MOMENT)


def _from_on_demand(now: Situation, numbers: Numbers) -> _Pick:
    if not now.spot_is_up:
        return _Pick(Rung.ON_DEMAND, Reason.STAYS)
    if now.slack_s < 2 * now.changeover_s + now.tick_s:
        return _Pick(Rung.ON_DEMAND, Reason.LAST_MOMENT)
    if not _pays_restart(now, numbers):
        return _Pick(Rung.ON_DEMAND, Reason.STAYS)
    return _Pick(Rung.SPOT, Reason.CHEAPEST)


def _costs_no_more(now: Situation) -> bool:
    spot, on_demand = now.spot_usd_per_h, now.on_demand_usd_per_h
    return spot is not None and on_demand is not None and on_demand <= spot


def _pays_restart(now: Situation, numbers: Numbers) -> bool:
    """The restart is paid at the price of spot, and the return to on-demand at the price of on-demand. Both take slack,
    which could save the difference of the prices on the work that is left."""
    spot, on_demand = now.spot_usd_per_h, now.on_demand_usd_per_h
    if spot is None or on_demand is None:
        return False
    trains_s = min(now.left_s, numbers.spot_life_s if now.spot_life_s is None else now.spot_life_s)
    slack_used = 2 * now.changeover_s / max(1.0, now.slack_s)
    saved = (trains_s - numbers.slack_price * slack_used * now.left_s) * (on_demand - spot)
    return saved > now.changeover_s * (spot + on_demand)


# --- the sentence -----------------------------------------------------------------------------------------------------


def _clause(choice: Choice) -> str:
    now = choice.situation
    if now.deadline is None:
        return "a spot machine can be had" if choice.rung is Rung.SPOT else "no deadline makes it pay for on-demand"
    left, change = age_text(now.left_s), age_text(now.changeover_s)
    figures = f"slack {age_text(now.slack_s)}, remaining {left}"
    late = age_text((now.changeover_s if now.held is None else 0.0) - now.slack_s)
    latest = clock_text(now.now if choice.until is None else choice.until, now.now)
    texts = {
        Reason.CHEAPEST: f"spot is the cheapest{_prices(now)}: {figures}",
        Reason.CHEAPER_TO_WAIT: f"waiting is cheaper: {figures}; on-demand at {latest} at the latest",
        Reason.LITTLE_SLACK: f"the deadline needs on-demand: {figures}",
        Reason.LAST_MOMENT: f"the deadline needs on-demand: {figures}, and a changeover takes up to {change}",
        Reason.HELD_IN_TIME: f"only the machine that it has ends in time: {figures}, and a changeover takes {change}",
        Reason.STAYS: f"a move would not pay its restart of {change}: {figures}",
        Reason.NO_DEARER: f"on-demand costs no more than spot{_prices(now)}",
        Reason.LOST: f"the deadline cannot be kept any more: remaining {left}, it would end {late} late",
    }
    return texts[choice.reason]


def _prices(now: Situation) -> str:
    spot, on_demand = now.spot_usd_per_h, now.on_demand_usd_per_h
    if spot is None or on_demand is None:
        return ""
    return f" ({money_text(spot)} an hour, on-demand {money_text(on_demand)})"
