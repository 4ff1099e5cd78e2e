"""The cloud in one piece notices what must not be: exchanges that Google's API does not have, processes that stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.cloud.cloud import BUCKET, PROJECT, Cloud, processes_of
from tests.cloud.compute_instances import Instance

ROOT = Path(__file__).parents[2]


def ask(url: str, body: object = None, bearer: str = "ya29.any") -> bytes:
    raw = None if body is None else json.dumps(body).encode()
    request = Request(url, raw, {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"})  # noqa: S310 - loopback
    with urlopen(request, timeout=60) as answer:  # noqa: S310
        return bytes(answer.read())


def test_right_exchanges_are_counted_and_pass() -> None:
    cloud = Cloud()
    ask(f"{cloud.compute.url}/compute/v1/projects/{PROJECT}/zones/us-east1-b")
    ask(f"{cloud.storage.url}/storage/v1/b/{BUCKET}/o?prefix=beats/")
    assert cloud.checked == 2
    cloud.close()


def test_a_wrong_exchange_fails_the_test_that_made_it() -> None:
    cloud = Cloud()
    ask(f"{cloud.storage.url}/storage/v1/b/{BUCKET}/o?prefixes=beats/")
    with pytest.raises(AssertionError, match="prefixes: there is no such parameter"):
        cloud.close()


def test_a_hook_that_fails_fails_the_test() -> None:
    cloud = Cloud(live=False)

    def broken(vm: Instance) -> None:
        raise ValueError(vm.name)

    cloud.compute.on_running = broken
    cloud.compute.later(cloud.compute.on_running, cloud.compute.add_instances(1)[0])
    cloud.compute.tick()
    with pytest.raises(AssertionError, match="ValueError"):
        cloud.close()


def test_a_process_that_stays_is_noticed_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cloud.cloud.GONE_WITHIN_S", 0.2)
    cloud = Cloud(tmp_path / "vms")
    stays = subprocess.Popen(["sleep", "600"], env={**os.environ, "OF": str(tmp_path / "vms" / "vm-1")})
    reaped = threading.Thread(target=stays.wait)
    reaped.start()
    with pytest.raises(AssertionError, match=f"{stays.pid}"):
        cloud.close()
    reaped.join(10)
    assert processes_of(tmp_path / "vms") == []


def test_a_service_takes_only_the_tokens_of_its_own_accounts(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path / "vms")
    with pytest.raises(OSError, match="401"):
        ask(f"{cloud.compute.url}/compute/v1/projects/{PROJECT}/zones", bearer="ya29.of-nobody")
    cloud.close()


def test_as_a_process_it_is_steered_by_another() -> None:
    command = [sys.executable, "-m", "tests.cloud", "--no-machines"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = json.loads(child.stdout.readline())
        vms = [{"name": "vm", "zone": "us-east1-b"}]
        ask(told["control"], {"call": "compute.fill", "args": [vms]})
        assert json.loads(ask(told["control"], {"call": "compute.names"})) == {"value": ["vm"]}
        endpoint = told["environment"]["SPOT_GCE_ENDPOINT"]
        assert b'"vm"' in ask(f"{endpoint}/compute/v1/projects/{PROJECT}/zones/us-east1-b/instances")
        child.communicate()
    assert child.returncode == 0
