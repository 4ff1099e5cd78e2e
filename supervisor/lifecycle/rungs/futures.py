"""What a run will cost and when it ends: thousands of simulated courses of this run, under the rule that places it.

A future goes from event to event, not from tick to tick: a machine is obtained, trains, is lost, a zone has machines
again, slack runs out. The rule is asked as the supervisor asks it (offers/market): of a run without a machine. A
machine that trains is not left, on-demand neither. The lifetime of a machine comes from the hazard at its age, so a
machine that is old already is likely to stay. Chance is passed in (numbers from 0 to 1), so
equal seeds give equal figures.

What a future leaves out: queues of the platform, minimum times of a bill, and the time in which results are verified.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import cos, exp, inf, log, pi, sqrt

from supervisor.lifecycle.rungs.rule import Rung, Situation, choose, life_s
from supervisor.lifecycle.rungs.survival import PRIOR, Curve

Draw = Callable[[], float]  # uniform between 0 and 1, without 1
Asked = tuple[Rung, float | None]  # the rung, and until when it waits at the latest; None = for ever
Rule = Callable[[Situation], Asked]

FUTURES, LEAST_FUTURES = 10_000, 300
EVENTS_MOST = 300_000  # of all futures together: with more, fewer futures are simulated
FUTURE_EVENTS_MOST = 1000
HORIZON_S = 365 * 86_400.0
HOUR_S = 3600.0
WORST_SIGMAS = 2.0
LEAST_SHARE = 1e-6
PRIOR_SIGMA = 0.5  # of the hazard: how far the zones of those data lie apart
UP_SHARE = 0.77  # of 2,104 rounds in 13 zones with H100 spot in October 2025, those with a machine


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure that is not known exactly. `sigma`: the standard deviation of its logarithm; 0 = exact."""

    p50: float
    sigma: float = 0.0

    @property
    def worst(self) -> float:
        return self.p50 * exp(WORST_SIGMAS * self.sigma)

    def value(self, draw: Draw) -> float:
        if not self.sigma:
            return self.p50
        return self.p50 * exp(self.sigma * sqrt(-2.0 * log(1.0 - draw())) * cos(2.0 * pi * draw()))


class Lifetimes:
    """How long machines live, by the shares that outlive some ages. Between two ages the hazard is constant; after the
    last one it stays as it was."""

    def __init__(self, curve: Curve = PRIOR) -> None:
        self._ages, self._sums, self._rates = [0.0], [0.0], list[float]()
        for age_s, share in curve:
            if age_s <= self._ages[-1]:
                continue
            total = -log(max(LEAST_SHARE, share))
            self._rates.append(max(0.0, total - self._sums[-1]) / (age_s - self._ages[-1]))
            self._ages.append(age_s)
            self._sums.append(max(total, self._sums[-1]))
        self._rates.append(self._rates[-1] if self._rates else 0.0)

    def hazard(self, age_s: float) -> float:
        """Losses per second at this age."""
        return self._rates[bisect_right(self._ages, age_s) - 1]

    def left_s(self, age_s: float, chance: float, factor: float = 1.0) -> float:
        """How much longer a machine of this age lives; inf = it is not lost. `factor`: of all hazards."""
        at = bisect_right(self._ages, age_s) - 1
        goal = self._sums[at] + self._rates[at] * (age_s - self._ages[at]) - log(1.0 - chance) / factor
        at = bisect_right(self._sums, goal) - 1
        rate = self._rates[at]
        return inf if rate <= 0.0 else self._ages[at] + (goal - self._sums[at]) / rate - age_s


def keeping_deadline(situation: Situation) -> Asked:
    """The rule of rungs."""
    choice = choose(situation)
    return choice.rung, choice.until


def only_spot(situation: Situation) -> Asked:
    """Of a run that may use nothing else."""
    return (Rung.SPOT if situation.spot_is_up else Rung.WAIT), None


def only_on_demand(situation: Situation) -> Asked:
    return Rung.ON_DEMAND, None


def first_that_is_there(situation: Situation) -> Asked:
    """Spot, else on-demand at once."""
    return (Rung.SPOT if situation.spot_is_up else Rung.ON_DEMAND), None


@dataclass(frozen=True, slots=True)
class SpotPlace:
    """A zone in the order in which it is tried. `up`: the chance that it has a machine, where nothing else is known.
    `is_cooling`: it has just refused one."""

    usd_per_h: float | None
    up: float
    is_cooling: bool = False


@dataclass(frozen=True, slots=True)
class HeldMachine:
    """`place`: the index in `Course.places`, of a spot machine. `starting_s`: how long ago it was requested, where it
    does not train yet; None = it trains."""

    rung: Rung
    age_s: float
    place: int = 0
    starting_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Everything that decides the futures of a run. Times are seconds, prices US dollars an hour, None = not known.

    `left_s`: the work that is left. `save_every_s`: of training between two saves; what was done since the last one is
    lost with a machine; 0 = a notice saves all. `return_per_s`: at this rate a zone without machines has some again.
    `hazard_sigma`: how well the lifetimes are known. `machine_max_s`: no machine lives longer. `trained_s`, `losses`:
    for how long it has trained, and how many machines it has lost; the rule judges the life of machines by them.
    `rule_changeover_s`: what the rule counts for a changeover; 0 = the worst of `changeover_s`."""

    now: float
    left_s: Spread
    changeover_s: Spread
    save_every_s: float
    lifetimes: Lifetimes
    return_per_s: float
    tick_s: float
    rule: Rule = keeping_deadline
    places: Sequence[SpotPlace] = ()
    on_demand_usd_per_h: float | None = None
    deadline: float | None = None
    held: HeldMachine | None = None
    spent_usd: float = 0.0
    hazard_sigma: float = 0.0
    machine_max_s: float = inf
    trained_s: float = 0.0
    losses: int = 0
    rule_changeover_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Range:
    """inf: not within the horizon."""

    p10: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """`usd` None: the price of a machine that it uses is not known. `kept`: the share of futures that end by the
    deadline; None = there is none. `on_demand_usd`, `on_demand_ends_at`: the same work on demand alone, from now on;
    None = its price is not known. `ends`, `costs`: of all futures, sorted."""

    ends_at: Range
    usd: Range | None
    kept: float | None
    futures: int
    on_demand_usd: float | None
    on_demand_ends_at: float
    ends: Sequence[float] = field(default=(), repr=False)
    costs: Sequence[float] = field(default=(), repr=False)


def outlook(course: Course, draw: Draw, most: int = FUTURES) -> Outlook:
    """Simulates `most` futures; fewer where single ones are long."""
    ends, costs, events, all_priced = [], [], 0, True
    for _ in range(most):
        future = _Future(course, draw)
        future.go()
        ends.append(future.at if future.left_s <= 0.0 else inf)
        costs.append(future.usd)
        events += future.events
        all_priced = all_priced and future.is_priced
        if events > EVENTS_MOST and len(ends) >= LEAST_FUTURES:
            break
    ends.sort()
    costs.sort()
    alone_usd, alone_end = _on_demand_alone(course)
    kept = None if course.deadline is None else bisect_right(ends, course.deadline) / len(ends)
    return Outlook(
        _range(ends), _range(costs) if all_priced else None, kept, len(ends), alone_usd, alone_end, ends, costs
    )


def _range(ordered: Sequence[float]) -> Range:
    p10, p50, p90 = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.1, 0.5, 0.9))
    return Range(p10, p50, p90)


def _on_demand_alone(course: Course) -> tuple[float | None, float]:
    """(cost, end) of a machine that is never lost."""
    held = course.held
    has_one = held is not None and held.rung is Rung.ON_DEMAND and held.starting_s is None
    lasts_s = course.left_s.p50 + (0.0 if has_one else course.changeover_s.p50)
    price = course.on_demand_usd_per_h
    return (None if price is None else course.spent_usd + price * lasts_s / HOUR_S), course.now + lasts_s


class _Future:
    """One course of the run. `spot_at`: when a zone has a machine; `place`: which zone. `back_at`: of each
    zone, when it has or had a machine for certain."""

    __slots__ = (
        "at", "back_at", "course", "dies_at", "draw", "events", "factor", "held", "is_priced", "left_s", "losses",
        "place", "spot_at", "trained_s", "unsaved_s", "usd",
    )  # fmt: skip

    def __init__(self, course: Course, draw: Draw) -> None:
        self.course, self.draw, self.at, self.usd, self.events = course, draw, course.now, course.spent_usd, 0
        self.left_s = course.left_s.value(draw)
        self.factor = Spread(1.0, course.hazard_sigma).value(draw)
        self.held: Rung | None = None
        self.is_priced, self.trained_s, self.losses = True, course.trained_s, course.losses
        self.unsaved_s, self.dies_at, self.place, self.spot_at = 0.0, inf, 0, inf
        self.back_at = [self.at + self._away_s() if place.is_cooling else -inf for place in course.places]
        held = course.held
        if held is None:
            self._look()
        else:
            self._take_over(held)

    def _take_over(self, held: HeldMachine) -> None:
        """The machine that the run has now."""
        course, self.place = self.course, held.place
        self.dies_at = self.at + self._lives_s(held.rung, held.age_s)
        if held.starting_s is not None:
            self._start(held.rung, max(0.0, course.changeover_s.value(self.draw) - held.starting_s))
            return
        self.held = held.rung
        self.unsaved_s = self.draw() * course.save_every_s

    def go(self) -> None:
        course, limit = self.course, self.at + HORIZON_S
        while self.left_s > 0.0 and self.at < limit and self.events < FUTURE_EVENTS_MOST:
            self.events += 1
            if self.held is not None:
                self._train(self.held)
                continue
            rung, until = self._ask()
            if rung is Rung.WAIT:  # the rule is asked again in the tick after `until`
                self.at = min(self.spot_at, inf if until is None else until + course.tick_s)
            else:
                self.dies_at = self.at + self._lives_s(rung, 0.0)
                self._start(rung, course.changeover_s.value(self.draw))

    def _ask(self) -> Asked:
        course = self.course
        situation = Situation(
            now=self.at,
            left_s=self.left_s,
            deadline=course.deadline,
            changeover_s=course.rule_changeover_s or course.changeover_s.worst,
            tick_s=course.tick_s,
            held=None,
            spot_is_up=self.spot_at <= self.at,
            spot_usd_per_h=course.places[self.place].usd_per_h if course.places else None,
            on_demand_usd_per_h=course.on_demand_usd_per_h,
            spot_life_s=life_s(self.trained_s, self.losses),
        )
        return course.rule(situation)

    def _lives_s(self, rung: Rung, age_s: float) -> float:
        longest_s = max(0.0, self.course.machine_max_s - age_s)
        if rung is not Rung.SPOT:
            return longest_s
        return min(longest_s, self.course.lifetimes.left_s(age_s, self.draw(), self.factor))

    def _start(self, rung: Rung, changeover_s: float) -> None:
        """A machine is obtained now, and trains after the changeover, unless it is lost before."""
        ready_at = self.at + changeover_s
        if self.dies_at <= ready_at:
            self._pay(rung, self.dies_at)
            self._lose(rung)
            return
        self._pay(rung, ready_at)
        self.held, self.unsaved_s = rung, 0.0

    def _train(self, held: Rung) -> None:
        """Until it is done or the machine is lost."""
        course = self.course
        until = self.at + self.left_s
        is_lost = self.dies_at < until
        until = min(until, self.dies_at)
        worked_s = until - self.at
        self._pay(held, until)
        if course.save_every_s > 0.0:
            self.unsaved_s = (self.unsaved_s + worked_s) % course.save_every_s
        self.left_s -= worked_s
        self.trained_s += worked_s
        if is_lost:
            self.left_s += self.unsaved_s
            self._lose(held)
        elif self.left_s < 1e-6:
            self.left_s = 0.0

    def _lose(self, rung: Rung) -> None:
        self.held, self.unsaved_s = None, 0.0
        if rung is Rung.SPOT:
            self.losses += 1
            self.back_at[self.place] = self.at + self._away_s()
        self._look()

    def _pay(self, rung: Rung, until: float) -> None:
        course = self.course
        price = course.places[self.place].usd_per_h if rung is Rung.SPOT else course.on_demand_usd_per_h
        if price is None:
            self.is_priced = False
        else:
            self.usd += price * (until - self.at) / HOUR_S
        self.at = until

    def _look(self) -> None:
        """Which zone has a machine next, and when. The longer ago a zone was seen with one, the less that says."""
        course, draw, at = self.course, self.draw, self.at
        self.spot_at, rate = inf, course.return_per_s
        for index, place in enumerate(course.places):
            back_at = self.back_at[index]
            if back_at <= at:
                fades = exp((back_at - at) * rate / place.up) if place.up > 0.0 else 0.0
                if draw() < place.up + (1.0 - place.up) * fades:
                    self.place, self.spot_at, self.back_at[index] = index, at, at
                    return
                back_at = self.back_at[index] = at + self._away_s()
            if back_at < self.spot_at:
                self.place, self.spot_at = index, back_at

    def _away_s(self) -> float:
        """How long a zone has no machines."""
        rate = self.course.return_per_s
        return inf if rate <= 0.0 else -log(1.0 - self.draw()) / rate
