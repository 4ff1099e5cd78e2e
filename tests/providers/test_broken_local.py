"""Rules of the local provider, broken on purpose: the test that guards each of them fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from supervisor.host import processes
from supervisor.host.files import Unreadable
from supervisor.host.folders import Folder
from supervisor.host.inspector import Inspection, Inspector
from supervisor.host.machines import Machines
from supervisor.host.processes import Identity, Process, Table
from supervisor.machinefolder.observer import Observer
from tests.providers import test_local_folders, test_local_machines
from tests.providers.local_machines import LocalSubject

Break = Callable[[pytest.MonkeyPatch], None]


def a_pid_is_enough(patch: pytest.MonkeyPatch) -> None:
    """The start ticks are not compared: any process with the pid is the machine."""

    def by_pid(identity: Identity, boot: str) -> Process | None:
        return processes.read(identity.pid)

    patch.setattr(processes, "find", by_pid)


def a_session_is_enough(patch: pytest.MonkeyPatch) -> None:
    """Every process in a session of that number dies with the machine, even if its leader is another process."""
    real = Table.members

    def by_number(self: Table, folder: Path, agent: Identity | None) -> list[Process]:
        of_number = [p for p in self.processes if agent is not None and p.session == agent.pid and p.alive]
        return real(self, folder, agent) + of_number

    patch.setattr(Table, "members", by_number)


def a_session_is_all(patch: pytest.MonkeyPatch) -> None:
    """Strays that left the session are forgotten."""
    real = Table.members

    def by_session(self: Table, folder: Path, agent: Identity | None) -> list[Process]:
        return [p for p in real(self, folder, agent) if agent is None or p.session == agent.pid]

    patch.setattr(Table, "members", by_session)


def a_zombie_lives(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(processes, "GONE_STATES", "X")


def unreadable_is_absent(patch: pytest.MonkeyPatch) -> None:
    real = Inspector.machine

    def machine(self: Inspector, folder: Folder) -> Inspection | None:
        try:
            return real(self, folder)
        except (OSError, Unreadable):
            return None

    patch.setattr(Inspector, "machine", machine)


def a_zone_is_never_remembered(patch: pytest.MonkeyPatch) -> None:
    """Worse: an unreadable folder makes no zone Unknown at all."""
    patch.setattr(Observer, "zones", lambda self: frozenset())


def a_machine_is_born_again(patch: pytest.MonkeyPatch) -> None:
    """A repeated launch checks for processes only, not whether there ever was an agent."""

    def may_start(self: Machines, folder: Folder) -> bool:
        return not Table().members(folder.path, None)

    patch.setattr(Machines, "may_start", may_start)


def a_copy_is_a_machine(patch: pytest.MonkeyPatch) -> None:
    """Only the files count, not the folder that contains them."""

    def is_there(self: Machines, folder: Folder, machine_id: str | None) -> bool:
        return folder.path.exists()

    patch.setattr(Machines, "is_there", is_there)


def a_freeze_hits_the_agent(patch: pytest.MonkeyPatch) -> None:
    real = Inspector.members

    def without_groups(self: Inspector, folder: Folder, agent: Identity | None) -> list[Any]:
        return [_InNoGroup(p) for p in real(self, folder, agent)]

    patch.setattr(Inspector, "members", without_groups)


class _InNoGroup:
    group = -1

    def __init__(self, process: Process) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)


CAUGHT: list[tuple[Break, Callable[..., None]]] = [
    (a_pid_is_enough, test_local_machines.test_a_reused_pid_is_neither_taken_for_the_machine_nor_killed),
    (a_session_is_enough, test_local_machines.test_a_reused_pid_is_neither_taken_for_the_machine_nor_killed),
    (
        a_session_is_all,
        test_local_machines.test_a_release_kills_agent_training_and_strays_and_keeps_evidence_without_secrets,
    ),
    (a_zombie_lives, test_local_machines.test_a_zombie_agent_is_gone),
    (unreadable_is_absent, test_local_folders.test_a_living_machine_without_its_job_is_not_absent),
    (
        a_zone_is_never_remembered,
        partial(test_local_folders.test_a_torn_paper_makes_its_zone_unknown, paper="job.json"),
    ),
    (a_machine_is_born_again, test_local_machines.test_a_machine_killed_from_outside_is_gone_without_a_record),
    (a_copy_is_a_machine, test_local_folders.test_what_is_no_machine_is_passed_over),
    (a_freeze_hits_the_agent, test_local_machines.test_a_freeze_stops_the_training_and_not_the_agent),
]


@pytest.mark.parametrize(("broken", "promise"), [pytest.param(b, p, id=b.__name__) for b, p in CAUGHT])
def test_a_broken_rule_is_caught(
    local: LocalSubject, monkeypatch: pytest.MonkeyPatch, broken: Break, promise: Callable[..., None]
) -> None:
    monkeypatch.setattr("tests.waiting.LONGEST_S", 2.0)
    with monkeypatch.context() as patch:
        broken(patch)
        with pytest.raises((Exception, pytest.fail.Exception)):
            promise(local)
