"""The setup: what prepares the machine before the command, once for each machine and content.

The supervisor gives the steps with the hash of their content: the commands and all they may depend on; for code that
was changed since the submit, the agent adds the hash of its files. A step that has
succeeded leaves a marker file with its hash, and no later attempt of any run repeats it there. The markers lie on the
disk that a setup changes, /var/tmp: a home folder may be shared by many computers, and the folder of a machine lives
for one attempt only. In a container both end together. A marker is written after the success, by a rename.

One setup at a time: two runs that install packages into one environment would break it. The lock is the kernel's, so
it ends with its agent. Where the folder of markers is not ours alone, nothing in it is believed, and the setup runs.

Its processes get the environment and the secrets of the run. An environment that the setup itself makes (`venv`,
`conda_env`) is active as soon as it exists. There is nothing to save, so an end of the attempt ends the setup quickly.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import signal
import stat
import time
from contextlib import contextmanager, suppress
from typing import Any, Iterator, Mapping, NamedTuple, Optional, Tuple

from supervisor.agent.life.parts import Parts
from supervisor.agent.machine import vitals
from supervisor.agent.machine.command import NotStarted, Training, Workplace, prepare
from supervisor.agent.machine.folder import open_own
from supervisor.agent.machine.processes import kill_leftovers
from supervisor.agent.store.access import GaveUp
from supervisor.agent.watch import ends
from supervisor.agent.watch.beat_state import fit_text
from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import Exit

MARKERS = "/var/tmp/spot-setup-%d"  # noqa: S108 - of this user; it is used only where it is this user's alone
LIMIT_S = 1800.0
OF_RUN = "setup"  # the step of the run's own commands; the others are of its base
KEPT = 200  # markers; the oldest are removed, which costs a repeat
CHECK_S = 0.1
TERM_S = 5.0  # from TERM to KILL: nothing is saved
TIMED_OUT = 124  # as timeout(1) exits
_HASH = re.compile("[0-9a-f]{64}")
_log = logging.getLogger("agent")


class Step(NamedTuple):
    """`sha256`: of the content of its commands, and of all that they may depend on."""

    name: str
    sha256: str
    commands: Tuple[str, ...]


def steps_of(setup: Mapping[str, Any]) -> Tuple[Step, ...]:
    """Of the job's `setup`. ValueError for a hash that is none: it becomes the name of a file."""
    steps = tuple(Step(str(each["name"]), str(each["sha256"]), tuple(each["commands"])) for each in setup["steps"])
    if not all(_HASH.fullmatch(step.sha256) for step in steps):
        raise ValueError("a step of the setup has no hash")
    return steps


def _of_tree(step: Step, tree: str) -> Step:
    """The run's own commands may read files of its code, and the supervisor's hash knows the bundle only."""
    if not tree or step.name != OF_RUN:
        return step
    return step._replace(sha256=hashlib.sha256(("%s %s" % (step.sha256, tree)).encode()).hexdigest())


class SetupFailed(Exception):
    """The command is not started; `end` says how the setup ended."""

    def __init__(self, end: Exit) -> None:
        super().__init__(ends.words_of(end))
        self.end = end


class Setup:
    """Used by the main thread, before the command."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._job, setup = parts, parts.job, parts.job.setup or {"steps": ()}
        self._steps = tuple(_of_tree(step, parts.code_tree) for step in steps_of(setup))
        self._limit_s = float(setup.get("limit_s") or LIMIT_S)
        self._markers = str(setup.get("folder") or MARKERS % os.geteuid())
        self._until = 0.0

    def run(self) -> None:
        """All steps that this machine has not done yet. Raises SetupFailed, GaveUp (the attempt ends), NotStarted,
        OSError."""
        if not self._steps:
            return
        parts = self._parts
        self._until = time.monotonic() + self._limit_s
        parts.beat_state.update(phase=heartbeat.SETUP)
        parts.surroundings.oom.begin()
        parts.log_loop.start()
        with self._alone() as folder:
            for step in self._steps:
                if folder is not None and os.path.exists(os.path.join(folder, step.sha256)):
                    parts.folder.add_to_output("%s: done on this machine before" % step.name)
                    continue
                began = time.monotonic()
                self._run_step(step)
                if folder is not None:
                    self._mark(folder, step, time.monotonic() - began)
        parts.beat_state.note("setup", "")
        parts.log_watch.skip()

    @contextmanager
    def _alone(self) -> Iterator[Optional[str]]:
        """Yields the folder of markers, locked; None where it cannot be trusted or used."""
        folder = own_folder(self._markers)
        if folder is None:
            self._parts.folder.add_to_output("setup: %s is not this user's own, so it runs again" % self._markers)
            yield None
            return
        lock = os.open(os.path.join(folder, "lock"), os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            self._wait_for(lock)
            yield folder
        finally:
            os.close(lock)

    def _wait_for(self, lock: int) -> None:
        """Raises SetupFailed when the time of the whole setup is over, GaveUp."""
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            self._parts.beat_state.note("setup", "waiting for the setup of another run on this machine")
            if self._parts.must_end():
                raise GaveUp("setup")
            if time.monotonic() >= self._until:
                raise self._failed(self._end(TIMED_OUT, heartbeat.SETUP_WAITED % self._limit_s))
            time.sleep(CHECK_S)

    def _run_step(self, step: Step) -> None:
        parts = self._parts
        for number, command in enumerate(step.commands, 1):
            title = "%s, %d of %d" % (step.name, number, len(step.commands))
            first_line = (command.strip().splitlines() or [""])[0]
            text = parts.masker.text("%s: %s" % (title, first_line))
            parts.beat_state.note("setup", fit_text(text))
            parts.folder.add_to_output(text)
            self._run_command(command)

    def _run_command(self, command: str) -> None:
        """A text of several lines is one script; it ends with the first line that fails."""
        parts, process = self._parts, Training()
        workplace = self._workplace()
        try:
            process.start(("/bin/sh", "-e", "-c", command), workplace.cwd, workplace.env, parts.folder.output)
            self._wait(process)
        finally:
            if process.pid is not None and not process.poll():
                process.signal(signal.SIGKILL)
            if process.pid is not None and process.status != 0:
                kill_leftovers(process.pid, parts.folder.marker)
        if process.status != 0:
            raise self._failed(self._judged(process))

    def _workplace(self) -> Workplace:
        try:
            return prepare(self._job, self._parts.folder, self._parts.secrets, None)
        except NotStarted:  # the setup is what makes its environment
            job = self._job._replace(conda_env=None, venv=None)
            return prepare(job, self._parts.folder, self._parts.secrets, None)

    def _wait(self, process: Training) -> None:
        """Until it has ended. Raises GaveUp, SetupFailed."""
        term_at: Optional[float] = None
        while not process.poll():
            now = time.monotonic()
            is_late = now >= self._until
            if term_at is None and (self._parts.must_end() or is_late):
                term_at = now
                process.signal(signal.SIGTERM)
            if term_at is not None and now >= term_at + TERM_S and signal.SIGKILL not in process.sent:
                process.signal(signal.SIGKILL)
            time.sleep(CHECK_S)
        if term_at is not None and self._parts.must_end():
            raise GaveUp("setup")
        if term_at is not None:
            raise self._failed(self._end(TIMED_OUT, heartbeat.SETUP_LATE % self._limit_s, process.ran_s))

    def _judged(self, process: Training) -> Exit:
        """How a command of the setup ended by itself; its last telling line, and what the machine lacked."""
        parts, status = self._parts, process.status or 0
        code, _ = ends.split_status(status, True)
        end = ends.judge(  # noqa: S604 - nothing is called: `shell` says how to read its exit code
            status,
            sent=process.sent,
            shell=True,
            ran_s=process.ran_s,
            tail=ends.masked_tail(parts.folder.output, parts.masker),
            retry=(self._job.retry_exit_codes, self._job.retry_patterns),
            began=parts.log_watch.conclude(code, hurry=False),
        )
        (pattern, line), hits = parts.log_watch.began, parts.log_watch.hits()
        parts.beat_state.sign(hits=hits, error=fit_text(line), began=pattern, **parts.surroundings.signs())
        disk_full = fit_text(vitals.full_disks(parts.folder.roles()))
        return end._replace(in_setup=True, oom_kills=parts.surroundings.oom.kills(), disk_full=disk_full)

    def _end(self, code: int, text: str, ran_s: float = 0.0) -> Exit:
        self._parts.folder.add_to_output(text)
        return Exit(code, None, False, round(ran_s, 3), fit_text(text), in_setup=True)

    def _failed(self, end: Exit) -> SetupFailed:
        _log.warning("the setup failed: %s", ends.words_of(end))
        return SetupFailed(end)

    def _mark(self, folder: str, step: Step, took_s: float) -> None:
        """By a rename, so that a marker is whole or not there."""
        path = os.path.join(folder, step.sha256)
        draft = "%s.%d" % (path, os.getpid())
        with open(draft, "w", encoding="utf-8", opener=open_own) as target:
            json.dump({"run_id": self._job.run_id, "at": time.time(), "took_s": round(took_s, 1)}, target)
            target.flush()
            os.fsync(target.fileno())
        os.rename(draft, path)
        forget_oldest(folder)


def own_folder(path: str) -> Optional[str]:
    """The folder, made if it is missing; None where somebody else could have put a marker into it."""
    try:
        with suppress(FileExistsError):
            os.makedirs(path, mode=0o700)
        status = os.lstat(path)
    except OSError:
        return None
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return path if is_own else None


def forget_oldest(folder: str) -> None:
    """All but the newest KEPT markers, and drafts of agents that were killed."""
    entries = [entry for entry in os.scandir(folder) if entry.name != "lock"]
    markers = sorted((entry.stat(follow_symlinks=False).st_mtime, entry.path) for entry in entries)
    for _, path in markers[:-KEPT]:
        with suppress(OSError):
            os.unlink(path)
