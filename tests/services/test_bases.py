"""Bases from their creation to their end: scripts, images with every misfortune, and what a submit makes of a name."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.domain.bases import Base, BaseStatus, ImageSeen
from supervisor.domain.errors import (
    BaseInUse,
    BaseNotFound,
    BaseNotReady,
    Forbidden,
    InvalidRequest,
    NotFound,
    PlanRequired,
    SecretInSpec,
    SpendUnbounded,
    SpotError,
)
from supervisor.domain.status import Status
from supervisor.ports.provider import ImageRefused, ImageRequest, ProviderUnavailable
from supervisor.ports.store import RunFilter
from supervisor.services.bases.requests import CreateRequest, create, list_bases, remove
from supervisor.services.bases.working import BaseWork
from supervisor.services.runs.keys import Reply, keyed_request
from supervisor.services.runs.resume import ResumeRequest, resume_once
from tests.fakes.callers import MEMBER, OPS
from tests.services.bed import Bed
from tests.services.caps_sessions import payer

SCRIPT = "pip install timm"


@dataclass
class FakeImages:
    """A platform that makes images. `away`: it does not respond. `lost`: it does what is asked, and the response is
    lost. `refusal`: of the next requests."""

    usd_per_gb_month: float | None = 0.05
    clean_up: str = "true"
    away: bool = False
    lost: bool = False
    refusal: str = ""
    made: dict[str, ImageSeen] = field(default_factory=dict)
    requests: list[ImageRequest] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def request(self, request: ImageRequest) -> None:
        self._answer()
        self.requests.append(request)
        if self.refusal:
            raise ImageRefused(self.refusal)
        self.made.setdefault(request.name, ImageSeen("pending", True))
        if self.lost:
            raise ProviderUnavailable("the response was lost")

    def find(self, name: str, supervisor_id: str, base: str) -> ImageSeen | None:
        self._answer()
        return self.made.get(name)

    def delete(self, name: str, request_id: str) -> None:
        self._answer()
        self.deleted.append(name)
        self.made.pop(name, None)

    def finish(self, state: str = "ready") -> None:
        self.made = {name: ImageSeen(state, True, 4_000_000_000, 100) for name in self.made}

    def _answer(self) -> None:
        if self.away:
            raise ProviderUnavailable("HTTP 503")


class Imaging:
    """A bed whose provider makes images of disks."""

    def __init__(self, bed: Bed) -> None:
        self.images = FakeImages()
        self.bed = bed
        self.parts = replace(bed.parts, images={"local": self.images})
        self.work = BaseWork(self.parts)

    def tick(self, after_s: float = 30.0) -> None:
        self.bed.clock.advance(after_s)
        self.work.run(self.bed.clock.now())

    def base(self, name: str = "torch-v1") -> Base:
        base = self.bed.store.bases.find(name)
        assert base is not None
        return base

    def prepared(self, report: bool = True) -> str:
        """A base whose run has succeeded; its machine is kept. The id of the run."""
        run_id = create(self.parts, CreateRequest("torch", SCRIPT), MEMBER)["run_id"]
        assert run_id is not None
        self.bed.train(run_id)
        self.bed.end(run_id, Status.COMPLETED, kept_until=self.bed.clock.now() + 3600)
        if report:
            self.bed.objects.put(runfiles.prepared(run_id, 1), b'{"launch_id": "1.1.1"}')
        return run_id


@pytest.fixture
def imaging(bed: Bed) -> Imaging:
    return Imaging(bed)


# --- scripts ----------------------------------------------------------------------------------------------------------


def test_where_no_images_are_made_a_base_is_ready_at_once_and_a_submit_keeps_its_version(bed: Bed) -> None:
    shown = create(bed.parts, CreateRequest("torch", SCRIPT), MEMBER)
    assert (shown["name"], shown["status"], shown["run_id"], shown["usd_per_month"]) == (
        "torch-v1",
        "ready",
        None,
        None,
    )
    bed.submit("digits", {"command": "train", "base": "torch"})
    create(bed.parts, CreateRequest("torch", "pip install timm==2"), MEMBER)
    assert bed.store.spec(bed.run("digits").key)["base"] == "torch-v1"
    assert bed.run("digits").policy.base == "torch-v1"
    bed.submit("later", {"command": "train", "base": "torch"})
    assert bed.run("later").policy.base == "torch-v2"
    assert [base["name"] for base in list_bases(bed.parts)["bases"]] == ["torch-v2", "torch-v1"]


def test_a_submit_names_what_is_wrong_with_its_base(bed: Bed, imaging: Imaging) -> None:
    with pytest.raises(BaseNotFound, match="no base torch"):
        bed.submit("digits", {"command": "train", "base": "torch"})
    create(imaging.parts, CreateRequest("torch", SCRIPT), MEMBER)
    with pytest.raises(BaseNotReady, match="torch-v1 is preparing"):
        bed.submit("digits", {"command": "train", "base": "torch"})
    assert bed.store.find("digits") is None


def test_a_base_of_a_run_repeats_its_preparation(bed: Bed) -> None:
    create(bed.parts, CreateRequest("torch", SCRIPT), MEMBER)
    bed.submit("digits", {"command": "train", "base": "torch", "setup": ["make"]})
    assert create(bed.parts, CreateRequest("jax", from_run="digits"), MEMBER)["script"] == f"{SCRIPT}\nmake"
    bed.submit("bare", {"command": "train"})
    with pytest.raises(InvalidRequest, match="neither a setup nor a base"):
        create(bed.parts, CreateRequest("jax", from_run="bare"), MEMBER)
    with pytest.raises(NotFound):
        create(bed.parts, CreateRequest("jax", from_run="nobody"), MEMBER)
    for wrong in (CreateRequest("jax"), CreateRequest("jax", SCRIPT, "digits"), CreateRequest("jax-v2", SCRIPT)):
        with pytest.raises(InvalidRequest):
            create(bed.parts, wrong, MEMBER)
    assert len(bed.store.bases.all()) == 2


def test_a_repeat_with_the_same_key_gets_its_response_when_the_base_is_gone(bed: Bed) -> None:
    """Broken variant: refused, so the client believed that its run does not exist."""
    create(bed.parts, CreateRequest("torch", SCRIPT), MEMBER)
    spec = {"command": "train", "base": "torch"}
    first = bed.submit(None, spec, key="k-1")
    run_id = json.loads(first.body)["run_id"]
    bed.end(run_id, Status.FAILED)
    again = partial(resume_once, bed.parts, run_id, ResumeRequest(MEMBER, {**spec, "retry": {}}, replace_spec=True))
    key = keyed_request("k-2", "resume", [])
    assert key is not None
    resumed = again(key, lambda update: Reply(200, update.run.run_id))
    bed.end(run_id, Status.STOPPED)
    remove(bed.parts, "torch-v1", MEMBER)
    repeated = bed.submit(None, spec, key="k-1")
    assert (repeated.replayed, repeated.body) == (True, first.body)
    assert again(key, lambda update: Reply(200, "")).body == resumed.body
    with pytest.raises(BaseNotFound):
        bed.submit(None, spec, key="k-3")


def test_a_submit_reads_the_family_of_its_base_once(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    create(bed.parts, CreateRequest("torch", SCRIPT), MEMBER)
    reads, family = Counter[str](), bed.store.bases.family
    monkeypatch.setattr(bed.store.bases, "family", lambda name: reads.update([name]) or family(name))
    bed.submit("digits", {"command": "train", "base": "torch"})
    assert reads == {"torch": 1}


def test_only_its_owner_removes_a_base_and_never_under_a_live_run(bed: Bed) -> None:
    create(bed.parts, CreateRequest("torch", SCRIPT), replace(MEMBER, owner="bob"))
    with pytest.raises(Forbidden):
        remove(bed.parts, "torch-v1", MEMBER)
    bed.submit("digits", {"command": "train", "base": "torch"})
    with pytest.raises(BaseInUse, match="digits"):
        remove(bed.parts, "torch-v1", OPS)
    bed.end("digits", Status.STOPPED)
    assert remove(bed.parts, "torch-v1", OPS)["status"] == "deleted"
    with pytest.raises(BaseNotFound):
        remove(bed.parts, "torch-v1", OPS)
    with pytest.raises(BaseNotFound):
        bed.resume("digits")


# --- images -----------------------------------------------------------------------------------------------------------


def test_the_run_that_prepares_is_submitted_with_its_row_and_is_an_ordinary_run(imaging: Imaging) -> None:
    shown = create(imaging.parts, CreateRequest("torch", SCRIPT, shapes=("cpu",)), MEMBER)
    run = imaging.bed.run("base-torch-v1")
    assert (shown["status"], shown["run_id"], run.owner) == ("preparing", "base-torch-v1", MEMBER.owner)
    assert (run.policy.prepares, run.policy.on_success, run.policy.keep_s) == ("torch-v1", "keep", 3600.0)
    assert imaging.bed.store.spec(run.key)["setup"] == [SCRIPT]
    with pytest.raises(BaseInUse, match="base-torch-v1"):
        remove(imaging.parts, "torch-v1", MEMBER)


def test_a_refused_run_leaves_no_base(imaging: Imaging) -> None:
    with pytest.raises(SecretInSpec):
        create(imaging.parts, CreateRequest("torch", "export KEY=sk-ant-api03-" + "a1B2" * 20), MEMBER)
    assert imaging.bed.store.bases.all() == []
    assert create(imaging.parts, CreateRequest("torch", SCRIPT), MEMBER)["name"] == "torch-v2"


@pytest.mark.parametrize(
    ("caps", "refusal"), [({"usd_per_day": 9.0}, SpendUnbounded), ({"plans_only": True}, PlanRequired)]
)
def test_a_token_with_caps_keeps_no_machine_for_a_base(
    imaging: Imaging, caps: dict[str, Any], refusal: type[SpotError]
) -> None:
    with pytest.raises(refusal) as refused:
        create(imaging.parts, CreateRequest("torch", SCRIPT), payer(imaging.bed, **caps))
    assert "on_success" not in refused.value.detail, "a request for a base has no such field"
    assert imaging.bed.store.bases.all() == []
    assert imaging.bed.store.find("base-torch-v1") is None


def test_a_base_that_is_removed_before_its_run_gets_none(imaging: Imaging, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: a run of another name prepared a machine for it and kept it for an hour."""
    bases = imaging.bed.store.bases
    change = bases.change

    def removed_first(base: Base, event: object, now: float) -> Base | None:
        monkeypatch.setattr(bases, "change", change)
        remove(imaging.parts, base.name, MEMBER)
        return change(base, None, now)

    monkeypatch.setattr(bases, "change", removed_first)
    with pytest.raises(BaseInUse, match="changed meanwhile"):
        create(imaging.parts, CreateRequest("torch", SCRIPT), MEMBER)
    imaging.tick()
    imaging.tick()
    assert (bases.all(), imaging.bed.store.page(RunFilter(), None, 10).runs) == ([], ())


def test_from_a_clean_machine_to_a_base_that_runs_use(imaging: Imaging) -> None:
    run_id = imaging.prepared()
    imaging.tick()
    assert (imaging.base().status, imaging.images.requests) == (BaseStatus.IMAGING, []), "the row comes first"
    imaging.tick()
    [wish] = imaging.images.requests
    assert (wish.disk, wish.zone, wish.base) == ("m-a1", "local-a", "torch-v1")
    assert imaging.bed.run(run_id).kept_until is not None
    imaging.images.finish()
    imaging.tick()
    base, run = imaging.base(), imaging.bed.run(run_id)
    assert (base.status, base.settled) == (BaseStatus.READY, True)
    assert run.kept_until is None
    assert run.retiring[0].until <= imaging.bed.clock.now(), "its machine goes now"
    [shown] = list_bases(imaging.parts)["bases"]
    assert (shown["size_bytes"], shown["usd_per_month"], shown["image"]) == (4_000_000_000, 0.2, wish.name)
    before = len(imaging.images.requests)
    imaging.tick()
    assert len(imaging.images.requests) == before


def test_a_base_says_when_its_image_is_requested(imaging: Imaging) -> None:
    imaging.prepared()
    imaging.tick()
    told = [stored.event for stored in imaging.bed.store.events(None, 0, 99)]
    assert [event.data["status"] for event in told if "status" in event.data][-1:] == ["imaging"]


@pytest.mark.parametrize("end", [BaseStatus.READY, BaseStatus.FAILED])
def test_a_crash_before_the_release_leaves_no_machine(
    imaging: Imaging, monkeypatch: pytest.MonkeyPatch, end: BaseStatus
) -> None:
    """Broken variant: it stayed for the hour of its own limit."""

    def dies(*_: object) -> None:
        raise SystemExit

    run_id = imaging.prepared()
    imaging.tick()
    imaging.tick()
    imaging.images.finish("ready" if end == BaseStatus.READY else "failed")
    with monkeypatch.context() as killed:
        killed.setattr(BaseWork, "_release", dies)
        with pytest.raises(SystemExit):
            imaging.tick()
    assert imaging.base().status == end
    assert imaging.bed.run(run_id).kept_until is not None
    imaging.work = BaseWork(imaging.parts)
    for _ in range(25):  # a failed one is settled when no image of it can appear any more
        imaging.tick()
    assert imaging.bed.run(run_id).kept_until is None
    reads = Counter[str]()
    find = imaging.bed.store.find
    monkeypatch.setattr(imaging.bed.store, "find", lambda run_id: reads.update([run_id]) or find(run_id))
    imaging.tick()
    assert not reads, "a base that is done costs no more reads"


@pytest.mark.parametrize("trouble", ["away", "lost"])
def test_an_unclear_response_makes_no_second_image(imaging: Imaging, trouble: str) -> None:
    imaging.prepared()
    imaging.tick()
    setattr(imaging.images, trouble, True)
    for _ in range(3):
        imaging.tick()
    assert imaging.base().status == BaseStatus.IMAGING
    setattr(imaging.images, trouble, False)
    imaging.tick()
    imaging.images.finish()
    imaging.tick()
    assert imaging.base().status == BaseStatus.READY
    assert len({wish.request_id for wish in imaging.images.requests}) == 1
    assert len(imaging.images.requests) == 1


def test_a_refusal_fails_the_base_frees_the_machine_and_leaves_no_image(imaging: Imaging) -> None:
    run_id = imaging.prepared()
    imaging.tick()
    imaging.images.refusal = "HTTP 403 forbidden: compute.images.create"
    imaging.tick()
    base = imaging.base()
    assert (base.status, base.settled) == (BaseStatus.FAILED, False)
    assert "compute.images.create" in base.detail
    assert imaging.bed.run(run_id).kept_until is None
    imaging.images.made[imaging.images.requests[0].name] = ImageSeen("ready", True)  # of a request before it
    imaging.tick()
    assert imaging.images.deleted == [imaging.images.requests[0].name]
    imaging.tick(700)
    assert imaging.base().settled


def test_an_image_is_deleted_only_when_no_live_run_uses_it(imaging: Imaging) -> None:
    imaging.prepared()
    imaging.tick()
    imaging.tick()
    imaging.images.finish()
    imaging.tick()
    [name] = imaging.images.made
    remove(imaging.parts, "torch-v1", MEMBER)
    imaging.tick(5)
    assert imaging.images.deleted == []
    base = imaging.bed.store.bases.change(replace(imaging.base(), status=BaseStatus.READY), None, 0)
    assert base is not None
    imaging.bed.submit("late", {"command": "train", "base": "torch"})  # it had read the row before the removal
    imaging.bed.store.bases.change(replace(base, status=BaseStatus.DELETING), None, 0)
    imaging.tick(70)
    assert (imaging.images.deleted, imaging.base().status) == ([], BaseStatus.READY)
    imaging.bed.end("late")
    remove(imaging.parts, "torch-v1", MEMBER)
    imaging.images.away = True
    imaging.tick(70)
    assert imaging.base().status == BaseStatus.DELETING, "unread is not gone"
    imaging.images.away = False
    imaging.tick()
    assert imaging.images.deleted == [name]
    imaging.tick()
    assert imaging.base().status == BaseStatus.DELETED


def test_a_report_that_is_no_report_begins_nothing(imaging: Imaging) -> None:
    run_id = imaging.prepared(report=False)
    for torn in (b"{", b"[]", b'{"launch_id": "9.9.9"}'):
        imaging.bed.objects.put(runfiles.prepared(run_id, 1), torn)
        imaging.tick()
        assert imaging.base().status == BaseStatus.PREPARING


def test_an_error_of_one_base_ends_neither_the_loop_nor_the_work_on_others(
    imaging: Imaging, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken variant: the newest base failed in each tick, and the work on those before it was never done."""
    imaging.prepared()
    create(imaging.parts, CreateRequest("jax", SCRIPT), MEMBER)
    report = BaseWork._report
    monkeypatch.setattr(
        BaseWork, "_report", lambda self, run: 1 / 0 if run.run_id == "base-jax-v1" else report(self, run)
    )
    imaging.tick()
    assert imaging.base("jax-v1").status == BaseStatus.PREPARING
    assert "ZeroDivisionError" in caplog.text
    assert imaging.base().status == BaseStatus.IMAGING
