"""The same contract with the real agent, as the archive with which the local provider starts its machines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import baton, heartbeat, runfiles
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineState
from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.ports.objectstore import ABSENT, ObjectMissing, PreconditionFailed
from supervisor.ports.provider import LaunchRequest
from tests.agent.machine_rig import agent_with_bytecode
from tests.contracts.disasters_suite import DisastersContract
from tests.contracts.provider_subject import ref
from tests.contracts.provider_suite import ProviderContract
from tests.providers.local_machines import LocalSubject, alive, bystander
from tests.waiting import wait_for


class RealSubject(LocalSubject):
    """Each request's run has a baton in a store, so that the agent may claim it and start its training. `saves`: a
    machine is up with its training, which goes on at a TERM."""

    saves = False

    def __init__(self, data_dir: Path, agent: Path) -> None:
        super().__init__(data_dir, agent=agent)
        self.store = FilesystemStore.create(data_dir / "objects")

    def request(self, *args: Any, **kwargs: Any) -> LaunchRequest:
        made = super().request(*args, **kwargs)
        first = baton.create(made.supervisor_id, 1)
        raised = baton.raise_next(first, made.launch_id, "secret-nonce", holder_gone=True)
        with suppress(PreconditionFailed):
            self.store.put(runfiles.baton(made.run_id), baton.encode(raised), ABSENT)
        command = ["/bin/sh", "-c", "trap '' TERM; sleep 3600"] if self.saves else ["/bin/sleep", "3600"]
        job = {"store_url": self.store.url, "command": command, "generation": 1, "beat_store_s": 0.2}
        return replace(made, job={**made.job, **job})

    def up(self, request: LaunchRequest) -> Machine:
        machine = super().up(request)
        if self.saves:
            self.training(request)
        return machine

    def beat(self, request: LaunchRequest) -> heartbeat.Beat | None:
        try:
            return heartbeat.parse(self.store.get(runfiles.beat(request.run_id))[0])
        except ObjectMissing:
            return None

    def training(self, request: LaunchRequest) -> heartbeat.Beat:
        """The first beat that shows a training."""
        return wait_for(
            lambda: (b := self.beat(request)) and b.phase == heartbeat.TRAINING and b, what="a beat in training"
        )


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    path.write_bytes(agent_with_bytecode())
    return path


@pytest.fixture
def subject(tmp_path: Path, agent: Path) -> Iterator[RealSubject]:
    subject = RealSubject(tmp_path, agent)
    yield subject
    subject.end_all()


class TestLocalProviderWithTheRealAgent(ProviderContract, DisastersContract):
    def test_a_notice_shows_as_ending_and_then_ends_the_machine_with_a_record(self, subject: RealSubject) -> None:  # type: ignore[override]
        """An agent without a training leaves within 50 ms, sooner than a busy computer lists it."""
        subject.saves = True
        super().test_a_notice_shows_as_ending_and_then_ends_the_machine_with_a_record(subject)


def test_agent_and_provider_mean_the_same_machine(subject: RealSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    assert subject.training(request).machine_id == machine.machine_id
    read = baton.decode(subject.store.get(runfiles.baton("digits"))[0])
    assert read.holder is not None
    assert read.holder.machine_id == machine.machine_id


def test_the_agent_hears_of_its_notice_and_saves_in_time(subject: RealSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    subject.training(request)
    subject.provider.preempt(ref(request, machine.machine_id), 60.0)
    wait_for(lambda: (b := subject.beat(request)) and b.left == heartbeat.NOTICED, what="the agent to leave")
    over = wait_for(lambda: (m := subject.listed(request)) and m.state is MachineState.ENDED and m, what="its end")
    assert over.record is not None
    assert over.record.cause is Cause.PREEMPTED
    read = baton.decode(subject.store.get(runfiles.baton("digits"))[0])
    assert read.holder is not None
    assert read.holder.left


def test_asked_to_stop_it_leaves_and_is_gone(subject: RealSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    subject.training(request)
    subject.provider.ask_to_stop(ref(request, machine.machine_id))
    subject.gone(request)
    left = subject.beat(request)
    assert left is not None
    assert left.exit is not None or left.left == heartbeat.STOPPED


def test_strays_of_the_training_die_with_the_machine_and_others_do_not(subject: RealSubject) -> None:
    request = subject.request()
    pids = subject.data_dir / "pids"
    stray = f"setsid sleep 3600 & echo $! > {pids}; exec sleep 3600"
    request = replace(request, job={**request.job, "command": stray})
    machine = subject.up(request)
    pid = int(wait_for(lambda: pids.exists() and pids.read_text().strip(), what="the stray"))
    with bystander() as other:
        subject.provider.release(ref(request, machine.machine_id))
        assert not alive(pid)
        assert other.poll() is None
    kept = json.loads((subject.data_dir / "local" / "released" / request.name / "job.json").read_text())
    assert "nonce" not in kept


def test_a_killed_agent_that_cannot_be_reaped_at_once_is_waited_for(
    subject: RealSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy computer its threads still end while /proc already calls it a zombie. That is no machine that stays."""
    request = subject.request()
    machine = subject.up(request)
    real, refusals = os.waitpid, iter(range(3))

    def not_yet(pid: int, options: int) -> tuple[int, int]:
        return (0, 0) if next(refusals, None) is not None else real(pid, options)

    monkeypatch.setattr("supervisor.host.starting.os.waitpid", not_yet)
    subject.provider.release(ref(request, machine.machine_id))
    assert next(refusals, None) is None, "it was asked for while it could not be reaped"
    assert not subject.folder(request).exists()


def test_a_kept_machine_goes_on_as_the_next_attempt_and_finds_its_files(subject: RealSubject) -> None:
    """The new agent takes the baton: whatever the old one would still write is refused."""

    def kept(attempt: int) -> LaunchRequest:
        made = subject.kept(attempt=attempt)
        command = 'echo $SPOT_ATTEMPT >> "$SPOT_KEEP_DIR/attempts"; exec sleep 3600'
        return replace(made, job={**made.job, "command": command})

    subject.up(kept(1))
    old = subject.training(kept(1))
    subject.provider.preempt(ref(kept(1)), 0.0)
    before = baton.decode(subject.store.get(runfiles.baton("digits"))[0])
    raised = baton.raise_next(before, "1.2.1", "secret-nonce", holder_gone=True)
    subject.store.put(
        runfiles.baton("digits"), baton.encode(raised), subject.store.stat(runfiles.baton("digits")).generation
    )
    machine = subject.up_again(kept(2))
    new = wait_for(
        lambda: (b := subject.beat(kept(2))) and b.attempt == 2 and b.phase == heartbeat.TRAINING and b,
        what="attempt 2",
    )
    assert (new.launch_id, new.machine_id) == ("1.2.1", machine.machine_id)
    assert new.machine_id != old.machine_id
    after = baton.decode(subject.store.get(runfiles.baton("digits"))[0])
    assert after.holder is not None
    assert after.holder.launch_id == "1.2.1"
    assert (subject.folder(kept(2)) / "kept" / "attempts").read_text().split() == ["1", "2"]
