"""The profile in responses: of a provider, of a zone where it differs, in a plan, and of a run's own machine."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.machines import Offer, Placement
from supervisor.domain.profile import NO_LIMIT, Fact, Profile, Source, day_of
from supervisor.domain.status import Status
from supervisor.providers.ssh.presets import names, preset
from supervisor.services.plan.spec_view import show_spec
from supervisor.services.reading.health import LoopStatus
from supervisor.services.reading.offers import providers_json
from supervisor.services.reading.profiles import ProfileShown, profile_json, with_limit
from tests.fakes.clock import FakeClock
from tests.fakes.provider import FakeProvider
from tests.services.bed import COMMAND, Bed
from tests.services.declared import declared
from tests.services.plans import planned

CLOUD = FakeProvider(FakeClock(), name="gce").profile()


def shown(bed: Bed) -> dict[str, Any]:
    (provider,) = providers_json(bed.parts, LoopStatus())["providers"]
    return dict(provider)


def facts(profile: Any) -> dict[str, Any]:
    return {fact["name"]: fact for fact in profile["facts"]}


def texts(profile: Any) -> list[str]:
    return [clock["text"] for clock in profile["clocks"]]


def test_a_provider_shows_its_profile_at_the_price_of_its_first_offer(bed: Bed) -> None:
    bed.provider.shown_profile = CLOUD
    provider = shown(bed)
    profile = provider["profile"]
    assert (profile["kind"], profile["title"], profile["zone"]) == ("gce", "Google Cloud", None)
    assert profile["offer"] == "cpu spot in local-a"
    assert texts(profile)[0].startswith("Bills $0.10/h until the supervisor ends it (delete)")
    assert profile["clocks"][0]["usd_per_h"] == 0.10
    assert [place["profile"] for place in provider["places"]] == [None, None, None]


def test_each_value_has_its_source_and_its_day_and_unknown_is_null(bed: Bed) -> None:
    bed.provider.shown_profile = CLOUD
    profile = shown(bed)["profile"]
    grace = facts(profile)["kill_grace_s"]
    assert (grace["value"], grace["text"], grace["source"]) == (30.0, "30 s", "documented")
    assert grace["date"]
    assert "Spot VMs" in grace["note"]
    idle = facts(profile)["idle_cap_s"]
    assert (idle["value"], idle["text"], idle["source"], idle["date"]) == (None, "unknown", None, None)
    boot = profile["tiers"][0]
    assert (boot["name"], boot["survives"]["machine_destroy"]["value"]) == ("boot disk", "no")
    assert boot["inodes_cap"]["value"] is None
    assert "df -i" in boot["inodes_cap"]["note"]
    delete = profile["verbs"][0]
    assert (delete["verb"], delete["stops_meter"]["value"], delete["leaves"]) == ("delete", "yes", ["bucket"])


def test_a_zone_shows_its_own_profile_where_it_differs(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    general = bed.provider.profile()
    relayed = replace(general, store_reach=Fact("relay", Source.MEASURED, "2026-11-25", "tried from there"))
    monkeypatch.setattr(bed.provider, "profile", lambda zone="": relayed if zone == "local-b" else general)
    places = shown(bed)["places"]
    assert [place["profile"] is not None for place in places] == [False, True, False]
    profile = places[1]["profile"]
    assert (profile["zone"], profile["offer"]) == ("local-b", "cpu spot in local-b")
    assert facts(profile)["store_reach"]["source"] == "measured"


def test_the_dead_man_switch_is_the_limit_of_the_run(bed: Bed) -> None:
    bed.provider.shown_profile = CLOUD
    assert facts(shown(bed)["profile"])["dead_man_s"]["text"] == "24 h"
    bed.submit("digits-7", {**COMMAND, "limits": {"machine_max_s": 7200}})
    profile = show_spec(bed.parts, bed.services.queries, "digits-7")["profile"]
    assert profile is not None
    limit = facts(profile)["dead_man_s"]
    assert (limit["value"], limit["source"], limit["date"]) == (7200.0, "user", day_of(bed.clock.now()))
    assert limit["note"].startswith("machine_max_s of the run; ")
    assert texts(profile)[0].endswith("it ends by itself after 2 h at the latest.")


@pytest.mark.parametrize("dead_man_s", [Fact(), Fact(NO_LIMIT, Source.DOCUMENTED, "2026-11-26", "a page")])
def test_a_machine_without_a_dead_man_switch_gets_none(dead_man_s: Fact[float]) -> None:
    box = Profile("ssh", "A box", dead_man_s=dead_man_s)
    assert with_limit(box, Fact(86400.0, Source.USER, "2026-11-26", "the settings")) == box


@pytest.mark.parametrize(("limit_s", "shown_s"), [(86400.0, 43200.0), (7200.0, 7200.0)])
def test_a_session_ends_by_itself_at_its_cap_at_the_latest(limit_s: float, shown_s: float) -> None:
    cap = Fact(43200.0, Source.USER, "2026-11-26", "the cap")
    session = Profile("lent", "A session", session_cap_s=cap, dead_man_s=cap)
    limit = Fact(limit_s, Source.USER, "2026-11-26", "the settings")
    assert with_limit(session, limit).dead_man_s.value == shown_s


def test_a_run_shows_the_profile_of_the_machine_that_it_has(bed: Bed) -> None:
    bed.provider.shown_profile = CLOUD
    bed.submit("digits-7")
    waits = show_spec(bed.parts, bed.services.queries, "digits-7")["profile"]
    assert waits is not None
    assert (waits["zone"], waits["offer"]) == ("local-a", "cpu spot in local-a")
    bed.provider.offered = tuple(offer for offer in bed.provider.offered if offer.placement.zone != "local-a")
    bed.train("digits-7")
    has = show_spec(bed.parts, bed.services.queries, "digits-7")["profile"]
    assert has is not None
    assert has["zone"] == "local-b", "the offer of its machine is gone from the settings: the next one counts"


def test_a_run_that_no_offer_fits_has_no_profile(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.provider.offered = ()
    assert show_spec(bed.parts, bed.services.queries, "digits-7")["profile"] is None
    bed.end("digits-7", Status.STOPPED)
    assert show_spec(bed.parts, bed.services.queries, "digits-7")["profile"] is None


def test_a_plan_shows_the_profile_before_anything_is_rented(bed: Bed) -> None:
    bed.provider.shown_profile = CLOUD
    profile = planned(bed, "digits-7", {**COMMAND, "limits": {"machine_max_s": 3600}})["profile"]
    assert profile["offer"] == "cpu spot in local-a"
    assert texts(profile)[0].endswith("it ends by itself after 1 h at the latest.")
    assert not bed.provider.calls


def test_a_machine_at_the_on_demand_price_is_not_preempted() -> None:
    place = Placement("cloud", "r", "zone-a", "t4", False)
    profile = profile_json(CLOUD, Offer(place, 0.3, 0.3))
    assert facts(profile)["preemptible"]["value"] is False
    assert not [clock for clock in profile["clocks"] if clock["danger"] == "preempted"]
    spot = profile_json(CLOUD, Offer(replace(place, spot=True), 0.1, 0.3))
    assert [clock["danger"] for clock in spot["clocks"]][-1] == "preempted"


@pytest.mark.parametrize("name", names())
def test_every_preset_is_valid_json_of_the_declared_shape(name: str) -> None:
    profile = profile_json(preset(name), None)
    text = json.dumps(profile, allow_nan=False)
    declared(ProfileShown, json.loads(text))
    assert "Infinity" not in text
    assert profile["offer"] is None
    numbers = [clock["after_s"] for clock in profile["clocks"] if clock["after_s"] is not None]
    assert all(math.isfinite(number) for number in numbers)
