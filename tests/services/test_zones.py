"""What was learned of zones, as it is told: from the database alone, and of nobody else's machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.callers import LOCAL, Caller, Scope
from supervisor.domain.machines import Away, ZoneRecord, offer_key
from supervisor.domain.status import Status
from supervisor.services.reading.health import LoopStatus
from supervisor.services.reading.offers import zones_json
from supervisor.services.views import formats
from supervisor.services.views.formats import Json
from tests.services.bed import Bed

OTHER = Caller(owner="other", scopes=frozenset({Scope.READ}))


def told(bed: Bed, caller: Caller = LOCAL, loop: LoopStatus = LoopStatus()) -> dict[str, Json]:  # noqa: B008
    return {one["zone"]: one for one in zones_json(bed.parts, caller, loop)["zones"] if one["spot"]}


def learn(bed: Bed, zone: str, record: ZoneRecord) -> None:
    bed.store.put_zone("local cell", ("local", zone, "cpu", True), record)


def test_what_nobody_has_asked_for_is_told_as_unknown(any_bed: Bed) -> None:
    found = told(any_bed)
    assert list(found) == ["local-a", "local-b", "local-c"]
    assert found["local-a"] | {"price_usd_per_h": None} == {
        "provider": "local",
        "region": found["local-a"]["region"],
        "zone": "local-a",
        "shape": "cpu",
        "gpu": None,
        "spot": True,
        "market": "spot",
        "price_usd_per_h": None,
        "state": "unknown",
        "machines": 0,
        "failures": 0,
        "cause": None,
        "detail": None,
        "cool_until": None,
        "last_stock_out_at": None,
        "preemptions": 0,
        "lives": 0,
        "lives_lost": 0,
        "returns_after_s": None,
        "last_preemption_at": None,
        "no_contact_since": None,
    }


def test_a_zone_that_cannot_be_read_says_since_when_and_why(any_bed: Bed) -> None:
    now = any_bed.clock.now()
    learn(any_bed, "local-a", ZoneRecord(2, now + 300, "no_capacity", "the zone is full", (), now))
    away = {
        ("local", "local-a"): Away("local-a", now - 60, "no route to host"),
        ("far", "local-b"): Away("b", now, "x"),
    }
    found = told(any_bed, loop=LoopStatus(away=away))
    zone = found["local-a"]
    assert (zone["state"], zone["cause"], zone["detail"]) == ("no_contact", None, "no route to host")
    assert zone["no_contact_since"] == formats.time_text(now - 60)
    assert found["local-b"]["state"] == "unknown", "another provider's zone of the same name"


def test_refusals_pauses_and_losses(any_bed: Bed) -> None:
    now = any_bed.clock.now()
    learn(any_bed, "local-a", ZoneRecord(2, now + 300, "no_capacity", "the zone is full", (), now))
    learn(any_bed, "local-b", ZoneRecord(0, 0.0, "", "", (now - 90_000, now - 60, now - 30)))
    found = told(any_bed)
    assert (found["local-a"]["state"], found["local-a"]["detail"]) == ("cooling", "the zone is full")
    assert found["local-a"]["failures"] == 2
    assert found["local-a"]["cool_until"] is not None
    assert found["local-a"]["last_stock_out_at"] == formats.time_text(now)
    assert (found["local-b"]["state"], found["local-b"]["preemptions"]) == ("good", 2)
    any_bed.clock.advance(301)
    assert (told(any_bed)["local-a"]["state"], told(any_bed)["local-a"]["cool_until"]) == ("refused", None)


def test_a_pause_from_before_the_clock_was_set_back_is_over(bed: Bed) -> None:
    learn(bed, "local-a", ZoneRecord(1, bed.clock.now() + 1e6, "quota", "none left"))
    assert told(bed)["local-a"]["state"] == "refused"


def test_machines_are_counted_where_they_are_and_for_whom(any_bed: Bed) -> None:
    for name in ("a-1", "a-2", "a-3"):
        any_bed.submit(name)
        any_bed.train(name)
    attempt = any_bed.run("a-3").attempt
    assert attempt is not None
    gone = replace(attempt, gone_at=1.0)
    any_bed.change("a-3", status=Status.RECOVERING, attempt=gone)
    assert {zone: one["machines"] for zone, one in told(any_bed).items()} == {"local-a": 2, "local-b": 0, "local-c": 0}
    assert told(any_bed)["local-a"]["state"] == "good"
    assert told(any_bed, OTHER)["local-a"]["machines"] == 0
    any_bed.change("a-1", status=Status.STOPPED, settled=True)
    assert told(any_bed)["local-a"]["machines"] == 1
    last = any_bed.run("a-2").attempt
    assert last is not None
    flex = replace(last, placement=replace(last.placement, spot=False, flex=True))
    any_bed.change("a-2", attempt=flex)
    assert any_bed.store.machines("local cell", None) == {offer_key(flex.placement): 1}, "of flex-start, not on-demand"


def test_the_cloud_is_not_asked(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bed.provider, "machines", lambda: pytest.fail("the cloud was asked"))
    assert told(bed)
