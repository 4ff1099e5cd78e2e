"""submit --cleanup-all and stop --all: each active run is stopped the normal way and waited for, before the submit."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.cli import output
from supervisor.cli.runs import fleet
from tests.cli.fake_api import FakeApi, a_page, a_run
from tests.cli.fake_machines import ORPHAN, a_machine, an_active_run, collected, seen

KEPT = an_active_run("kept-1", "completed", kept=True, machines=["m-kept"])
VERIFIED = an_active_run("asks-1", "awaiting_teardown", kept=True, machines=["m-asks"])
SUBMIT = ("submit", "--cleanup-all", "--skip-build", "--run-id", "new-1", "--", "python", "train.py")
SURE = ("submit", "--yes", *SUBMIT[1:])


@pytest.fixture
def cloud(api: FakeApi) -> FakeApi:
    """Two runs are active; one is still stopping at the second request, none at the third."""
    probe = an_active_run("probe-2", "waiting", usd_per_h=0.0, machines=[])
    going = a_machine(use="retiring", serves=None, why="on its way out", state="ending")
    api.respond_in_turn(
        "GET", "/v1/machines",
        seen((a_machine(), ORPHAN), (an_active_run(), probe, KEPT, VERIFIED)),
        seen((going,), (an_active_run(status="stopping"), KEPT, VERIFIED)),
        seen((going,), (KEPT, VERIFIED)),  # the rows say that it is over, the cloud still shows it
        seen((), (KEPT, VERIFIED)),
    )  # fmt: skip
    for run_id in ("digits-7", "probe-2"):
        api.respond("POST", f"/v1/runs/{run_id}/stop", a_run(run_id=run_id, status="stopping", status_text="Stopping."))
    api.respond("POST", "/v1/gc", collected((ORPHAN,), dry_run=False))
    new = {**a_run(run_id="new-1", status="pending", status_text="Accepted."), "warnings": [], "differs": []}
    api.respond("POST", "/v1/runs", new, 201)
    return api


def done(api: FakeApi) -> list[str]:
    """The requests in their order; equal ones in a row once."""
    calls: list[str] = []
    for request in api.requests:
        words = f"{request.method} {request.path}" + ("?validate_only" if request.query.get("validate_only") else "")
        if not calls or calls[-1] != words:
            calls.append(words)
    return calls


def test_stopped_waited_for_released_and_only_then_submitted(cloud: FakeApi, spot: Any) -> None:
    ended = spot(*SURE)
    assert (ended.code, ended.out) == (0, "new-1  ○ pending  Accepted.\n")
    assert done(cloud)[-7:] == [
        "POST /v1/runs?validate_only",
        "GET /v1/machines",
        "POST /v1/runs/digits-7/stop",
        "POST /v1/runs/probe-2/stop",
        "GET /v1/machines",
        "POST /v1/gc",
        "POST /v1/runs",
    ]
    assert sum(request.path == "/v1/machines" for request in cloud.requests) == 4
    assert cloud.bodies("/v1/gc") == [{"dry_run": False}]
    assert "kept-1 is completed and keeps its machine: left alone." in ended.err
    assert "asks-1 is awaiting_teardown and keeps its machine" in ended.err
    assert "Waiting until they are gone: digits-7 (spot-1a2b3c4d-a2-t1, stopping). Ctrl-C leaves." in ended.err
    assert "digits-7 (spot-1a2b3c4d-a2-t1 in us-east1-c, ending)" in ended.err
    assert "Their machines are gone.\n1 machine without a run released, price unknown.\n" in ended.err


def test_without_a_terminal_nothing_is_stopped(cloud: FakeApi, spot: Any) -> None:
    ended = spot(*SUBMIT)
    assert ended.code == 2
    assert "First stop 2 runs ($0.35/h) and release 1 machine without a run" in ended.err
    assert "Add --yes" in ended.err
    assert done(cloud)[-1] == "GET /v1/machines"


def test_a_no_stops_nothing(cloud: FakeApi, spot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "confirmed", lambda question, yes: False)
    assert spot(*SUBMIT).code == 130
    assert done(cloud)[-1] == "GET /v1/machines"


def test_a_submit_that_would_be_refused_stops_nothing(cloud: FakeApi, spot: Any) -> None:
    cloud.refuse("POST", "/v1/runs", 422, "INVALID_REQUEST", "The body is refused: #/spec/zones is empty.")
    ended = spot(*SURE)
    assert ended.code == 2
    assert done(cloud)[-1] == "POST /v1/runs?validate_only"


def test_a_run_of_this_name_that_is_live_is_stopped_like_the_others(cloud: FakeApi, spot: Any) -> None:
    accepted = cloud.responses[("POST", "/v1/runs")]
    active = {"code": "RUN_ACTIVE", "title": "active", "detail": "it is live", "status": 409}
    cloud.responses[("POST", "/v1/runs")] = [(409, active), accepted]
    assert spot(*SURE[:2], "--replace-spec", *SURE[2:]).code == 0
    assert done(cloud)[-1] == "POST /v1/runs"


def test_a_run_that_would_refuse_this_spec_stops_nothing(cloud: FakeApi, spot: Any) -> None:
    cloud.refuse("POST", "/v1/runs", 409, "RUN_ACTIVE", "new-1 is live with another spec.")
    ended = spot(*SURE)
    assert ended.code == 6
    assert "nothing was stopped; with --replace-spec it is stopped" in ended.err
    assert done(cloud)[-1] == "POST /v1/runs?validate_only"


def test_ctrl_c_shows_what_is_still_stopping_and_nothing_is_submitted(
    cloud: FakeApi, spot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fleet.time, "sleep", leave)
    ended = spot(*SURE)
    assert ended.code == 130
    assert "Left; nothing was submitted. Still stopping: digits-7 (spot-1a2b3c4d-a2-t1, stopping)." in ended.err
    assert done(cloud)[-1] == "GET /v1/machines"
    assert cloud.bodies("/v1/gc") == []


def test_a_machine_that_never_goes_is_not_waited_for_for_ever(
    cloud: FakeApi, spot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "PATIENCE_S", -1.0)
    ended = spot(*SURE)
    assert ended.code == 8
    assert "Still there after" in ended.err
    assert cloud.bodies("/v1/gc") == []


def test_with_nothing_active_the_submit_is_sent_at_once(cloud: FakeApi, spot: Any) -> None:
    cloud.respond("GET", "/v1/machines", seen((), (KEPT,)))
    ended = spot(*SUBMIT)
    assert (ended.code, ended.out) == (0, "new-1  ○ pending  Accepted.\n")
    assert "Nothing to clean up." in ended.err


def test_skip_build_and_yes_alone_change_nothing(cloud: FakeApi, spot: Any) -> None:
    ended = spot("submit", "--skip-build", "--yes", "--", "x")
    assert (ended.code, ended.err) == (0, "")
    assert "GET /v1/machines" not in done(cloud)


class TestStopAll:
    def test_every_active_run_of_this_supervisor(self, cloud: FakeApi, spot: Any) -> None:
        ended = spot("stop", "--all", "--yes")
        assert ended.lines == ["digits-7  ◌ stopping  Stopping.", "probe-2  ◌ stopping  Stopping."]
        assert ended.err.splitlines()[0].split() == ["RUN", "STATUS", "$/H", "MACHINE"]
        assert done(cloud)[-2:] == ["POST /v1/runs/digits-7/stop", "POST /v1/runs/probe-2/stop"]

    def test_without_a_terminal_or_with_a_run(self, cloud: FakeApi, spot: Any) -> None:
        assert spot("stop", "--all").code == 2
        assert spot("stop", "digits-7", "--all").code == 2
        assert "POST /v1/runs/digits-7/stop" not in done(cloud)

    def test_also_while_the_cloud_does_not_answer(self, cloud: FakeApi, spot: Any) -> None:
        cloud.refuse("GET", "/v1/machines", 503, "UNAVAILABLE", "The machines of gce cannot be read now.")
        cloud.respond("GET", "/v1/runs", a_page(a_run()))
        ended = spot("stop", "--all", "--yes", "-o", "name")
        assert (ended.code, ended.out) == (0, "digits-7\n")
        assert "cannot be read now" in ended.err
        assert "awaiting_teardown" not in cloud.requests[1].query["status"]

    def test_no_run_is_active(self, cloud: FakeApi, spot: Any) -> None:
        cloud.respond("GET", "/v1/machines", seen())
        ended = spot("stop", "--all", "--yes")
        assert (ended.code, ended.out, ended.err) == (0, "", "No run is active.\n")
