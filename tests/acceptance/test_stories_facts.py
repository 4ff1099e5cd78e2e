"""A real run of two attempts, between which somebody installs another version: its facts tell which."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.contract import runfiles
from tests import forked
from tests.acceptance.daemon import machine_pids
from tests.acceptance.stories import TRAINING, Stories, stories

CANARY = "c4nary-f4cts-91xz"
PAGE = "https://wandb.ai/me/digits/runs/3kq9x1ab"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Stories]:
    with stories(tmp_path) as found:
        yield found


def install(folder: Path, version: str) -> None:
    """As an upgrade by pip does it: the metadata of the old version is gone."""
    for old in folder.glob("drifting-*.dist-info"):
        (old / "METADATA").unlink()
        old.rmdir()
    info = folder / f"drifting-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: drifting\nVersion: {version}\n")


def test_an_upgrade_between_two_attempts_is_flagged(house: Stories, tmp_path: Path) -> None:
    site, token = tmp_path / "site", tmp_path / "token"
    install(site, "1.0")
    token.write_text(CANARY)
    token.chmod(0o600)
    tracker = f"echo wandb: View run at '{PAGE}?note='$LAB_TOKEN"
    house.daemon.submit(
        "drifts",
        command=f"{tracker}; exec {sys.executable} -S {TRAINING} {house.gate('drifts')}  # --seed 7",
        env={"PYTHONPATH": str(site), "PYTHONHASHSEED": "0"},
        secrets={"LAB_TOKEN": f"file:{token}"},
    )
    house.trains("drifts")
    house.saved("drifts")
    facts = lambda: house.get("/v1/runs/drifts/facts")  # noqa: E731
    house.until(lambda: "tracker_url" in (facts()["attempts"][0]["facts"] or {}), 60, "the first attempt's facts")
    install(site, "1.1")
    house.daemon.call("POST", "/v1/dev/preempt", {"run_id": "drifts", "notice_s": 0})
    assert house.ended("drifts")["cause"] == "preempted"
    house.trains("drifts")
    run = house.completes("drifts")

    answer = facts()
    assert [one["cause"] for one in answer["attempts"]] == ["preempted", "finished"]
    first, second = (one["facts"] for one in answer["attempts"])
    assert first["python_executable"] == sys.executable
    assert first["kernel"] == os.uname().release
    assert first["seeds"] == {"PYTHONHASHSEED": "0", "--seed": "7"}
    assert first["tracker_url"] == second["tracker_url"] == f"{PAGE}?note=masked-LAB_TOKEN"
    assert "drifting==1.1" in second["packages"]
    (row,) = answer["differs"]
    assert (row["attempt"], row["against"], row["fact"]) == (2, 1, "packages")
    assert row["packages"] == {
        "changed": [{"was": "drifting==1.0", "is": "drifting==1.1"}],
        "added": [],
        "removed": [],
        "left_out": 0,
    }
    assert first["packages_sha256"] != second["packages_sha256"]

    manifest = json.loads((house.objects / runfiles.manifest("drifts")).read_text())
    assert manifest["spec"]["env"]["PYTHONHASHSEED"] == "0"
    assert manifest["spec"]["secrets"] == {"LAB_TOKEN": f"file:{token}"}, "by reference"
    assert [one["cause"] for one in manifest["attempts"]] == ["preempted", "finished"]
    assert manifest["facts"] == second
    assert manifest["facts_differ"] == answer["differs"]
    shown = forked.spot("show", "drifts", "--facts", environ={**os.environ, **house.daemon.for_cli()})
    assert "    drifting==1.0 → drifting==1.1\n" in shown.stdout, shown.stderr
    assert run["status"] == "completed"
    kept = [path for path in house.objects.rglob("*") if path.is_file()]
    assert [str(path) for path in kept if CANARY.encode() in path.read_bytes()] == []
    assert machine_pids(house.daemon.data_dir) == []
