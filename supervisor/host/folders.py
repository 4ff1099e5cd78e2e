"""A machine's folder: the files in it, and what is kept of it after its end.

    <data>/machines/<name>/  job.json agent.pyz lock agent.json console.log notice.json record.json gone.json
                             bad_gpus.json work/
    <data>/<own>/released/   the last RELEASED_KEPT of them, without work, environment and nonce: evidence for users

A folder appears by one rename with everything that a start needs, so no crash leaves half of a folder. Each file is
written by rename too. A missing file is different from an unreadable one: the second raises Unreadable, and the caller
must not conclude that there is no machine.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

from supervisor.contract.stores.durable import sync_folder
from supervisor.host.files import Unreadable, private_opener, read_json, remove, write_json
from supervisor.host.processes import Identity

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\Z")
SECRETS = ("nonce", "env")
KEPT = frozenset({"job.json", "agent.json", "identity.json", "console.log", "notice.json", "record.json", "gone.json"})
RELEASED_KEPT = 100
# Files of an agent, beside agent.json, that mean nothing for the next launch on the same machine.
OF_ONE_LAUNCH = ("notice.json", "record.json", "gone.json", "left.json", "relaunch.json", "identity.json")
STAYING = frozenset({"scratch", "downloads"})  # of `work`
DRAFT = ".new-"  # prefix of folders that are being made or removed

T = TypeVar("T")


class Job(NamedTuple):
    """The part of job.json about the machine itself. `created_at`: epoch seconds. `gpu_ids`: its cards; None = this
    supervisor does not assign cards. `kept`: without processes it is switched off, and not gone. `earlier`: of a
    launch that starts the machine again, the process id of the agent before it, whose files do not count; "" = none."""

    name: str
    zone: str
    supervisor_id: str
    run_id: str
    launch_id: str
    created_at: Optional[float]
    gpu_ids: Optional[Tuple[str, ...]]
    kept: bool = False
    earlier: Optional[str] = None

    def is_of(self, launch: Mapping[str, object]) -> bool:
        """This machine was made for that very launch (with the keys of job.json)."""
        own = (self.name, self.supervisor_id, self.run_id, self.launch_id)
        return own == tuple(launch[key] for key in ("name", "supervisor_id", "run_id", "launch_id"))

    def is_after(self, agent: Optional[Identity]) -> bool:
        """The agent of this launch has not written its identity: these files are of an earlier one."""
        return self.earlier is not None and (agent is None or agent.process_id == self.earlier)


class Notice(NamedTuple):
    """A preemption notice. `deadline_boottime_s`: on CLOCK_BOOTTIME of this boot, which continues during suspend."""

    deadline_boottime_s: float
    notice_s: float
    at: float


class Record(NamedTuple):
    """Why the machine ended, as a platform would record it. `cause`: a word of supervisor/domain/causes.py."""

    cause: str
    detail: str
    at: float
    notice_s: Optional[float] = None


class Folder:
    """The files of one machine. A reader returns None for a missing file, and raises Unreadable otherwise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    def job(self) -> Optional[Job]:
        return self._read("job.json", _job)

    def agent(self) -> Optional[Identity]:
        given = self._read("identity.json", lambda d: str(d["machine_id"])) or ""
        return self._read(
            "agent.json", lambda d: Identity(int(d["pid"]), int(d["start_ticks"]), str(d["boot_id"]), given)
        )

    def notice(self) -> Optional[Notice]:
        return self._read(
            "notice.json",
            lambda d: Notice(float(d["deadline_boottime_s"]), float(d["notice_s"]), float(d.get("at", 0.0))),
        )

    def record(self) -> Optional[Record]:
        return self._read(
            "record.json", lambda d: Record(str(d["cause"]), str(d["detail"]), float(d["at"]), d.get("notice_s"))
        )

    def gone_at(self) -> Optional[float]:
        """Since when the machine is known to be gone without a record; None = not known to be gone."""
        return self._read("gone.json", lambda d: float(d["at"]))

    def bad_gpus(self) -> Optional[Dict[str, Tuple[str, float]]]:
        """Card -> (the driver's message, its time), as the agent saw it; None = the agent saw no fault."""
        return self._read(
            "bad_gpus.json", lambda d: {uuid: (str(fault["why"]), float(fault["at"])) for uuid, fault in d.items()}
        )

    def write_notice(self, notice: Notice) -> None:
        write_json(self.path / "notice.json", notice._asdict())

    def write_record(self, record: Record) -> None:
        write_json(self.path / "record.json", record._asdict())

    def write_gone(self, at: float) -> None:
        write_json(self.path / "gone.json", {"at": at})

    def forget_bad_gpus(self) -> None:
        (self.path / "bad_gpus.json").unlink(missing_ok=True)

    def write_cards(self, gpu_ids: Sequence[str]) -> None:
        """Replace the cards in job.json; only before the start of the agent."""
        self._change_job(lambda job: {**job, "gpus": len(gpu_ids), "gpu_ids": list(gpu_ids)})

    def is_relaunched_in(self, boot_id: str) -> bool:
        """Another agent of this machine was started in this boot, or is about to be."""
        return self._read("relaunch.json", lambda d: d["boot_id"] == boot_id) or False

    def write_relaunch(self, boot_id: str, at: float) -> None:
        """For another agent of this machine: its beats count on, and so does the machine's time."""
        from supervisor.contract.heartbeat import BEATS_OF_A_START  # late, as in operations.py

        write_json(self.path / "relaunch.json", {"boot_id": boot_id, "at": at})

        def changed(job: Dict[str, Any]) -> Dict[str, Any]:
            starts = int(job.get("sequence_from") or 0) // BEATS_OF_A_START
            after = {**job, "relaunched": True, "relaunched_at": at, "sequence_from": (starts + 1) * BEATS_OF_A_START}
            begun, limit_s = job.get("relaunched_at") or job.get("created_at"), job.get("machine_max_s")
            if begun is not None and limit_s is not None:
                after["machine_max_s"] = max(1.0, float(limit_s) - max(0.0, at - float(begun)))
            return after

        self._change_job(changed)

    def start_again(self, job: Mapping[str, object], agent: Path) -> None:
        """The files of a launch that starts this machine again, whose processes have ended. Its disk stays: the working
        folder, downloaded files and `kept`. Results and checkpoints come from the store. Safe to repeat after a crash
        at any point: from the new job.json on, the files of the earlier agent do not count."""
        before, old = self.job(), self.agent()
        if before is None or before.launch_id != job["launch_id"]:
            earlier = "" if old is None else old.process_id
            write_json(self.path / "job.json", {**job, "earlier": earlier})
        for name in OF_ONE_LAUNCH:
            (self.path / name).unlink(missing_ok=True)
        for path in (self.path / "work").glob("*"):
            if path.name not in STAYING:
                remove(path)
        remove(self.path / "agent.pyz")
        shutil.copyfile(agent, self.path / "agent.pyz")
        (self.path / "agent.json").unlink(missing_ok=True)  # last: until then the machine is known as off

    def remove_secrets(self) -> None:
        """Remove the secrets from job.json; they are not needed any more."""
        self._change_job(lambda job: {key: value for key, value in job.items() if key not in SECRETS})

    def console(self, max_bytes: int) -> bytes:
        """The last bytes of the agent's output; empty where there is none."""
        return self.console_after(-max_bytes, max_bytes)[0]

    def console_after(self, start: int, max_bytes: int) -> Tuple[bytes, int]:
        """(at most that many bytes from `start` on, the offset of the first); a negative start counts from the end."""
        try:
            with (self.path / "console.log").open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                first = max(0, size + start) if start < 0 else min(start, size)
                file.seek(first)
                return file.read(max_bytes), first
        except FileNotFoundError:
            return b"", 0

    def _read(self, name: str, make: Callable[[Dict[str, Any]], T]) -> Optional[T]:
        data = read_json(self.path / name)
        try:
            return None if data is None else make(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unreadable(f"{self.path / name} does not have its expected content: {error!r}") from None

    def _change_job(self, change: Callable[[Dict[str, Any]], Mapping[str, object]]) -> None:
        write_json(self.path / "job.json", change(read_json(self.path / "job.json") or {}))


def _job(data: Dict[str, Any]) -> Job:
    created = data.get("created_at")
    return Job(
        name=str(data["name"]),
        zone=str(data["zone"]),
        supervisor_id=str(data["supervisor_id"]),
        run_id=str(data["run_id"]),
        launch_id=str(data["launch_id"]),
        created_at=None if created is None else float(created),
        gpu_ids=tuple(str(card) for card in data["gpu_ids"]) if "gpu_ids" in data else None,
        kept=data.get("keep_machine") is True,
        earlier=data.get("earlier"),
    )


class Folders:
    """All machine folders below one data folder, and the lock for changes that concern more than one of them. `own`:
    the name of the folder for files of the provider itself."""

    def __init__(self, data_dir: Path, own: str) -> None:
        # Resolved: a process is known by the path in its environment, and this folder may be a link to a larger disk.
        self.machines = (data_dir / "machines").resolve()
        self.own = data_dir / own
        self.released = self.own / "released"
        for path in (self.machines, self.own, self.released):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.locked():
            for draft in self.machines.glob(f"{DRAFT}*"):
                remove(draft)
            for archived in self.released.iterdir():  # after a crash between the two steps of `archive`
                _strip(archived)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One launch, release or cleanup at a time, across threads and processes; free when its holder dies."""
        with open(self.own / "lock", "ab", opener=private_opener) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def scope(self, before: Callable[[], str] = lambda: "") -> str:
        """The name of this set of machines, made before the first of them. `before`: the name in the database of runs
        that ran here when the folder was lost, "" = none; called for an empty folder only.

        Unreadable when the name is lost: under another name the existing machines would serve no run."""
        path = self.own / "scope.json"
        with self.locked():
            data = read_json(path)
            if data is None and self.all():
                raise Unreadable(f"{path} is missing, and there are machines in {self.machines}")
            if data is None:
                import secrets  # late, as in operations.py

                data = {"scope": before() or secrets.token_hex(6)}
                write_json(path, data)
        name = data.get("scope")
        if not isinstance(name, str) or not NAME.match(name):
            raise Unreadable(f"{path} does not contain a name")
        return name

    def folder(self, name: str) -> Folder:
        """ValueError for a name that is not one plain part of a path."""
        if not NAME.match(name):
            raise ValueError(f"{name[:80]!r} is not a machine name")
        return Folder(self.machines / name)

    def all(self) -> List[Folder]:
        """Every machine folder, in order of name. OSError when the folder of the folders cannot be read."""
        return [Folder(self.machines / name) for name in sorted(os.listdir(self.machines)) if NAME.match(name)]

    def make(
        self, launch: Mapping[str, Any], agent: Path, created_at: float, gpu_ids: Optional[Sequence[str]] = None
    ) -> Folder:
        """The folder with its job and its own copy of the agent: a later build must not change a running one.
        `launch`: the agent's job with name, zone, supervisor_id, run_id and launch_id."""
        job = self.job_of(launch, created_at, gpu_ids)
        import tempfile  # late, as in operations.py

        draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=self.machines))
        try:
            shutil.copyfile(agent, draft / "agent.pyz")
            write_json(draft / "job.json", job)
            # The rename succeeds onto an empty folder, which a crash may have left, and fails onto any other one.
            draft.rename(self.machines / launch["name"])
            sync_folder(self.machines)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return self.folder(launch["name"])

    def job_of(self, launch: Mapping[str, Any], created_at: float, gpu_ids: Optional[Sequence[str]]) -> Dict[str, Any]:
        """The content of job.json."""
        job = {"stage_dir": str(self.own), **launch, "created_at": created_at}
        if gpu_ids is not None:
            job.update(gpus=len(gpu_ids), gpu_ids=list(gpu_ids))
        return job

    def archive(self, folder: Folder) -> None:
        """Move away the folder of a machine without living processes. Safe to repeat after a crash at any point."""
        remove(folder.path / "work")  # first, because nothing below can be written to a full disk
        folder.remove_secrets()
        target = self.released / folder.name
        remove(target)
        try:
            folder.path.rename(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy_kept(folder.path, target)  # the machines are on another disk
            self.discard(folder)
        _strip(target)
        self._forget_oldest()

    def discard(self, folder: Folder) -> None:
        """Remove the folder of a machine that never started."""
        draft = folder.path.rename(self.machines / f"{DRAFT}{folder.name}")
        remove(draft)

    def console(self, name: str, max_bytes: int) -> bytes:
        """Of the machine, or of its archived folder."""
        folder = self.folder(name)
        return folder.console(max_bytes) or Folder(self.released / name).console(max_bytes)

    def _forget_oldest(self) -> None:
        archived = []
        for path in self.released.iterdir():
            with suppress(FileNotFoundError):
                archived.append((path.stat().st_mtime, path))
        for _, path in sorted(archived, reverse=True)[RELEASED_KEPT:]:
            remove(path)


def _copy_kept(source: Path, target: Path) -> None:
    target.mkdir(mode=0o700)
    for name in KEPT:
        with suppress(FileNotFoundError):
            shutil.copyfile(source / name, target / name, follow_symlinks=False)


def _strip(folder: Path) -> None:
    """Only known files are kept: the rest may contain raw output, and with it the values of secrets."""
    for path in list(folder.iterdir()) if folder.is_dir() else ():
        if path.name not in KEPT:
            remove(path)
