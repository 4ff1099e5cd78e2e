"""Where the cluster is: on this computer, or behind a login node by SSH.

Slurm's commands and the machines' folders are reached in the same way. On a login node both are operations of
`agent.pyz host`, over a connection that is kept. Where there is no answer nothing is known: ProviderUnavailable.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from supervisor.host import refusals
from supervisor.host.folders import Folders
from supervisor.host.jobfolders import JobFolders
from supervisor.machinefolder.observer import as_unavailable
from supervisor.ports.provider import LaunchRejected, ProviderUnavailable

if TYPE_CHECKING:
    from supervisor.remote.hosts import Host

OWN = "slurm"  # the folder of the provider's own files
# A command gets none of the variables that change what Slurm's commands do: the supervisor may itself run in a job.
FOREIGN = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_", "SPOT_")
INHERITED = frozenset({"SLURM_CONF"})
SPARE_S = 10.0  # of a call on a login node, beside the command itself


class Done(NamedTuple):
    """`then`: what followed the command."""

    exit_code: int
    output: str
    errors: str
    then: Mapping[str, Any] = {}


class Site(Protocol):
    """`has_script`: its computer has the batch script of this package. `is_far`: each call takes some time."""

    has_script: bool
    is_far: bool

    def command(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        timeout_s: float,
        then: Mapping[str, Any] | None = None,
    ) -> Done:
        """`then`: a method of host/jobfolders.py with its values, which follows in the same call. Raises
        ProviderUnavailable where the command did not start or did not end in time, and what `folders` raises."""

    def folders(self, method: str, **values: object) -> Mapping[str, Any]:
        """A method of host/jobfolders.py. Raises LaunchRejected, ProviderUnavailable."""

    def locked(self) -> AbstractContextManager[None]:
        """One launch or cleanup at a time, across the processes that this site can keep apart."""


class Here:
    """This computer is a part of the cluster. `root`: slurm_folder."""

    has_script, is_far = True, False

    def __init__(self, root: Path, agent: Callable[[], Path]) -> None:
        self._root, self._agent = root, agent

    def command(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        timeout_s: float,
        then: Mapping[str, Any] | None = None,
    ) -> Done:
        kept = {name: value for name, value in os.environ.items() if name in INHERITED or not name.startswith(FOREIGN)}
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                env={**kept, **environment},
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ProviderUnavailable(f"{words[0]} did not answer within {timeout_s:g} s") from None
        except OSError as error:
            text = f"{words[0]} cannot be started: {error.strerror or error}; is this computer a part of the cluster?"
            raise ProviderUnavailable(text) from None
        after = {} if then is None else self.folders(**then)
        return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"), after)

    def folders(self, method: str, **values: object) -> Mapping[str, Any]:
        try:
            with as_unavailable(f"the folder of machines {self._root}"):
                return self._made[1].respond({"method": method, **values})
        except refusals.Refused as error:
            raise LaunchRejected(str(error)) from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        with as_unavailable(f"the folder of machines {self._root}"):
            folders = self._made[0]
        with folders.locked():
            yield

    @cached_property
    def _made(self) -> tuple[Folders, JobFolders]:
        """Made with the first use. OSError."""
        folders = Folders(self._root, OWN)
        return folders, JobFolders(folders, self._agent)


class LoginNode:
    """`host`: its folder is slurm_folder. The folders there have a lock of their own for each change."""

    has_script, is_far = False, True

    def __init__(self, host: Host) -> None:
        self.host = host

    def command(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        timeout_s: float,
        then: Mapping[str, Any] | None = None,
    ) -> Done:
        values = {
            "words": list(words),
            "environment": dict(environment),
            "timeout_s": timeout_s,
            "without": FOREIGN,
            "keeping": sorted(INHERITED),
            "then": then,
        }
        answer = self._call("command", values, timeout_s + SPARE_S)
        return Done(int(answer["exit_code"]), answer["output"], answer["errors"], answer["then"] or {})

    def folders(self, method: str, **values: object) -> Mapping[str, Any]:
        return self._call("jobs", {"method": method, **values})

    @contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def _call(self, operation: str, values: Mapping[str, object], within_s: float | None = None) -> Mapping[str, Any]:
        from supervisor.remote.connections import NotConnected

        try:
            return self.host.call(operation, values, *([] if within_s is None else [within_s]))
        except NotConnected as error:
            raise ProviderUnavailable(str(error)) from None
