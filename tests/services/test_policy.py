"""From spec to policy: defaults from the settings, contradictions with both numbers, unknown names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.errors import InvalidRequest, InvalidTimeouts, UnknownPrice
from supervisor.domain.machines import Offer, Placement
from supervisor.domain.policies import Limits, MetricRule, ResultRule, StallLimits
from supervisor.providers.gce import traits as gce
from supervisor.providers.local import traits as local
from supervisor.services.parts import Defaults
from supervisor.services.runs.policy import policy_from, warnings_of
from tests.services.bed import COMMAND, Bed


def policy(bed: Bed, **spec: Any) -> Any:
    return policy_from({**COMMAND, **spec}, bed.parts, bed.clock.now())


def test_missing_fields_come_from_the_settings(bed: Bed) -> None:
    bed.parts = replace(
        bed.parts, defaults=Defaults(Limits(max_attempts=4), StallLimits(polls=7, silence_s=600.0), 33.0)
    )
    found = policy(bed)
    assert (found.limits.max_attempts, found.stall.polls, found.stop_grace_s) == (4, 7, 33.0)
    found = policy(bed, limits={"max_attempts": 2}, stall={"polls": 3}, stop_grace_s=0.0)
    assert (found.limits.max_attempts, found.stall.polls, found.stall.silence_s, found.stop_grace_s) == (
        2,
        3,
        600.0,
        0.0,
    )


def test_every_field_arrives(bed: Bed) -> None:
    found = policy(
        bed,
        zones=["local-b"],
        shapes=["cpu"],
        spot=False,
        results=[{"path": "*.pt"}, {"path": "log", "min_count": 2}],
        expect_runtime_s=60.0,
        limits={"deadline": "2027-01-15T09:00:00Z", "budget_usd": 5.0},
        on_success="ask",
        on_failure="keep",
        keep_s=60.0,
    )
    assert (found.zones, found.shapes, found.spot) == (("local-b",), ("cpu",), False)
    assert found.results == (ResultRule("*.pt"), ResultRule("log", 2))
    assert found.limits.deadline == bed.clock.now() + 3600
    assert (found.on_success, found.on_failure, found.keep_s, found.expect_runtime_s) == ("ask", "keep", 60.0, 60.0)


def test_kept_machines_have_an_end(bed: Bed) -> None:
    assert policy(bed).keep_s == 0.0
    assert policy(bed, on_success="keep").keep_s == 3600.0


def test_the_watch_over_hangs_can_be_set(bed: Bed) -> None:
    assert (policy(bed).stall.hang, policy(bed).stall.quiet_s) == (True, 1800.0)
    found = policy(bed, stall={"hang": False, "quiet_s": 7200.0}).stall
    assert (found.hang, found.quiet_s) == (False, 7200.0)


def test_metrics_can_be_watched(bed: Bed) -> None:
    assert policy(bed).watch == ()
    watched = policy(bed, watch={"loss": {"nan": "alert"}, "kl": {"nan": "alert", "spike": "alert"}}).watch
    assert watched == (MetricRule("loss", "alert"), MetricRule("kl", "alert", "alert"))
    assert policy(bed, watch={"loss": {"nan": "stop"}}).watch == (MetricRule("loss", "stop"),)


def test_a_silence_limit_shorter_than_three_beats_is_refused_with_both_numbers(bed: Bed) -> None:
    with pytest.raises(InvalidTimeouts, match=r"179 .*180"):
        policy(bed, stall={"silence_s": 179.0})
    assert policy(bed, stall={"silence_s": 180.0}).stall.silence_s == 180.0


def test_a_boot_limit_must_hold_the_wait_for_the_gpu_where_there_is_one(bed: Bed) -> None:
    assert policy(bed, stall={"boot_timeout_s": 600.0}).stall.boot_timeout_s == 600.0, "no GPU on this computer"
    bed.parts = replace(bed.parts, defaults=Defaults(gpu_timeout_s={"local": 1200.0}))
    with pytest.raises(InvalidTimeouts, match=r"600 .*1500"):
        policy(bed, stall={"boot_timeout_s": 600.0})


def test_a_deadline_in_the_past_is_refused(bed: Bed) -> None:
    with pytest.raises(InvalidRequest, match="10 s ago"):
        policy(bed, limits={"deadline": "2027-01-15T07:59:50Z"})


@pytest.mark.parametrize(
    ("spec", "pointer", "hint"),
    [
        ({"zones": ["local-a", "lokal-b"]}, "#/spec/zones/1", "did you mean local-b?"),
        ({"shapes": ["gpu"]}, "#/spec/shapes/0", "Known: cpu"),
        ({"provider": "gce"}, "#/spec/provider", "Known: local"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(
    bed: Bed, spec: dict[str, Any], pointer: str, hint: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        policy(bed, **spec)
    assert refused.value.errors[0][0] == pointer
    assert hint in refused.value.detail
    assert "lokal" not in refused.value.detail, "the sent value is not repeated"


def unpriced(bed: Bed) -> None:
    bed.provider.offered = (
        *bed.provider.offered,
        Offer(Placement("local", "local", "local-a", "big", True), None, None),
        Offer(Placement("local", "local", "local-a", "big", False), 1.0, 1.0),
    )


def test_a_budget_needs_a_price_for_every_placement(bed: Bed) -> None:
    unpriced(bed)
    assert policy(bed, limits={"budget_usd": 5.0}).limits.budget_usd == 5.0, "the first shape has a price"
    with pytest.raises(UnknownPrice, match="big in local-a"):
        policy(bed, shapes=["cpu", "big"], limits={"budget_usd": 5.0})
    assert policy(bed, shapes=["big"], spot=False, limits={"budget_usd": 5.0}).limits.budget_usd == 5.0
    assert policy(bed, shapes=["big"]).shapes == ("big",), "without a budget no price is needed"


def test_a_spec_that_no_offer_can_meet_is_refused(bed: Bed) -> None:
    bed.provider.offered = tuple(offer for offer in bed.provider.offered if offer.placement.spot)
    with pytest.raises(InvalidRequest, match="on-demand"):
        policy(bed, spot=False)


def test_an_image_is_accepted_with_a_warning_where_it_has_no_effect() -> None:
    assert warnings_of({**COMMAND, "image": "a:b"}, local.TRAITS)
    assert not warnings_of(COMMAND, local.TRAITS)
    assert not warnings_of({**COMMAND, "image": "a:b"}, gce.TRAITS)


def test_the_earliest_end_without_on_demand_is_accepted_with_a_warning() -> None:
    wish = {**COMMAND, "optimize": "deadline"}
    (warning,) = warnings_of(wish, gce.TRAITS)
    assert "no effect without allow_on_demand" in warning
    assert not warnings_of({**wish, "allow_on_demand": True}, gce.TRAITS)
    assert not warnings_of({**wish, "spot": False}, gce.TRAITS)
    assert not warnings_of({**COMMAND, "optimize": "wait"}, gce.TRAITS)
