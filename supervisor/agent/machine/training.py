"""The user's command: a process group of its own in the agent's session, talking into a file.

Its output goes straight into that file, so neither a slow store nor a dying agent can block it. Started with
posix_spawn: other threads of the agent run meanwhile, and nothing of them may be copied into the child.

The command has ended when its first process has. One exception: a shell or a launcher without a TERM handler dies of
our TERM at once, while the training that it started still saves. Then the command ends with the last process of the
group, or with our KILL.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import time
from contextlib import contextmanager, suppress
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple, Union

from supervisor.agent.machine.leftovers import group_lives
from supervisor.contract.heartbeat import NO_WORKDIR

_log = logging.getLogger("agent")
_DEFAULT_SIGNALS = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
NOT_FOUND, NOT_STARTED = 127, 126


class NotStarted(Exception):
    """There is no such command or folder, or it cannot be run. `code` is what a shell would exit with."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Training:
    """One child process. `status` is the raw wait status once it has ended."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._started_at = 0.0
        self._ended_at: Optional[float] = None
        self._first_status: Optional[int] = None  # of the first process, which may end before its group
        self.pid: Optional[int] = None
        self.status: Optional[int] = None
        self.sent: Set[int] = set()  # signals that we sent while it was alive

    def start(
        self, command: Union[str, Tuple[str, ...]], cwd: str, env: Mapping[str, str], output: str
    ) -> None:
        """Raises NotStarted."""
        with _inside(cwd):
            arguments = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
            path = shutil.which(arguments[0], path=env.get("PATH", os.defpath))
            if path is None and os.path.dirname(arguments[0]) and os.path.exists(arguments[0]):
                raise NotStarted(NOT_STARTED, "%s is there, but it is not an executable file" % arguments[0])
            if path is None:
                raise NotStarted(NOT_FOUND, "%s: command not found" % arguments[0])
            self._started_at = self._monotonic()
            try:
                self.pid = _spawn(path, arguments, env, output)
            except (OSError, ValueError) as error:
                raise NotStarted(NOT_STARTED, "%s cannot be run: %s" % (arguments[0], error)) from None

    def poll(self) -> bool:
        """True when it has ended."""
        if self.status is None and self.pid is not None:
            if self._first_status is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._first_status = status if pid else None
            if self._first_status is not None and not self._group_saves(self.pid, self._first_status):
                self.status, self._ended_at = self._first_status, self._monotonic()
        return self.status is not None

    def _group_saves(self, group: int, status: int) -> bool:
        """The first process died of our TERM, others of its group still use their grace."""
        died_of_term = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
        return died_of_term and self.sent == {signal.SIGTERM} and group_lives(group)

    def signal(self, number: int) -> None:
        """Send to its whole group, while the command itself lives; a group that is stopped is woken, so that it can
        save. Called from a signal handler too: no locks here."""
        if self.pid is None or self.status is not None:
            return
        self.sent.add(number)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
            os.killpg(self.pid, signal.SIGCONT)

    @property
    def ran_s(self) -> float:
        """From its start to its end, or until now."""
        if self.pid is None:
            return 0.0
        return (self._monotonic() if self._ended_at is None else self._ended_at) - self._started_at


@contextmanager
def _inside(folder: str) -> Iterator[None]:
    """posix_spawn knows no working directory: the child inherits ours. Every path of the agent is absolute."""
    before = os.getcwd()
    try:
        os.chdir(folder)
    except FileNotFoundError:
        raise NotStarted(NOT_FOUND, NO_WORKDIR + "%s does not exist" % folder) from None
    except OSError as error:
        raise NotStarted(NOT_FOUND, NO_WORKDIR + "%s cannot be entered: %s" % (folder, error)) from None
    try:
        yield
    finally:
        with suppress(OSError):
            os.chdir(before)


def _spawn(path: str, arguments: List[str], env: Mapping[str, str], output: str) -> int:
    actions: List[Tuple[int, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),  # type: ignore[list-item]
        (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),  # type: ignore[list-item]
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(
        path,
        arguments,
        dict(env),
        file_actions=actions,
        setpgroup=0,
        setsigdef=_DEFAULT_SIGNALS,
        setsigmask=[],
    )


def environment(
    base: Mapping[str, str], job_env: Mapping[str, str], contract: Mapping[str, Optional[str]], python: str
) -> Dict[str, str]:
    """What the command sees: the agent's own environment, the run's, and the contract's names, which win.

    A contract value of None takes the name away. `python` is the folder with spot_progress.
    """
    env = {**base, **job_env, "PYTHONUNBUFFERED": "1"}
    for name, value in contract.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    env["PYTHONPATH"] = os.pathsep.join(part for part in (python, env.get("PYTHONPATH", "")) if part)
    return env
