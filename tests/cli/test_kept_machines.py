"""`spot machine`: kept machines, listed, started, stopped and deleted."""

from __future__ import annotations

from typing import Any

from supervisor.services.machines.kept import KeptList
from tests.services.declared import declared

KEPT: dict[str, Any] = {
    "machine": "spot-1a2b3c4d-a1-t1", "run_id": "digits-7", "run_status": "waiting", "provider": "gce",
    "zone": "us-east1-c", "shape": "t4", "spot": True, "off_since": "2026-11-26T14:02:00.000Z",
    "deleted_at": "2026-11-27T02:02:00.000Z", "usd_per_h": 0.01, "refusal": "", "given_up": "",
    "text": "Its machine is kept, off since 14:02 UTC, disks $0.01/h, deleted at 2026-11-27 02:02 UTC",
}  # fmt: skip
RUN = {
    "run_id": "digits-7",
    "status": "recovering",
    "status_text": "Recovering.",
    "next_action": {"what": "launch now"},
}


def kept(api, *machines: dict[str, Any]) -> None:
    response = {"machines": list(machines)}
    declared(KeptList, response)
    api.respond("GET", "/v1/machines/kept", response)


def test_ls_shows_price_and_end_and_why_it_could_not_be_started(api, spot) -> None:
    kept(api, {**KEPT, "refusal": "no L4 in us-east1-c"})
    ended = spot("machine", "ls")
    assert "spot-1a2b3c4d-a1-t1" in ended.lines[1]
    assert "digits-7 (waiting)" in ended.lines[1]
    assert "$0.01" in ended.lines[1]
    assert ended.err.splitlines() == ["spot-1a2b3c4d-a1-t1 could not be started: no L4 in us-east1-c"]
    kept(api)
    assert "keep: machine" in spot("machine", "ls").err


def test_start_retries_a_waiting_run_and_resumes_an_ended_one(api, spot) -> None:
    kept(api, KEPT)
    api.respond("POST", "/v1/runs/digits-7/retry", RUN)
    assert spot("machine", "start", "digits-7").code == 0
    kept(api, {**KEPT, "run_status": "stopped"})
    api.respond("POST", "/v1/runs/digits-7/resume", RUN)
    assert spot("machine", "start", "spot-1a2b3c4d-a1-t1").code == 0
    assert [one.path for one in api.requests if one.method == "POST"] == [
        "/v1/runs/digits-7/retry", "/v1/runs/digits-7/resume",
    ]  # fmt: skip


def test_rm_deletes_and_names_what_is_not_there(api, spot) -> None:
    kept(api, KEPT)
    api.respond("POST", "/v1/runs/digits-7/machine/delete", RUN)
    assert spot("machine", "rm", "digits-7", "--yes").code == 0
    ended = spot("machine", "rm", "other", "--yes")
    assert ended.code == 5
    assert "NOTHING_KEPT" in ended.err


def test_stop_switches_off_only_what_is_kept(api, spot) -> None:
    kept(api)
    api.respond("GET", "/v1/runs/digits-7", {**RUN, "status": "running"})
    api.respond("GET", "/v1/runs/digits-7/spec", {"spec": {"command": "train"}})
    refused = spot("machine", "stop", "digits-7", "--yes")
    assert refused.code == 6
    assert "spot stop digits-7" in refused.err
    api.respond("GET", "/v1/runs/digits-7/spec", {"spec": {"command": "train", "keep": "machine"}})
    api.respond("POST", "/v1/runs/digits-7/stop", {**RUN, "status": "stopping"})
    assert spot("machine", "stop", "digits-7", "--yes").code == 0
    kept(api, KEPT)
    assert "nothing was changed" in spot("machine", "stop", "digits-7", "--yes").err
