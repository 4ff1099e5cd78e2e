"""From a claimed and restored machine to the start of the command: where it runs, and what it sees.

Everything that can be found missing before the command is found here, so that a training never begins on less than it
was promised. `Unfit` is the machine's or the bundle's fault, `NotStarted` (training.py) that of the command.

A command in a conda or virtual environment: an activation amounts to a PATH and one or two names.

Virtual environments are named by their path. Conda's are looked for where conda keeps them: below each installation
that can be found, and in the list that it writes into the home directory.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, Mapping, Optional

from supervisor.agent.machine.cgroup import OwnCgroup
from supervisor.agent.machine.gpus import GpuReader, missing
from supervisor.agent.machine.job import Job
from supervisor.agent.machine.machinefolder import MachineFolder
from supervisor.agent.machine.training import NOT_FOUND, NotStarted, environment
from supervisor.contract.heartbeat import NO_CONDA, NO_GPU, NO_VENV

HOMES = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba")
SYSTEM = ("/opt/conda", "/opt/miniconda3", "/opt/miniforge3")
BASE = "base"
_SHOWN = 8


def activated(wanted: str, env: Mapping[str, str]) -> Dict[str, str]:
    """`env` with the environment `wanted` (a name or an absolute path) in front. Raises NotStarted, naming those that
    exist."""
    found = environments(env)
    prefix = wanted if os.path.isabs(wanted) else found.get(wanted)
    if prefix is None or not os.path.isdir(os.path.join(prefix, "conda-meta")):
        raise NotStarted(
            NOT_FOUND, "%s%s is not on this machine; %s" % (NO_CONDA, wanted, _told(list(found)))
        )
    path = os.pathsep.join((os.path.join(prefix, "bin"), env.get("PATH", os.defpath)))
    after = {**env, "PATH": path, "CONDA_PREFIX": prefix, "CONDA_DEFAULT_ENV": wanted}
    after.pop("VIRTUAL_ENV", None)
    after.pop("PYTHONHOME", None)
    return after


def with_venv(prefix: str, env: Mapping[str, str]) -> Dict[str, str]:
    """`env` with the virtual environment in the folder `prefix` in front. Raises NotStarted where there is none."""
    if not os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
        raise NotStarted(NOT_FOUND, "%s%s is not on this machine" % (NO_VENV, prefix))
    path = os.pathsep.join((os.path.join(prefix, "bin"), env.get("PATH", os.defpath)))
    after = {**env, "PATH": path, "VIRTUAL_ENV": prefix}
    after.pop("PYTHONHOME", None)
    return after


def environments(env: Mapping[str, str]) -> Dict[str, str]:
    """Name -> folder of every environment that can be found; the first of two with one name counts."""
    found: Dict[str, str] = {}
    for root in _roots(env):
        if os.path.isdir(os.path.join(root, "conda-meta")):
            found.setdefault(BASE, root)
        for name in _names(os.path.join(root, "envs")):
            found.setdefault(name, os.path.join(root, "envs", name))
    for prefix in _listed(env):
        found.setdefault(os.path.basename(prefix), prefix)
    return {name: path for name, path in found.items() if os.path.isdir(os.path.join(path, "conda-meta"))}


def _told(names: List[str]) -> str:
    if not names:
        return "no conda environment was found there at all"
    more = ", ..." if len(names) > _SHOWN else ""
    return "there are: %s%s" % (", ".join(sorted(names)[:_SHOWN]), more)


def _roots(env: Mapping[str, str]) -> Iterator[str]:
    """Folders of installations, the likeliest first; some may not exist."""
    program = env.get("CONDA_EXE") or shutil.which("conda", path=env.get("PATH", os.defpath))
    if program:
        yield os.path.dirname(os.path.dirname(os.path.realpath(program)))
    if env.get("MAMBA_ROOT_PREFIX"):
        yield env["MAMBA_ROOT_PREFIX"]
    home = _home(env)
    if home is not None:
        for name in HOMES:
            yield os.path.join(home, name)
        yield os.path.join(home, ".conda")
    yield from SYSTEM


def _listed(env: Mapping[str, str]) -> List[str]:
    """Conda's own list of environments, those outside its folders too."""
    home = _home(env)
    if home is None:
        return []
    try:
        with open(
            os.path.join(home, ".conda", "environments.txt"), encoding="utf-8", errors="replace"
        ) as lines:
            return [line.strip().rstrip("/") for line in lines if line.startswith("/")]
    except OSError:
        return []


def _home(env: Mapping[str, str]) -> Optional[str]:
    home = env.get("HOME") or os.path.expanduser("~")
    return home if os.path.isabs(home) else None


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


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
