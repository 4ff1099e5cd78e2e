"""Disk full, store away, checkpoints that do not verify: nothing is lost, nobody is restarted, everybody hears why."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.disks import SayingFull, SmallDisk
from tests.acceptance.stories import STORY, Stories, stories
from tests.properties import is_campaign
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-store")
ZONES = ["local-a", "local-b", "local-c"]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    with stories(tmp_path_factory.mktemp("store")) as told:
        yield told


# --- a full disk ------------------------------------------------------------------------------------------------------


@contextmanager
def served(daemon: SmallDisk | SayingFull, folder: Path) -> Iterator[Stories]:
    try:
        daemon.start()
        yield Stories(daemon, folder, daemon.seen / "objects")
    finally:
        daemon.close()


def progress(house: Stories, run_id: str) -> int:
    """The last step that the training itself wrote down."""
    lines = (house.machine(run_id) / "work/progress.jsonl").read_text().splitlines()
    return max(json.loads(line).get("step", 0) for line in lines)


def refused_submit(house: Stories, accepted: list[str]) -> Any:
    """Submit until there is no room left even in what the database had taken before; those accepted must all live."""
    for number in range(len(accepted), 400):
        answer = house.post("/v1/runs", {"run_id": f"full-{number}", "spec": {"command": "true"}})
        if answer.status_code != 201:
            return answer
        accepted.append(f"full-{number}")
    raise AssertionError("the disk never became full")


def submitted(house: Stories, run_id: str) -> bool:
    answer = house.post("/v1/runs", {"run_id": run_id, "spec": {"command": "true"}})
    assert answer.status_code in (201, 503), answer.text
    return answer.status_code == 201


@pytest.mark.parametrize("is_real", [True, *([False] if is_campaign() else [])])
def test_a_full_disk_refuses_clearly_and_loses_nothing(is_real: bool, tmp_path: Path) -> None:
    """Where this system lets nobody mount a tmpfs, the other kind of full disk tells the story."""
    (tmp_path / "probe").mkdir()
    disk = SmallDisk if is_real and SmallDisk.allowed(tmp_path / "probe") else SayingFull
    daemon, accepted = disk(tmp_path / "data", STORY), []
    with served(daemon, tmp_path) as house:
        for run_id in ("full-goes-on", "full-ends"):
            house.train(run_id)
        for run_id in ("full-goes-on", "full-ends"):
            house.trains(run_id)
        kept = house.saved("full-goes-on")
        daemon.fill()
        answer = refused_submit(house, accepted)
        assert answer.status_code == 503
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"]
        assert answer.json()["code"] == "UNAVAILABLE"
        assert answer.json()["meta"] == {"part": "database"}
        assert "disk" in daemon.log()  # the cause, for whoever keeps this computer
        ready = daemon.url + "/readyz"

        def says_so() -> bool:
            """A moved WAL makes room for a few writes, so the disk is filled again before each look."""
            refused_submit(house, accepted)
            return bool(house.daemon.http.get(ready).status_code == 503)

        wait_for(says_so, 60, "the supervisor to say so itself")
        house.open_gate("full-ends")  # its results find no room
        step = progress(house, "full-goes-on")
        wait_for(lambda: progress(house, "full-goes-on") > step + 10, 60, "the training to go on")
        for path in ("/livez", "/v1/runs", "/v1/events", "/v1/runs/full-goes-on", "/v1/doctor"):
            house.get(path)
        assert house.get("/v1/runs/full-goes-on")["status"] == "running"

        daemon.free()
        wait_for(lambda: submitted(house, "full-after"), 60, "a submit to be taken again")
        house.saved("full-goes-on", at_least=kept + 1)
        for run_id in (*accepted, "full-after"):
            assert house.wait(run_id, "completed", "failed")["status"] == "completed"
        for run_id in ("full-goes-on", "full-ends"):
            house.completes(run_id)
            assert house.lives(run_id) == [(1, 0)]
        with closing(sqlite3.connect(daemon.seen / "supervisor.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# --- a store that cannot be read --------------------------------------------------------------------------------------


@contextmanager
def a_file_in_its_place(objects: Path) -> Iterator[None]:
    away = objects.with_name("objects.away")
    objects.rename(away)
    objects.write_text("this is not an object store\n")
    try:
        yield
    finally:
        objects.unlink()
        away.rename(objects)


def on_hold(house: Stories, run_id: str) -> Any:
    def held() -> Any:
        run = house.daemon.run(run_id)
        return run if run["hold"] else None

    run = wait_for(held, 60, f"{run_id} to be held")
    assert "On hold: the object store cannot be read" in run["status_text"]
    assert "continues by itself" in run["status_text"]
    assert run["next_action"]["what"] == "on hold"
    return run


def test_a_store_that_cannot_be_read_starts_nothing_and_restarts_nobody(house: Stories) -> None:
    for run_id in ("away-kept", "away-lost"):
        house.train(run_id)
    for run_id in ("away-kept", "away-lost"):
        house.trains(run_id)
    step = house.saved("away-lost")
    house.daemon.submit("away-ended", command="true")
    house.wait("away-ended", "completed")
    with a_file_in_its_place(house.objects):
        house.train("away-later")
        assert on_hold(house, "away-later")["status"] == "pending"
        house.daemon.submit("away-stopped", command="true")
        house.daemon.call("POST", "/v1/runs/away-stopped/stop")
        house.wait("away-stopped", "stopped")
        answer = house.post("/v1/runs/away-stopped/resume")
        assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
        assert "it may hold a stop marker" in answer.json()["detail"]
        house.daemon.call("POST", "/v1/dev/preempt", {"run_id": "away-lost", "notice_s": 0})
        assert house.ended("away-lost")["cause"] == "preempted"
        assert on_hold(house, "away-lost")["status"] in ("recovering", "waiting")
        run = house.trains("away-kept", beyond=house.trains("away-kept")["progress"]["step"] + 10)
        assert run["counters"]["attempts"] == 1
        for run_id in ("away-later", "away-lost"):
            assert house.daemon.run(run_id)["counters"]["tries"] == (1 if run_id == "away-lost" else 0)
        assert len(house.attempts("away-lost")) == 1
    house.trains("away-later")
    house.trains("away-lost", beyond=step)
    assert house.lives("away-lost")[1][1] >= step
    assert house.lives("away-kept") == [(1, 0)]
    for run_id in ("away-kept", "away-lost", "away-later"):
        house.completes(run_id)
    assert house.daemon.call("POST", "/v1/runs/away-stopped/resume")["generation"] == 2
    assert house.wait("away-stopped", "completed", "failed")["status"] == "completed"


# --- checkpoints that do not verify -----------------------------------------------------------------------------------


def torn(path: Path) -> str:
    path.write_bytes(path.read_bytes()[:-7])
    return "differs from its checksum"


def altered(path: Path) -> str:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return "differs from its checksum"


def missing(path: Path) -> str:
    path.unlink()
    return "is not in the store"


def test_a_checkpoint_that_does_not_verify_is_told_of_and_the_one_before_is_used(house: Stories) -> None:
    damages = {"bad-torn": torn, "bad-altered": altered, "bad-missing": missing}
    for run_id in damages:
        house.train(run_id)
    for run_id in damages:
        house.saved(run_id, at_least=6)
    house.daemon.call("POST", "/v1/dev/stockout", {"zones": ZONES, "for_s": None})
    before, facts = {}, {}
    for run_id, damage in damages.items():
        house.daemon.call("POST", "/v1/dev/preempt", {"run_id": run_id, "notice_s": 0})
        house.wait(run_id, "waiting")
        baton = house.baton(run_id)
        pointer, before[run_id] = (baton["checkpoint"], (baton["checkpoint"]["step"], baton["previous"][0]["step"]))
        facts[run_id] = damage(house.objects / pointer["prefix"] / pointer["files"][0]["name"])
    house.daemon.call("POST", "/v1/dev/stockout", {"zones": ZONES, "for_s": 0})
    for run_id in damages:
        bad, good = before[run_id]
        house.trains(run_id, beyond=good)
        assert house.lives(run_id)[1] == (2, good)
        [event] = house.events(run_id, "checkpoint_rejected")
        assert f"Attempt 2 did not restore checkpoint {bad}, because it does not verify" in event["text"]
        assert f"step-{bad}.txt {facts[run_id]}" in event["text"]
        first, second = house.attempts(run_id)
        assert (first["cause"], second["step_from"]) == ("preempted", good)
        assert first["steps_lost"] == first["step_last"] - good
        house.saved(run_id, at_least=good + 1)
        house.completes(run_id)
        assert len(house.events(run_id, "checkpoint_rejected")) == 1
