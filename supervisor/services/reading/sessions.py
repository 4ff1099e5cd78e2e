"""The sessions that a run still needs where a platform lends its machines for some hours, as the API shows them.

The figures are those of the rules (wording/sessions, lifecycle/offers/paying). The hours are the last reading of this
process: a replica that does not watch the run's cell reads none, and says that they are not known.
"""

from __future__ import annotations

from math import isfinite
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain.machines import Quota
from supervisor.domain.observation import World
from supervisor.domain.run import Run
from supervisor.domain.status import PLACING, Status
from supervisor.lifecycle.offers.ladder import pay_rule
from supervisor.lifecycle.offers.paying import lent_by
from supervisor.ports.provider import quotas_of
from supervisor.services.parts import Parts
from supervisor.services.views import formats
from supervisor.wording.sessions import Lent, forecast, forecast_text


class QuotaShown(TypedDict):
    """Hours that the platform lends in each week. `left_h` null: not known, which is not 0."""

    noun: str
    left_h: float | None
    resets_at: formats.Time | None
    week_h: float | None
    source: Annotated[str, Field(description="measured, documented or user")]
    read_at: formats.Time


class SessionsShown(TypedDict):
    """`needed`: how many more sessions on `provider`, after the present one; `in_time`: how many of them begin before
    its hours begin anew, null: nothing limits them. `ends_at`: the end of the work. All three are null where `why_not`
    says why. `changeover_s`: from the request of a machine to its training, and the last save; null: not measured yet.
    `paying`: whether a provider that takes money may be used now, and why; null: the run has none after a free one."""

    text: str
    provider: str
    session_cap_s: float | None
    needed: int | None
    in_time: int | None
    ends_at: formats.Time | None
    why_not: str | None
    changeover_s: float | None
    quota: QuotaShown | None
    paying: str | None


def sessions_json(parts: Parts, run: Run, now: float) -> SessionsShown | None:
    """None: the run is over or about to be, or none of its providers lends machines for a time."""
    world = lending_world(parts, run)
    goes_on = run.status in (*PLACING, Status.LAUNCHING, Status.RUNNING) and run.stop is None
    lent = _lent(run, world) if goes_on else None
    if lent is None:
        return None
    outlook, rule = forecast(run, lent, now), pay_rule(run, world, now)
    return {
        "text": forecast_text(outlook, now) + ("" if rule is None else f". {rule.text[:1].upper()}{rule.text[1:]}"),
        "provider": lent.provider,
        "session_cap_s": lent.cap_s if isfinite(lent.cap_s) else None,
        "needed": outlook.sessions,
        "in_time": outlook.in_time,
        "ends_at": formats.maybe_time(outlook.ends_at),
        "why_not": outlook.why or None,
        "changeover_s": None if outlook.changeover_s is None else round(outlook.changeover_s, 1),
        "quota": None if lent.quota is None else _quota(lent.quota, now),
        "paying": None if rule is None else rule.text,
    }


def lending_world(parts: Parts, run: Run) -> World:
    """Everything that decides what the run's providers lend: offers, hours, and the profiles of what costs nothing."""
    providers = {name: parts.providers[name] for name in run.providers if name in parts.providers}
    offers = {name: provider.offers() for name, provider in providers.items()}
    free = {(name, each.placement.zone) for name, own in offers.items() for each in own if each.price_usd_per_h == 0}
    return World(
        knobs=parts.knobs,
        offers=offers,
        quotas=quotas_of(providers),
        profiles={(name, zone): providers[name].profile(zone) for name, zone in free},
    )


def _lent(run: Run, world: World) -> Lent | None:
    """By the provider of its machine, else by the first one that lends."""
    live = run.live_attempt
    names = run.providers if live is None else (live.placement.provider,)
    return next((lent for name in names if (lent := lent_by(run, name, world))), None)


def _quota(quota: Quota, now: float) -> QuotaShown:
    left_s = quota.left_s(now)
    return {
        "noun": quota.noun,
        "left_h": None if left_s is None else round(left_s / 3600.0, 2),
        "resets_at": formats.maybe_time(quota.resets_at),
        "week_h": quota.week_h,
        "source": quota.source,
        "read_at": formats.time_text(quota.at),
    }
