"""The ladder from free sessions to paid machines: `providers: [free, paid]` pays only when the deadline needs it.

A platform that lends its machines for some hours and takes no money is a lender; a provider after it in `providers`
that takes money is a payee. Nothing is paid while the lender alone keeps the deadline: the forecast of its sessions
(wording/sessions), with one changeover of reserve and the time that is kept for leaving, ends before it. The next
machine is a paid one as soon as that is not true any more, also because the lent hours end before. Without a deadline
nothing is ever paid. `escalate.pay: always` says otherwise, and so does a rule of `escalate` that moves the run to the
next provider; then the ladder is as usual.

While nothing tells how much work is left, nobody can say what the deadline needs. Then the lender has the first half
of the time between the beginning of the generation and the deadline, and the payee the second.

This is judged for each placement. A session is never left for a paid machine: it trains as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from supervisor.domain.machines import Offer, Placement
from supervisor.domain.observation import World
from supervisor.domain.policies import PAY_ALWAYS
from supervisor.domain.profile import NO_LIMIT
from supervisor.domain.run import Run
from supervisor.lifecycle.gates.audit import least_session_s
from supervisor.lifecycle.gates.places import restore_s
from supervisor.wording.figures import age_text, day_text
from supervisor.wording.forecast import leaving_s
from supervisor.wording.sessions import LEAST_SESSION_S, Forecast, Lent, about_text, changeover_s, forecast

CHANGEOVER_S = 600.0  # where none was measured
SOON_S = 0.5  # after the last moment that is early enough
UNKNOWN_SHARE = 0.5  # of the time until the deadline, for the lender, while the work that is left is not known


@dataclass(frozen=True, slots=True)
class Ruling:
    """`payees`: the providers that the rule is about. `pays`: they come first now; else they are left out. `why`: one
    clause with the figures. `turns_at`: when the deadline would need them, if nothing is obtained until then; None =
    never."""

    payees: frozenset[str]
    pays: bool
    why: str
    turns_at: float | None = None

    @property
    def text(self) -> str:
        """'it does not pay for NAME, because …', or 'it pays for NAME, …'."""
        return f"it {'pays' if self.pays else 'does not pay'} for {', '.join(sorted(self.payees))}, because {self.why}"


def ruling(run: Run, world: World, now: float) -> Ruling | None:
    """None: the run has no such ladder."""
    if len(run.providers) < 2 or run.policy.pay == PAY_ALWAYS:
        return None
    lender = next(((name, lent) for name in run.providers if (lent := lent_by(run, name, world))), None)
    if lender is None:
        return None
    name, lent = lender
    later = run.providers[run.providers.index(name) + 1 :]
    payees = frozenset(each for each in later if _takes_money(each, world))
    if not payees:
        return None
    turn = _turn(run, lent, now, world.wall_ahead_s)
    return Ruling(payees, turn.at is not None and turn.at <= now, turn.why, turn.at)


def lent_by(run: Run, provider: str, world: World) -> Lent | None:
    """What this provider lends to the run; None = its machines cost money, or have no limit of time."""
    for offer in _free_offers(run, provider, world):
        place = offer.placement
        profile, quota = world.profile_of(place), world.quota_of(place)
        cap_s = None if profile is None else profile.session_cap_s.value
        if quota is not None or cap_s not in (None, NO_LIMIT):
            return Lent(provider, min(cap_s or inf, run.policy.limits.machine_max_s), quota)
    return None


def _free_offers(run: Run, provider: str, world: World) -> Iterator[Offer]:
    """In the run's own order of shapes, as far as it names those of this provider."""
    free = [offer for offer in world.offers.get(provider, ()) if offer.price_usd_per_h == 0]
    named = [offer for shape in run.policy.shapes for offer in free if offer.placement.shape == shape]
    yield from named or free


def _takes_money(provider: str, world: World) -> bool:
    """An unknown price counts as money."""
    return any(offer.price_usd_per_h != 0 for offer in world.offers.get(provider, ()))


class _Turn(NamedTuple):
    """When the deadline needs a paid machine, and why; None = never."""

    at: float | None
    why: str


def _turn(run: Run, lent: Lent, now: float, wall_ahead_s: float) -> _Turn:
    """A deadline is a time of the wall clock."""
    if run.policy.limits.deadline is None:
        return _Turn(None, "without a deadline nothing is paid")
    deadline = run.policy.limits.deadline - wall_ahead_s
    until, outlook = day_text(deadline, now), forecast(run, lent, now)
    if outlook.work.left_s is None:
        return _halfway(run, outlook, deadline, now)
    change_s = CHANGEOVER_S if outlook.changeover_s is None else outlook.changeover_s
    reserve_s = change_s + leaving_s(run)
    left, reserve = age_text(outlook.work.left_s), f"with {age_text(reserve_s)} of reserve"
    if outlook.ends_at is None:  # the lender cannot end it: the payee needs its own start, and the work
        at = deadline - reserve_s - change_s - outlook.work.left_s
        return _Turn(at, f"{outlook.why}, and {left} of training are left until the deadline {until}")
    slack_s = deadline - reserve_s - outlook.ends_at
    keeps = "keeps" if slack_s >= 0 else "would miss"
    ends = f"the {left} of training that are left would be done there {about_text(outlook.ends_at, now)}"
    return _Turn(now + slack_s + SOON_S, f"{lent.provider} alone {keeps} the deadline {until}: {ends}, {reserve}")


def _halfway(run: Run, outlook: Forecast, deadline: float, now: float) -> _Turn:
    at = run.generation_at + UNKNOWN_SHARE * (deadline - run.generation_at)
    unknown = f"nobody knows how much is left ({outlook.why})"
    if now >= at:
        return _Turn(at, f"{unknown}, and half of the time until the deadline {day_text(deadline, now)} is over")
    half = f"{outlook.lent.provider} has half of the time until the deadline"
    return _Turn(at, f"{unknown}, and {half}: until {day_text(at, now)}")


# --- sessions that would be too short ---------------------------------------------------------------------------------


def least_s(run: Run, provider: str) -> float:
    """The shortest session that is worth its start: a restore and three checkpoints, as gate G0 requires it of a time
    limit, and not less than the start that was measured."""
    every_s = run.policy.expect_checkpoint_every_s or 0.0
    needed_s = least_session_s(restore_s(run) or 0.0, every_s)
    return max(needed_s, 2.0 * (changeover_s(run, provider) or 0.0), LEAST_SESSION_S)


def is_spent(run: Run, place: Placement, world: World, now: float) -> bool:
    """The platform's hours that are left are too few for a session. Hours that are not known are not spent: the
    platform itself refuses then."""
    quota = world.quota_of(place)
    left_s = None if quota is None else quota.left_s(now)
    return left_s is not None and left_s < least_s(run, place.provider)
