"""Two providers in one daemon: each run on its own, and a run of the one that was alone before goes on under both."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.acceptance.daemon import QUICK
from tests.paper.test_paper_provider import SECTION, TRAINING, PaperDaemon
from tests.waiting import wait_for

LAB = '[providers.lab]\nkind = "local"\nzones = ["bench"]\n'
PATIENT = f"import os, time\nwhile not os.path.exists({{flag!r}}): time.sleep(0.05)\n{TRAINING}"


def settings_file(folder: Path, text: str) -> dict[str, str]:
    file = folder / "spot.toml"
    file.write_text(text, encoding="utf-8")
    return {**QUICK, "SPOT_CONFIG": str(file), "SPOT_INSECURE_LOOPBACK": "true"}


@pytest.fixture
def daemon(tmp_path: Path):
    daemon = PaperDaemon(tmp_path / "data", settings_file(tmp_path, LAB + SECTION))
    with daemon.http:
        yield daemon
        daemon.kill()


def zone_of(daemon: PaperDaemon, run_id: str) -> tuple[str, str]:
    place = daemon.call("GET", f"/v1/runs/{run_id}/attempts")["attempts"][-1]["placement"]
    return place["provider"], place["zone"]


def test_each_run_gets_a_machine_of_its_provider(daemon: PaperDaemon) -> None:
    daemon.start()
    spec = {"command": [sys.executable, "-c", TRAINING], "results": [{"path": "result.txt"}]}
    daemon.submit("essay", **spec, provider="mill")
    daemon.submit("digits", **spec)
    for run_id in ("essay", "digits"):
        assert daemon.wait_status(run_id, "completed", "failed", "partial")["status"] == "completed"
    assert (zone_of(daemon, "essay"), zone_of(daemon, "digits")) == (("mill", "tray-7"), ("lab", "bench"))
    shown = daemon.call("GET", "/v1/providers")["providers"]
    assert [(one["name"], one["listing_read"], one["breaker"]) for one in shown] == [
        ("lab", True, "closed"),
        ("mill", True, "closed"),
    ]
    prices = {one["shape"]: one["source"] for one in daemon.call("GET", "/v1/prices")["prices"]}
    assert prices["a4"] == "mill"
    lines = {line["name"]: line["fact"] for line in daemon.call("GET", "/v1/doctor")["checks"]}
    assert lines["settings"].startswith("lab: machines are on this computer (bench)")
    assert "; mill: machines are sheets of paper in tray-7" in lines["settings"]
    assert lines["stock"] == "0 of 2 sheets are written on"


@pytest.mark.parametrize(
    ("before", "after"),
    [(SECTION, LAB + SECTION), (LAB + SECTION, SECTION)],
    ids=["a section is added", "the section before its own is taken out"],
)
def test_a_run_goes_on_under_other_sections(daemon: PaperDaemon, tmp_path: Path, before: str, after: str) -> None:
    flag = tmp_path / "flag"
    settings_file(tmp_path, before)
    daemon.start()
    daemon.submit(
        "essay",
        command=[sys.executable, "-c", PATIENT.format(flag=str(flag))],
        results=[{"path": "result.txt"}],
        provider="mill",
    )
    daemon.wait_status("essay", "running")
    daemon.kill()
    settings_file(tmp_path, after)
    daemon.start()
    flag.touch()
    assert daemon.wait_status("essay", "completed", "failed", "partial")["status"] == "completed"
    assert len(daemon.call("GET", "/v1/runs/essay/attempts")["attempts"]) == 1, "on the machine that it had"
    assert "no leader" not in str(daemon.call("GET", "/v1/doctor"))


def test_a_run_whose_provider_left_the_settings_says_so_and_can_be_stopped(daemon: PaperDaemon, tmp_path: Path) -> None:
    daemon.start()
    waits = [sys.executable, "-c", PATIENT.format(flag=str(tmp_path / "never"))]
    for number in range(3):
        daemon.submit(f"essay-{number}", command=waits, provider="mill")
    daemon.wait_status("essay-0", "running")
    daemon.kill()
    settings_file(tmp_path, LAB)
    daemon.start()
    hold = "its provider mill is not in the settings"
    wait_for(lambda: hold in daemon.call("GET", "/v1/runs/essay-2")["hold"], what="the reason")
    daemon.call("POST", "/v1/runs/essay-2/stop", {})
    daemon.wait_status("essay-2", "stopped")
    settings_file(tmp_path, LAB + SECTION)
    daemon.kill()
    daemon.start()
    for run_id in ("essay-0", "essay-1"):
        daemon.call("POST", f"/v1/runs/{run_id}/stop", {})
        daemon.wait_status(run_id, "stopped")
