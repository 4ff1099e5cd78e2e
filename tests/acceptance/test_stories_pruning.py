"""Checkpoints that are pruned and files that are purged, by real processes on a real disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from supervisor.contract import runfiles
from tests.acceptance.stories import STORY, Stories, stories

pytestmark = pytest.mark.xdist_group("stories-pruning")

# Runs at the start of every Python below the daemon: while the file is there, nothing arrives as it was sent.
DAMAGE = """
import os

whole = os.copy_file_range


def copy(source, target, count, *more):
    if not os.path.exists(os.environ["STORY_DAMAGE"]):
        return whole(source, target, count, *more)
    os.write(target, b"not what was sent")
    return 0


os.copy_file_range = copy
"""
RULE = {"keep_last": 2, "keep_best": 1, "keep_every": 10}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    folder = tmp_path_factory.mktemp("pruning")
    (folder / "sitecustomize.py").write_text(DAMAGE)
    environ = {**STORY, "PYTHONPATH": str(folder), "STORY_DAMAGE": str(folder / "damage")}
    with stories(folder, environ) as told:
        yield told


@contextmanager
def damage(house: Stories) -> Iterator[None]:
    flag = house.folder / "damage"
    flag.touch()
    try:
        yield
    finally:
        flag.unlink()


def pointers(baton: Any) -> list[Any]:
    newest = [baton["checkpoint"]] if baton["checkpoint"] else []
    return [*newest, *baton["previous"], *baton["kept"], *baton["best"]]


def named(house: Stories, run_id: str) -> set[str]:
    """Keys of what the baton names; each of them lies whole in the store."""
    keys = set()
    for pointer in pointers(house.baton(run_id)):
        for entry in pointer["files"]:
            key = pointer["prefix"] + entry["name"]
            assert hashlib.sha256((house.objects / key).read_bytes()).hexdigest() == entry["sha256"], key
            keys.add(key)
    return keys


def stored(house: Stories, run_id: str, folder: str = "checkpoints") -> set[str]:
    top = house.objects / runfiles.folder(run_id) / folder
    return {path.relative_to(house.objects).as_posix() for path in top.rglob("*") if path.is_file()}


def console(house: Stories, run_id: str) -> str:
    return (house.machine(run_id) / "console.log").read_text()


def removed(house: Stories, run_id: str) -> list[Any]:
    return [event["data"] for event in house.events(run_id, "checkpoints_removed")]


def test_while_the_newest_does_not_verify_nothing_is_removed_and_in_the_end_the_rule_holds(house: Stories) -> None:
    house.train("prune-1", "--best", checkpoints=RULE)
    house.saved("prune-1", at_least=24)
    with damage(house):
        house.until(lambda: "was not saved" in console(house, "prune-1"), 60, "an upload that is refused")
        before, baton = named(house, "prune-1"), house.baton("prune-1")
        refused = console(house, "prune-1").count("was not saved")
        house.until(lambda: console(house, "prune-1").count("was not saved") >= refused + 4, 60, "more of them")
        assert pointers(house.baton("prune-1")) == pointers(baton)
        assert named(house, "prune-1") == before
    house.saved("prune-1", at_least=baton["checkpoint"]["step"] + 12)
    house.completes("prune-1")

    end = house.baton("prune-1")
    assert stored(house, "prune-1") == named(house, "prune-1")  # the disk holds exactly what the baton names
    assert len([end["checkpoint"], *end["previous"]]) == 2
    assert len(end["best"]) == 1
    reached = [pointer["step"] // 10 for pointer in end["kept"]]
    assert len(reached) >= 2
    assert reached == sorted(set(reached), reverse=True)
    assert 1 in reached

    told = house.told("prune-1", "checkpoints_removed")
    assert any("removed: keep_last 2" in text for text in told)
    assert any("removed: keep_best 1" in text for text in told)
    # Each name was uploaded once and is either kept or was told of: 3, 6, 9 … as best and as newest.
    gone = [step for data in removed(house, "prune-1") for step in data["steps"]]
    assert sum(data["count"] for data in removed(house, "prune-1")) >= len(gone) > 0
    assert max(gone.count(step) for step in gone) <= 2
    milestones = {pointer["step"] for pointer in end["kept"]}
    assert all(gone.count(step) <= 1 for step in milestones)  # gone as best only


def test_what_a_dead_machine_left_behind_is_removed_and_told_by_the_next_one(house: Stories) -> None:
    house.train("prune-2", checkpoints=RULE)
    house.saved("prune-2", at_least=6)
    half = house.objects / runfiles.checkpoint("prune-2", 999, 1) / "step-999.txt"
    half.parent.mkdir()
    half.write_text("half of it")
    house.daemon.call("POST", "/v1/dev/kill", {"run_id": "prune-2"})
    house.until(lambda: not half.exists(), 60, "the leftover to be deleted")
    house.trains("prune-2", beyond=9)

    def told() -> list[str]:
        texts = house.told("prune-2", "checkpoints_removed")
        return [text for text in texts if "heckpoint 999 removed: the baton does not name it" in text]

    house.until(told, 60, "its removal to be told")
    house.completes("prune-2")
    assert len(told()) == 1
    assert stored(house, "prune-2") == named(house, "prune-2")


def purge(house: Stories, run_id: str) -> Any:
    return house.post(f"/v1/runs/{run_id}/purge", {"confirm": run_id})


def cut_off_and_kill(house: Stories, run_id: str) -> None:
    """The store goes away while a purge begins, and the supervisor is killed."""
    away = house.objects.with_name("objects.away")
    house.objects.rename(away)
    try:

        def cut_off() -> bool:
            answer = purge(house, run_id)
            assert answer.status_code in (409, 503), answer.text
            return answer.status_code == 503

        house.until(cut_off, 60, "a purge that begins and cannot go on")
        house.daemon.kill()
    finally:
        away.rename(house.objects)


def test_a_purge_waits_for_the_machine_survives_a_kill_and_leaves_nothing_to_resume_from(house: Stories) -> None:
    house.train("purge-1", "--best")
    house.saved("purge-1", at_least=3)
    refused = purge(house, "purge-1")
    assert (refused.status_code, refused.json()["code"]) == (409, "PURGE_REFUSED")
    assert "running" in refused.json()["detail"]
    house.trains("purge-1", beyond=6)  # and nothing was done to it
    house.daemon.call("POST", "/v1/runs/purge-1/stop", {})
    house.wait("purge-1", "stopped")
    house.nothing_is_left("purge-1")

    def settled() -> bool:
        return (house.objects / runfiles.manifest("purge-1")).exists()

    house.until(settled, 60, "its records to be written")
    cut_off_and_kill(house, "purge-1")
    house.daemon.start()
    assert house.daemon.run("purge-1")["purging"] is True
    assert len(named(house, "purge-1")) > 0  # it had only just begun
    blocked = house.post("/v1/runs/purge-1/resume", {})
    assert (blocked.status_code, blocked.json()["code"]) == (409, "PURGE_RUNNING")

    done = purge(house, "purge-1").json()
    assert done["deleted_files"] > 5
    assert stored(house, "purge-1", "") == {runfiles.baton("purge-1")}
    left = house.baton("purge-1")
    assert (pointers(left), left["done"], left["closed"]) == ([], None, "purged")
    assert house.post("/v1/runs/purge-1/purge", {"confirm": "purge-2"}).status_code == 422
    kinds = [(event["kind"], event["actor"]) for event in house.events("purge-1", "purged")]
    assert set(kinds) == {("purged", "local")}
    log = house.daemon.http.get(f"{house.daemon.url}/v1/runs/purge-1/logs?attempt=1")
    assert (log.status_code, log.json()["code"]) == (410, "FILES_PURGED")

    house.daemon.call("POST", "/v1/runs/purge-1/resume", {})
    house.trains("purge-1", beyond=3)
    assert house.lives("purge-1")[-1][1] == 0
    assert "because its files were purged" in house.told("purge-1", "resumed")[-1]
    house.completes("purge-1")
