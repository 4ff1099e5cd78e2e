"""The preemption watch: one read, then waits; errors are retried, and nothing is missed between two waits."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.store.googleapi import MetadataServer
from supervisor.agent.watch import ends
from supervisor.agent.watch.ends import RETRY_S, SHUTDOWN_S, PreemptionWatch
from tests.cloud.metadata import MetadataFake
from tests.cloud.web import Reset, Response
from tests.waiting import wait_for

VM = {"id": "1", "name": "vm", "zone": "us-east1-b"}


@pytest.fixture
def machine() -> Iterator[MetadataFake]:
    with MetadataFake("p", VM) as fake:
        yield fake


@pytest.fixture
def folder(tmp_path: Path) -> MachineFolder:
    return MachineFolder(str(tmp_path))


@pytest.fixture
def server(machine: MetadataFake) -> Iterator[MetadataServer]:
    metadata = MetadataServer(machine.host)
    yield metadata
    metadata.close()


def test_a_notice_is_written_like_any_other(
    machine: MetadataFake, folder: MachineFolder, server: MetadataServer
) -> None:
    watch = PreemptionWatch(server, folder, 120.0)
    assert watch.step() is not None
    assert folder.notice_s() is None
    steps: list[float | None] = []
    waiting = threading.Thread(target=lambda: steps.append(watch.step()))
    waiting.start()
    wait_for(lambda: machine.waiting, 30, "a waiting request")
    machine.preempt()
    waiting.join(30)
    assert steps == [None], "it goes on although the notice was given"
    left_s = folder.notice_s()
    assert left_s is not None
    assert 120.0 + SHUTDOWN_S - 20 < left_s <= 120.0 + SHUTDOWN_S
    assert json.loads(Path(folder.root, "notice.json").read_text())["notice_s"] == 120.0 + SHUTDOWN_S
    assert MachineFolder(folder.root).notice_s() is not None


@pytest.mark.parametrize(("given_s", "heeded"), [(0, False), (0.1, True)])
def test_a_notice_of_no_seconds_does_not_count(folder: MachineFolder, given_s: float, heeded: bool) -> None:
    """The machine is being killed: an agent that obeyed such a notice would end the training and report it."""
    notice = {"deadline_boottime_s": time.clock_gettime(time.CLOCK_BOOTTIME), "notice_s": given_s}
    Path(folder.root, "notice.json").write_text(json.dumps(notice))
    assert (folder.notice_s() is not None) is heeded


def test_a_notice_that_came_before_the_agent_is_found_at_once(
    machine: MetadataFake, folder: MachineFolder, server: MetadataServer
) -> None:
    machine.preempt()
    assert PreemptionWatch(server, folder, 0.0).step() is None
    assert folder.notice_s() is not None


def test_a_notice_between_two_waits_is_not_missed(
    machine: MetadataFake, folder: MachineFolder, server: MetadataServer
) -> None:
    watch = PreemptionWatch(server, folder, 0.0)
    watch.step()
    machine.preempt()
    assert watch.step() is None


def test_a_wait_without_a_change_is_followed_by_another(
    machine: MetadataFake, folder: MachineFolder, server: MetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "WAIT_S", 0.0)
    watch = PreemptionWatch(server, folder, 0.0)
    assert [watch.step() for _ in range(3)] == [ends.BETWEEN_S] * 3
    assert folder.notice_s() is None


def test_errors_are_retried_and_kill_nothing(
    machine: MetadataFake, folder: MachineFolder, server: MetadataServer
) -> None:
    machine.fail("preempted", Response(503, b"busy"), Reset(), Response(404, b""), Response(403, b""))
    watch = PreemptionWatch(server, folder, 0.0)
    assert [watch.step() for _ in range(4)] == [RETRY_S] * 4
    machine.preempt()
    assert watch.step() is None


def test_a_notice_counts_even_if_it_cannot_be_written(machine: MetadataFake, tmp_path: Path) -> None:
    folder = MachineFolder(str(tmp_path / "gone"))
    server = MetadataServer(machine.host)
    machine.preempt()
    watch = PreemptionWatch(server, folder, 0.0)
    with pytest.raises(OSError, match="notice"):
        watch.step()
    assert folder.notice_s() is not None
    Path(folder.root).mkdir()
    assert watch.step() is None
    server.close()
