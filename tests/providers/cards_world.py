"""A computer with two cards and simulated processes: launches, deaths and crashes in any order, fast.

The provider is the real one, with real folders. The content of /proc and the output of nvidia-smi come from here,
and each launch may be cut off where a kill -9 of the supervisor could cut it off.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from supervisor.host import processes
from supervisor.host.files import write_json
from supervisor.host.folders import Folder
from supervisor.host.nvidia_smi import Holder, NvidiaSmi, Reading
from supervisor.host.processes import Identity, Process
from supervisor.host.starting import Agents
from supervisor.ports.provider import CapacityInUse, LaunchRequest, NoCapacity, ProviderUnavailable
from tests.contracts.provider_subject import ref
from tests.fakes.provider import offers_in
from tests.providers.local_machines import ZONES, LocalSubject
from tests.providers.stub_cards import uuid

GPUS = {"l4": 1, "l4x2": 2}
CARDS = 2
STRANGER = 2**22 + 1  # no pid of this computer
HOST = "supervisor.host"


class Killed(BaseException):
    """A kill -9 at this line."""


@dataclass
class Living:
    """A machine's agent, with the cards it was started with. `hidden`: in the moment of its exec."""

    identity: Identity
    parent: Agents
    cards: tuple[str, ...]
    hidden: bool = True


class World:
    def __init__(self, data_dir: Path) -> None:
        self.living: dict[Path, Living] = {}
        self.strangers: set[str] = set()
        self.crash = ""
        self._pid = 2**22 + 100
        self._boot = processes.boot_id()
        offers = tuple(offer for shape in GPUS for offer in offers_in(ZONES, shape=shape))
        self.subject = LocalSubject(data_dir, offers=offers, gpus=GPUS)

    # --- what happens -------------------------------------------------------------------------------------------------

    def launch(self, number: int, crash: str) -> None:
        """`crash`: "" or where it is cut off. A refusal is checked: it must be true."""
        self.crash = crash
        request = self.request(number)
        wanted = GPUS[request.placement.shape]
        try:
            self.subject.provider.launch(request)
        except (NoCapacity, CapacityInUse):
            held = {card for one in self.living.values() for card in one.cards} | self.strangers
            assert CARDS - len(held) < wanted, "there was room"
        except ProviderUnavailable:
            return  # hidden: the same launch is repeated
        except Killed:
            self.restart()
        finally:
            self.crash = ""

    def appear(self) -> None:
        """Every exec is over."""
        for one in self.living.values():
            one.hidden = False

    def speak(self, number: int) -> None:
        path = self.path(number)
        if path in self.living and not (path / "agent.json").exists():
            identity = self.living[path].identity
            write_json(path / "agent.json", identity._asdict())

    def die(self, number: int) -> None:
        self.living.pop(self.path(number), None)

    def release(self, number: int) -> None:
        with suppress(ProviderUnavailable):
            self.subject.provider.release(ref(self.request(number)))

    def restart(self) -> None:
        self.appear()
        self.subject.provider = self.subject.fresh()

    def stranger(self, card: int) -> None:
        """Comes, or goes."""
        self.strangers ^= {uuid(card)} - self.owned()

    # --- what must hold -----------------------------------------------------------------------------------------------

    def owned(self) -> set[str]:
        return {card for one in self.living.values() for card in one.cards}

    def check(self) -> None:
        given = [card for one in self.living.values() for card in one.cards]
        assert len(given) == len(set(given)), "a card serves two machines"
        for path, one in self.living.items():
            job = Folder(path).job()
            assert job is not None
            assert job.gpu_ids == one.cards, "the papers name other cards than the machine has"

    # --- what the provider sees ---------------------------------------------------------------------------------------

    def request(self, number: int) -> LaunchRequest:
        request = self.subject.request(run=f"run-{number}")
        return replace(request, placement=replace(request.placement, shape=list(GPUS)[number % 2]))

    def path(self, number: int) -> Path:
        return self.subject.folder(self.request(number)).resolve()

    def start(self, agents: Agents, folder: Folder) -> None:
        if self.crash == "before start":
            raise Killed
        job = folder.job()
        assert job is not None
        assert folder.path not in self.living, "two agents on one folder"
        cards = job.gpu_ids or ()
        assert not self.strangers & set(cards), "a stranger's card was given out"
        self._pid += 1
        self.living[folder.path] = Living(Identity(self._pid, self._pid, self._boot), agents, cards)
        if self.crash == "after start":
            raise Killed

    def lives(self, agents: Agents, folder: Folder) -> bool:
        one = self.living.get(folder.path)
        return one is not None and one.parent is agents

    def members(self, folder: Path) -> list[Process]:
        one = self.living.get(folder)
        return [] if one is None or one.hidden else [_process(one.identity)]

    def find(self, identity: Identity) -> Process | None:
        there = any(one.identity == identity for one in self.living.values())
        return _process(identity) if there else None

    def kill(self, process: Process) -> None:
        for path, one in list(self.living.items()):
            if one.identity.pid == process.pid:
                del self.living[path]

    def cards(self) -> tuple[Reading, ...]:
        return tuple(
            Reading(i, uuid(i), "NVIDIA L4", 0, 2**34, (Holder(STRANGER, "stranger", 2**33),) * held)
            for i in range(CARDS)
            for held in [uuid(i) in self.strangers]
        )


def _process(identity: Identity) -> Process:
    return Process(identity.pid, "S", 1, identity.pid, identity.pid, identity.start_ticks)


class Table:
    """As processes.Table, of the world that `world` names."""

    world: World
    processes: tuple[Process, ...] = ()

    def members(self, folder: Path, agent: Identity | None) -> list[Process]:
        return self.world.members(folder)


@contextmanager
def cards_world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        world = World(Path(folder))
        table = type("TableHere", (Table,), {"world": world})
        patch.setattr(processes, "Table", table)
        patch.setattr(f"{HOST}.inspector.Table", table)
        patch.setattr(processes, "find", lambda identity, boot: world.find(identity))
        patch.setattr(processes, "send", lambda process, number: world.kill(process))
        patch.setattr(processes, "POLL_S", 0.0)
        patch.setattr(f"{HOST}.machines.START_WAIT_S", 0.0)
        patch.setattr(f"{HOST}.files.sync_folder", lambda path: None)
        patch.setattr(f"{HOST}.folders.sync_folder", lambda path: None)
        patch.setattr("os.fsync", lambda descriptor: None)
        patch.setattr(Agents, "start", lambda self, folder, start: world.start(self, folder))
        patch.setattr(Agents, "lives", lambda agents, folder: world.lives(agents, folder))  # noqa: PLW0108 - a method
        patch.setattr(NvidiaSmi, "read", lambda self: world.cards())
        world.restart()  # a provider that was made in this world
        yield world
