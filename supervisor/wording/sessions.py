"""How many more sessions a run needs where a platform lends its machines for some hours each, and when it is done.

The steps that are left, at the measured pace, are the time of training that is left. A session gives its cap, less one
changeover: from the request of a machine to its training, and the last save. Hours that the platform lends in each week
may run out before: then the next session begins when they begin anew. Nothing is made up: without a total or a pace
there is no forecast, and its sentence names what it leaves out. It is one line for people; the rule that pays for a
machine in time for a deadline rests on the same figures (lifecycle/offers/paying).

At the end: the words of the forecast of any other run, whose figures come from a simulation (lifecycle/rungs/futures).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf, isfinite, isinf

from supervisor.domain.attempt import pace_of, training_s
from supervisor.domain.machines import Quota
from supervisor.domain.run import Run
from supervisor.wording.figures import age_text, day_text, money_text, plural, rate_text
from supervisor.wording.forecast import live_pulse

WEEK_S = 7 * 86_400.0
MOST_SESSIONS = 500  # a forecast of more says nothing
LEAST_SESSION_S = 900.0  # a shorter one brings next to nothing
HOUR_S = 3600.0
NO_TOTAL, NO_PACE = "the number of its steps is not known", "its pace is not measured yet"


@dataclass(frozen=True, slots=True)
class Lent:
    """What one provider lends to a run. `cap_s`: the longest session, inf = no limit. `quota` None: no hours are
    counted."""

    provider: str
    cap_s: float
    quota: Quota | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What is left to train. `why`: why `left_s` is None. `expected`: by the spec's expect_runtime_s, not by steps."""

    left_s: float | None
    pace: float | None = None
    expected: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Forecast:
    """`why`: why there is none; "" = there is one. `sessions`: how many more, after the present one; `in_time`: how
    many of these begin before the hours begin anew, None = nothing limits them, or that time is not known. `ends_at`:
    the end of the work. `changeover_s` None: not measured yet, and left out."""

    lent: Lent
    work: Work
    why: str = ""
    sessions: int | None = None
    in_time: int | None = None
    ends_at: float | None = None
    changeover_s: float | None = None


def work_of(run: Run, provider: str, now: float) -> Work:
    """What is left to train, at the pace that the run has shown on this provider, else on another one."""
    live, pulse = run.live_attempt, live_pulse(run)
    paces = dict(run.chain.paces)
    pace = None if live is None else pace_of(live, pulse)
    if live is not None and pace is not None:
        paces[live.placement.provider] = pace
    pace = paces.get(provider) or next(reversed(paces.values()), None)
    total = run.chain.total if pulse is None or pulse.total is None else pulse.total
    if total is not None and pace is not None:
        return Work(max(0.0, (total - _step_of(run)) / pace), pace)
    expected_s = run.policy.expect_runtime_s
    if expected_s is None:
        return Work(None, pace, why=NO_PACE if pace is None else NO_TOTAL)
    return Work(max(0.0, expected_s - run.training_s - training_s(live, now)), expected=True)


def _step_of(run: Run) -> int:
    """The step from which it goes on."""
    pulse = live_pulse(run)
    if pulse is not None and pulse.step is not None:
        return pulse.step
    last = run.pulse.checkpoint_step if run.pulse is not None else None
    return max(step or 0 for step in (run.files.checkpoint_step, last))


def changeover_s(run: Run, provider: str) -> float | None:
    """From the request of a machine there to its training, with the restore, and the last save on the one before. None
    = no attempt there has trained yet."""
    live = run.live_attempt
    start_s = run.chain.starts_s.get(provider)
    if live is not None and live.training_at is not None and live.placement.provider == provider:
        start_s = max(0.0, live.training_at - live.requested_at - live.drift_s)
    if start_s is None:
        return None
    return start_s + _save_s(run)


def _save_s(run: Run) -> float:
    """The longest time of a save that was measured; 0 = none was."""
    pulse = live_pulse(run)
    return (pulse.save_s if pulse is not None and pulse.save_s is not None else run.files.checkpoint_s) or 0.0


def forecast(run: Run, lent: Lent, now: float) -> Forecast:
    """Of a run that goes on there alone, and alone uses its hours."""
    work, change_s = work_of(run, lent.provider, now), changeover_s(run, lent.provider)
    if work.left_s is None:
        return Forecast(lent, work, work.why, changeover_s=change_s)
    hours = _Hours.of(lent.quota, now)
    at, left_s = _after_present(run, lent, hours, now, left_s=work.left_s, change_s=change_s or 0.0)
    if left_s <= 0:
        return Forecast(lent, work, sessions=0, ends_at=at, changeover_s=change_s)
    return _further(Forecast(lent, work, changeover_s=change_s), hours, at, left_s)


@dataclass
class _Hours:
    """The lent hours, as the forecast goes through the weeks. inf = they are not known, or there is no limit."""

    left_s: float
    week_s: float
    resets_at: float | None

    @classmethod
    def of(cls, quota: Quota | None, now: float) -> _Hours:
        if quota is None:
            return cls(inf, inf, None)
        week_s = inf if quota.week_h is None else quota.week_h * HOUR_S
        left_s = quota.left_s(now)
        hours = cls(inf if left_s is None else left_s, week_s, quota.resets_at)
        if quota.resets_at is not None and quota.resets_at <= now:
            hours.pass_to(now)
        return hours

    def use(self, begin: float, end: float) -> None:
        self.left_s -= end - begin
        if self.resets_at is not None and self.resets_at <= end:
            since = max(begin, self.resets_at)
            self.pass_to(end)
            self.left_s = self.week_s - (end - since)

    def pass_to(self, at: float) -> None:
        """Begin anew as often as a week has begun by then."""
        while self.resets_at is not None and self.resets_at <= at:
            self.left_s, self.resets_at = self.week_s, self.resets_at + WEEK_S


def _after_present(
    run: Run, lent: Lent, hours: _Hours, now: float, *, left_s: float, change_s: float
) -> tuple[float, float]:
    """(when the present session ends or the work in it does, what is left then). Without one: now, all."""
    live = run.live_attempt
    if live is None or live.placement.provider != lent.provider:
        return now, left_s
    starts_s = 0.0 if live.training_at is not None else max(0.0, change_s - (now - live.requested_at))
    length_s = max(0.0, min(lent.cap_s - (now - live.started_at), hours.left_s))
    save_s = _save_s(run)
    if starts_s + left_s + save_s <= length_s:
        return now + starts_s + left_s, 0.0
    hours.use(now, now + length_s)
    return now + length_s, left_s - max(0.0, length_s - starts_s - save_s)


def _further(begun: Forecast, hours: _Hours, at: float, left_s: float) -> Forecast:
    """The sessions one after the other."""
    lent, change_s, first_reset_at = begun.lent, begun.changeover_s or 0.0, hours.resets_at
    counts, sessions, in_time = hours.left_s < inf or hours.week_s < inf, 0, 0
    while sessions < MOST_SESSIONS:
        least_s = min(left_s, LEAST_SESSION_S)
        if hours.left_s - change_s < least_s:
            if hours.resets_at is None:
                return _without(begun, f"when the {_nouns(lent)} begin anew is not known")
            at = max(at, hours.resets_at)
            hours.pass_to(at)
        trains_s = min(lent.cap_s, hours.left_s) - change_s
        if trains_s < least_s:
            return _without(begun, f"a session there is shorter than its changeover of {age_text(change_s)}")
        sessions += 1
        in_time += first_reset_at is None or at < first_reset_at
        if left_s <= trains_s:
            ends_at = at + left_s + change_s
            limited = in_time if counts and first_reset_at is not None else None
            return Forecast(lent, begun.work, "", sessions, limited, ends_at, begun.changeover_s)
        hours.use(at, at + trains_s + change_s)
        at, left_s = at + trains_s + change_s, left_s - trains_s
    return _without(begun, f"it needs more than {MOST_SESSIONS} more sessions")


def _without(begun: Forecast, why: str) -> Forecast:
    return Forecast(begun.lent, begun.work, why, changeover_s=begun.changeover_s)


# --- in words ---------------------------------------------------------------------------------------------------------


def forecast_text(outlook: Forecast, now: float) -> str:
    """'Needs 4 more sessions of up to 8 h 30 min on lab; its GPU hours allow 3 before Sat 00:00 UTC; done on
    Tuesday, at 1.9 steps/s with 6 min between sessions'."""
    if outlook.ends_at is None or outlook.sessions is None:
        return f"Cannot say how many more sessions it needs on {outlook.lent.provider}: {outlook.why}"
    clauses = [_needs(outlook), _allowed(outlook, now), f"done {about_text(outlook.ends_at, now)}"]
    return "; ".join(filter(None, clauses)) + f" ({', '.join(_assumed(outlook, now))})"


def _needs(outlook: Forecast) -> str:
    if not outlook.sessions:
        return f"Needs no further session on {outlook.lent.provider}"
    cap_s = outlook.lent.cap_s
    length = f" of up to {age_text(cap_s)}" if isfinite(cap_s) else ""
    return f"Needs {plural(outlook.sessions, 'more session')}{length} on {outlook.lent.provider}"


def _allowed(outlook: Forecast, now: float) -> str:
    """What the hours allow before they begin anew; "" = they limit nothing."""
    quota = outlook.lent.quota
    if quota is None or outlook.in_time is None or not outlook.sessions:
        return ""
    if outlook.in_time >= outlook.sessions:
        return f"its {quota.noun} suffice"
    reset_at = _Hours.of(quota, now).resets_at
    return f"its {quota.noun} allow {outlook.in_time} before {day_text(reset_at or now, now)}"


def _assumed(outlook: Forecast, now: float) -> list[str]:
    quota, work = outlook.lent.quota, outlook.work
    texts = ["by the expected runtime" if work.expected or work.pace is None else f"at {rate_text(work.pace)}"]
    if outlook.changeover_s is None:
        texts.append("the changeover is not measured yet")
    elif outlook.sessions:
        texts.append(f"{age_text(outlook.changeover_s)} for each changeover")
    if quota is not None and quota.left_s(now) is None:
        texts.append(f"its {quota.noun} are not known now")
    return texts


def about_text(at: float, now: float) -> str:
    """'at about 14:30 UTC', 'on Tuesday': as exact as a forecast so far ahead can be."""
    ahead_s = at - now
    step_s = 300.0 if ahead_s < HOUR_S else 900.0 if ahead_s < 12 * HOUR_S else HOUR_S
    if ahead_s < 2 * 86_400.0:
        return f"at about {day_text(step_s * round(at / step_s), now)}"
    moment = datetime.fromtimestamp(at, UTC)
    return f"on {moment:%A}" if ahead_s < 6 * 86_400.0 else f"on about {moment:%Y-%m-%d}"


def used_up_text(quota: Quota, provider: str, now: float) -> str:
    """'GPU hours of lab are used up until Sat 00:00 UTC': absolute times, because the row keeps it."""
    left_s = quota.left_s(now)
    until = "a time that is not known" if quota.resets_at is None else day_text(quota.resets_at, now)
    if left_s:
        return (
            f"the {age_text(left_s)} of {quota.noun} that {provider} lends until {until} are too little for a session"
        )
    return f"{quota.noun} of {provider} are used up until {until}"


def _nouns(lent: Lent) -> str:
    return lent.quota.noun if lent.quota is not None else "hours"


# --- the forecast of a simulation -------------------------------------------------------------------------------------

Three = tuple[float, float, float]  # p10, p50, p90


def outlook_text(
    now: float,
    ends_at: Three,
    usd: Three | None,
    *,
    on_demand_usd: float | None,
    spent: bool = False,
    deadline: float | None = None,
    kept: float | None = None,
) -> str:
    """'about $12 (9 to 17), done Sat 14:00 UTC (12:30 to 18:10); on-demand would cost $41; the deadline Sun 08:00 UTC
    is kept in 97 of 100 futures'. `usd` None = not known. `spent`: it has cost something so far, which all sums
    contain. An end of inf = not within a year."""
    clauses = [f"{_about_usd(usd)}, {_done(ends_at, now)}"]
    if on_demand_usd is not None and usd is not None and usd[2] > 0:
        alone = "with the rest on-demand" if spent else "on-demand would cost"
        clauses.append(f"{alone} {_round_usd(on_demand_usd, usd[1])}")
    if deadline is not None and kept is not None:
        share = int(100 * kept + 1e-9)  # rounded down: 100 means each of them
        clauses.append(f"the deadline {day_text(deadline, now)} is kept in {share} of 100 futures")
    return "; ".join(clauses)


def _about_usd(usd: Three | None) -> str:
    if usd is None:
        return "cost not known"
    if usd[2] <= 0:
        return "no cost"
    low, middle, high = (_round_usd(each, usd[1]) for each in usd)
    return f"about {middle}" if low == high else f"about {middle} ({low.lstrip('$')} to {high.lstrip('$')})"


def _round_usd(usd: float, middle: float) -> str:
    """To the dollar where it is about ten or more: the rest would be false precision."""
    return money_text(usd) if middle < 9.995 else f"${usd:,.0f}"


def _done(ends_at: Three, now: float) -> str:
    if isinf(ends_at[1]):
        return "not done within a year in more than half of the futures"
    step_s = 60.0 if ends_at[1] - now < HOUR_S else 300.0
    low, middle, high = (at if isinf(at) else step_s * round(at / step_s) for at in ends_at)
    done = f"done {day_text(middle, now)}"
    if low == high:
        return done
    latest = "never" if isinf(high) else _beside(high, middle, now)
    return f"{done} ({_beside(low, middle, now)} to {latest})"


def _beside(at: float, middle: float, now: float) -> str:
    """'12:30' on the day of `middle`, else with its day."""
    same = datetime.fromtimestamp(at, UTC).date() == datetime.fromtimestamp(middle, UTC).date()
    return f"{datetime.fromtimestamp(at, UTC):%H:%M}" if same else day_text(at, now).removesuffix(" UTC")
