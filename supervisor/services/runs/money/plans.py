"""Plans that a token was shown: a token with `plans_only` starts a run with such a plan only.

A plan's id is signed, so nothing is stored when a plan is made: it says until when it is valid, which request it was
made for (as a digest), and the highest price of all machines that the run might use. The signature covers the token, so
no other token can use it. A submit uses its id up, in the transaction that writes the run: one plan, one start.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from supervisor.domain.callers import Caller
from supervisor.domain.errors import PlanPriceAbove, PlanRefused, PlanRequired
from supervisor.domain.run import Run
from supervisor.lifecycle.offers.ladder import bounds
from supervisor.ports.store import KeyHeld, Transaction
from supervisor.services.parts import Parts
from supervisor.services.runs.policy import usable_offers
from supervisor.wording.figures import age_text

VALID_S = 900.0
PREFIX = "plan_"
PATTERN = r"^plan_[A-Za-z0-9_-]{40,200}$"
SCOPE = "plans"  # of the keys by which a plan is used up
SIGNATURE_BYTES = 16
ADVICE = "Make a new plan with `spot submit --dry-run`, and submit with its --plan ID. Nothing was started."


@dataclass(frozen=True, slots=True)
class SignedPlan:
    plan_id: str
    expires_at: float


def sign(parts: Parts, wanted: Sequence[object], run: Run, caller: Caller, now: float) -> SignedPlan:
    """`wanted`: what the request says, as JSON values, with the spec as it is stored. `run`: as the submit would write
    it."""
    expires_at = float(math.ceil(now + VALID_S))
    facts = [int(expires_at), _digest(wanted, run), dearest_usd_per_h(run, parts), secrets.token_hex(6)]
    payload = json.dumps(facts, separators=(",", ":")).encode()
    return SignedPlan(PREFIX + _text(_signature(parts, caller, payload) + payload), expires_at)


def check_plan(
    parts: Parts, plan_id: str | None, wanted: Sequence[object], run: Run, *, caller: Caller, now: float
) -> None:
    """For the start of a run. Raises PlanRequired, PlanRefused, PlanPriceAbove."""
    if plan_id is None:
        refuse_unplanned(caller)
        return
    expires_at, digest, planned_usd = _read(parts, caller, plan_id)
    if now >= expires_at:
        raise PlanRefused(f"The plan was valid until {age_text(now - expires_at)} ago. {ADVICE}")
    if digest != _digest(wanted, run):
        text = "The plan was made for another request: its run id, spec or budget differs from this one. "
        raise PlanRefused(text + ADVICE, errors=[("#/plan_id", "is of another request")])
    now_usd = dearest_usd_per_h(run, parts)
    if planned_usd is not None and (now_usd is None or now_usd > planned_usd):
        price = "is not known any more" if now_usd is None else f"is ${now_usd:.4f}/h now"
        text = f"The highest price of the plan was ${planned_usd:.4f}/h, and it {price}. {ADVICE}"
        raise PlanPriceAbove(text, {"planned_usd_per_h": planned_usd, "usd_per_h": now_usd})


def dearest_usd_per_h(run: Run, parts: Parts) -> float | None:
    """The highest price of all machines that the run may use at some time, $/h. None = one is unknown."""
    offers = {name: parts.providers[name].offers() for name in run.providers if name in parts.providers}
    prices = [
        offer.price_usd_per_h
        for name, offered in offers.items()
        for offer in usable_offers(run.policy, offered, bounds(run.policy, name, offers))
    ]
    known_prices = [price for price in prices if price is not None]
    return max(known_prices) if known_prices and len(known_prices) == len(prices) else None


def refuse_unplanned(caller: Caller) -> None:
    """Raises PlanRequired."""
    if caller.caps.plans_only:
        text = (
            "This token starts a run only with a plan that it was shown. Make one with `spot submit --dry-run`, then "
        )
        raise PlanRequired(f"{text}submit the same with --plan ID. Nothing was started.")


def use_up(tx: Transaction, plan_id: str, now: float) -> None:
    """In the transaction that starts the run. Raises PlanRefused."""
    digest = hashlib.sha256(plan_id.encode()).hexdigest()
    try:
        unused = tx.take_key(SCOPE, digest, digest, now) is None
    except KeyHeld:
        unused = False
    if not unused:
        raise PlanRefused(f"The plan has started a run before. {ADVICE}", errors=[("#/plan_id", "is used up")])


def _digest(wanted: Sequence[object], run: Run) -> str:
    facts = [*wanted, run.policy.limits.budget_usd]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def _read(parts: Parts, caller: Caller, plan_id: str) -> tuple[float, str, float | None]:
    """(until when it is valid, of which request, its price). Raises PlanRefused."""
    try:
        text = plan_id.removeprefix(PREFIX)
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raw = b""
    signature, payload = raw[:SIGNATURE_BYTES], raw[SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, _signature(parts, caller, payload)):
        raise PlanRefused(f"This is no plan that this token was shown. {ADVICE}", errors=[("#/plan_id", "is unknown")])
    facts: list[Any] = json.loads(payload)
    return float(facts[0]), str(facts[1]), facts[2]


def _signature(parts: Parts, caller: Caller, payload: bytes) -> bytes:
    text = b"plan:" + (caller.token_id or caller.owner).encode() + b":" + payload
    return hmac.digest(bytes.fromhex(parts.store.secret), text, "sha256")[:SIGNATURE_BYTES]


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
