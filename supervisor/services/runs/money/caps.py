"""Caps of a token: what its runs may spend, in a run and in a day.

Every start of a run for a token with a cap of money reserves the run's whole budget, in the transaction that writes the
run: spent in the last 24 hours, plus what active runs may still spend, plus this budget, is at most the cap. So no
window of 24 hours can cost more than the cap, whatever the runs do, and however many submits, processes and kills there
are. A budget that is raised later is reserved in the same way; a run that ends gives back what it has not spent.

So each such run needs a budget, the price of every machine that it may use must be known, and nothing may be billed
after the budget has ended the work. The token that starts a generation pays for it: a token with a cap cannot raise the
limits of a run that another one pays for, and whoever raises them stays within the caps of the payer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from supervisor.domain.callers import Caller, Caps, Token
from supervisor.domain.errors import Forbidden, OverDayCap, OverRunCap, PlanRequired, SpendUnbounded, UnknownPrice
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run
from supervisor.ports.store import Transaction
from supervisor.services.parts import Parts
from supervisor.services.runs.policy import Spec, policy_from, providers_of
from supervisor.wording.figures import money_text

MICRO = 1_000_000
BUDGET = "#/spec/limits/budget_usd"
STORED = "Nothing was stored."


@dataclass(frozen=True, slots=True)
class Charge:
    """What one generation of a run may spend for this token."""

    token_id: str
    caps: Caps
    most_micro: int


def capped_policy(spec: Spec, parts: Parts, now: float, caps: Caps, spent_usd: float = 0.0) -> Policy:
    """The policy of a generation within these caps; without a cap of money as `policy_from`. `spent_usd`: of the
    generations before it. A run without a budget gets what `usd_per_run` leaves. Raises what `policy_from` raises,
    SpendUnbounded, OverRunCap."""
    if not caps.of_money:
        return policy_from(spec, parts, now)
    _check_after_work(spec, parts)
    most_usd = None if caps.usd_per_run is None else caps.usd_per_run - spent_usd
    limits = dict(spec.get("limits", {}))
    given, default = limits.get("budget_usd"), parts.defaults.limits.budget_usd
    budget_usd = given if given is not None else _least(default, most_usd)
    if budget_usd is None:
        text = f"This token may spend {_text(caps)}, and nothing bounds what the run may cost. Add limits.budget_usd "
        text += f"(spot submit --budget USD). {STORED}"
        raise SpendUnbounded(text, _meta(caps), [(BUDGET, "is required for this token")])
    if most_usd is not None and (budget_usd > most_usd or most_usd <= 0):
        spent = f", and this one has cost {money_text(spent_usd)} before" if spent_usd else ""
        text = f"The budget of {money_text(budget_usd)} is too high: this token may spend "
        text += f"{money_text(caps.usd_per_run or 0.0)} a run{spent}. {STORED}"
        raise OverRunCap(text, {**_meta(caps), "budget_usd": budget_usd}, [(BUDGET, "is above the cap of the token")])
    try:
        return policy_from({**spec, "limits": {**limits, "budget_usd": budget_usd}}, parts, now)
    except UnknownPrice as error:
        text = f"This token may spend {_text(caps)}, so every price must be known. {error.detail}"
        raise SpendUnbounded(text, {**_meta(caps), **error.meta}, error.errors) from None


def charge_of(policy: Policy, caller: Caller) -> Charge | None:
    """For the generation that this caller starts; None: its token has no cap of money."""
    if not caller.caps.of_money or policy.limits.budget_usd is None:
        return None
    return Charge(caller.token_id, caller.caps, _micro(policy.limits.budget_usd))


def check_change(parts: Parts, run: Run, caller: Caller) -> Token | None:
    """The token that pays for this live run: its caps hold for the changed limits. None: no token with a cap does. A
    payer that retention has deleted had a cap, which nobody knows any more.
    Raises Forbidden, PlanRequired."""
    payer = parts.store.payer(run)
    if caller.caps.plans_only:
        text = f"This token starts runs with a plan only, and no plan covers a change of {run.run_id}. Nothing was "
        raise PlanRequired(text + "changed.", {"run_id": run.run_id})
    if caller.caps.of_money and payer != caller.token_id:
        text = f"This token has a cap, and another token pays for {run.run_id}: it may change its labels only. Nothing "
        raise Forbidden(text + "was changed.", {"run_id": run.run_id})
    token = parts.store.tokens.get(payer) if payer else None
    if payer and token is None:
        text = f"The token that pays for {run.run_id} was deleted, so nobody knows its caps. Nothing was changed: stop "
        raise Forbidden(f"{text}the run, and resume it with a token of yours.", {"run_id": run.run_id})
    return token


def charge_of_change(payer: Token | None, before: Policy, after: Policy) -> Charge | None:
    """`payer`: of `check_change`. None: no token with a cap pays for the run, or its budget stays."""
    budget_usd = after.limits.budget_usd
    if payer is None or budget_usd is None or budget_usd == before.limits.budget_usd:
        return None
    return Charge(payer.token_id, payer.caps, _micro(budget_usd))


def reserve(tx: Transaction, run: Run, charge: Charge, now: float) -> None:
    """In the transaction that has just written this run: the last one of many at once finds the cap full. A budget that
    is lowered gives nothing back before the run has ended: it may be spent already. Raises OverDayCap."""
    cap, before_micro = charge.caps.usd_per_day, tx.allowance_micro(run)
    if charge.most_micro <= before_micro:
        return
    if cap is not None:
        refuse_above(tx.counted_micro(charge.token_id, now), charge.most_micro - before_micro, cap)
    tx.allow(run, charge.token_id, charge.most_micro, now)


def refuse_above(counted_micro: int, more_micro: int, usd_per_day: float) -> None:
    """Raises OverDayCap."""
    if counted_micro + more_micro <= round(usd_per_day * MICRO):
        return
    counted_usd, more_usd = counted_micro / MICRO, more_micro / MICRO
    wait = "" if more_usd > usd_per_day else ", or wait until a run ends"
    text = (
        f"This token may spend {money_text(usd_per_day)} in 24 hours. Its runs have spent, or may still spend, "
        f"{money_text(counted_usd)} of that, and this request may spend {money_text(more_usd)} more. Nothing was "
        f"started: lower limits.budget_usd{wait}."
    )
    meta: dict[str, Any] = {"max_usd_per_day": usd_per_day, "counted_usd": counted_usd, "more_usd": more_usd}
    raise OverDayCap(text, meta, [(BUDGET, "is above what is left of the day")])


def _check_after_work(spec: Spec, parts: Parts) -> None:
    """A budget ends the work. What is billed after it has no bound. Raises SpendUnbounded."""
    keeps = [name for name in ("on_success", "on_failure") if spec.get(name, "release") != "release"]
    keeps += [name for name in ("keep", "require_pull") if spec.get(name) not in (None, False)]
    if keeps:
        text = f"This token has a cap, and {', '.join(keeps)} keeps a machine that no budget ends. Leave it out. "
        raise SpendUnbounded(text + STORED, {}, [(f"#/spec/{name}", "keeps a billed machine") for name in keeps])
    for name in providers_of(spec, parts):
        provider = parts.providers.get(name)
        if provider is not None and (provider.traits.irreplaceable or provider.meters is not None):
            text = f"This token has a cap, and machines of {name} are billed until a person ends that. Use another "
            raise SpendUnbounded(f"{text}provider. {STORED}", {}, [("#/spec/provider", "has no end of its bill")])


def _least(*amounts: float | None) -> float | None:
    return min((amount for amount in amounts if amount is not None), default=None)


def _text(caps: Caps) -> str:
    parts = [(caps.usd_per_run, "a run"), (caps.usd_per_day, "in 24 hours")]
    return " and ".join(f"{money_text(usd)} {each}" for usd, each in parts if usd is not None)


def _meta(caps: Caps) -> dict[str, Any]:
    return {"max_usd_per_run": caps.usd_per_run, "max_usd_per_day": caps.usd_per_day}


def _micro(usd: float) -> int:
    return math.ceil(usd * MICRO - 1e-6)
