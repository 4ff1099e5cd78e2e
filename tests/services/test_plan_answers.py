"""What others tell in a plan, what they are asked, and data that must lie near: read, or said to be unread."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import FileEntry, Pointer
from supervisor.domain.errors import DataElsewhere, Unavailable
from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.domain.status import Status
from supervisor.ports.provider import LaunchRejected, ProviderUnavailable
from supervisor.services.plan.plan import PlanSources
from tests.services.bed import COMMAND, Bed
from tests.services.plans import FOREVER, NEAR, Json, check, planned, shown

# --- what others tell -------------------------------------------------------------------------------------------------


def test_the_lines_of_the_doctor_and_the_advice_stand_in_the_plan(bed: Bed) -> None:
    quota = Finding("quotas", FAIL, "L4 0 of 0", "no room", "raise it", "google")
    bed.platform.findings = (Finding("memory", WARN, "30 GB", "too little", "use more", "google"),)
    told = planned(bed, sources=PlanSources(lambda: [quota], shown))
    assert check(told, "quotas")["fix"] == "raise it"
    assert check(told, "memory")["cause"] == "too little"
    assert told["worst"] == "fail"


def test_a_check_that_hangs_is_a_line_and_holds_up_nothing(bed: Bed) -> None:
    forever, started = threading.Event(), time.monotonic()
    told = planned(bed, sources=PlanSources(lambda: [FOREVER] * forever.wait(60), shown, within_s=0.05))
    forever.set()
    assert time.monotonic() - started < 10
    assert check(told, "checks")["result"] == WARN
    assert check(told, "checks")["cause"] == "it did not respond in time"
    assert told["would"] == "create"


def test_a_bucket_that_hangs_holds_up_the_plan_no_longer_than_that(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    forever, started = threading.Event(), time.monotonic()

    def hang(regions: Any, image: str = "", ask: bool = False) -> tuple[Any, ...]:
        if ask:
            forever.wait(60)
        raise ProviderUnavailable("it has not been read yet")

    monkeypatch.setattr(bed.platform, "data_places", hang)
    with pytest.raises(Unavailable, match="has not been read yet"):
        planned(bed, "a-run", NEAR, sources=PlanSources(tuple, shown, within_s=0.05))
    forever.set()
    assert time.monotonic() - started < 10


def test_what_cannot_be_read_is_said_to_be_unread_and_not_to_be_well(bed: Bed) -> None:
    bed.platform.trouble = ProviderUnavailable("Google does not answer")
    told = planned(bed)
    assert (check(told, "chances")["result"], check(told, "chances")["cause"]) == (WARN, "Google does not answer")
    assert {place["chance"] for place in told["zones"]} == {None}


def test_a_secret_that_cannot_be_read_fails_its_line_by_name_alone(bed: Bed) -> None:
    told = planned(bed, spec={**COMMAND, "secrets": {"API_KEY": "env:MISSING_KEY"}})
    assert check(told, "secrets")["result"] == FAIL
    assert "API_KEY: env:MISSING_KEY cannot be read" in check(told, "secrets")["fact"]


def test_a_launch_that_would_be_refused_fails_its_line(bed: Bed) -> None:
    def refuse(run: Any, try_: Any, spec: Any) -> Json:
        raise LaunchRejected("the metadata is too large")

    told = planned(bed, sources=PlanSources(tuple, refuse))
    assert told["launch"] is None
    assert (check(told, "launch")["result"], check(told, "launch")["fact"]) == (FAIL, "the metadata is too large")


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
    baton = baton._replace(checkpoint=Pointer(8400, "checkpoints/8400-a1", files))
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


def test_far_data_refuses_a_run_that_requires_it_near(bed: Bed) -> None:
    bed.platform.places = {"the bucket gs://far": "mars-1"}
    with pytest.raises(DataElsewhere, match="gs://far is in mars-1"):
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
    told = planned(bed, sources=PlanSources(lambda: [Finding("zones", OK, "up")], shown))
    assert told["worst"] == "ok"
