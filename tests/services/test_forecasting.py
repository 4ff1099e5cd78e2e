"""The forecast of a run: from which facts it is made, what it keeps to itself, and whether past ones held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.attempt import Chain, FirstForecast
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Call, offer_key
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.store import StoreDown
from supervisor.services.plan import forecasting
from supervisor.services.plan.forecasting import FirstForecasts
from supervisor.services.reading.health import Calibration, forecasts_held
from tests.services.bed import COMMAND, Bed, Client
from tests.services.plans import planned

HOUR_S = 3600.0
SPOT = {**COMMAND, "expect_runtime_s": 36_000}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few futures: these tests are about what goes in and what comes out."""
    real = forecasting.outlook
    monkeypatch.setattr(forecasting, "outlook", lambda course, draw, most=0: real(course, draw, 200))


def _shown(bed: Bed, run_id: str = "digits") -> dict[str, Any]:
    return dict(bed.services.forecasts.of(run_id))


def _assumed(shown: dict[str, Any], name: str) -> tuple[str, str]:
    (each,) = [each for each in shown["assumes"] if each["name"] == name]
    return each["text"], each["source"]


def test_a_plan_has_the_forecast_of_its_expected_runtime(bed: Bed) -> None:
    shown = planned(bed, spec=SPOT)["forecast"]
    assert shown["futures"] == 200
    assert 0 < shown["cost_usd"]["p10"] < shown["cost_usd"]["p50"] < shown["cost_usd"]["p90"]
    assert shown["on_demand_usd"] > shown["cost_usd"]["p50"]
    assert shown["text"].startswith("about $")
    assert _assumed(shown, "work") == ("10 h of training are left, by the expected runtime", "given")
    assert _assumed(shown, "losses")[1] == "assumed"
    assert _assumed(shown, "rule")[0] == "spot only: it waits where there is none"
    assert bed.store.page(forecasting.RunFilter(), None, 10).runs == ()


def _calls(bed: Bed, lost: bool) -> list[Call]:
    """40 machines of half an hour, each 10 minutes after the zone had none."""
    now, keys = bed.clock.now(), [offer_key(offer.placement) for offer in bed.provider.offered if offer.placement.spot]
    calls = []
    for number in range(40):
        at, key = now - 3600.0 * (2 + number), keys[number % len(keys)]
        calls += [Call(key, at - 600.0, False), Call(key, at, True, at + 1800.0, lost)]
    return calls


def test_own_machines_and_requests_count_with_those_of_others(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a plan and of a run: short lives and quick returns of our own, beside the same without losses."""
    before = planned(bed, spec=SPOT)["forecast"]
    monkeypatch.setattr(bed.store, "past_calls", lambda cell, most: _calls(bed, lost=True))
    short = planned(bed, spec=SPOT)["forecast"]
    bed.submit("digits", SPOT)
    for shown in (short, _shown(bed)):
        text, source = _assumed(shown, "losses")
        assert source == "measured"
        assert text.startswith("92 % of spot machines are lost in their first hour")
        assert text.endswith("by 40 own machines and those of others")
        text, source = _assumed(shown, "waits")
        assert (text.endswith(", by own requests"), source) == (True, "measured")
        assert int(text.rpartition(" %")[0].rpartition(" ")[2]) > 13
    monkeypatch.setattr(bed.store, "past_calls", lambda cell, most: _calls(bed, lost=False))
    safe = planned(bed, spec=SPOT)["forecast"]
    assert safe["cost_usd"]["p50"] < before["cost_usd"]["p50"] < short["cost_usd"]["p50"]


def test_machines_of_another_shape_say_nothing(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    before = planned(bed, spec=SPOT)["forecast"]
    others = [replace(call, offer=(*call.offer[:2], "big", True)) for call in _calls(bed, lost=True)]
    monkeypatch.setattr(bed.store, "past_calls", lambda cell, most: others)
    assert planned(bed, spec=SPOT)["forecast"] == before


def test_a_plan_has_the_order_of_the_loop(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zone whose machines were all lost at once comes last."""
    first = planned(bed, spec=SPOT)["zones"][0]["zone"]
    now = bed.clock.now()
    lost = [
        Call(("local", first, "cpu", True), now - 7200.0 * n, True, now - 7200.0 * n + 60.0, lost=True)
        for n in range(1, 40)
    ]
    monkeypatch.setattr(bed.store, "past_calls", lambda cell, most: lost)
    assert planned(bed, spec=SPOT)["zones"][0]["zone"] != first


def test_without_a_known_work_there_is_no_figure_but_the_reason(bed: Bed) -> None:
    shown = planned(bed)["forecast"]
    assert (shown["futures"], shown["cost_usd"], shown["ends_at"], shown["on_demand_usd"]) == (0, None, None, None)
    assert shown["text"].startswith("no forecast: nobody knows how much work is left")
    assert "expect_runtime_s" in shown["text"]


def test_a_price_that_is_not_known_leaves_the_end(bed: Bed) -> None:
    bed.provider.offered = tuple(replace(offer, price_usd_per_h=None) for offer in bed.provider.offered)
    shown = planned(bed, spec=SPOT)["forecast"]
    assert shown["cost_usd"] is None
    assert shown["ends_at"]["p50"] is not None
    assert any("price" in reason for reason in shown["unknown"])


def test_a_run_that_trains_is_measured(bed: Bed) -> None:
    """Its pace, its own start, what it has cost; and the same figures all day."""
    bed.submit("digits")
    bed.train("digits")
    shown = _shown(bed)
    assert _assumed(shown, "work")[1] == "measured"
    assert _assumed(shown, "changeover") == (
        "30 s from the request of a machine to its training, by its own 1 start",
        "measured",
    )
    assert shown["spent_usd"] > 0
    assert _shown(bed) is not None
    assert _shown(bed)["cost_usd"] == shown["cost_usd"]


def test_one_simulation_a_minute_for_a_row(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.submit("digits", SPOT)
    bed.train("digits")
    made = []
    real = forecasting.outlook
    monkeypatch.setattr(forecasting, "outlook", lambda *given: made.append(1) or real(*given))
    for _ in range(3):
        _shown(bed)
    assert len(made) == 1
    bed.change("digits", detail="news")
    _shown(bed)
    assert len(made) == 2
    bed.clock.advance(61.0)
    _shown(bed)
    assert len(made) == 3


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"status": Status.COMPLETED}, "it has ended"),
        ({"status": Status.FINISHING}, "it is finishing, and trains no more"),
        (
            {"status": Status.WAITING, "cause": Cause.GROUP_LIMIT},
            "it waits for other runs first, and nobody knows how long",
        ),
    ],
)
def test_where_nothing_can_be_said_the_reason_is(bed: Bed, fields: dict[str, Any], reason: str) -> None:
    bed.submit("digits", SPOT)
    bed.change("digits", **fields)
    shown = _shown(bed)
    assert (shown["futures"], shown["unknown"]) == (0, [reason])
    assert shown["text"] == f"no forecast: {reason}"


def test_the_api_shows_it(bed: Bed) -> None:
    bed.submit("digits", SPOT)
    client = Client(bed.services)
    assert client.get("/v1/runs/digits/forecast").json()["text"] == _shown(bed)["text"]
    assert client.get("/v1/runs/nobody/forecast").status_code == 404


# --- whether past ones held -------------------------------------------------------------------------------------------


def test_the_first_forecast_of_a_generation_is_stored_once(bed: Bed) -> None:
    bed.submit("digits", SPOT)
    before = bed.train("digits")
    work = FirstForecasts(bed.parts)
    work.run(bed.clock.now())
    assert bed.run("digits").chain.first_forecast is None, "it has trained for 40 s only"
    bed.clock.advance(90.0)
    at = bed.clock.now()
    work.run(at)
    run = bed.run("digits")
    first = run.chain.first_forecast
    assert first is not None
    assert (first.generation, first.at) == (1, at)
    assert at < first.ends_at[0] < first.ends_at[1] < first.ends_at[2]
    assert 0 < first.usd[0] < first.usd[2]
    assert replace(run, chain=before.chain, version=before.version) == before, "nothing else of the row changes"
    bed.clock.advance(600.0)
    work.run(bed.clock.now())
    assert bed.run("digits").chain.first_forecast == first
    bed.change("digits", generation=2)
    work.run(bed.clock.now())
    assert bed.run("digits").chain.first_forecast != first, "a new generation has one of its own"


def test_a_run_without_known_work_gets_none(bed: Bed) -> None:
    bed.submit("digits")
    run = bed.train("digits")
    assert run.pulse is not None
    bed.clock.advance(600.0)
    assert forecasting.is_due(run, bed.clock.now())
    assert not forecasting.is_due(replace(run, pulse=replace(run.pulse, total=None)), bed.clock.now())


def _ended(bed: Bed, number: int, late: bool) -> Run:
    run_id = f"run-{number}"
    bed.submit(run_id, SPOT)
    bed.train(run_id)
    bed.clock.advance(1000.0)
    now = bed.clock.now()
    first = FirstForecast(1, now - 900.0, (now - 9.0, now, now + (-1.0 if late else 1.0)), (0.0, 0.1, 9.0))
    return bed.end(run_id, Status.COMPLETED, chain=Chain(first_forecast=first))


def test_past_forecasts_are_held_against_the_ends(bed: Bed) -> None:
    for number in range(9):
        _ended(bed, number, late=False)
    reader = Calibration(bed.parts)
    assert reader.read() == {"runs": 9, "ends_held": None, "costs_held": None}, "too few to say"
    bed.clock.advance(61.0)
    _ended(bed, 9, late=True)
    assert Calibration(bed.parts).read() == {"runs": 10, "ends_held": 0.9, "costs_held": 1.0}
    stale = replace(bed.run("run-9"), generation=2)
    stopped_early = replace(bed.run("run-9"), chain=Chain())
    assert forecasts_held([stale, stopped_early], bed.clock.now())["runs"] == 0


def test_a_database_that_is_away_is_not_zero_runs(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: object) -> None:
        raise StoreDown("disk full")

    monkeypatch.setattr(bed.store, "page", down)
    assert Calibration(bed.parts).read() is None


# --- what if ----------------------------------------------------------------------------------------------------------


def test_what_if_has_a_row_for_each_combination(bed: Bed) -> None:
    deadline = "2099-01-01T00:00:00Z"
    wish = {"zones": [1, ["local-b"]], "markets": ["on_demand", "both"], "deadlines": [None, deadline]}
    rows = Client(bed.services).post("/v1/what-if", json={"spec": SPOT, **wish}).json()["rows"]
    assert len(rows) == 8
    assert [row["market"] for row in rows[:4]] == ["on_demand", "both"] * 2
    assert {tuple(row["zones"]) for row in rows} == {(bed.provider.offered[0].placement.zone,), ("local-b",)}
    on_demand, both = rows[0]["forecast"], rows[1]["forecast"]
    assert on_demand["cost_usd"]["p50"] > both["cost_usd"]["p50"]
    assert [row["forecast"]["deadline_kept"] is None for row in rows[::2]] == [True, False, True, False]
    assert bed.store.page(forecasting.RunFilter(), None, 10).runs == ()


def test_the_past_is_read_once_for_all_combinations(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    real, starts = bed.store.past_calls, forecasting._starts_lately
    monkeypatch.setattr(bed.store, "past_calls", lambda *given: reads.append("calls") or real(*given))
    monkeypatch.setattr(forecasting, "_starts_lately", lambda *given: reads.append("starts") or starts(*given))
    wish = {"zones": [1, 2], "markets": ["on_demand", "both"]}
    assert len(Client(bed.services).post("/v1/what-if", json={"spec": SPOT, **wish}).json()["rows"]) == 4
    assert sorted(reads) == ["calls", "starts"]


def test_a_combination_that_a_submit_would_refuse_says_why(bed: Bed) -> None:
    wish = {"shapes": [["cpu"], ["no-such-shape"]]}
    good, bad = Client(bed.services).post("/v1/what-if", json={"spec": SPOT, **wish}).json()["rows"]
    assert (good["refused"], bad["forecast"]) == (None, None)
    assert "not a known shape" in bad["refused"]


def test_too_many_combinations_are_refused(bed: Bed) -> None:
    wish = {"zones": [1] * 12, "markets": ["spot", "both", "on_demand"]}
    answer = Client(bed.services).post("/v1/what-if", json={"spec": SPOT, **wish})
    assert answer.status_code == 422
    assert "36 combinations" in answer.json()["detail"]
