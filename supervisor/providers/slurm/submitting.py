"""One `sbatch`: its words, its time limit, its warning, and what its refusals mean. Pure.

Slurm warns the agent N seconds before the time limit. It promises the signal up to 60 s early (sbatch(1)) and was
measured 5 s late, so N has a minute more than two checkpoints take. The agent also counts the time itself, and ends its
work N seconds before the limit even where no signal comes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.domain.causes import Cause
from supervisor.domain.policies import leaving_s
from supervisor.ports.provider import LaunchFailed, LaunchRejected, QuotaExceeded
from supervisor.providers.slurm.settings import PLAIN_PATH

SCRIPT = Path(__file__).with_name("batch_script.sh")
WARNING_S = 120  # at least
MOST_WARNING_S = 65535  # sbatch(1): --signal
MOST_DOUBLINGS = 4
MEMORY = re.compile(r"([1-9]\d{0,8})([KMGT]?)")
UNITS = "KMGT"
MEMORY_GROWS, MOST_GROWTHS = 1.2, 8
SIGNAL = "USR1"
NOTICE_FROM = "signal"  # of job.json
FOLDER_STORE = "file://"
CONSOLE = "console.log"  # of a machine's folder


def warning_s(checkpoint_s: float | None, walltime_s: float | None, timed_out: int = 0) -> int:
    """N: twice the measured time of a checkpoint and 63 s. Twice as long for each attempt (`timed_out`) that Slurm
    had to end at its walltime, because the warning was too short. At most half of the walltime. None = not known."""
    wanted = max(WARNING_S, leaving_s(checkpoint_s)) * 2.0 ** min(timed_out, MOST_DOUBLINGS)
    most = MOST_WARNING_S if walltime_s is None else min(MOST_WARNING_S, walltime_s / 2)
    return int(min(math.ceil(wanted), most))


def memory_of(text: str, out_of_memory: int, used_bytes: float | None = None) -> str:
    """--mem, a fifth more for each attempt (`out_of_memory`) that needed more than it had: in most cases its MaxRSS was
    the limit. Where the last one used even more (`used_bytes`), or nothing is set, a fifth more than that."""
    match = MEMORY.fullmatch(text)
    if not out_of_memory or (match is None and (text or used_bytes is None)):
        return text
    set_mib = 0.0 if match is None else int(match[1]) * 1024.0 ** UNITS.index(match[2] or "M") / 1024.0
    grown_mib = set_mib * MEMORY_GROWS ** min(out_of_memory, MOST_GROWTHS)
    return f"{math.ceil(max(grown_mib, (used_bytes or 0.0) / 2**20 * MEMORY_GROWS))}M"


def limit_s(text: str) -> float | None:
    """Seconds of a time limit: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]. None =
    no limit, or not known. ValueError."""
    if text.upper() in ("", "UNLIMITED", "INFINITE", "NONE", "N/A", "NOT_SET"):
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if match is None:
        raise ValueError(f"{text!r} is not a time limit")
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return 86400.0 * int(days) + 3600.0 * hours + 60.0 * minutes + seconds
    if len(numbers) == 3:
        return 3600.0 * numbers[0] + 60.0 * numbers[1] + numbers[2]
    return 60.0 * numbers[0] + (numbers[1] if len(numbers) == 2 else 0)


def walltime_min(machine_max_s: float, setting_s: float | None, partition_s: float | None) -> int:
    """--time, in minutes: the dead man's switch of the machine, within what the settings and the partition allow."""
    limits = [each for each in (machine_max_s, setting_s) if each is not None]
    minutes = math.ceil(min(limits) / 60)
    return max(1, minutes if partition_s is None else min(minutes, int(partition_s // 60)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """`script`: where sbatch runs. `gres`, `cpus`, `memory`, `account`, `qos`: "" or 0 = the cluster's own.
    `avoid`: nodes. `container`: words before the agent's, () = none."""

    name: str
    partition: str
    folder: Path
    python: str
    minutes: int
    warning_s: int
    script: Path = SCRIPT
    modules: Sequence[str] = ()
    gres: str = ""
    cpus: int = 0
    memory: str = ""
    account: str = ""
    qos: str = ""
    avoid: Sequence[str] = ()
    container: Sequence[str] = ()

    def words(self) -> tuple[str, ...]:
        """No word of a user is among them. --export=NONE: the job has the environment of a login on its node, and
        nothing of the supervisor's."""
        options: Mapping[str, str | int] = {
            "job-name": self.name,
            "partition": self.partition,
            "nodes": 1,
            "ntasks": 1,
            "time": self.minutes,
            "signal": f"B:{SIGNAL}@{self.warning_s}",
            "open-mode": "append",
            "output": f"{_plain(self.folder)}/{CONSOLE}",
            "chdir": str(self.folder),
            "export": "NONE",
            "cpus-per-task": self.cpus,
            "mem": self.memory,
            "gres": self.gres,
            "account": self.account,
            "qos": self.qos,
            "exclude": ",".join(self.avoid),
        }
        given = tuple(f"--{name}={value}" for name, value in options.items() if value)
        arguments = (str(self.folder), self.python, *self.modules, *(("--", *self.container) if self.container else ()))
        return ("sbatch", "--parsable", "--requeue", *given, str(self.script), *arguments)


def container_words(program: str, image: str, *, gpus: int, folder: str, store_url: str) -> tuple[str, ...]:
    """Apptainer's, before those of the agent: it sees `folder` (slurm_folder) and the store's, where that is one.

    No --cleanenv: the job needs what Slurm and its modules set, such as CUDA_VISIBLE_DEVICES and SLURM_*. What would
    break the image's own Python the batch script takes away. Raises LaunchRejected."""
    paths = [folder]
    store = store_url.removeprefix(FOLDER_STORE) if store_url.startswith(FOLDER_STORE) else ""
    if store and not Path(store).is_relative_to(folder):
        if not re.fullmatch(PLAIN_PATH, store):
            raise LaunchRejected(f"the object store {store_url} cannot be named to {program}: use a plainer path")
        paths.append(store)
    binds = (word for path in paths for word in ("--bind", path))
    return (program, "exec", *(("--nv",) if gpus else ()), *binds, image)


def _plain(folder: Path) -> str:
    """A file name is a pattern for Slurm, where %j is the job's id."""
    return str(folder).replace("%", "%%")


def job_id_of(output: str) -> str:
    """`12` or `12;cluster`. ValueError."""
    first = output.strip().partition(";")[0]
    if not first.isdigit():
        raise ValueError(f"sbatch has printed {output[:100]!r} in place of a job id")
    return first


def names_no_node(stderr: str) -> bool:
    """A node that it must avoid is not in the cluster any more."""
    return "invalid node name" in stderr.lower()


# Texts of slurm_strerror. Any other failure says nothing: the job may exist.
_QUOTA = (
    "job violates accounting/qos policy",
    "job submit limit",
    "qosmax",
    "assocmax",
    "assocgrp",
    "qosgrp",
    "exceeded the maximum number of jobs",
)
_REJECTED = (
    "invalid partition",
    "invalid account",
    "invalid qos",
    "invalid generic resource",
    "invalid feature specification",
    "invalid job constraint",
    "requested node configuration is not available",
    "requested time limit is invalid",
    "requested partition configuration not available",
    "memory specification can not be satisfied",
    "cpu count per node can not be satisfied",
    "node count specification invalid",
    "user's group not permitted to use this partition",
    "access/permission denied",
    "unable to open file",
    "unrecognized option",
    "pathname of a file, directory or other parameter too long",
)


def refusal(stderr: str) -> LaunchFailed | None:
    """What a failed `sbatch` says for certain; None = nothing is known."""
    text = " ".join(line.removeprefix("sbatch: error: ") for line in stderr.splitlines() if line.strip())
    lower = text.lower()
    if any(words in lower for words in _QUOTA):
        return QuotaExceeded(f"Slurm refuses the job: {text}", "region")
    if any(words in lower for words in _REJECTED):
        return LaunchRejected(f"Slurm refuses the job: {text}")
    return None


def refused(cause: Cause, text: str) -> LaunchFailed:
    """A pending job that will not start as it is."""
    return QuotaExceeded(text, "region") if cause is Cause.QUOTA else LaunchRejected(text)
