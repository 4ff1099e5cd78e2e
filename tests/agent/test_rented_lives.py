"""Attempts on a rented machine; bucket, secrets and notice come over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from tests.agent.bucket import BUCKET
from tests.agent.machine_rig import RUN, TOY
from tests.agent.rented_machine import BOOT_SEQUENCES, VM, Rented
from tests.agent.test_bundle import python38
from tests.cloud.web import Response
from tests.components import require_component
from tests.waiting import wait_for

VALUE = "hush-4711"
BOOT_BEAT = "team/" + runfiles.boot_beat(RUN)


@pytest.fixture
def vm(tmp_path: Path, compiled: Path) -> Iterator[Rented]:
    machine = Rented(tmp_path, compiled)
    try:
        yield machine
    finally:
        machine.close()


def test_a_whole_attempt_in_a_bucket(vm: Rented) -> None:
    vm.cloud.trouble(503, times=2)
    vm.start(server_url=vm.server.url + "/behind/a/proxy")
    last = vm.ended()
    assert vm.agent is not None
    assert vm.agent.returncode == 0, vm.console
    assert last.exit is not None
    assert (last.exit.code, last.machine_id, last.left) == (0, VM["id"], None)
    baton = rules.decode(vm.store.get(runfiles.baton(RUN))[0])
    assert baton.done is not None
    assert baton.holder is not None
    assert baton.holder.machine_id == VM["id"]
    assert vm.store.get(baton.done.prefix + "sum.txt")[0] == b"15"
    assert vm.server.beats[0].sequence == BOOT_SEQUENCES + 1
    assert set(vm.server.paths) == {f"/behind/a/proxy/v1/runs/{RUN}/heartbeat"}
    assert vm.cloud.find(BUCKET, BOOT_BEAT) is None, "the boot beat is still there"


def test_a_whole_attempt_on_python_3_8(tmp_path: Path, archive: Path) -> None:
    old = python38()
    require_component("Python 3.8", bool(old), "pyenv install 3.8")
    vm = Rented(tmp_path, archive, old)
    try:
        vm.secrets.add("p", "api-key", VALUE)
        reference = "gcp:projects/p/secrets/api-key/versions/latest"
        vm.start(server_url=vm.server.url, secrets=["API_KEY"], secret_refs={"API_KEY": reference})
        end = vm.ended().exit
        assert end is not None
        assert end.code == 0, vm.console
        assert vm.server.beats
    finally:
        vm.close()


def test_a_preemption_ends_it_with_the_last_checkpoint_saved(vm: Rented) -> None:
    vm.start(sys.executable, TOY, "--steps", "20", "--wait-at", "7", "--on-term", "save")
    wait_for(lambda: (beat := vm.beat()) is not None and beat.step == 7, 30, "step 7")
    vm.metadata.preempt()
    last = vm.ended()
    assert last.left == heartbeat.NOTICED
    assert last.notice_s is not None
    assert 5 < last.notice_s <= 25
    assert last.checkpoint_step == 7
    baton = rules.decode(vm.store.get(runfiles.baton(RUN))[0])
    assert baton.checkpoint is not None
    assert baton.checkpoint.step == 7
    assert baton.holder is not None
    assert baton.holder.left


def test_a_newer_machines_boot_beat_stays(vm: Rented) -> None:
    vm.start(sys.executable, TOY, "--wait-at", "3")
    newer = heartbeat.Beat(RUN, 2, "1.2.1", "2", "boot", 3, heartbeat.DRIVER)
    vm.cloud.put(BUCKET, BOOT_BEAT, heartbeat.encode(newer))
    wait_for(lambda: (beat := vm.beat()) is not None and beat.step == 3, 30, "step 3")
    (vm.machine / "work" / "scratch" / "go").touch()
    vm.ended()
    kept = vm.cloud.find(BUCKET, BOOT_BEAT)
    assert kept is not None
    assert heartbeat.parse(kept.data) == newer


def test_a_secret_is_read_with_the_machines_account_and_masked(vm: Rented) -> None:
    script = "import os; print('it is', os.environ['API_KEY']); raise SystemExit(3)"
    reference = vm.secrets.add("p", "api-key", VALUE + "\n")
    vm.start(sys.executable, "-S", "-c", script, secrets=["API_KEY"], secret_refs={"API_KEY": reference})
    last = vm.ended()
    assert last.exit is not None
    assert last.exit.code == 3
    assert vm.log() == b"it is [secret API_KEY]\n"
    everything = [vm.cloud.find(BUCKET, name).data for name in vm.cloud.names(BUCKET)]  # type: ignore[union-attr]
    assert not [data for data in everything if VALUE.encode() in data]
    assert VALUE not in vm.console
    assert VALUE not in (vm.machine / "job.json").read_text()


def test_an_unreadable_secret_starts_nothing_and_shows_the_reason(vm: Rented) -> None:
    reference = vm.secrets.add("p", "api-key", VALUE)
    vm.secrets.disable("p", "api-key", 1)
    vm.start("touch", str(vm.machine / "started"), secrets=["API_KEY"], secret_refs={"API_KEY": reference})
    last = vm.ended()
    assert (last.left, last.exit, last.phase) == (heartbeat.NO_SECRET, None, heartbeat.FINISHED)
    assert "secret API_KEY: projects/p/secrets/api-key/versions/1" in last.message
    assert "HTTP 400" in last.message
    assert VALUE not in last.message
    assert not (vm.machine / "started").exists()
    assert vm.agent is not None
    assert vm.agent.returncode == 0


def test_a_metadata_server_that_fails_now_and_then_ends_nothing(vm: Rented) -> None:
    vm.metadata.fail("preempted", *[Response(503, b"")] * 3)
    vm.metadata.fail("token", *[Response(500, b"")] * 3)
    vm.start()
    end = vm.ended().exit
    assert end is not None
    assert end.code == 0


@pytest.mark.parametrize(
    "broken",
    [
        {"command_form": "tea"},
        {"server_url": "http://192.0.2.7:8000"},
        {"store_url": "gs://"},
        {"store_url": "s3://bucket"},
    ],
)
def test_an_impossible_job_is_refused_with_a_reason(vm: Rented, broken: dict[str, str]) -> None:
    vm.start(**broken)
    assert vm.agent is not None
    assert vm.agent.wait(30) == 3
    assert "Traceback" not in vm.console
