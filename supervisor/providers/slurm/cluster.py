"""Slurm's commands, run on this computer, and what the cluster says about itself.

A command runs without a shell and in bounded time. It gets none of the variables that change what Slurm's commands do
(SLURM_…, SBATCH_…), because the supervisor may itself run in a job, and no setting of the supervisor. Times are printed
in epoch seconds.

The limits, the grace times, and who keeps the ends of jobs are read with `scontrol show config` and `scontrol show
partition`, once an hour. What was never read is unknown.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from supervisor.ports.provider import ProviderUnavailable, Responded
from supervisor.providers.slurm.jobs import PAIR, Keeper, Unclear
from supervisor.providers.slurm.submitting import limit_s

TIMEOUT_S = 15.0
INHERITED = frozenset({"SLURM_CONF"})
FOREIGN = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_", "SPOT_")
KEPT_S, RETRY_S = 3600.0, 60.0
LINE = re.compile(r"^(\w[\w:]*)\s*=\s*(.*?)\s*$", re.MULTILINE)
WARNS = "preempt_send_user_signal"


class CommandFailed(Responded):
    """It ended with an error. `stderr`: what it said."""

    def __init__(self, program: str, status: int, stderr: str) -> None:
        said = " ".join(stderr.split())[:300] or "it said nothing"
        super().__init__(f"{program} ended with {status}: {said}")
        self.stderr = stderr


class Commands:
    """`conf`: the path of slurm.conf; "" = Slurm's own way to find it."""

    def __init__(self, conf: str = "") -> None:
        self._conf = conf

    def run(self, *words: str, timeout_s: float = TIMEOUT_S) -> str:
        """What it prints. Raises CommandFailed, and ProviderUnavailable where it did not start or did not end in time:
        what it was about to do may still happen."""
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                env=self._environment(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ProviderUnavailable(f"{words[0]} did not answer within {timeout_s:g} s") from None
        except OSError as error:
            text = f"{words[0]} cannot be started: {error.strerror or error}; is this computer a part of the cluster?"
            raise ProviderUnavailable(text) from None
        if done.returncode != 0:
            raise CommandFailed(words[0], done.returncode, done.stderr.decode(errors="replace"))
        return done.stdout.decode(errors="replace")

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in INHERITED or not name.startswith(FOREIGN)}
        conf = {"SLURM_CONF": self._conf} if self._conf else {}
        return {**kept, **conf, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}


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

    def read_now(self) -> Cluster:
        """Raises ProviderUnavailable."""
        config = self._commands.run("scontrol", "show", "config")
        partitions = self._commands.run("scontrol", "show", "partition", "--oneliner")
        try:
            return parse(config, partitions, self._now())
        except Unclear as error:
            raise ProviderUnavailable(str(error)) from None
