"""From a claimed and restored machine to the start of the command: where it runs, and what it sees.

Everything that can be found missing before the command is found here, so that a training never begins on less than it
was promised. `Unfit` is the machine's or the bundle's fault, `NotStarted` (training.py) that of the command.
"""

from __future__ import annotations

import logging
import math
import os
from dataclasses import dataclass
from typing import Callable, Dict, Mapping, Optional

from supervisor.agent.machine.cgroup import OwnCgroup
from supervisor.agent.machine.condaenv import activated, with_venv
from supervisor.agent.machine.gpus import GpuReader, missing
from supervisor.agent.machine.job import Job
from supervisor.agent.machine.machinefolder import MachineFolder
from supervisor.agent.machine.training import environment
from supervisor.contract.heartbeat import NO_GPU

# How many threads the usual libraries start: as many as the machine has cores, whatever share of them we may use.
THREAD_POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_log = logging.getLogger("agent")


class Unfit(Exception):
    """The command is not started on this machine. `left` is a word of heartbeat.LEFT; the text is for the beat."""

    def __init__(self, left: str, text: str) -> None:
        super().__init__(text)
        self.left = left


@dataclass(frozen=True)
class Workplace:
    cwd: str
    env: Dict[str, str]


def check_gpus(job: Job, reader: GpuReader, gives_up: Callable[[], bool]) -> None:
    """A training that was promised GPUs never begins on fewer. Raises Unfit, GaveUp."""
    text = missing(job.gpus, reader, gives_up) if job.gpus else ""
    if text:
        raise Unfit(NO_GPU, text)


def prepare(job: Job, folder: MachineFolder, secrets: Mapping[str, str], step: Optional[int]) -> Workplace:
    """`secrets`: name -> value. `step`: of the restored checkpoint. Raises NotStarted, OSError."""
    contract: Dict[str, Optional[str]] = {
        "SPOT_RUN_ID": job.run_id,
        "SPOT_ATTEMPT": str(job.attempt),
        "SPOT_CHECKPOINT_DIR": folder.checkpoints,
        "SPOT_RESULTS_DIR": folder.results,
        "SPOT_PROGRESS_FILE": folder.progress,
        "SPOT_STOP_FILE": folder.stopping,
        "SPOT_RESUMED_FROM_STEP": None if step is None else str(step),
        "SPOT_MACHINE": job.machine,
        "SPOT_MACHINE_DIR": folder.root,
    }
    if job.gpu_ids is not None:
        # CUDA counts cards by speed unless it is told to count as the driver does.
        contract.update(CUDA_VISIBLE_DEVICES=",".join(job.gpu_ids), CUDA_DEVICE_ORDER="PCI_BUS_ID")
    env = environment(os.environ, {**job.env, **secrets}, contract, folder.python)
    if job.conda_env is not None:
        env = activated(job.conda_env, env)
    if job.venv is not None:
        env = with_venv(job.venv, env)
    env.update(thread_caps(env, OwnCgroup().cpu_quota(), len(os.sched_getaffinity(0))))
    return Workplace(_cwd(job, folder), env)


def _cwd(job: Job, folder: MachineFolder) -> str:
    """With a bundle `workdir` is relative to it, and nothing outside is reached. Without one it is a folder of the
    image, where a relative path starts at the image's WORKDIR, as in `docker run`."""
    if job.code is not None:
        return os.path.normpath(os.path.join(folder.code, (job.workdir or "").lstrip("/")))
    if job.in_image:
        return os.path.normpath(os.path.join(os.getcwd(), job.workdir or ""))
    return job.workdir or folder.scratch


def thread_caps(env: Mapping[str, str], quota: Optional[float], cores: int) -> Dict[str, str]:
    """What is to be added to `env`, so that no library starts more threads than `quota` cores can run; nothing where
    there is no quota below `cores`, and nothing that somebody has set."""
    if quota is None or quota >= cores:
        return {}
    threads = max(1, math.floor(quota))
    added = {name: str(threads) for name in THREAD_POOLS if not env.get(name)}
    if added:
        _log.info("%s = %d: our share of the CPU is %.3g cores", ", ".join(added), threads, quota)
    return added
