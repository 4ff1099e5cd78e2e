"""From a prepared machine to an image and its end: what follows from each reading, and less from less."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.attempt import Retiring
from supervisor.domain.bases import (
    Base,
    BaseStatus,
    DiskImage,
    ImageSeen,
    family_of,
    image_name,
    newest,
    next_name,
    steps,
)
from supervisor.domain.observation import Absent, Part, Seen, Unknown
from supervisor.domain.run import Image, Run
from supervisor.domain.status import Status
from supervisor.lifecycle.bases import STAYS, Report, Situation, Step, failed, next_step
from tests.lifecycle.sample_runs import NOW, attempt, run_in

DONE = attempt(ended_at=NOW - 5)
KEPT = Retiring(DONE.ref, DONE.launch_id, NOW - 5, NOW + 3600, "kept")
RUN = run_in(
    Status.COMPLETED,
    attempt=DONE,
    retiring=(KEPT,),
    kept_until=NOW + 3600,
    image=Image("r/train@sha256:1", "r/train:1"),
)
PREPARING = Base(1, "torch-v2", "alice", "gce", ("pip install timm",), BaseStatus.PREPARING, NOW, NOW, "base-torch-v2")
IMAGE = DiskImage("spot-base-abc-torch-v2", "id", DONE.placement.zone, DONE.machine_name, NOW)
IMAGING = replace(PREPARING, status=BaseStatus.IMAGING, image=IMAGE)
READY = replace(IMAGING, status=BaseStatus.READY)
FAILED = replace(IMAGING, status=BaseStatus.FAILED)
DELETING = replace(IMAGING, status=BaseStatus.DELETING)
UNWRITTEN, UNREAD = Absent(), Unknown("503")
REPORT = Seen(Report(DONE.launch_id))


def after(
    base: Base,
    run: Run | None = None,
    report: Part[Report] = UNWRITTEN,
    image: Part[ImageSeen] = UNREAD,
    *,
    used_by: str = "",
    later_s: float = 0.0,
) -> Step:
    return next_step(base, Situation(NOW + later_s, "spot", "sup-1", "id", run, report, image, used_by))


def status(step: Step) -> BaseStatus | None:
    return None if step.base is None else step.base.status


def made(state: str = "ready", ours: bool = True) -> Seen[ImageSeen]:
    return Seen(ImageSeen(state, ours, 4_000_000_000, 100))


# --- its machine ------------------------------------------------------------------------------------------------------


def test_a_clean_machine_begins_its_image_and_the_row_comes_before_the_request() -> None:
    step = after(PREPARING, RUN, REPORT)
    assert step.base is not None
    assert (step.base.status, step.base.container, step.request) == (BaseStatus.IMAGING, "r/train@sha256:1", False)
    wanted = DiskImage(image_name("spot", "sup-1", "torch-v2"), "id", DONE.placement.zone, DONE.machine_name, NOW)
    assert step.base.image == wanted


@pytest.mark.parametrize("report", [Absent(), Unknown("503"), Seen(Report("9.9.9"))])
def test_without_the_report_of_that_machine_nothing_begins(report: Part[Report]) -> None:
    assert after(PREPARING, RUN, report) == STAYS


def test_a_machine_that_ends_before_it_was_clean_fails_the_base() -> None:
    gone = replace(RUN, retiring=())
    assert status(after(PREPARING, gone, Absent())) == BaseStatus.FAILED
    assert after(PREPARING, gone, Unknown("503")) == STAYS, "unread is not unwritten"
    assert status(after(PREPARING, gone, REPORT)) == BaseStatus.IMAGING, "the platform says whether the disk is there"


def test_a_run_that_fails_or_never_came_fails_the_base() -> None:
    assert after(PREPARING, replace(RUN, status=Status.RUNNING)) == STAYS
    step = after(PREPARING, replace(RUN, status=Status.FAILED, detail="exit code 1"))
    assert step.base is not None
    assert (step.base.status, step.release) == (BaseStatus.FAILED, True)
    assert "exit code 1" in step.base.detail
    assert after(PREPARING, None) == STAYS
    assert status(after(PREPARING, None, later_s=601)) == BaseStatus.FAILED


# --- its image --------------------------------------------------------------------------------------------------------


def test_an_image_is_requested_where_there_is_none_and_adopted_where_it_is() -> None:
    assert after(IMAGING, image=Absent()) == Step(request=True)
    assert after(IMAGING, image=made("pending")) == STAYS
    step = after(IMAGING, image=made())
    assert step.base is not None
    assert step.base.image is not None
    assert step.base.status == BaseStatus.READY
    assert (step.base.image.size_bytes, step.base.image.disk_gb) == (4_000_000_000, 100)
    assert step.release
    assert step.event is not None
    assert "4.0 GB" in step.event.text


def test_a_foreign_image_of_that_name_is_not_touched_and_not_used() -> None:
    step = after(IMAGING, image=made(ours=False))
    assert step.base is not None
    assert step.base.image is not None
    assert (step.base.status, step.base.image.gone, step.delete) == (BaseStatus.FAILED, True, False)


@pytest.mark.parametrize("image", [Absent(), made("pending"), made("failed")])
def test_an_image_that_does_not_come_fails_the_base_and_frees_its_machine(image: Part[ImageSeen]) -> None:
    step = after(IMAGING, image=image, later_s=7201)
    assert (status(step), step.release) == (BaseStatus.FAILED, True)


def test_what_a_failed_one_left_is_deleted_until_none_can_come() -> None:
    assert after(FAILED, image=made()) == Step(delete=True)
    assert after(FAILED, image=Absent()) == STAYS, "the request may still make one"
    step = after(FAILED, image=Absent(), later_s=601)
    assert step.base is not None
    assert step.base.settled
    assert after(failed(IMAGING, "no such disk", NOW).base or IMAGING, image=made()) == Step(delete=True)


# --- its end ----------------------------------------------------------------------------------------------------------


def test_an_image_in_use_is_never_deleted() -> None:
    for image in (made(), Absent()):
        step = after(DELETING, image=image, used_by="digits-7", later_s=61)
        assert (status(step), step.delete) == (BaseStatus.READY, False)


def test_a_deletion_waits_for_submits_that_have_read_the_row_and_ends_when_the_image_is_gone() -> None:
    assert after(DELETING, image=made()) == STAYS
    assert after(DELETING, image=made(), later_s=61) == Step(delete=True)
    assert status(after(DELETING, image=Absent(), later_s=61)) == BaseStatus.DELETED
    assert status(after(DELETING, image=made(ours=False), later_s=61)) == BaseStatus.DELETED


@pytest.mark.parametrize("base", [PREPARING, IMAGING, READY, FAILED, DELETING])
@pytest.mark.parametrize("run", [None, RUN])
@pytest.mark.parametrize("later_s", [0.0, 61.0, 601.0, 90_000.0])
def test_what_could_not_be_read_requests_and_deletes_nothing(base: Base, run: Run | None, later_s: float) -> None:
    step = after(base, run, Unknown("503"), Unknown("503"), later_s=later_s)
    assert not step.request
    assert not step.delete
    if base is not PREPARING:
        assert step.base is None, "an image that cannot be read is neither there nor gone"


# --- names and steps --------------------------------------------------------------------------------------------------


def test_a_family_means_its_newest_version_that_is_ready() -> None:
    bases = [replace(READY, name=f"torch-v{number}") for number in (1, 2, 10)] + [replace(IMAGING, name="torch-v11")]
    found = newest(bases, "torch")
    assert found is not None
    assert found.name == "torch-v10"
    exact = newest(bases, "torch-v11")
    assert exact is not None
    assert exact.status == BaseStatus.IMAGING, "named exactly it is found, and the submit says that it is not ready"
    assert newest(bases, "jax") is None
    assert (family_of("torch-v2"), family_of("torch"), family_of("x-v0")) == ("torch", "torch", "x-v0")
    assert next_name("torch", ["torch-v2", "torch-v10"]) == "torch-v11"


def test_the_name_of_an_image_is_valid_and_differs_between_supervisors() -> None:
    longest = image_name("a" * 63, "sup-1", "t" * 24 + "-v999999")
    assert len(longest) <= 63
    assert image_name("spot", "sup-1", "torch-v1") != image_name("spot", "sup-2", "torch-v1")


def test_a_base_without_an_image_is_the_first_step_of_the_setup() -> None:
    spec = {"command": "train", "base": "torch-v2", "setup": ["make"]}
    both = steps(spec, "", PREPARING)
    assert [step["name"] for step in both] == ["base torch-v2", "setup"]
    assert steps({**spec, "code": "a" * 64}, "", PREPARING)[0] == both[0], "its script stands alone"
    assert [step["name"] for step in steps(spec, "", None)] == ["setup"]
    assert steps({**spec, "base": "torch-v3"}, "", None) != steps(spec, "", None)
