"""A token that is bound to plans: one plan, one start, of the same request, at its prices at most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.callers import Caller
from supervisor.domain.errors import PlanPriceAbove, PlanRefused, PlanRequired, SpotError
from supervisor.domain.policies import Limits
from supervisor.services.plan.plan import PlanSources, plan
from supervisor.services.runs import changing
from supervisor.services.runs.altering import alter
from supervisor.services.runs.money import plans
from supervisor.services.runs.resume import ResumeRequest, resume
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.fakes.callers import MEMBER
from tests.services.bed import COMMAND, Bed
from tests.services.caps_sessions import ended, payer, spec

SOURCES = PlanSources(lambda: (), lambda run, try_, shown: {})
REQUEST = SubmitRequest(spec(2.0), "one")


@pytest.fixture
def bound(bed: Bed) -> Caller:
    return payer(bed, plans_only=True)


def plan_id(bed: Bed, caller: Caller, request: SubmitRequest = REQUEST) -> str:
    shown = plan(bed.parts, SOURCES, request, caller)
    assert shown["plan_id"] is not None
    return shown["plan_id"]


def started(bed: Bed, caller: Caller, request: SubmitRequest, shown_id: str | None) -> bool:
    return submit(bed.parts, replace(request, plan_id=shown_id), caller).status == 201


def raise_prices(bed: Bed, usd_per_h: float | None, places: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
    dear = {offer.placement for offer in places(bed.provider.offered)}
    bed.provider.offered = tuple(
        replace(offer, price_usd_per_h=usd_per_h) if offer.placement in dear else offer
        for offer in bed.provider.offered
    )


def test_it_starts_with_a_plan_once(bed: Bed, bound: Caller) -> None:
    with pytest.raises(PlanRequired, match="--dry-run"):
        started(bed, bound, REQUEST, None)
    shown_id = plan_id(bed, bound)
    assert started(bed, bound, REQUEST, shown_id)
    assert not started(bed, bound, REQUEST, shown_id)  # the run is live: nothing starts
    ended(bed, "one", 0.5)
    with pytest.raises(PlanRefused, match="has started a run before"):
        started(bed, bound, REQUEST, shown_id)
    assert bed.run("one").generation == 1
    again = plan_id(bed, bound)
    assert not started(bed, bound, REQUEST, again)
    assert bed.run("one").generation == 2


def test_of_many_at_once_one_starts(any_bed: Bed) -> None:
    caller, request = payer(any_bed, plans_only=True), SubmitRequest(spec(2.0))
    shown_id = plan_id(any_bed, caller, request)

    def start(number: int) -> bool:
        try:
            return started(any_bed, caller, request, shown_id)
        except PlanRefused:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(start, range(16))) == 1


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, spec=spec(2.5)),
        replace(REQUEST, spec={**spec(2.0), "zones": ["local-b"]}),
        replace(REQUEST, spec={**spec(2.0), "command": ["rm", "-r"]}),
        replace(REQUEST, run_id="two"),
        replace(REQUEST, run_id=None),
        replace(REQUEST, rerun=True),
    ],
)
def test_another_request_is_refused(bed: Bed, bound: Caller, other: SubmitRequest) -> None:
    with pytest.raises(PlanRefused, match="another request"):
        started(bed, bound, other, plan_id(bed, bound))
    assert started(bed, bound, REQUEST, plan_id(bed, bound))  # a refusal uses nothing up


def test_a_budget_that_the_settings_have_changed_is_another_request(bed: Bed, bound: Caller) -> None:
    """Broken variant: the spec alone was compared, which names no budget."""
    bed.parts = replace(bed.parts, defaults=replace(bed.parts.defaults, limits=Limits(budget_usd=2.0)))
    request = SubmitRequest(COMMAND, "one")
    shown_id = plan_id(bed, bound, request)
    bed.parts = replace(bed.parts, defaults=replace(bed.parts.defaults, limits=Limits(budget_usd=200.0)))
    with pytest.raises(PlanRefused, match="another request"):
        started(bed, bound, request, shown_id)


def test_another_token_an_old_plan_and_a_made_up_one_are_refused(bed: Bed, bound: Caller) -> None:
    shown_id, other = plan_id(bed, bound), payer(bed, 2, plans_only=True)
    changed = shown_id[:-1] + ("A" if shown_id[-1] != "A" else "B")
    for caller, wrong in (
        (other, shown_id),
        (bound, changed),
        (bound, "plan_" + "A" * 60),
        (bound, "plan_" + "!" * 60),
    ):
        with pytest.raises(PlanRefused, match="no plan that this token"):
            started(bed, caller, REQUEST, wrong)
    bed.clock.advance(plans.VALID_S + 1)
    with pytest.raises(PlanRefused, match="valid until"):
        started(bed, bound, REQUEST, shown_id)
    assert bed.store.find("one") is None


def test_a_higher_price_is_refused_and_a_lower_one_is_not(bed: Bed, bound: Caller) -> None:
    """Also of the last place that the run may use."""
    shown_id = plan_id(bed, bound)
    raise_prices(bed, 0.01, lambda offers: offers[:1])
    assert started(bed, bound, REQUEST, shown_id)
    other = SubmitRequest(COMMAND, "two")
    shown_id = plan_id(bed, bound, other)
    spots = [offer for offer in bed.provider.offered if offer.placement.spot]
    for price in (99.0, None):
        raise_prices(bed, price, lambda offers: spots[-1:])
        with pytest.raises(PlanPriceAbove):
            started(bed, bound, other, shown_id)
    assert bed.store.find("two") is None


def test_there_is_no_other_way_to_start_or_to_raise(bed: Bed, bound: Caller) -> None:
    assert started(bed, bound, REQUEST, plan_id(bed, bound))
    for patch in ({"limits": {"budget_usd": 9.0}}, {"zones": ["local-b"]}, {"limits": {"max_attempts": 90}}):
        with pytest.raises(PlanRequired):
            alter(bed.parts, "one", patch, None, bound)
    alter(bed.parts, "one", {"labels": {"team": "vision"}}, None, bound)
    ended(bed, "one", 0.5)
    with pytest.raises(PlanRequired):
        resume(bed.parts, "one", ResumeRequest(bound))
    assert bed.run("one").generation == 1


def test_a_free_token_may_send_one_too_and_a_live_run_has_none(bed: Bed) -> None:
    assert started(bed, MEMBER, REQUEST, plan_id(bed, MEMBER))
    assert plan(bed.parts, SOURCES, REQUEST, MEMBER)["plan_id"] is None
    with pytest.raises(PlanRefused):
        started(bed, MEMBER, SubmitRequest(spec(2.0), "two"), plan_id(bed, MEMBER, replace(REQUEST, run_id="three")))


def test_a_plan_that_is_not_used_up_starts_twice(bed: Bed, bound: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant."""
    monkeypatch.setattr(changing, "use_up", lambda *_: None)
    request = SubmitRequest(spec(2.0))
    shown_id = plan_id(bed, bound, request)
    assert [started(bed, bound, request, shown_id) for _ in range(2)] == [True, True]
    monkeypatch.undo()
    shown_id = plan_id(bed, bound, request)
    assert started(bed, bound, request, shown_id)
    with pytest.raises(SpotError):
        started(bed, bound, request, shown_id)
