"""Ready, doctor, and disasters on request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.errors import Conflict, DevRefused, InvalidRequest, NotFound, SchemaMismatch
from supervisor.domain.machines import MachineState
from supervisor.ports.provider import LaunchRequest, ProviderUnavailable
from supervisor.ports.store import RunFilter, StoreDown
from supervisor.services.doctor.doctor import Surroundings, examine
from supervisor.services.reading.health import LoopStatus, Preemptions, loop_json, readiness
from supervisor.services.runs.dev import Dev
from tests.services.bed import COMMAND, PLACE, Bed


def fit(bed: Bed) -> dict[str, bool]:
    return {check.name: check.ok for check in readiness(bed.parts, lambda: bed.loop)}


ALL = {"database": True, "schema": True, "lease": True, "tick": True, "writes": True}


def test_ready_when_everything_is(bed: Bed) -> None:
    assert fit(bed) == ALL


@pytest.mark.parametrize(
    ("loop", "bad"),
    [
        (LoopStatus(None, leader=True), {"tick"}),
        (LoopStatus(89.9, leader=True), set()),
        (LoopStatus(90.0, leader=True), {"tick"}),
        (LoopStatus(1.0), {"lease"}),
        (LoopStatus(None, follower=True), set()),
        (LoopStatus(1.0, leader=True, trouble="the object store is full"), {"writes"}),
    ],
)
def test_not_ready_without_a_tick_in_three_intervals_or_without_a_leader(
    bed: Bed, loop: LoopStatus, bad: set[str]
) -> None:
    bed.loop = loop
    assert fit(bed) == {**ALL, **dict.fromkeys(bad, False)}


@pytest.mark.parametrize(
    ("error", "bad"), [(StoreDown("disk full"), {"database", "schema"}), (SchemaMismatch("spot migrate"), {"schema"})]
)
def test_not_ready_without_the_database(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, error: Exception, bad: set[str]
) -> None:
    def check() -> None:
        raise error

    monkeypatch.setattr(bed.store, "check", check)
    assert fit(bed) == {**ALL, **dict.fromkeys(bad, False)}


def test_every_active_run_says_what_cannot_be_written(bed: Bed) -> None:
    bed.submit("digits")
    bed.submit("over")
    bed.end("over")
    bed.loop = LoopStatus(1.0, leader=True, trouble="the object store is full")
    told = {run["run_id"]: run["status_text"] for run in bed.services.queries.page(RunFilter(), 10, None)["runs"]}
    assert told["digits"].endswith("Needs you: the object store is full.")
    assert bed.services.queries.show("digits")["status_text"] == told["digits"]
    assert "full" not in told["over"]


def results(bed: Bed, around: Surroundings) -> dict[str, str]:
    told = examine(bed.parts, around, lambda: bed.loop)
    assert told["worst"] == max((check["result"] for check in told["checks"]), key=["ok", "warn", "fail"].index)
    assert all(check["cause"] or check["fix"] for check in told["checks"] if check["result"] != "ok")
    return {check["name"]: check["result"] for check in told["checks"]}


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    bundle = tmp_path / "agent.pyz"
    bundle.write_bytes(b"PK")
    return Surroundings(tmp_path, bundle)


def test_the_doctor_finds_nothing_where_nothing_is_wrong(bed: Bed, around: Surroundings) -> None:
    found = results(bed, around)
    expected = {"python", "disk", "inodes", "database", "objects", "clock", "agent", "cells", "lease", "tick"}
    expected |= {"secrets", "alerts", "orphans", "foreign"}
    assert set(found) == expected
    assert {name for name, result in found.items() if result == "fail"} == set()
    assert not next(iter(bed.objects.pages("doctor/"))).objects, "it cleans up after itself"


def test_the_doctor_finds_faults(bed: Bed, around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.objects.step(-30)
    bed.loop = LoopStatus(None)
    found = results(bed, Surroundings(around.data_dir / "gone", None))
    assert {name: result for name, result in found.items() if result != "ok"} == {
        "disk": "fail", "inodes": "fail", "clock": "warn", "agent": "fail", "lease": "fail", "tick": "fail",
        "secrets": "warn",
    }  # fmt: skip
    bed.objects.fail_writes = True
    assert results(bed, around)["objects"] == "fail"

    def check() -> None:
        raise StoreDown("disk full")

    monkeypatch.setattr(bed.store, "check", check)
    assert results(bed, around)["database"] == "fail"


def test_the_doctor_lists_runs_without_a_leader(bed: Bed, around: Surroundings) -> None:
    def cells() -> tuple[str, str]:
        checks = examine(bed.parts, around, lambda: bed.loop)["checks"]
        (found,) = (check for check in checks if check["name"] == "cells")
        return found["result"], found["fact"]

    bed.submit("digits-7")
    bed.submit("digits-8")
    assert cells() == ("warn", "runs without a leader: 2 of cell 'local cell'")
    assert bed.store.take_lease("local cell", "me", 60.0, 0.0) is not None
    assert cells()[0] == "ok"


def test_the_doctor_names_secrets_that_cannot_be_read_and_shows_none(bed: Bed, around: Surroundings) -> None:
    def told() -> tuple[str, str, str]:
        checks = examine(bed.parts, around, lambda: bed.loop)["checks"]
        (found,) = (check for check in checks if check["name"] == "secrets")
        return found["result"], found["fact"], found["cause"]

    assert told() == ("ok", "a secret's file can be read; no live run names a secret", "")
    assert [path.name for path in around.data_dir.iterdir() if path.name.startswith(".doctor")] == []
    bed.provider.secrets |= {"env:HF_TOKEN": "hush-one", "env:WANDB_API_KEY": "hush-two"}
    bed.submit("digits-7", {**COMMAND, "secrets": {"HF_TOKEN": "env:HF_TOKEN"}})
    bed.submit("digits-8", {**COMMAND, "secrets": {"TRACKER": "env:WANDB_API_KEY"}})
    assert told() == ("ok", "all secrets of live runs can be read: HF_TOKEN, TRACKER", "")
    bed.provider.spoilt.add("env:WANDB_API_KEY")
    fact = "1 of 2 secrets of live runs cannot be read, so their next launch is refused"
    assert told() == ("warn", fact, "TRACKER of digits-8: env:WANDB_API_KEY cannot be read")
    assert "hush" not in str(told())


# --- disasters --------------------------------------------------------------------------------------------------------


@pytest.fixture
def dev(bed: Bed) -> Dev:
    bed.submit("digits-7")
    request = LaunchRequest("m-a1", "r", PLACE, bed.store.supervisor_id, "digits-7", "1.1.1", 3600.0)
    machine = bed.provider.launch(request)
    bed.train("digits-7", machine_id=machine.machine_id)
    return Dev(bed.parts, {"local": bed.provider})


def test_a_machine_is_preempted_frozen_and_killed(bed: Bed, dev: Dev) -> None:
    assert dev.freeze("digits-7")["zone"] == "local-a"
    dev.preempt("digits-7", 30.0)
    (machine,) = bed.provider.machines().machines
    assert machine.state == MachineState.ENDING
    assert machine.record is not None
    assert dev.kill("digits-7")["machine"] == "m-a1"
    assert not bed.provider.machines().machines
    with pytest.raises(Conflict):
        dev.kill("digits-7")


def test_disasters_that_are_refused(bed: Bed, dev: Dev, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound):
        dev.kill("nobody")
    bed.submit("idle")
    with pytest.raises(Conflict, match="pending"):
        dev.kill("idle")
    bed.change("idle", provider="gce")
    with pytest.raises(DevRefused):
        dev.kill("idle")
    bed.change("digits-7", cell="local elsewhere file:///objects")
    with pytest.raises(DevRefused, match="another supervisor's data folder"):
        dev.kill("digits-7")
    bed.change("digits-7", cell=bed.parts.cells["local"])

    def away(_: object) -> None:
        raise ProviderUnavailable("away")

    monkeypatch.setattr(bed.provider, "kill", away)
    with pytest.raises(Exception, match="Retry"):
        dev.kill("digits-7")


def test_a_stockout_of_known_zones(bed: Bed, dev: Dev) -> None:
    assert dev.stockout(["local-a"], 60.0)["zones"] == ["local-a"]
    with pytest.raises(InvalidRequest, match="local-a, local-b, local-c"):
        dev.stockout(["mars-a"], None)


@pytest.mark.parametrize(("age_s", "ticking"), [(1.0, True), (90.0, False), (None, False)])
def test_the_loop_reports_its_state(age_s: float | None, ticking: bool) -> None:
    loop = LoopStatus(age_s, True, False, 0.25, 1.5, 7, {"cell": True, "outbox": False})
    assert loop_json(loop, 30.0) == {
        "leader": True,
        "ticking": ticking,
        "poll_interval_s": 30.0,
        "late_after_s": 90.0,
        "ticks": 7,
        "last_tick_age_s": age_s,
        "last_tick_took_s": 0.25,
        "last_tick_late_s": 1.5,
        "leases": [{"name": "cell", "held": True}, {"name": "outbox", "held": False}],
        "saved_on_notice": None,
        "forecasts_held": None,
    }


def test_preemptions_that_lost_no_step(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the stored attempts of live runs and of those that ended lately; read once in a minute, however many look."""
    for run_id, attempt in {
        "saved": {"preempted_at_step": 120, "step_from": 120},
        "lost": {"preempted_at_step": 120, "step_from": 100},
        "first": {},
        "boots": {"preempted_at_step": 120, "training_at": None},
    }.items():
        bed.submit(run_id)
        trains = bed.train(run_id).attempt
        assert trains is not None
        bed.change(run_id, attempt=replace(trains, **attempt))
    reader, reads = Preemptions(bed.parts), []
    stored = bed.store.patrols.attempts
    monkeypatch.setattr(bed.store.patrols, "attempts", lambda *page: reads.append(page) or stored(*page))
    assert reader.read() == reader.read() == {"window_s": 30 * 86_400.0, "preemptions": 2, "saved": 1}
    assert len(reads) == 1
    bed.clock.advance(61.0)
    assert reader.read() is not None
    assert len(reads) == 2

    def down(*_: object) -> None:
        raise StoreDown("disk full")

    bed.clock.advance(61.0)
    monkeypatch.setattr(bed.store.patrols, "attempts", down)
    assert reader.read() is None, "not read is not zero"
