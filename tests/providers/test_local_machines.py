"""Local machines with real processes: which of them live, are gone, are killed, or stay untouched."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState
from supervisor.host import processes
from tests.contracts.provider_subject import ref
from tests.providers.local_machines import LocalSubject, alive, bystander, end_processes_of
from tests.waiting import wait_for


def test_a_machine_id_is_boot_pid_and_start(local: LocalSubject) -> None:
    request = local.request()
    machine = local.up(request)
    pid = local.pids(request)["agent"]
    process = processes.read(pid)
    assert process is not None
    assert machine.machine_id == f"local:{processes.boot_id()[:8]}:{pid}:{process.start_ticks}"
    assert process.session == pid, "the agent leads a session of its own"


def test_a_release_kills_agent_training_and_strays_and_keeps_evidence_without_secrets(local: LocalSubject) -> None:
    request = local.scripted(local.request(), stray=True, bare=True)
    request = replace(request, job={**request.job, "env": {"TOKEN": "secret-env"}})
    machine = local.up(request)
    pids = local.pids(request)
    assert all(alive(pid) for pid in pids.values())
    (local.folder(request) / "work" / "checkpoints").mkdir(parents=True)
    local.provider.release(ref(request, machine.machine_id))
    assert not any(alive(pid) for pid in pids.values())
    assert not local.folder(request).exists()
    kept = local.data_dir / "local" / "released" / request.name
    text = (kept / "job.json").read_text()
    assert json.loads(text)["run_id"] == "digits"
    assert "secret" not in text
    assert not (kept / "work").exists()
    assert local.provider.console(ref(request)) == b"the scripted agent is up\n"
    assert local.provider.console(ref(request), max_bytes=4) == b" up\n"


def test_a_machine_killed_from_outside_is_gone_without_a_record(local: LocalSubject) -> None:
    request = local.scripted(local.request(), stray=True)
    machine = local.up(request)
    for pid in local.pids(request).values():
        os.kill(pid, signal.SIGKILL)
    local.gone(request)
    assert local.provider.find(ref(request, machine.machine_id)) is None
    assert not (local.folder(request) / "record.json").exists()
    assert local.provider.console(ref(request)) == b"the scripted agent is up\n"
    repeated = local.provider.launch(request)
    assert (repeated.machine_id, repeated.state) == (machine.machine_id, MachineState.ENDED), "it is not born again"
    assert end_processes_of(local.data_dir) == []
    assert local.listed(request) is None


def test_while_anything_of_a_machine_lives_it_is_not_gone(local: LocalSubject) -> None:
    request = local.scripted(local.request(), stray=True)
    machine = local.up(request)
    pids = local.pids(request)
    local.provider.ask_to_stop(ref(request, machine.machine_id))
    wait_for(lambda: not alive(pids["agent"]), what="the agent to leave")
    seen = local.listed(request)
    assert seen is not None
    assert (seen.machine_id, seen.state) == (machine.machine_id, MachineState.UP)
    assert "the agent has ended" in seen.detail
    local.provider.release(ref(request, machine.machine_id))
    assert not alive(pids["stray"])
    assert local.listed(request) is None


def test_a_machine_that_leaves_by_itself_is_gone(local: LocalSubject) -> None:
    request = local.scripted(local.request(), runs_s=0.2)
    local.provider.launch(request)
    local.gone(request)


def test_a_notice_ends_everything_on_time_though_nobody_polls(local: LocalSubject) -> None:
    request = local.scripted(local.request(), stray=True)
    machine = local.up(request)
    pids = local.pids(request)
    asked = time.monotonic()
    local.provider.preempt(ref(request, machine.machine_id), 1.5)
    notice = json.loads((local.folder(request) / "notice.json").read_text())
    assert notice["deadline_boottime_s"] - time.clock_gettime(time.CLOCK_BOOTTIME) <= 1.5
    assert alive(pids["agent"]) or time.monotonic() - asked > 1.5
    wait_for((local.folder(request) / "record.json").exists, what="the record")
    assert time.monotonic() - asked >= 1.5
    assert not any(alive(pid) for pid in pids.values())
    assert json.loads((local.folder(request) / "record.json").read_text())["cause"] == "preempted"


def test_a_notice_is_kept_by_the_next_supervisor(local: LocalSubject) -> None:
    request = local.request()
    local.up(request)
    # The first supervisor died with its timer: only the paper is left.
    later = time.clock_gettime(time.CLOCK_BOOTTIME) + 0.5
    (local.folder(request) / "notice.json").write_text(json.dumps({"deadline_boottime_s": later, "notice_s": 0.5}))
    local.fresh().machines()
    wait_for((local.folder(request) / "record.json").exists, what="the record")
    assert not alive(local.pids(request)["agent"])


def test_an_agent_that_leaves_during_its_notice_was_preempted(local: LocalSubject) -> None:
    request = local.request()
    machine = local.up(request)
    local.pids(request)
    local.provider.preempt(ref(request), 3600.0)
    local.provider.ask_to_stop(ref(request))
    over = wait_for(lambda: (m := local.listed(request)) and m.state is MachineState.ENDED and m, what="its end")
    assert over.machine_id == machine.machine_id
    assert over.record is not None
    assert over.record.cause is Cause.PREEMPTED


def test_a_second_notice_can_only_shorten_the_first(local: LocalSubject) -> None:
    request = local.request()
    local.up(request)
    local.provider.preempt(ref(request), 3600.0)
    local.provider.preempt(ref(request), 7200.0)
    machine = local.listed(request)
    assert machine is not None
    assert machine.record is not None
    assert machine.record.notice_s == 3600.0
    local.provider.preempt(ref(request), 0.0)
    machine = local.listed(request)
    assert machine is not None
    assert machine.state is MachineState.ENDED


def test_after_a_boot_of_the_computer_its_machines_ended_with_it(local: LocalSubject) -> None:
    request = local.request()
    local.up(request)
    pids = local.pids(request)
    path = local.folder(request) / "agent.json"
    agent = json.loads(path.read_text())
    path.write_text(json.dumps({**agent, "boot_id": "00000000" + agent["boot_id"][8:]}))
    machine = local.listed(request)
    assert machine is not None
    assert machine.state is MachineState.ENDED
    assert machine.record is not None
    assert machine.record.cause is Cause.HOST_REBOOTED
    assert alive(pids["agent"]), "a pid of another boot is nobody's"


def test_a_reused_pid_is_neither_taken_for_the_machine_nor_killed(local: LocalSubject) -> None:
    """Another process, leader of its own session, has the dead agent's pid now."""
    request = local.request()
    local.up(request)
    for pid in local.pids(request).values():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(alive(pid) for pid in local.pids(request).values()), what="the machine's end")
    with bystander() as other:
        path = local.folder(request) / "agent.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "pid": other.pid}))
        assert local.listed(request) is None
        local.provider.release(ref(request))
        assert other.poll() is None


def test_a_frozen_agent_is_up_and_dies_with_its_training(local: LocalSubject) -> None:
    request = local.request()
    machine = local.up(request)
    pids = local.pids(request)
    os.kill(pids["agent"], signal.SIGSTOP)
    assert local.listed(request) == machine
    local.provider.release(ref(request, machine.machine_id))
    assert not any(alive(pid) for pid in pids.values())


def test_a_freeze_stops_the_training_and_not_the_agent(local: LocalSubject) -> None:
    request = local.request()
    local.up(request)
    pids = local.pids(request)
    local.provider.freeze(ref(request))
    wait_for(lambda: _state(pids["training"]) == "T", what="the training to stand still")
    assert _state(pids["agent"]) in "SR"
    assert not _stop_is_on_its_way(pids["agent"])


def test_a_zombie_agent_is_gone(local: LocalSubject) -> None:
    """Its parent may never reap it."""
    request = local.request()
    machine = local.up(request)
    pids = local.pids(request)
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: _state(pids["agent"]) in ("Z", ""), what="its death")
    other = local.fresh()  # not its parent
    wait_for(lambda: not other.machines().machines, what="the machine to be gone")
    assert other.find(ref(request, machine.machine_id)) is None


def test_agents_do_not_stay_as_zombies_of_the_supervisor(local: LocalSubject) -> None:
    request = local.request()
    local.up(request)
    pid = local.pids(request)["agent"]
    local.provider.release(ref(request))
    wait_for(lambda: local.provider.machines() and _state(pid) == "", what="the agent to be reaped")


def _stop_is_on_its_way(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> (signal.SIGSTOP - 1) & 1 for mask in pending)


def _state(pid: int) -> str:
    process = processes.read(pid)
    return "" if process is None else process.state
