"""A place that fails a check of G0 or G1 gets no machine: through the whole loop, each with its own code and fix.

Each story has a zone of its own, with a host whose last reading has one fault or none; one run may use that zone alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from supervisor.contract.cards import Aside, Card
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.machines import HostFacts
from supervisor.domain.profile import NO_LIMIT, Fact, Profile, Reach, Source, Survival, Tier
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.offers import choosing
from supervisor.ports.provider import SecretRefused
from supervisor.services.runs.changing import change
from supervisor.services.runs.submit import SubmitRequest, submit
from supervisor.services.runs.waiving import WaiveRequest, waive
from supervisor.wording.run import status_text
from tests.scenarios.sim_plan import Plan
from tests.scenarios.stage import Settings, Stage
from tests.scenarios.user_verbs import ACTOR, spec_of

GB = 10**9
STORE = "/mnt/shared/spot"
H100 = "NVIDIA H100 80GB HBM3"
FREE = (Card(0, "uuid-0", H100), Card(1, "uuid-1", H100))
STRANGER = Card(0, "uuid-0", H100, "held by pid 4711 (python train.py, 60.0 GiB), which is not ours")
ASIDE = Card(0, "uuid-0", H100, aside=Aside("Xid 79", "spot-1-a1-t1", "digits", 1_764_000_000.0))
OURS = Card(0, "uuid-0", H100, "with machine spot-1-a1-t1", ours=True)
NEEDS: dict[str, Any] = {"needs": {"gpu": "H100", "cuda": "12.1", "memory_gb": 16, "disk_gb": 10}}
SPEC = {**NEEDS, "expect_checkpoint_gb": 2, "expect_checkpoint_every_s": 600}


def fact(value: Any) -> Fact[Any]:
    return Fact(value, Source.MEASURED, "2026-11-26", "a test")


def profile(**fields: Any) -> Profile:
    """Of a healthy host with two cards, whose object store outlives it."""
    kept = {"survives_destroy": fact(Survival.YES)}
    lost = {"survives_destroy": fact(Survival.NO)}
    healthy = {
        "session_cap_s": fact(NO_LIMIT), "store_reach": fact(Reach.DIRECT), "driver_cuda_max": fact("12.4"),
        "tiers": (Tier("shared", (STORE,), **kept), Tier("disk", ("/", "~"), **lost)),
    }  # fmt: skip
    return Profile("lab", "The lab", **{**healthy, **fields})


def host(**fields: Any) -> dict[str, Any]:
    return fields


class Story(NamedTuple):
    """`fails`: (code, check, a part of the fix); none of a healthy set-up. `host`: fields of its HostFacts that differ.
    `spec`: fields of the spec that differ."""

    name: str
    fails: tuple[str, str, str] | None
    host: dict[str, Any] = {}
    profile: dict[str, Any] = {}
    spec: dict[str, Any] = {}


VIOLATIONS = (
    Story("the store lies on the disk of the box", ("CHECKPOINT_NOT_DURABLE", "checkpoint_tier", "survives"),
          profile={"tiers": profile().tiers[1:]}),
    Story("the store's own volume goes with the box", ("CHECKPOINT_NOT_DURABLE", "checkpoint_tier", "Put both"),
          profile={"tiers": (Tier("volume", (STORE,), survives_destroy=fact(Survival.NO)),)}),
    Story("the disk is full", ("DISK_TOO_SMALL", "disk_bytes", "Free space"), host(free_bytes=0)),
    Story("the disk is one byte too small", ("DISK_TOO_SMALL", "disk_bytes", "a larger disk"),
          host(free_bytes=16 * GB - 1)),
    Story("no room for the agent, whatever a checkpoint takes", ("DISK_TOO_SMALL", "disk_bytes", "Free space"),
          host(free_bytes=64_000), spec={"expect_checkpoint_gb": None, "needs": {}}),
    Story("a larger checkpoint than the disk", ("DISK_TOO_SMALL", "disk_bytes", "fewer checkpoints"),
          spec={"expect_checkpoint_gb": 40}),
    Story("scratch data larger than the disk", ("DISK_TOO_SMALL", "disk_bytes", "a larger disk"),
          spec={"needs": {"disk_gb": 500}}),
    Story("inodes run out before bytes", ("INODES_LOW", "inodes", "many small files"), host(inodes_used_pct=97.0)),
    Story("inodes exactly at the limit", ("INODES_LOW", "inodes", "pack folders"), host(inodes_used_pct=90.0)),
    Story("a stranger on the card", ("GPU_NOT_FREE", "gpus", "named processes end"), host(cards=(STRANGER,))),
    Story("a stranger on one of two cards", ("GPU_NOT_FREE", "gpus", "another machine"),
          host(cards=(STRANGER, FREE[1]), cards_of={"cpu": 2})),
    Story("a card that is set aside", ("GPU_NOT_FREE", "gpus", "named processes end"), host(cards=(ASIDE,))),
    Story("another GPU than the run needs", ("GPU_NOT_FREE", "gpus", "another machine"),
          host(cards=(Card(0, "uuid-0", "NVIDIA T4"),))),
    Story("one card of two is missing", ("GPU_NOT_FREE", "gpus", "GPUs that are there"),
          host(cards=FREE[:1], cards_of={"cpu": 2})),
    Story("no card at all", ("GPU_NOT_FREE", "gpus", "GPUs that are there"), host(cards=())),
    Story("the driver is older than the CUDA of the training", ("DRIVER_TOO_OLD", "driver", "an image for CUDA 11.8"),
          profile={"driver_cuda_max": fact("11.8")}),
    Story("12.9 is older than 12.10", ("DRIVER_TOO_OLD", "driver", "newer driver"),
          profile={"driver_cuda_max": fact("12.9")}, spec={"needs": {"cuda": "12.10"}}),
    Story("a session of half an hour", ("LIMIT_TOO_SHORT", "time_limit", "a longer session"),
          profile={"session_cap_s": fact(1799.0)}),
    Story("machines that end before three checkpoints", ("LIMIT_TOO_SHORT", "time_limit", "more often"),
          spec={"limits": {"machine_max_s": 900.0}}),
    Story("the key of the host is another one", ("HOST_KEY_UNKNOWN", "host_key", "Compare the fingerprint"),
          host(host_key="not the known one")),
    Story("our key is refused", ("CHECK_FAILED", "key_login", "register its public part"), host(login_accepted=False)),
    Story("the login takes longer than anyone waits", ("CHECK_FAILED", "key_login", "ssh-keygen"), host(login_s=16.0)),
    Story("the store is not there", ("STORE_UNREACHABLE", "store_access", "let the supervisor relay"),
          host(store_refused=("read", "write", "precondition"))),
    Story("the store cannot be written", ("STORE_UNREACHABLE", "store_access", "read and write"),
          host(store_refused=("write", "precondition"))),
)  # fmt: skip

HEALTHY = (
    Story("a box with two free cards", None),
    Story("one card is free, and one is wanted", None, host(cards=(STRANGER, FREE[1]))),
    Story("a card of another machine of ours is left to the queue", None, host(cards=(OURS,))),
    Story("both cards for one run", None, host(cards_of={"cpu": 2})),
    Story("a box without cards", None, host(cards=None, cards_of={}), spec={"needs": {}}),
    Story("any GPU serves", None, host(cards=(Card(0, "uuid-0", "NVIDIA T4"),)), spec={"needs": {"cuda": "12.1"}}),
    Story("a disk that holds exactly what is needed", None, host(free_bytes=16 * GB)),
    Story("inodes just below the limit", None, host(inodes_used_pct=89.9)),
    Story("a file system without inodes", None, host(inodes_used_pct=None)),
    Story("the newest driver that the training needs", None, profile={"driver_cuda_max": fact("12.1")}),
    Story("two digits in the version", None, profile={"driver_cuda_max": fact("12.10")},
          spec={"needs": {"cuda": "12.9"}}),
    Story("a session that holds three checkpoints to the second", None, profile={"session_cap_s": fact(1800.0)}),
    Story("nobody says how often it saves", None, profile={"session_cap_s": fact(60.0)},
          spec={"expect_checkpoint_every_s": None}),
    Story("a login of a second", None, host(login_s=1.0)),
    Story("the supervisor relays", None, host(store_refused=("read", "write", "precondition")),
          profile={"store_reach": fact(Reach.RELAY)}),
    Story("a tier to look at first", None,
          profile={"tiers": (Tier("volume", (STORE,), survives_destroy=fact(Survival.VERIFY)),)}),
    Story("a tier that nobody knows", None, profile={"tiers": ()}),
    Story("nothing of the disk was read", None, host(free_bytes=None, inodes_used_pct=None)),
    Story("the driver did not respond", None, host(cards=None)),
    Story("the version of the driver is unknown", None, profile={"driver_cuda_max": Fact()}),
    Story("the store was not read", None, host(store_refused=None)),
    Story("neither key nor login is known", None, host(host_key=None, login_accepted=None, login_s=None)),
    Story("little memory is only a warning", None, host(memory_bytes=8 * GB)),
    Story("no host at all: the platform makes the machine", None, {"none": True}),
)  # fmt: skip
STORIES = {f"zone-{number}": story for number, story in enumerate((*VIOLATIONS, *HEALTHY))}
ZONE = {story.name: zone for zone, story in STORIES.items()}


def reading(zone: str, at: float, fields: dict[str, Any]) -> HostFacts | None:
    if "none" in fields:
        return None
    healthy: dict[str, Any] = {
        "host_key": "known", "login_accepted": True, "login_s": 0.2, "keepalive": (15.0, 2), "took_s": 0.1,
        "free_bytes": 80 * GB, "inodes_used_pct": 12.0, "memory_bytes": 64 * GB, "cards": FREE, "cards_of": {"cpu": 1},
        "store_refused": (),
    }  # fmt: skip
    return HostFacts(at=at, host=zone, **{**healthy, **fields})


class Lab(Stage):
    """`stories`: zone -> the story of its host."""

    def _set_up(self) -> None:
        self.stories = {zone: STORIES.get(zone, HEALTHY[0]) for zone in self.settings.zones}
        self.provider.profile = self.profile_of  # type: ignore[method-assign]
        super()._set_up()

    def start(self) -> None:
        super().start()
        assert self.supervisor is not None
        self.supervisor.tick.worldview.store_url = f"file://{STORE}"

    def profile_of(self, zone: str = "") -> Profile:
        story = self.stories.get(zone)
        if story is None:
            return profile()
        return profile(**{**story.profile, "host": reading(zone, self.clock.now(), story.host)})

    def submit(self, run_id: str, *zones: str, **spec: Any) -> None:
        self.plans[run_id] = Plan(steps=1_000_000)
        whole = {**spec_of(self, {}), **SPEC, **spec, "zones": list(zones)}
        submit(self.parts, SubmitRequest({k: v for k, v in whole.items() if v is not None}, run_id=run_id), ACTOR)

    def row(self, run_id: str) -> Run:
        run = self.rows.again("find", run_id)
        assert run is not None
        return run

    def launched_in(self) -> set[str]:
        return {request.placement.zone for request in self.provider.launches}


def lab(folder: Path, *zones: str) -> Lab:
    return Lab(folder, Settings(zones=zones))


@pytest.fixture(scope="module")
def all_stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    stage = lab(tmp_path_factory.mktemp("lab"), *STORIES)
    for zone, story in STORIES.items():
        stage.submit(f"run-{zone}", zone, **story.spec)
    stage.run_for(300.0)
    yield stage
    assert stage.faults.seen == []
    stage.close()


@pytest.mark.parametrize("story", VIOLATIONS, ids=lambda story: story.name)
def test_a_violation_stops_the_launch_with_its_code_and_fix(all_stories: Lab, story: Story) -> None:
    zone, run = ZONE[story.name], all_stories.row(f"run-{ZONE[story.name]}")
    assert story.fails is not None
    code, check, fix = story.fails
    assert zone not in all_stories.launched_in()
    assert (run.status, run.try_) == (Status.WAITING, None)
    assert run.detail.startswith(f"{zone}: {code} ({check}): ")
    assert fix in run.detail
    assert run.cause == (Cause.NO_CAPACITY if check in choosing.PASSING else Cause.LAUNCH_REJECTED)
    [event] = [each.event for each in all_stories.rows.events(run.run_id, 0, 100) if each.event.kind == "waiting"]
    assert event.text.startswith("Waiting: " if check in choosing.PASSING else "Needs you: ")
    assert code in event.text
    assert code in status_text(run, all_stories.own_clock.now())


@pytest.mark.parametrize("story", HEALTHY, ids=lambda story: story.name)
def test_a_healthy_setup_is_launched(all_stories: Lab, story: Story) -> None:
    run = all_stories.row(f"run-{ZONE[story.name]}")
    assert (run.status, run.counters.tries) == (Status.RUNNING, 1)
    kinds = {each.event.kind for each in all_stories.rows.events(run.run_id, 0, 100)}
    assert EventKind.WAITING not in kinds


def test_there_are_twenty_of_each_and_every_code_of_a_place() -> None:
    assert (len(VIOLATIONS) >= 20, len(HEALTHY) >= 20) == (True, True)
    assert {story.fails[0] for story in VIOLATIONS if story.fails} == {
        "CHECKPOINT_NOT_DURABLE", "DISK_TOO_SMALL", "INODES_LOW", "GPU_NOT_FREE", "DRIVER_TOO_OLD", "LIMIT_TOO_SHORT",
        "HOST_KEY_UNKNOWN", "CHECK_FAILED", "STORE_UNREACHABLE",
    }  # fmt: skip


# --- what follows -----------------------------------------------------------------------------------------------------


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Lab]:
    stage = lab(tmp_path, "a", "b")
    yield stage
    assert stage.faults.seen == []
    stage.close()


FULL, KEY_CHANGED = VIOLATIONS[2], VIOLATIONS[19]


def test_another_place_of_the_run_is_used(stage: Lab) -> None:
    stage.stories["a"] = FULL
    stage.submit("digits", "a", "b")
    stage.run_for(60.0)
    assert stage.launched_in() == {"b"}
    assert stage.row("digits").status == Status.RUNNING


@pytest.mark.parametrize("story", [FULL, KEY_CHANGED], ids=lambda story: story.name)
def test_the_run_starts_by_itself_when_it_is_fixed(stage: Lab, story: Story) -> None:
    stage.stories["a"] = story
    stage.submit("digits", "a")
    stage.run_for(600.0)
    assert (stage.row("digits").status, stage.launched_in()) == (Status.WAITING, set())
    waits = [each for each in stage.rows.events("digits", 0, 100) if each.event.kind == EventKind.WAITING]
    assert len(waits) == 1, "the same reason is no second event"
    stage.stories["a"] = HEALTHY[0]
    stage.run_for(150.0)
    assert stage.row("digits").status == Status.RUNNING


def test_a_waived_check_does_not_stop_it_and_another_one_does(stage: Lab) -> None:
    stage.stories["a"] = FULL
    stage.submit("digits", "a")
    stage.run_for(60.0)
    change(stage.parts, "digits", waive(WaiveRequest("inodes", "another check"), ACTOR))
    stage.run_for(120.0)
    assert stage.launched_in() == set()
    change(stage.parts, "digits", waive(WaiveRequest("disk_bytes", "it is cleared tonight"), ACTOR))
    stage.run_for(150.0)
    assert stage.launched_in() == {"a"}


def test_a_run_that_waits_too_long_ends_with_the_reason(stage: Lab) -> None:
    stage.stories["a"] = KEY_CHANGED
    stage.submit("digits", "a", limits={"wait_for_capacity_s": 600.0})
    stage.run_for(900.0)
    run = stage.row("digits")
    assert (run.status, run.cause) == (Status.FAILED, Cause.LAUNCH_REJECTED)


def test_a_cooling_place_and_a_stopped_one_are_both_told(stage: Lab) -> None:
    stage.stories["a"] = FULL
    stage.provider.stockout(["b"], None)
    stage.submit("digits", "a", "b")
    stage.run_for(60.0)
    run = stage.row("digits")
    assert (run.status, run.cause) == (Status.WAITING, Cause.NO_CAPACITY)
    assert "a: DISK_TOO_SMALL" in run.detail
    assert stage.launched_in() == {"b"}
    waits = [each.event for each in stage.rows.events("digits", 0, 100) if each.event.kind == EventKind.WAITING]
    assert [event.data.get("code") for event in waits] == ["DISK_TOO_SMALL"]
    stage.stories["a"] = HEALTHY[0]
    stage.run_for(120.0)
    assert stage.row("digits").status == Status.RUNNING, "it does not wait for the cool-down of the other one"


def test_a_host_with_another_key_is_refused_while_it_cannot_be_read(stage: Lab) -> None:
    stage.stories["a"] = KEY_CHANGED
    stage.provider.unreachable.add("a")
    stage.submit("digits", "a")
    stage.run_for(60.0)
    assert stage.row("digits").detail.startswith("a: HOST_KEY_UNKNOWN")
    stage.stories["a"] = HEALTHY[0]
    stage.run_for(90.0)
    assert "a cannot be read now" in stage.row("digits").hold
    stage.provider.unreachable.clear()
    stage.run_for(90.0)
    assert stage.row("digits").status == Status.RUNNING


def test_a_secret_that_cannot_be_read_is_refused_with_its_code(stage: Lab) -> None:
    """Only the launch reads it: before anything is started."""
    stage.provider.next_launch(SecretRefused("secret HF_TOKEN: it is not set"), comes_up=False)
    stage.submit("digits", "a")
    stage.run_for(1.0)
    run = stage.row("digits")
    assert (run.status, run.cause) == (Status.WAITING, Cause.LAUNCH_REJECTED)
    assert run.detail == "SECRET_UNREADABLE: secret HF_TOKEN: it is not set"
    stage.run_for(120.0)
    assert stage.row("digits").status == Status.RUNNING


def test_a_machine_that_trains_is_never_stopped_by_its_place(stage: Lab) -> None:
    stage.submit("digits", "a")
    stage.run_for(60.0)
    stage.stories["a"] = FULL
    stage.run_for(600.0)
    run = stage.row("digits")
    assert (run.status, run.counters.attempts) == (Status.RUNNING, 1)


def test_many_runs_of_one_place_cost_one_judgment_and_no_request(stage: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    real = choosing.stopping

    def counted(run: Run, *how: Any) -> Any:
        judged.append(run.run_id)
        return real(run, *how)

    stage.stories["a"] = FULL
    for number in range(200):
        stage.submit(f"run-{number}", "a")
    stage.run_for(75.0)
    assert {stage.row(f"run-{number}").status for number in range(200)} == {Status.WAITING}
    monkeypatch.setattr(choosing, "stopping", counted)
    stage.stories["a"] = FULL._replace(host={"free_bytes": 1_000_000})  # another figure in the text
    before, ticks = stage.rows.calls.copy(), stage.ticks
    stage.run_for(stage.settings.poll)
    assert (stage.ticks - ticks, len(judged)) == (1, 1)
    assert stage.requests < 30, "only the stop markers whose turn it is are read"
    assert "apply_all" not in stage.rows.calls - before, "they are not written again"


# --- broken variants --------------------------------------------------------------------------------------------------


def no_gate(*_: Any) -> tuple[()]:
    return ()


def test_a_loop_that_ignores_a_failed_gate_is_caught(stage: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "stops_of", no_gate)
    stage.stories["a"] = FULL
    stage.submit("digits", "a")
    stage.run_for(60.0)
    assert stage.launched_in() == {"a"}, "every story of this file would see this launch"
