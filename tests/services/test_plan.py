"""The plan of a submit: it says what the submit would do, is refused where that would be, and does nothing."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.domain.errors import (
    CodeNotFound,
    InvalidRequest,
    RunActive,
    RunCompleted,
    RunIdTaken,
    RunStopping,
    SpecDiffers,
    SpotError,
    Unavailable,
)
from supervisor.domain.machines import ZoneRecord
from supervisor.domain.run import Files, StopRequest
from supervisor.domain.status import Status
from supervisor.ports.platform import ShapePrice
from tests.services.bed import COMMAND, Bed
from tests.services.plans import NO_CODE, OTHER, Json, check, planned


def test_a_new_run_is_foretold_and_nothing_of_it_is_made(bed: Bed) -> None:
    told = planned(bed, "digits-7", key="k1")
    assert told["would"] == "create"
    assert told["sentence"].startswith("digits-7 would be created. First try: ")
    assert bed.store.find("digits-7") is None
    assert set(bed.objects.calls) == {"pages", ("pages", "runs/digits-7/")}, "does an old run lie there?"
    assert not bed.provider.calls
    assert bed.wake.sets == 0
    with bed.store.begin(bed.clock.now()) as tx:
        assert tx.take_key("local POST /v1/runs", "k1", "f", bed.clock.now()) is None, "no key was kept"


def test_what_is_foretold_is_what_the_submit_then_does(bed: Bed) -> None:
    for would, act in (("create", lambda: bed.submit("digits-7")), ("unchanged", lambda: bed.submit("digits-7"))):
        told = planned(bed, "digits-7")
        assert told["would"] == would
        act()
        assert bed.run("digits-7").generation == told["generation"] == 1
    bed.end("digits-7", Status.STOPPED, files=Files(checkpoint_step=8400))
    before = bed.run("digits-7")
    told = planned(bed, "digits-7")
    assert (told["would"], told["generation"]) == ("resume", 2)
    assert "from step 8,400" in told["sentence"]
    assert bed.run("digits-7") == before
    bed.submit("digits-7")
    assert bed.run("digits-7").generation == 2


def test_a_run_without_a_name_has_none_in_the_plan_either(bed: Bed) -> None:
    told = planned(bed)
    assert told["run_id"] is None
    assert told["sentence"].startswith("A new run would be created.")
    assert "run_id" in told["made_at_launch"]


def _ended(bed: Bed, status: Status, **fields: Any) -> None:
    bed.submit("a-run")
    bed.end("a-run", status, **fields)


REFUSALS: dict[type[SpotError], tuple[Any, Json]] = {
    RunActive: (lambda bed: bed.submit("a-run"), {"spec": OTHER}),
    RunStopping: (
        lambda bed: (bed.submit("a-run"), bed.change("a-run", stop=StopRequest("x", 1.0))),
        {"spec": COMMAND},
    ),
    RunCompleted: (lambda bed: _ended(bed, Status.COMPLETED), {"spec": COMMAND}),
    SpecDiffers: (lambda bed: _ended(bed, Status.STOPPED), {"spec": OTHER}),
    RunIdTaken: (lambda bed: (bed.submit("a-run"), bed.change("a-run", owner="somebody")), {"spec": COMMAND}),
    InvalidRequest: (lambda bed: None, {"spec": {**COMMAND, "zones": ["nowhere"]}}),
    CodeNotFound: (lambda bed: None, {"spec": {**COMMAND, "code": NO_CODE}}),
}


@pytest.mark.parametrize("kind", REFUSALS, ids=lambda kind: kind.code)
@pytest.mark.parametrize("key", [None, "k1"])
def test_what_a_submit_refuses_the_plan_refuses_in_the_same_words(
    bed: Bed, kind: type[SpotError], key: str | None
) -> None:
    prepare, more = REFUSALS[kind]
    prepare(bed)
    with pytest.raises(kind) as by_plan:
        planned(bed, "a-run", key=key, **more)
    with pytest.raises(kind) as by_submit:
        bed.submit("a-run", key=key, **more)
    assert (by_plan.value.detail, by_plan.value.errors) == (by_submit.value.detail, by_submit.value.errors)


@pytest.mark.parametrize("key", [None, "k1"])
def test_of_two_mistakes_the_plan_names_the_one_that_the_submit_names(bed: Bed, key: str | None) -> None:
    wrong = {**COMMAND, "zones": ["nowhere"], "code": NO_CODE}
    with pytest.raises(SpotError) as by_plan:
        planned(bed, spec=wrong, key=key)
    with pytest.raises(SpotError) as by_submit:
        bed.submit(spec=wrong, key=key)
    assert by_plan.value.detail == by_submit.value.detail


def test_a_stop_marker_that_cannot_be_read_refuses_the_plan_of_a_resume_as_well(bed: Bed) -> None:
    _ended(bed, Status.STOPPED)
    bed.objects.fail_reads = True
    with pytest.raises(Unavailable):
        planned(bed, "a-run")


def test_code_that_the_submit_brings_is_not_missed(bed: Bed) -> None:
    told = planned(bed, spec={**COMMAND, "code": NO_CODE}, code_follows=True)
    assert "would be stored with the submit" in check(told, "code")["fact"]


def test_a_live_run_of_machines_that_are_no_longer_here_is_left_alone(bed: Bed) -> None:
    bed.submit("a-run")
    bed.change("a-run", provider="gce", cell="gce elsewhere")
    told = planned(bed, "a-run")
    assert bed.submit("a-run").status == 200
    assert (told["would"], told["zones"], told["launch"]) == ("unchanged", [], None)


# --- the places -------------------------------------------------------------------------------------------------------


def test_the_places_stand_in_the_order_of_the_tries_and_the_first_is_the_one_that_is_launched(bed: Bed) -> None:
    told = planned(bed, spec={**COMMAND, "zones": ["local-b", "local-a"]})
    assert [place["zone"] for place in told["zones"]][:2] == ["local-b", "local-a"]
    assert told["launch"]["metadata"]["try"] == "1.1.1"


def test_a_place_that_refused_comes_last_with_its_reason_and_its_time(bed: Bed) -> None:
    now = bed.clock.now()
    record = ZoneRecord(1, now + 170, "no_capacity", "none left")
    first = planned(bed)["zones"][0]
    bed.store.put_zone("local cell", ("local", first["zone"], first["shape"], first["spot"]), record)
    told = planned(bed)
    assert told["zones"][0]["cooling_until"] is None
    assert told["zones"][-1]["zone"] == first["zone"]
    assert told["zones"][-1]["cooling_why"] == "no_capacity: none left"


def test_where_every_place_refused_the_sentence_says_when_the_first_is_asked_again(bed: Bed) -> None:
    now = bed.clock.now()
    for number, place in enumerate(planned(bed)["zones"]):
        record = ZoneRecord(1, now + 60 * (number + 1), "no_capacity", "none left")
        bed.store.put_zone("local cell", ("local", place["zone"], place["shape"], place["spot"]), record)
    assert "every offer was refused lately. First try in 1 min:" in planned(bed)["sentence"]


def test_each_place_says_what_it_costs_where_that_was_read_and_how_likely_it_is(bed: Bed) -> None:
    place = planned(bed)["zones"][0]
    bed.platform.price_list = (ShapePrice(place["shape"], place["region"], 0.1, 0.3, "a table", "2026-10-01"),)
    bed.platform.obtainability = {place["zone"]: 0.7}
    told = planned(bed)["zones"][0]
    assert (told["price_source"], told["price_dated"], told["chance"]) == ("a table", "2026-10-01", 0.7)
