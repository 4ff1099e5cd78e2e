"""Commands that people run beside the training, and files of its code that this machine has changed.

A command is signed for this launch by the supervisor (contract/runfiles.py). To start it, the agent creates its result
in the store: whoever creates it owns the command, so it runs once at most, also after a lost response or a restart of
the agent. Its result holds a word of chance by which the agent recognizes its own creation.

The command has the folder and the environment of the training, a lower priority and no input. What it prints is masked
like the log and kept up to OUTPUT_BYTES. Its group is killed at its time limit, when its first process has ended, and
when the training ends.

Changed are the files whose time is later than that of the unpacked bundle, except those that were written here as they
came with changed code. Files of secrets, Python environments and what is no file are left out.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import signal
import stat
import tarfile
import threading
import time
from contextlib import suppress
from typing import Any, Dict, Iterator, List, Mapping, Optional, Protocol, Sequence, Set, Tuple

from supervisor.agent.life.beats import NEVER_S
from supervisor.agent.machine.command import NotStarted, Training, Workplace, inside, spawn
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.job import Job
from supervisor.agent.machine.masking import Masker
from supervisor.agent.watch.beat_state import BeatState
from supervisor.contract import runfiles
from supervisor.contract.bundle import LINK, MAX_BYTES, MAX_FILES, path_problem
from supervisor.contract.identifiers import nonce_hash
from supervisor.contract.stores.promise import ABSENT, ObjectStore, PreconditionFailed, StoreUnavailable

EXEC, COLLECT = "exec", "collect"
START_WITHIN_S = 180.0  # by the store's clock, after the orders were written
OUTPUT_BYTES = 200_000
LOOK_S, STORE_S, TERM_S = 0.05, 1.0, 5.0
NICE = 10
FOLDER, OTHER = "folder", "other"  # contents of what is no file and no link
LEFT_OUT = frozenset(
    {".git", "__pycache__", ".env", ".env.local", ".netrc", ".git-credentials", "id_rsa", "id_ed25519"}
)
NO_CODE = frozenset({"pyvenv.cfg", "conda-meta"})  # a folder with one of them is a Python environment
_PIECE_BYTES = 1 << 18
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_log = logging.getLogger("agent")


class Site(Protocol):
    """What commands and changed code need of the agent."""

    @property
    def job(self) -> Job: ...

    @property
    def folder(self) -> MachineFolder: ...

    @property
    def store(self) -> ObjectStore: ...

    @property
    def masker(self) -> Masker: ...

    @property
    def beat_state(self) -> BeatState: ...

    @property
    def training(self) -> Training: ...

    @property
    def workplace(self) -> Optional[Workplace]: ...


class Refused(Exception):
    """The command is not carried out; the text says why."""


class Commands:
    """Used by one thread, except `end`. `placed`: the files that came with changed code, by path; None = the run has no
    bundle."""

    def __init__(self, site: Site, placed: Optional[Mapping[str, Tuple[int, ...]]]) -> None:
        self._site, self._placed = site, placed
        self._secret = nonce_hash(site.job.nonce)
        self._seen: Set[str] = set()
        self._waiting: List[Tuple[Mapping[str, Any], float, str]] = []  # (command, written at, word of chance)
        self._results: Dict[str, Dict[str, Any]] = {}  # final ones that are not stored yet
        self._running: List[_Running] = []
        self._over = False
        self._starting = threading.Lock()

    def take(self, commands: Sequence[Mapping[str, Any]], written_at: float) -> None:
        """Remember those for this launch; `step` carries them out."""
        for command in commands:
            name, mac = str(command.get("id")), str(command.get("mac"))
            if name in self._seen or command.get("launch_id") != self._site.job.launch_id:
                continue
            self._seen.add(name)
            if mac != runfiles.signature(command, self._secret):
                _log.warning("a command is not signed for this launch; it is not run")
                continue
            self._waiting.append((command, written_at, os.urandom(8).hex()))

    def step(self) -> float:
        """Seconds until the next step. Results are stored as soon as the store takes them."""
        try:
            while self._waiting:
                self._begin(*self._waiting[0])
                del self._waiting[0]
            for running in self._running:
                self._follow(running)
            for name in list(self._results):
                self._store(name, self._results[name])
                del self._results[name]
        except StoreUnavailable as error:
            _log.info("a command waits for the store: %s", error)
            return STORE_S
        self._running = [running for running in self._running if not running.stored]
        return LOOK_S if self._running else NEVER_S

    def end(self) -> None:
        """Kill what runs; nothing starts any more. A start in another thread comes to its end first."""
        with self._starting:
            self._over = True
            for running in list(self._running):
                running.signal(signal.SIGKILL)

    def _begin(self, command: Mapping[str, Any], written_at: float, chance: str) -> None:
        """Raises StoreUnavailable."""
        name, kind = str(command["id"]), str(command["kind"])
        result = {"kind": kind, "state": "running", "chance": chance, "launch_id": self._site.job.launch_id}
        key = runfiles.command_result(self._site.job.run_id, name)
        try:
            claimed_at = self._site.store.put(key, json.dumps(result).encode(), ABSENT).updated
        except PreconditionFailed:
            raw, info = self._site.store.get(key)
            if chance.encode() not in raw:
                return  # another one has started it, or it was taken back
            claimed_at = info.updated  # the response to our own creation was lost
        try:
            if claimed_at - written_at > START_WITHIN_S:
                raise Refused("its machine did not see it in time")
            if kind == COLLECT:
                self._results[name] = {**result, **self._collect(name, command)}
            elif kind == EXEC:
                self._start(name, result, command)
            else:
                raise Refused("this agent does not know it")
        except (Refused, NotStarted, OSError, ValueError) as error:
            self._results[name] = {**result, "state": "refused", "text": self._site.masker.text(str(error))}

    def _start(self, name: str, result: Mapping[str, Any], command: Mapping[str, Any]) -> None:
        """Raises what `_started` raises."""
        with self._starting:
            if self._over:
                raise Refused("this agent is leaving")
            self._running.append(self._started(name, result, command))

    def _started(self, name: str, result: Mapping[str, Any], command: Mapping[str, Any]) -> _Running:
        """Raises Refused, NotStarted, OSError, ValueError."""
        workplace = self._site.workplace
        if workplace is None or self._site.training.status is not None:
            raise Refused("the run's own command does not run")
        folder = os.path.normpath(os.path.join(workplace.cwd, str(command["folder"])))
        words = [str(word) for word in command["words"]]
        path = shutil.which(words[0], path=workplace.env.get("PATH", os.defpath))
        if path is None:
            raise Refused("%s: command not found" % words[0])
        _log.info("running a command of %s", command.get("by"))
        return _Running(name, {**result, "folder": folder}, (path, words, folder), workplace.env, command["timeout_s"])

    def _follow(self, running: _Running) -> None:
        """Raises StoreUnavailable."""
        running.look()
        now = time.monotonic()
        if running.is_over or (running.is_fresh and now - running.stored_at >= STORE_S):
            output = self._site.masker.tail(bytes(running.output), len(running.output))
            self._store(running.name, {**running.result(), "output": output.decode("utf-8", "replace")})
            running.stored_at, running.is_fresh, running.stored = now, False, running.is_over

    def _store(self, name: str, result: Mapping[str, Any]) -> None:
        self._site.store.put(runfiles.command_result(self._site.job.run_id, name), json.dumps(result).encode())

    def _collect(self, name: str, command: Mapping[str, Any]) -> Dict[str, Any]:
        """Raises Refused, OSError, StoreUnavailable."""
        if self._placed is None:
            raise Refused("the run has no code bundle")
        path = os.path.join(self._site.folder.synced, "collected")
        try:
            files = collect(self._site.folder, self._placed, [str(each) for each in command["paths"]], path)
            if files:
                self._site.store.put_file(runfiles.command_files(self._site.job.run_id, name), path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)
        return {"state": "done", "files": files}


class _Running:
    """A command that runs. `stored`: its final result is in the store."""

    def __init__(
        self,
        name: str,
        begun: Mapping[str, Any],
        start: Tuple[str, List[str], str],
        env: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        """`start`: (program, words, folder). Raises NotStarted, OSError, ValueError."""
        self.name, self._begun = name, begun
        self.output, self._dropped = bytearray(), 0
        self.is_fresh = self.stored = False
        self.stored_at = self._began_at = time.monotonic()
        self._ends_at = self._began_at + float(timeout_s)
        self._timed_out = False
        self._status: Optional[int] = None
        self._took_s = 0.0
        program, words, folder = start
        self._pipe, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            with inside(folder):
                # The child opens the pipe anew, so it gets an end that blocks.
                self._pid = spawn(program, words, env, "/proc/self/fd/%d" % writer)
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(writer)
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._pid, NICE)

    @property
    def is_over(self) -> bool:
        return self._status is not None

    def look(self) -> None:
        """Read what it has printed; end it when its time is over."""
        if self.is_over:
            return
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        self._read()
        late_s = time.monotonic() - self._ends_at
        if pid:
            self.signal(signal.SIGKILL)  # what it has left behind
            self._read()
            os.close(self._pipe)
            self._status, self._took_s = status, time.monotonic() - self._began_at
        elif late_s > 0:
            self._timed_out = True
            self.signal(signal.SIGKILL if late_s > TERM_S else signal.SIGTERM)

    def _read(self) -> None:
        for _ in range(64):  # one that prints without end must not hold the others
            try:
                piece = os.read(self._pipe, _PIECE_BYTES)
            except BlockingIOError:
                return
            if not piece:
                return
            room = OUTPUT_BYTES - len(self.output)
            self.output += piece[:room]
            self._dropped += max(0, len(piece) - room)
            self.is_fresh = True

    def signal(self, number: int) -> None:
        if not self.is_over:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)

    def result(self) -> Dict[str, Any]:
        result = {**self._begun, "dropped": self._dropped, "timed_out": self._timed_out}
        if self._status is None:
            return result
        is_killed = os.WIFSIGNALED(self._status)
        return {
            **result,
            "state": "done",
            "exit_code": None if is_killed else os.WEXITSTATUS(self._status),
            "signal": os.WTERMSIG(self._status) if is_killed else None,
            "ran_s": round(self._took_s, 3),
        }


# --- files of the code ------------------------------------------------------------------------------------------------


def collect(folder: MachineFolder, placed: Mapping[str, Tuple[int, ...]], paths: Sequence[str], target: str) -> int:
    """Pack what has changed below `paths` (none = everywhere) into `target`; how many files. Raises Refused,
    OSError."""
    since_ns = os.stat(folder.unpacked).st_ctime_ns
    wanted = [os.path.normpath(path) for path in paths]
    files = size = 0
    with tarfile.open(target, "w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as archive:
        for path, status in _walk(folder.code, ""):
            is_own = status.st_ctime_ns > since_ns and placed.get(path) != mark(status)
            if not is_own or not (not wanted or any(path == each or path.startswith(each + "/") for each in wanted)):
                continue
            files, size = files + 1, size + status.st_size
            if files > MAX_FILES or size > MAX_BYTES:
                raise Refused(
                    "more than %d files or %d MB of the code have changed: name the paths that you want"
                    % (MAX_FILES, MAX_BYTES // 1_000_000)
                )
            _add(archive, os.path.join(folder.code, path), path)
    return files


def _walk(top: str, inside_: str) -> Iterator[Tuple[str, os.stat_result]]:
    """Files below `top`, without links."""
    with os.scandir(os.path.join(top, inside_)) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    if inside_ and not NO_CODE.isdisjoint(entry.name for entry in listed):
        return
    for entry in listed:
        path = inside_ + entry.name
        if entry.name in LEFT_OUT or path_problem(path) is not None:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(top, path + "/")
        elif entry.is_file(follow_symlinks=False):
            yield path, entry.stat(follow_symlinks=False)


def _add(archive: tarfile.TarFile, path: str, name: str) -> None:
    """A file that is being written arrives with the bytes that it has when it is opened."""
    with os.fdopen(os.open(path, _OPEN), "rb") as source:
        content = source.read(MAX_BYTES)
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o755 if os.fstat(source.fileno()).st_mode & 0o100 else 0o644
    import io  # late

    archive.addfile(info, io.BytesIO(content))


def content_at(name: str, folder: int) -> Optional[str]:
    """sha256 of a file, LINK and the target of a link, FOLDER or OTHER; None: nothing is there. OSError."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return LINK + os.readlink(name, dir_fd=folder)
        if not stat.S_ISREG(status.st_mode):
            return FOLDER if stat.S_ISDIR(status.st_mode) else OTHER
        digest = hashlib.sha256()
        with os.fdopen(os.open(name, _OPEN, dir_fd=folder), "rb") as source:
            for piece in iter(lambda: source.read(_PIECE_BYTES), b""):
                digest.update(piece)
        return digest.hexdigest()
    except FileNotFoundError:
        return None


def mark(status: os.stat_result) -> Tuple[int, ...]:
    """It changes with the file."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode
