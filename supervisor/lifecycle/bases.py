"""What becomes of a base whose disk is to be an image: decided from its row, its run and what was read. Pure.

    preparing -> imaging -> ready -> deleting -> deleted;  preparing, imaging -> failed

The run that prepares it is an ordinary run: its machine has an owner, a limit and a dead-man like any other. It is kept
after its success until the image is there, for `keep_s` at most. The row with the name of the image and the id of its
request is committed before the request. Could not read is not absent: on an Unknown nothing is requested or deleted.

An image that a live run uses is never deleted. A run that is being submitted may have read the row just before: so the
deletion waits for DELETE_AFTER_S, and the runs are read once more before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from supervisor.domain.attempt import Attempt
from supervisor.domain.bases import Base, BaseStatus, DiskImage, ImageSeen, image_name
from supervisor.domain.events import Event, EventKind
from supervisor.domain.observation import NOT_READ, Absent, Part, Seen
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.wording.figures import size_text

UNSUBMITTED_S = 600.0  # a crash between the row and its run
IMAGE_S = 7200.0  # an image is there after minutes
SETTLED_S = 600.0  # by then a request whose response was lost has made its image, or never will
DELETE_AFTER_S = 15.0  # a submit takes less


@dataclass(frozen=True, slots=True)
class Report:
    """What the start-up script of the machine stored once its disk was clean."""

    launch_id: str


@dataclass(frozen=True, slots=True)
class Situation:
    """`run`: the one that prepares it; None = there is none. `used_by`: a live run that uses the base, "" = none.
    `prefix`, `supervisor_id`: of names and labels; `request_id`: for a new image."""

    now: float
    prefix: str
    supervisor_id: str
    request_id: str
    run: Run | None = None
    report: Part[Report] = NOT_READ
    image: Part[ImageSeen] = NOT_READ
    used_by: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """`base`: its next row; None = it stays as it is. `request`, `delete`: of its image, after the row is committed.
    `release`: the machine of its run is needed no more."""

    base: Base | None = None
    event: Event | None = None
    request: bool = False
    delete: bool = False
    release: bool = False


STAYS = Step()


def next_step(base: Base, seen: Situation) -> Step:
    if base.status == BaseStatus.PREPARING:
        return _prepared(base, seen)
    if base.status == BaseStatus.IMAGING:
        return _imaged(base, seen)
    if base.status == BaseStatus.FAILED:
        return _cleared(base, seen)
    return _deleted(base, seen) if base.status == BaseStatus.DELETING else STAYS


def failed(base: Base, why: str, now: float) -> Step:
    """Also for a request that the platform has refused."""
    after = replace(base, status=BaseStatus.FAILED, since=now, detail=why)
    return Step(after, _event(after, f"Base {base.name} failed: {why}."), release=True)


def _prepared(base: Base, seen: Situation) -> Step:
    run = seen.run
    if run is None:
        late = seen.now - base.since > UNSUBMITTED_S
        return failed(base, "the run that was to prepare it does not exist", seen.now) if late else STAYS
    if run.status != Status.COMPLETED:
        why = f"its run {run.run_id} is {run.status}" + (f": {run.detail}" if run.detail else "")
        return failed(base, why, seen.now) if run.terminal else STAYS
    attempt = run.attempt
    if isinstance(seen.report, Seen) and attempt is not None and seen.report.value.launch_id == attempt.launch_id:
        image = DiskImage(
            image_name(seen.prefix, seen.supervisor_id, base.name),
            seen.request_id,
            attempt.placement.zone,
            attempt.machine_name,
            seen.now,
        )
        container = run.image.digest or run.policy.image
        after = replace(base, status=BaseStatus.IMAGING, since=seen.now, image=image, container=container)
        return Step(
            after, _event(after, f"The machine of base {base.name} is prepared: image {image.name} is requested.")
        )
    if isinstance(seen.report, Absent) and (attempt is None or not _has_machine(run, attempt)):
        return failed(base, "its machine ended before it had cleaned its disk", seen.now)
    return STAYS


def _has_machine(run: Run, attempt: Attempt) -> bool:
    return any(item.launch_id == attempt.launch_id for item in run.retiring)


def _imaged(base: Base, seen: Situation) -> Step:
    image, part = base.image, seen.image
    assert image is not None
    is_late = seen.now - image.requested_at > IMAGE_S
    if isinstance(part, Absent):
        return failed(base, "there is no image after two hours", seen.now) if is_late else Step(request=True)
    if not isinstance(part, Seen):
        return STAYS
    seen_image = part.value
    if not seen_image.ours:
        after = replace(base, image=replace(image, gone=True))
        return failed(after, f"an image {image.name} exists that is not this base's", seen.now)
    if seen_image.state == "ready":
        made = replace(image, size_bytes=seen_image.size_bytes, disk_gb=seen_image.disk_gb or 0)
        after = replace(base, status=BaseStatus.READY, since=seen.now, ready_at=seen.now, image=made)
        size = f" ({size_text(seen_image.size_bytes)})" if seen_image.size_bytes is not None else ""
        return Step(after, _event(after, f"Base {base.name} is ready: image {image.name}{size}."), release=True)
    if seen_image.state == "failed" or is_late:
        why = (
            "the platform could not make the image" if seen_image.state == "failed" else "its image took over two hours"
        )
        return failed(base, why, seen.now)
    return STAYS


def _cleared(base: Base, seen: Situation) -> Step:
    """What a failed one may have left behind."""
    image, part = base.image, seen.image
    if image is None or image.gone:
        return STAYS
    if isinstance(part, Seen) and part.value.ours:
        return Step(delete=True)
    is_settled = seen.now - image.requested_at > SETTLED_S
    if isinstance(part, Seen) or (isinstance(part, Absent) and is_settled):
        return Step(replace(base, image=replace(image, gone=True)))
    return STAYS


def _deleted(base: Base, seen: Situation) -> Step:
    if seen.used_by:
        after = replace(base, status=BaseStatus.READY, since=seen.now)
        return Step(after, _event(after, f"Base {base.name} is not deleted: {seen.used_by} uses it."))
    if seen.now - base.since < DELETE_AFTER_S:
        return STAYS
    after = replace(base, status=BaseStatus.DELETED, since=seen.now, commands=())
    gone = Step(after, _event(after, f"Base {base.name} was deleted."), release=True)
    if base.image is None or base.image.gone or isinstance(seen.image, Absent):
        return gone
    if isinstance(seen.image, Seen):
        return Step(delete=True) if seen.image.value.ours else gone
    return STAYS


def _event(base: Base, text: str) -> Event:
    return Event(EventKind.BASE, text, data={"base": base.name, "status": str(base.status), "run_id": base.run_id})
