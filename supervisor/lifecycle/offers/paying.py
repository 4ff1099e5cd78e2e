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
UNKNOWN_SHARE = 0.5  # of the time until the deadline, for the lender, while the work that is left is not known


@dataclass(frozen=True, slots=True)
class Ruling:
    """`payees`: the providers that the rule is about. `pays`: they come first now; else they are left out. `why`: one
    clause with the figures. `may_pay`: a deadline may need them later."""

    payees: frozenset[str]
    pays: bool
    why: str
    may_pay: bool = False

    @property
    def text(self) -> str:
        """'gce is not paid for, because …', or '… is paid for, …'."""
        names = ", ".join(sorted(self.payees))
        return f"{names} is {'' if self.pays else 'not '}paid for, because {self.why}"


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
    pays, why = _needs(run, lent, now, now + world.wall_ahead_s)
    return Ruling(payees, pays, why, may_pay=run.policy.limits.deadline is not None)


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


def _needs(run: Run, lent: Lent, now: float, wall: float) -> tuple[bool, str]:
    """Whether the deadline needs a paid machine now, and why. A deadline is a time of the wall clock."""
    deadline = run.policy.limits.deadline
    if deadline is None:
        return False, "without a deadline nothing is paid"
    until = day_text(deadline, wall)
    found = forecast(run, lent, now)
    if found.ends_at is None:
        return _unforeseen(run, found, deadline, wall)
    reserve_s = (CHANGEOVER_S if found.changeover_s is None else found.changeover_s) + leaving_s(run)
    ends_at = found.ends_at - now + wall
    work = age_text(found.work.left_s or 0.0)
    ends = f"the {work} of training that are left would be done there {about_text(ends_at, wall)}"
    reserve = f"with {age_text(reserve_s)} of reserve"
    if ends_at + reserve_s > deadline:
        return True, f"{lent.provider} alone would miss the deadline {until}: {ends}, {reserve}"
    return False, f"{lent.provider} alone keeps the deadline {until}: {ends}, {reserve}"


def _unforeseen(run: Run, found: Forecast, deadline: float, wall: float) -> tuple[bool, str]:
    """The lent hours may never come again, or the work that is left is not known."""
    if found.work.left_s is not None:
        change_s = CHANGEOVER_S if found.changeover_s is None else found.changeover_s
        turn_at = deadline - found.work.left_s - 2.0 * change_s - leaving_s(run)
        left = f"{age_text(found.work.left_s)} of training are left until the deadline {day_text(deadline, wall)}"
        return wall >= turn_at, f"{found.why}, and {left}"
    turn_at = run.generation_at + UNKNOWN_SHARE * (deadline - run.generation_at)
    unknown = f"nobody knows how much is left ({found.why})"
    if wall >= turn_at:
        return True, f"{unknown}, and half of the time until the deadline {day_text(deadline, wall)} is over"
    return False, f"{unknown}, and {found.lent.provider} has half of the time until the deadline: until " + day_text(
        turn_at, wall
    )


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
