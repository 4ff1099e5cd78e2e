"""A machine's folder: the papers in it, and what is kept of it after its end.

    <data>/machines/<name>/  job.json agent.pyz lock agent.json console.log notice.json record.json gone.json
                             bad_gpus.json work/
    <data>/<own>/released/   the last RELEASED_KEPT of them, without work, environment and nonce: evidence for people

A folder appears by one rename with everything that a start needs, so no crash leaves half of one. Every paper is
written by rename too. "Not there" is told apart from "could not be read": the second raises Unreadable, and whoever
asks must not conclude that no machine is there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from supervisor.contract.stores.durable import sync_folder
from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineRecord
from supervisor.machinefolder.papers import Unreadable, private, read_json, remove, write_json
from supervisor.machinefolder.processes import Identity
from supervisor.ports.provider import LaunchRequest

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\Z")
SECRETS = ("nonce", "env")
KEPT = frozenset({"job.json", "agent.json", "console.log", "notice.json", "record.json", "gone.json"})
RELEASED_KEPT = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """What job.json says of the machine itself; `created_at` in epoch seconds."""

    name: str
    zone: str
    supervisor_id: str
    run_id: str
    launch_id: str
    created_at: float | None
    gpu_ids: tuple[str, ...] | None  # its cards; None = made where cards were left alone

    def is_of(self, request: LaunchRequest) -> bool:
        """This machine was made for that very launch."""
        wanted = (request.name, request.supervisor_id, request.run_id, request.launch_id)
        return (self.name, self.supervisor_id, self.run_id, self.launch_id) == wanted


@dataclass(frozen=True, slots=True)
class Notice:
    """A preemption notice. `deadline_boottime_s` is on CLOCK_BOOTTIME of this boot: it goes on while asleep."""

    deadline_boottime_s: float
    notice_s: float
    at: float


class Folder:
    """The papers of one machine. Readers give None when a paper is not there, and raise Unreadable otherwise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    def job(self) -> Job | None:
        return self._read("job.json", _job)

    def agent(self) -> Identity | None:
        return self._read("agent.json", lambda d: Identity(int(d["pid"]), int(d["start_ticks"]), str(d["boot_id"])))

    def notice(self) -> Notice | None:
        return self._read(
            "notice.json",
            lambda d: Notice(float(d["deadline_boottime_s"]), float(d["notice_s"]), float(d.get("at", 0.0))),
        )

    def record(self) -> MachineRecord | None:
        return self._read(
            "record.json",
            lambda d: MachineRecord(Cause(d["cause"]), str(d["detail"]), float(d["at"]), d.get("notice_s")),
        )

    def gone_at(self) -> float | None:
        """Since when this machine is known to be gone without a record; None = not known to be."""
        return self._read("gone.json", lambda d: float(d["at"]))

    def write_notice(self, notice: Notice) -> None:
        self._write(
            "notice.json",
            {"deadline_boottime_s": notice.deadline_boottime_s, "notice_s": notice.notice_s, "at": notice.at},
        )

    def write_record(self, record: MachineRecord) -> None:
        self._write(
            "record.json",
            {"cause": record.cause, "detail": record.detail, "at": record.at, "notice_s": record.notice_s},
        )

    def write_gone(self, at: float) -> None:
        self._write("gone.json", {"at": at})

    def console(self, max_bytes: int) -> bytes:
        """The last bytes of what the agent printed; empty when it printed nothing."""
        try:
            with (self.path / "console.log").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - max_bytes))
                return file.read(max_bytes)
        except FileNotFoundError:
            return b""

    def console_after(self, start: int, max_bytes: int) -> tuple[bytes, int]:
        """(at most so many bytes from `start` on, where they begin); a negative start counts from the end."""
        try:
            with (self.path / "console.log").open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                first = max(0, size + start) if start < 0 else min(start, size)
                file.seek(first)
                return file.read(max_bytes), first
        except FileNotFoundError:
            return b"", 0

    def bad_gpus(self) -> dict[str, tuple[str, float]] | None:
        """Card -> (what its driver said of it, when), as the agent has seen it; None = it has seen nothing wrong."""
        return self._read(
            "bad_gpus.json", lambda d: {uuid: (str(word["why"]), float(word["at"])) for uuid, word in d.items()}
        )

    def forget_bad_gpus(self) -> None:
        with suppress(FileNotFoundError):
            (self.path / "bad_gpus.json").unlink()

    def write_cards(self, gpu_ids: Sequence[str]) -> None:
        """Other cards than job.json names; only before the agent was started."""
        data = read_json(self.path / "job.json") or {}
        self._write("job.json", {**data, "gpus": len(gpu_ids), "gpu_ids": list(gpu_ids)})

    def scrub(self) -> None:
        """Take secrets out of job.json; they have no use any more."""
        data = read_json(self.path / "job.json") or {}
        self._write("job.json", {key: value for key, value in data.items() if key not in SECRETS})

    def _read(self, paper: str, make: Callable[[dict[str, Any]], T]) -> T | None:
        data = read_json(self.path / paper)
        try:
            return None if data is None else make(data)
        except (KeyError, TypeError, ValueError) as error:
            raise Unreadable(f"{self.path / paper} is not what was written there: {error!r}") from None

    def _write(self, paper: str, data: Mapping[str, object]) -> None:
        write_json(self.path / paper, data)


def _job(data: dict[str, Any]) -> Job:
    created = data.get("created_at")
    return Job(
        name=str(data["name"]),
        zone=str(data["zone"]),
        supervisor_id=str(data["supervisor_id"]),
        run_id=str(data["run_id"]),
        launch_id=str(data["launch_id"]),
        created_at=None if created is None else float(created),
        gpu_ids=tuple(str(card) for card in data["gpu_ids"]) if "gpu_ids" in data else None,
    )


class Folders:
    """All machine folders below one data folder, and the lock for changes that concern more than one of them. `own`:
    the name of the folder for papers of the provider itself."""

    def __init__(self, data_dir: Path, own: str) -> None:
        # Resolved: a process is known by the path it carries, and this folder may be a link to a larger disk.
        self.machines = (data_dir / "machines").resolve()
        self.own = data_dir / own
        self.released = self.own / "released"
        for path in (self.machines, self.own, self.released):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.locked():
            for half_made in self.machines.glob(".new-*"):
                remove(half_made)
            for place in self.released.iterdir():  # of a crash between the two steps of `archive`
                _strip(place)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One launch, release or clean-up at a time, across threads and processes; free when its holder dies."""
        with open(self.own / "lock", "ab", opener=private) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def scope(self, before: Callable[[], str] = lambda: "") -> str:
        """The name of this set of machines, made before the first of them. `before`, asked of an empty folder only:
        what runs call it that were here when the folder was lost; "" = there are none.
        Unreadable when it cannot be told: under another name the machines that are here would serve nobody."""
        paper = self.own / "scope.json"
        with self.locked():
            data = read_json(paper)
            if data is None and self.all():
                raise Unreadable(f"{paper} is missing, and there are machines in {self.machines}")
            if data is None:
                data = {"scope": before() or secrets.token_hex(6)}
                write_json(paper, data)
        name = data.get("scope")
        if not isinstance(name, str) or not NAME.match(name):
            raise Unreadable(f"{paper} does not hold a name")
        return name

    def folder(self, name: str) -> Folder:
        """ValueError for a name that is not one plain part of a path."""
        if not NAME.match(name):
            raise ValueError(f"{name[:80]!r} is not a machine name")
        return Folder(self.machines / name)

    def all(self) -> list[Folder]:
        """Every machine folder, in order of name. OSError when the folder of folders cannot be read."""
        return [Folder(self.machines / name) for name in sorted(os.listdir(self.machines)) if NAME.match(name)]

    def make(
        self, request: LaunchRequest, agent: Path, created_at: float, gpu_ids: Sequence[str] | None = None
    ) -> Folder:
        """The folder with its job and its own copy of the agent: a later build must not change a living one."""
        job = {
            **request.job,
            "name": request.name,
            "zone": request.placement.zone,
            "supervisor_id": request.supervisor_id,
            "run_id": request.run_id,
            "launch_id": request.launch_id,
            "created_at": created_at,
        }
        if gpu_ids is not None:
            job.update(gpus=len(gpu_ids), gpu_ids=list(gpu_ids))
        half_made = Path(tempfile.mkdtemp(prefix=".new-", dir=self.machines))
        try:
            shutil.copyfile(agent, half_made / "agent.pyz")
            write_json(half_made / "job.json", job)
            # Onto an empty folder, which a crash may have left, this succeeds; onto any other it does not.
            half_made.rename(self.machines / request.name)
            sync_folder(self.machines)
        except BaseException:
            shutil.rmtree(half_made, ignore_errors=True)
            raise
        return self.folder(request.name)

    def archive(self, folder: Folder) -> None:
        """Put a machine's folder away: nothing of it lives. Safe to repeat after a crash at any point."""
        remove(folder.path / "work")  # its room first: on a full disk nothing below could be written
        folder.scrub()
        place = self.released / folder.name
        remove(place)
        try:
            folder.path.rename(place)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy_papers(folder.path, place)  # machines have a disk of their own
            self.discard(folder)
        _strip(place)
        self._forget_oldest()

    def discard(self, folder: Folder) -> None:
        """Remove the folder of a machine that never came to be."""
        folder.path.rename(self.machines / f".new-{folder.name}")
        remove(self.machines / f".new-{folder.name}")

    def console(self, name: str, max_bytes: int) -> bytes:
        """Of the machine, or of what was kept of it."""
        folder = self.folder(name)
        return folder.console(max_bytes) or Folder(self.released / name).console(max_bytes)

    def _forget_oldest(self) -> None:
        kept = []
        for path in self.released.iterdir():
            with suppress(FileNotFoundError):
                kept.append((path.stat().st_mtime, path))
        for _, path in sorted(kept, reverse=True)[RELEASED_KEPT:]:
            remove(path)


def _copy_papers(source: Path, place: Path) -> None:
    place.mkdir(mode=0o700)
    for name in KEPT:
        with suppress(FileNotFoundError):
            shutil.copyfile(source / name, place / name, follow_symlinks=False)


def _strip(place: Path) -> None:
    """Only known papers are evidence: the rest may hold raw output, and with it the values of secrets."""
    for path in list(place.iterdir()) if place.is_dir() else ():
        if path.name not in KEPT:
            remove(path)
