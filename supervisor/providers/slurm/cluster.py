"""Slurm's commands, and what the cluster says about itself.

A command runs without a shell and in bounded time. It gets none of the variables that change what Slurm's commands do
(SLURM_…, SBATCH_…), and no setting of the supervisor. Times are printed in epoch seconds.

The limits, the grace times, and who keeps the ends of jobs are read with `scontrol show config` and `scontrol show
partition`, once an hour. What was never read is unknown.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.ports.provider import ProviderUnavailable, Responded
from supervisor.providers.slurm.jobs import PAIR, Keeper, Unclear
from supervisor.providers.slurm.site import Done, Site
from supervisor.providers.slurm.submitting import limit_s

TIMEOUT_S = 15.0
KEPT_S, RETRY_S = 3600.0, 60.0
LINE = re.compile(r"^(\w[\w:]*)\s*=\s*(.*?)\s*$", re.MULTILINE)
WARNS = "preempt_send_user_signal"
# sshare(1): without more options it prints the accounts of the user who runs it.
SHARES = ("sshare", "--parsable2", "--noheader", "--format=Account,User,FairShare,RawUsage")


class CommandFailed(Responded):
    """It ended with an error. `stderr`: what it said."""

    def __init__(self, program: str, status: int, stderr: str) -> None:
        said = " ".join(stderr.split())[:300] or "it said nothing"
        super().__init__(f"{program} ended with {status}: {said}")
        self.stderr = stderr


class Commands:
    """`conf`: the path of slurm.conf; "" = Slurm's own way to find it."""

    def __init__(self, site: Site, conf: str = "") -> None:
        conf_path = {"SLURM_CONF": conf} if conf else {}
        self._site, self._environment = site, {**conf_path, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}

    def run(self, *words: str, timeout_s: float = TIMEOUT_S) -> str:
        """What it prints. Raises CommandFailed, and ProviderUnavailable where it did not start or did not end in time:
        what it was about to do may still happen."""
        return self.run_then(None, *words, timeout_s=timeout_s).output

    def run_then(self, then: Mapping[str, Any] | None, *words: str, timeout_s: float = TIMEOUT_S) -> Done:
        """`then`: as in Site.command. Raises what `run` raises, and what `Site.folders` does."""
        done = self._site.command(words, self._environment, timeout_s, then)
        if done.exit_code != 0:
            raise CommandFailed(words[0], done.exit_code, done.errors)
        return done


@dataclass(frozen=True, slots=True)
class Partition:
    """`max_s`: None = no limit. `preempt_mode`: such as REQUEUE or OFF. `grace_s`: from the choice of a job to preempt
    to its end."""

    name: str
    state: str
    max_s: float | None
    grace_s: float
    preempt_mode: str
    nodes: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """`read_at`: epoch seconds. `warns`: the agent gets the signal before a preemption too. `kill_wait_s`: from TERM to
    KILL. `min_job_age_s`: how long the controller remembers an ended job."""

    name: str
    version: str
    read_at: float
    kill_wait_s: float
    min_job_age_s: float
    warns: bool
    preempt_type: str
    keeper: Keeper
    partitions: Mapping[str, Partition] = field(default_factory=dict)


def parse(config: str, partitions: str, read_at: float) -> Cluster:
    """Raises Unclear."""
    values = dict(LINE.findall(config))
    if "ClusterName" not in values or "SLURM_VERSION" not in values:
        raise Unclear(f"scontrol show config has printed something else: {config[:100]!r}")
    rows = [dict(PAIR.findall(line)) for line in partitions.splitlines() if line.strip()]
    try:
        each = [_partition(row) for row in rows]
    except (KeyError, ValueError) as error:
        raise Unclear(f"scontrol show partition cannot be read: {type(error).__name__} {error}") from None
    return Cluster(
        name=values["ClusterName"],
        version=values["SLURM_VERSION"],
        read_at=read_at,
        kill_wait_s=_first_number(values.get("KillWait", ""), 30.0),
        min_job_age_s=_first_number(values.get("MinJobAge", ""), 300.0),
        warns=WARNS in values.get("SlurmctldParameters", "").split(","),
        preempt_type=values.get("PreemptType", ""),
        keeper=keeper_of(values),
        partitions={partition.name: partition for partition in each},
    )


def keeper_of(values: Mapping[str, str]) -> Keeper:
    """`sacct --completion` reads logs of completed jobs in a text file or a database only."""
    if values.get("AccountingStorageType", "").endswith("/slurmdbd"):
        return Keeper.ACCOUNTING
    completions = values.get("JobCompType", "").removeprefix("jobcomp/")
    return Keeper.COMPLETIONS if completions in ("filetxt", "mysql") else Keeper.CONTROLLER


def _partition(row: Mapping[str, str]) -> Partition:
    return Partition(
        name=row["PartitionName"],
        state=row.get("State", ""),
        max_s=limit_s(row.get("MaxTime", "")),
        grace_s=float(row.get("GraceTime") or 0),
        preempt_mode=row.get("PreemptMode", ""),
        nodes=int(row.get("TotalNodes") or 0),
    )


def _first_number(text: str, otherwise: float) -> float:
    match = re.match(r"\d+", text)
    return otherwise if match is None else float(match[0])


@dataclass(frozen=True, slots=True)
class Share:
    """Of one account of this user. `factor`: 1 = nothing was used lately, 0 = far more than the share. `used_s`: CPU
    seconds, weighted by the cluster and decayed."""

    account: str
    factor: float
    used_s: float


def shares_of(text: str) -> tuple[Share, ...]:
    """Raises Unclear."""
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.strip()]
    try:
        return tuple(Share(row[0], float(row[2]), float(row[3])) for row in rows if row[1])
    except (IndexError, ValueError) as error:
        raise Unclear(f"sshare has printed something else: {type(error).__name__} {error}") from None


class ClusterReader:
    """Keeps the last answer. `now`: epoch seconds."""

    def __init__(self, commands: Commands, now: Callable[[], float]) -> None:
        self._commands, self._now = commands, now
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._problem, self._due = "", 0.0  # monotonic

    @property
    def last(self) -> Cluster | None:
        """The last answer, without a request. None = there was none yet."""
        return self._cluster

    def read(self) -> Cluster:
        """At most KEPT_S old; an older one where the cluster does not answer now. Raises ProviderUnavailable."""
        with self._lock:
            if time.monotonic() >= self._due:
                try:
                    self._cluster, self._due = self.read_now(), time.monotonic() + KEPT_S
                except ProviderUnavailable as error:
                    self._problem, self._due = str(error), time.monotonic() + RETRY_S
            if self._cluster is None:
                raise ProviderUnavailable(self._problem)
            return self._cluster

    def shares(self) -> tuple[Share, ...]:
        """Of this user. () = the cluster keeps none, or does not say."""
        try:
            return shares_of(self._commands.run(*SHARES))
        except (ProviderUnavailable, Unclear):
            return ()

    def read_now(self) -> Cluster:
        """Raises ProviderUnavailable."""
        config = self._commands.run("scontrol", "show", "config")
        partitions = self._commands.run("scontrol", "show", "partition", "--oneliner", "--all")
        try:
            return parse(config, partitions, self._now())
        except Unclear as error:
            raise ProviderUnavailable(str(error)) from None
