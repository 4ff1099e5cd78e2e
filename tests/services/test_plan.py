"""The plan of a submit: it says what the submit would do, is refused where that would be, and does nothing."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain import baton as batons
from supervisor.domain import runfiles
from supervisor.domain.baton import FileEntry, Pointer
from supervisor.domain.errors import (
    CodeNotFound,
    DataElsewhere,
    InvalidRequest,
    RunActive,
    RunCompleted,
    RunIdTaken,
    RunStopping,
    SpecDiffers,
    SpotError,
    Unavailable,
)
from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.domain.placement import ZoneRecord
from supervisor.domain.run import StopRequest
from supervisor.domain.status import Status
from supervisor.ports.platform import PriceTold
from supervisor.ports.provider import LaunchRejected, ProviderUnavailable
from supervisor.services.plan import Asking, plan
from supervisor.services.submit import SubmitRequest
from tests.services.bed import COMMAND, Bed

Json = dict[str, Any]
OTHER = {"command": ["python", "other.py"]}
NO_CODE = "c" * 64
FOREVER = Finding("zones", OK, "told much too late")


def shown(run: Any, try_: Any, spec: Any) -> Json:
    return {"kind": "test", "metadata": {"run": run.run_id, "try": try_.launch_id, "spec": repr(spec)}}


def planned(
    bed: Bed, run_id: str | None = None, spec: Json = COMMAND, asking: Asking | None = None, **more: Any
) -> Json:
    follows = more.pop("code_follows", False)
    request = SubmitRequest(spec, run_id, **more)
    return plan(bed.parts, asking or Asking(tuple, shown), request, "local", follows)


def check(told: Json, name: str) -> Json:
    (found,) = [one for one in told["checks"] if one["name"] == name]
    return dict(found)


def test_a_new_run_is_foretold_and_nothing_of_it_is_made(bed: Bed) -> None:
    told = planned(bed, "digits-7", key="k1")
    assert told["would"] == "create"
    assert told["sentence"].startswith("digits-7 would be created. First try: ")
    assert bed.store.find("digits-7") is None
    assert not bed.objects.calls
    assert not bed.provider.calls
    assert bed.wake.sets == 0
    with bed.store.begin(bed.clock.now()) as tx:
        assert tx.take_key("local POST /v1/runs", "k1", "f", bed.clock.now()) is None, "no key was kept"


def test_what_is_foretold_is_what_the_submit_then_does(bed: Bed) -> None:
    for would, act in (
        ("create", lambda: bed.submit("digits-7")),
        ("unchanged", lambda: bed.submit("digits-7")),
    ):
        told = planned(bed, "digits-7")
        assert told["would"] == would
        act()
        assert bed.run("digits-7").generation == told["generation"] == 1
    bed.end("digits-7", Status.STOPPED, checkpoint_step=8400)
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


def test_the_places_stand_in_the_order_of_the_tries_and_the_first_is_the_one_that_is_launched(
    bed: Bed,
) -> None:
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
    assert "every place refused lately. First try in 1 min:" in planned(bed)["sentence"]


def test_each_place_says_what_it_costs_where_that_was_read_and_how_likely_it_is(bed: Bed) -> None:
    place = planned(bed)["zones"][0]
    bed.platform.price_list = (PriceTold(place["shape"], place["region"], 0.1, 0.3, "a table", "2026-10-01"),)
    bed.platform.obtainability = {place["zone"]: 0.7}
    told = planned(bed)["zones"][0]
    assert (told["price_source"], told["price_dated"], told["chance"]) == ("a table", "2026-10-01", 0.7)


# --- what others tell -------------------------------------------------------------------------------------------------


def test_the_lines_of_the_doctor_and_the_advice_stand_in_the_plan(bed: Bed) -> None:
    quota = Finding("quotas", FAIL, "L4 0 of 0", "no room", "raise it", "google")
    bed.platform.findings = (Finding("memory", WARN, "30 GB", "too little", "use more", "google"),)
    told = planned(bed, asking=Asking(lambda: [quota], shown))
    assert check(told, "quotas")["fix"] == "raise it"
    assert check(told, "memory")["cause"] == "too little"
    assert told["worst"] == "fail"


def test_a_check_that_hangs_is_a_line_and_holds_up_nothing(bed: Bed) -> None:
    forever, started = threading.Event(), time.monotonic()
    told = planned(bed, asking=Asking(lambda: [FOREVER] * forever.wait(60), shown, within_s=0.05))
    forever.set()
    assert time.monotonic() - started < 10
    assert check(told, "checks")["result"] == WARN
    assert check(told, "checks")["cause"] == "it did not answer in time"
    assert told["would"] == "create"


def test_a_bucket_that_hangs_holds_up_the_plan_no_longer_than_that(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    forever, started = threading.Event(), time.monotonic()

    def hang(regions: Any, image: str = "", ask: bool = False) -> tuple[Any, ...]:
        if ask:
            forever.wait(60)
        raise ProviderUnavailable("it has not been read yet")

    monkeypatch.setattr(bed.platform, "data_places", hang)
    with pytest.raises(Unavailable, match="has not been read yet"):
        planned(bed, "a-run", NEAR, asking=Asking(tuple, shown, within_s=0.05))
    forever.set()
    assert time.monotonic() - started < 10


def test_what_cannot_be_read_is_said_to_be_unread_and_not_to_be_well(bed: Bed) -> None:
    bed.platform.trouble = ProviderUnavailable("Google does not answer")
    told = planned(bed)
    assert (check(told, "chances")["result"], check(told, "chances")["cause"]) == (
        WARN,
        "Google does not answer",
    )
    assert {place["chance"] for place in told["zones"]} == {None}


def test_a_secret_that_cannot_be_read_fails_its_line_by_name_alone(bed: Bed) -> None:
    told = planned(bed, spec={**COMMAND, "secrets": {"API_KEY": "env:MISSING_KEY"}})
    assert check(told, "secrets")["result"] == FAIL
    assert "API_KEY: env:MISSING_KEY cannot be read" in check(told, "secrets")["fact"]


def test_a_launch_that_would_be_refused_fails_its_line(bed: Bed) -> None:
    def refuse(run: Any, try_: Any, spec: Any) -> Json:
        raise LaunchRejected("the metadata is too large")

    told = planned(bed, asking=Asking(tuple, refuse))
    assert told["launch"] is None
    assert (check(told, "launch")["result"], check(told, "launch")["fact"]) == (
        FAIL,
        "the metadata is too large",
    )


def test_what_was_let_in_as_a_plain_secret_is_not_shown_again(bed: Bed) -> None:
    key = "sk-" + "a1" * 20
    spec = {
        "command": ["python", "train.py", f"--key={key}"],
        "env": {"API_TOKEN": "hunter2", "MODE": "fast"},
        "allow_plain_secrets": True,
    }
    text = str(planned(bed, spec=spec))
    assert key not in text
    assert "hunter2" not in text
    assert "fast" in text


# --- the question that the advice answers -----------------------------------------------------------------------------


def _with_checkpoint(bed: Bed, size: int) -> None:
    baton = batons.create(bed.store.supervisor_id, 1)
    files = (FileEntry("a", size - 1, "0" * 64), FileEntry("b", 1, "0" * 64))
    baton = replace(baton, checkpoint=Pointer(8400, "checkpoints/8400-a1", files))
    bed.objects.put(runfiles.baton("a-run"), batons.encode(baton))


def test_the_size_of_a_checkpoint_comes_from_the_run_where_it_has_one(bed: Bed) -> None:
    spec = {**COMMAND, "expect_checkpoint_gb": 2.5, "checkpoints": {"keep_last": 5}}
    planned(bed, "a-run", spec)
    assert bed.platform.questions[-1].checkpoint_bytes == 2_500_000_000
    assert bed.platform.questions[-1].checkpoints_kept == 5
    bed.submit("a-run", spec)
    bed.end("a-run")
    _with_checkpoint(bed, 7_000)
    planned(bed, "a-run", spec)
    assert bed.platform.questions[-1].checkpoint_bytes == 7_000
    planned(bed, "a-run", spec, rerun=True)
    assert bed.platform.questions[-1].checkpoint_bytes == 2_500_000_000


def test_of_a_new_run_that_says_nothing_nobody_knows_the_size(bed: Bed) -> None:
    planned(bed)
    assert bed.platform.questions[-1].checkpoint_bytes is None


# --- same_region ------------------------------------------------------------------------------------------------------

NEAR = {**COMMAND, "same_region": "require"}


def test_far_data_refuses_a_run_that_requires_it_near(bed: Bed) -> None:
    bed.platform.places = {"the bucket gs://far": "mars-1"}
    with pytest.raises(DataElsewhere, match="gs://far lies in mars-1"):
        bed.submit("a-run", NEAR)
    with pytest.raises(DataElsewhere):
        planned(bed, "a-run", NEAR)
    assert bed.store.find("a-run") is None
    bed.submit("b-run", {**COMMAND, "same_region": "advise"})


def test_a_resume_is_held_to_it_too(bed: Bed) -> None:
    bed.submit("a-run", NEAR)
    bed.end("a-run")
    bed.platform.places = {"the bucket gs://moved": "mars-1"}
    with pytest.raises(DataElsewhere):
        bed.resume("a-run")
    assert bed.run("a-run").generation == 1


def test_near_data_is_let_through(bed: Bed) -> None:
    bed.platform.places = {"the bucket gs://near": planned(bed)["zones"][0]["region"]}
    bed.submit("a-run", NEAR)
    assert bed.run("a-run").status == Status.PENDING


def test_where_it_lies_is_not_known_the_run_is_not_let_through(bed: Bed) -> None:
    bed.platform.trouble = ProviderUnavailable("where it lies is not known")
    with pytest.raises(Unavailable, match="is not known"):
        bed.submit("a-run", NEAR)
    assert bed.store.find("a-run") is None


def test_a_submit_asks_nobody_and_a_plan_may(bed: Bed) -> None:
    bed.submit("a-run", NEAR)
    assert bed.platform.asked_places == [False]
    planned(bed, "b-run", NEAR)
    assert bed.platform.asked_places == [False, True, False]


def test_a_check_that_is_well_is_told_as_well(bed: Bed) -> None:
    told = planned(bed, asking=Asking(lambda: [Finding("zones", OK, "up")], shown))
    assert told["worst"] == "ok"
