"""on_reboot = relaunch: after a reboot a host starts its agents again, by a line that goes with the last one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract.heartbeat import BEATS_OF_A_START
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineState
from supervisor.host import relaunching
from supervisor.host.refusals import Refused
from supervisor.ports.provider import LaunchRejected, LaunchRequest
from tests.contracts.provider_subject import ref
from tests.providers import crontab
from tests.providers.ssh_machines import SshSubject
from tests.providers.test_ssh_stories import OTHER_BOOT, mounts, read
from tests.waiting import wait_for

BOOTS = ("11111111-2222-3333-4444-555555555555", "22222222-2222-3333-4444-555555555555")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[SshSubject]:
    subject = SshSubject(tmp_path, {"SetEnv": f"PATH={crontab.make_crontab(tmp_path / 'bin')}"})
    yield subject
    subject.end_all()


def relaunchable(lab: SshSubject, **names: Any) -> LaunchRequest:
    request = lab.request(**names)
    return replace(request, job={**request.job, "on_reboot": "relaunch", "machine_max_s": 3600.0})


@pytest.fixture
def reboot(lab: SshSubject, tmp_path: Path) -> Iterator[Any]:
    """reboot(id): the host is in another boot; returns what starts a program there."""
    host, boot = lab.hosts[0], tmp_path / "boot_id"
    boot.write_text("\n")
    with mounts(OTHER_BOOT, str(boot)) as wrapper:

        def again(boot_id: str = BOOTS[0]) -> tuple[str, ...]:
            host.end_all()
            boot.write_text(f"{boot_id}\n")
            host.wrapper = wrapper
            host.start()
            return wrapper

        yield again


def listed(lab: SshSubject, request: LaunchRequest) -> Machine:
    def look() -> Machine | None:
        machine = lab.listed(request) if read(lab, request) else None
        return machine if machine is None or machine.state is not MachineState.STARTING else None

    return wait_for(look, what="the host after its reboot")


def job(lab: SshSubject, request: LaunchRequest) -> dict[str, Any]:
    return dict(json.loads((lab.folder(request) / "job.json").read_text()))


def test_the_line_of_the_host_starts_the_agent_again_and_goes_with_the_last_machine(
    lab: SshSubject, reboot: Any
) -> None:
    home = lab.hosts[0].home
    (home / "crontab").write_text("0 4 * * * backup\n")
    first, other = relaunchable(lab), relaunchable(lab, run="other")
    machine, second = lab.up(first), lab.up(other)
    assert len(crontab.lines(home)) == 2
    (lab.folder(first) / "work" / "checkpoints").mkdir(parents=True)
    (lab.folder(first) / "work" / "output.log").write_text("step 41\n")
    assert crontab.lines(home)[0] == "0 4 * * * backup", "what others have there stays"
    (home / "crontab").write_text(crontab.lines(home)[1] + "\n")
    wrapper = reboot()
    (output,) = crontab.after_a_reboot(home, wrapper)
    assert json.loads(output.partition(":")[2])["started"] == sorted([first.name, other.name])
    assert listed(lab, first) == replace(machine, detail=""), "the same machine"
    assert job(lab, first)["sequence_from"] == BEATS_OF_A_START
    assert job(lab, first)["machine_max_s"] < 3600.0
    assert os.listdir(lab.folder(first) / "work") == ["output.log"], "as on a new machine, with the log of before"
    assert (lab.folder(first) / "starts").read_text() == "start\n" * 2
    lab.provider.release(ref(first, machine.machine_id))
    assert len(crontab.lines(home)) == 1
    lab.provider.release(ref(other, second.machine_id))
    assert crontab.lines(home) == []


def test_a_folder_that_cannot_be_read_stops_no_other(lab: SshSubject, reboot: Any) -> None:
    torn, request = relaunchable(lab, run="a-torn-one"), relaunchable(lab, run="whole")
    lab.up(torn)
    lab.up(request)
    (lab.folder(torn) / "agent.json").write_text("{")
    (output,) = crontab.after_a_reboot(lab.hosts[0].home, reboot())
    assert json.loads(output.partition(":")[2])["started"] == [request.name]


def test_a_line_that_cannot_be_removed_fails_no_release_and_goes_later(lab: SshSubject, tmp_path: Path) -> None:
    request, home, program = relaunchable(lab), lab.hosts[0].home, tmp_path / "bin" / "crontab"
    machine = lab.up(request)
    good = program.read_text()
    program.write_text("#!/bin/sh\necho 'not now' >&2; exit 1\n")
    lab.provider.release(ref(request, machine.machine_id))
    assert lab.listed(request) is None
    assert len(crontab.lines(home)) == 1
    program.write_text(good)
    lab.provider.machines()
    assert crontab.lines(home) == []


def test_without_the_line_the_next_listing_does_it_and_once_in_each_boot(lab: SshSubject, reboot: Any) -> None:
    request = relaunchable(lab)
    machine = lab.up(request)
    for number, boot_id in enumerate(BOOTS, start=1):
        reboot(boot_id)
        assert listed(lab, request).state is MachineState.UP
        assert listed(lab, request).machine_id == machine.machine_id
        assert job(lab, request)["sequence_from"] == number * BEATS_OF_A_START
    for pid in lab.pids(request).values():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: lab.listed(request) is None, what="the machine to be gone")
    assert (lab.folder(request) / "starts").read_text() == "start\n" * 3


@pytest.mark.parametrize(("by_shutdown", "state"), [(True, MachineState.UP), (False, MachineState.ENDED)])
def test_an_agent_that_had_left_is_started_again_only_if_the_shutdown_ended_it(
    lab: SshSubject, reboot: Any, by_shutdown: bool, state: MachineState
) -> None:
    request = relaunchable(lab)
    lab.up(request)
    (lab.folder(request) / "left.json").write_text(json.dumps({"by_shutdown": by_shutdown}))
    reboot()
    machine = listed(lab, request)
    assert machine.state is state
    assert (machine.record is not None and machine.record.cause is Cause.HOST_REBOOTED) is not by_shutdown


def test_a_machine_that_does_not_ask_for_it_is_as_before(lab: SshSubject, reboot: Any) -> None:
    request, asks = lab.request(), relaunchable(lab, run="asks")
    lab.up(request)
    lab.up(asks)
    crontab.after_a_reboot(lab.hosts[0].home, reboot())
    assert listed(lab, request).state is MachineState.ENDED
    assert listed(lab, asks).state is MachineState.UP


def test_a_host_without_crontab_refuses_the_launch(lab: SshSubject, tmp_path: Path) -> None:
    (tmp_path / "bin" / "crontab").write_text("#!/bin/sh\necho 'you may not use this program' >&2; exit 1\n")
    with pytest.raises(LaunchRejected, match="crontab -l failed: you may not use this program"):
        lab.provider.launch(relaunchable(lab))
    assert lab.provider.machines().machines == ()


def test_where_the_user_lingers_a_unit_does_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tmp_path / "calls"
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" >>{calls}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    line = relaunching.BootLine(tmp_path / "machines", tmp_path / "agent.pyz", True, tmp_path / "mark")
    line.install()
    line.install()
    (unit,) = (tmp_path / ".config/systemd/user").iterdir()
    assert f"{tmp_path}/agent.pyz host relaunch {tmp_path}/machines\n" in unit.read_text()
    line.remove()
    assert not unit.exists()
    assert calls.read_text().splitlines() == [
        *["--user daemon-reload", f"--user enable {unit.name}"] * 2, f"--user disable {unit.name}"
    ]  # fmt: skip
    program.write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2; exit 1\n")
    with pytest.raises(Refused, match="systemctl --user daemon-reload failed: Failed to connect to bus"):
        line.install()


def test_a_host_that_can_do_neither_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="needs crontab on the host, or a user who lingers"):
        relaunching.BootLine(tmp_path, tmp_path / "agent.pyz", True, tmp_path / "mark").install()
