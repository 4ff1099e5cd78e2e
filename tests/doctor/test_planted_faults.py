"""One fault at a time in a set-up that is otherwise in order: only its line is not ok, with the right fix."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from supervisor.services.doctor.checkup import DEADLINE_S
from tests.doctor.faults import FAULTS, Fault
from tests.doctor.setup import Setup, a_set_up

ON_THE_PROJECT = {
    "account", "advice", "boot disk", "boot image", "machines", "prices", "quotas", "shapes", "zones",
}  # fmt: skip


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    with a_set_up(tmp_path) as found:
        yield found


def test_a_set_up_in_order_shows_no_fault(setup: Setup) -> None:
    report = setup.report()
    assert [line for line in report["checks"] if line["result"] != "ok"] == []
    assert report["worst"] == "ok"
    assert [request.json()["type"] for request in setup.alerts] == ["supervisor.test"]
    names = [line["name"] for line in report["checks"]]
    assert len(names) == len(set(names)) >= 25
    assert sorted(path.name for path in setup.folder.iterdir()) == ["supervisor.db"], "nothing is left behind"
    assert setup.cloud.storage.names("spot-tests") == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_is_named_with_its_cure(setup: Setup, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.plant(setup, monkeypatch)
    found = setup.troubles()
    assert set(found) - set(fault.also) == {fault.line}, found
    line = found[fault.line]
    assert (line["result"], fault.fix in line["fix"]) == (fault.result, True), line
    assert line["fact"]
    assert line["cause"]
    assert "t0ken" not in json.dumps(found), "the address of alerts is a credential"


def test_there_are_at_least_25() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 25


def test_where_everything_hangs_each_line_says_so_within_five_seconds(setup: Setup) -> None:
    """Addresses that accept a connection and never respond, for every service at once."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as silent:
        hole = "http://127.0.0.1:%d" % silent.getsockname()[1]
        names = [name for name in setup.environ if name.endswith("_ENDPOINT")]
        setup.environ |= {**dict.fromkeys(names, hole), "SPOT_ALERT_URL": f"{hole}/x", "SPOT_PUBLIC_URL": hole}
        with patch.dict(os.environ, {"STORAGE_EMULATOR_HOST": hole}):
            whole = {line["name"] for line in setup.report(0.2, alert_test=False)["checks"]}
            began = time.monotonic()
            report = setup.report(DEADLINE_S)
            took_s = time.monotonic() - began
    assert took_s < 5.0
    found = {line["name"]: line for line in report["checks"]}
    assert found["project"]["cause"].startswith("no clear response"), "checks that depend on it are left out"
    assert set(found) | ON_THE_PROJECT == whole, "no other line is missing"
    fact = found["objects"]["fact"]
    waited = re.fullmatch(r"no response within ([0-9.]+) s", fact)
    # The time for opening the set-up is subtracted; how much that is depends on the computer.
    assert waited is not None, fact
    assert DEADLINE_S - 2 < float(waited[1]) <= DEADLINE_S
    assert {"project", "objects", "bucket", "alerts", "public_url"} <= {
        name for name, line in found.items() if line["result"] != "ok"
    }
    assert found["python"]["result"] == found["database"]["result"] == "ok", "the others respond"
