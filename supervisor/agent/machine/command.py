"""The user's command: its needs are checked and prepared, then it runs as a process group of its own.

Before: everything that can be missing is checked here, so that a training never starts with less than it was promised.
`Unfit` is the machine's or the bundle's fault, `NotStarted` that of the command. The code bundle is unpacked into a new
folder and hashed on the way. A bundle that differs from its hash is downloaded again, a few times, because the transfer
may be at fault; after that the command is not started. Nothing in the archive is trusted: its names follow the rules of
contract/bundle, and each file is created as new, through no link. Activating a conda or virtual environment means a
PATH and one or two variables. A virtual environment is named by its path; conda's are looked up in each installation
that can be found, and in the list that conda keeps in the home directory.

Running: the output goes straight into a file, so neither a slow store nor a dying agent can block it. posix_spawn
starts the command, because other threads of the agent are running and nothing of them may be copied into the child. The
command has ended when its first process has. One exception: a shell or a launcher without a TERM handler dies of our
TERM at once, while the training that it started still saves. Then the command ends with the last process of the group,
or with our KILL.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import signal
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from supervisor.agent.machine.cgroup import OwnCgroup
from supervisor.agent.machine.folder import MachineFolder, names_in, read_text
from supervisor.agent.machine.job import Command, Job
from supervisor.agent.machine.processes import group_lives
from supervisor.agent.store.access import TRIES, Retrier
from supervisor.contract import runfiles
from supervisor.contract.heartbeat import BAD_CODE, NO_CODE, NO_CONDA, NO_VENV, NO_WORKDIR
from supervisor.contract.stores.promise import ObjectMissing, ObjectStore

if TYPE_CHECKING:
    from supervisor.contract.bundle import Member

NOT_FOUND, NOT_STARTED = 127, 126
HOMES = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba")
SYSTEM = ("/opt/conda", "/opt/miniconda3", "/opt/miniforge3")
BASE = "base"
# The thread pools of common libraries start a thread per core of the machine, whatever our share of the CPU is.
THREAD_POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_DEFAULT_SIGNALS = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
_SHOWN = 8
# Variables by which frameworks learn how a machine says that it ends. submitit saves at this signal, and lets TERM pass
# otherwise (core/job_environment.py).
FRAMEWORKS = {"SUBMITIT_PREEMPT_SIGNAL": "TERM"}
_FETCHING = "fetching the code bundle"
_CWD = threading.Lock()  # the working directory is the whole process's
_log = logging.getLogger("agent")


class NotStarted(Exception):
    """The command or its folder is missing, or it cannot be run. `code` is what a shell would exit with."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Unfit(Exception):
    """The command is not started on this machine. `left` is a word of heartbeat.LEFT; the text is for the beat."""

    def __init__(self, left: str, text: str) -> None:
        super().__init__(text)
        self.left = left


class Training:
    """One child process. `status` is the raw wait status once it has ended."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._started_at = 0.0
        self._ended_at: Optional[float] = None
        self._before_s = 0.0  # how long the command ran before its last start
        self._first_status: Optional[int] = None  # of the first process, which may end before its group
        self.pid: Optional[int] = None
        self.status: Optional[int] = None
        self.sent: Set[int] = set()  # signals that we sent while it was alive

    def start(self, command: Command, cwd: str, env: Mapping[str, str], output: str) -> None:
        """Raises NotStarted."""
        with inside(cwd):
            arguments = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
            path = shutil.which(arguments[0], path=env.get("PATH", os.defpath))
            if path is None and os.path.dirname(arguments[0]) and os.path.exists(arguments[0]):
                raise NotStarted(NOT_STARTED, "%s is there, but it is not an executable file" % arguments[0])
            if path is None:
                raise NotStarted(NOT_FOUND, "%s: command not found" % arguments[0])
            self._started_at = self._monotonic()
            try:
                self.pid = spawn(path, arguments, env, output)
            except (OSError, ValueError) as error:
                raise NotStarted(NOT_STARTED, "%s cannot be run: %s" % (arguments[0], error)) from None

    def reset(self) -> None:
        """It has ended, and will be started again."""
        self._before_s = self.ran_s
        self.pid = self.status = self._first_status = self._ended_at = None
        self.sent = set()

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
        """Send to its whole group, while the command itself lives; a stopped group is continued, so that it can save.
        Called from a signal handler too: no locks here."""
        if self.pid is None or self.status is not None:
            return
        self.sent.add(number)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
            os.killpg(self.pid, signal.SIGCONT)

    def freeze(self) -> None:
        """Stop its whole group, until the next signal continues it."""
        if self.pid is not None and self.status is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGSTOP)

    @property
    def ran_s(self) -> float:
        """From its start to its end, or until now; all its starts together."""
        if self.pid is None:
            return self._before_s
        end = self._monotonic() if self._ended_at is None else self._ended_at
        return self._before_s + end - self._started_at


@contextmanager
def inside(folder: str) -> Iterator[None]:
    """posix_spawn has no working directory: the child inherits ours. Every path of the agent is absolute. One thread at
    a time: a command beside the training may start while a drill starts that again. Raises NotStarted."""
    with _CWD:
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


def spawn(path: str, arguments: List[str], env: Mapping[str, str], output: str) -> int:
    """The id of a new process that leads its group. OSError, ValueError."""
    actions: List[Tuple[int, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),  # type: ignore[list-item]
        (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),  # type: ignore[list-item]
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(
        path, arguments, dict(env), file_actions=actions, setpgroup=0, setsigdef=_DEFAULT_SIGNALS, setsigmask=[]
    )


# --- preparing ----------------------------------------------------------------------------------------------------


class Workplace(NamedTuple):
    cwd: str
    env: Dict[str, str]


def prepare(job: Job, folder: MachineFolder, secrets: Mapping[str, str], step: Optional[int]) -> Workplace:
    """`secrets`: name -> value. `step`: of the restored checkpoint. Raises NotStarted, OSError."""
    contract: Dict[str, Optional[str]] = {
        "SPOT_RUN_ID": job.run_id,
        "SPOT_ATTEMPT": str(job.attempt),
        "SPOT_CHECKPOINT_DIR": folder.checkpoints,
        "SPOT_RESULTS_DIR": folder.results,
        "SPOT_STAGE_DIR": folder.staged if job.stage else None,
        "SPOT_PROGRESS_FILE": folder.progress,
        "SPOT_STOP_FILE": folder.stopping,
        "SPOT_SAVE_FILE": folder.save_due,
        "SPOT_RESUMED_FROM_STEP": None if step is None else str(step),
        "SPOT_TRACKER_ID": job.tracker_id,
        "SPOT_GROUP": job.group,
        "SPOT_TENSORBOARD_DIR": os.path.join(folder.results, "tensorboard"),
        "SPOT_MACHINE": job.machine,
        "SPOT_MACHINE_DIR": folder.root,
        "SPOT_KEEP_DIR": folder.kept if job.keep_machine else None,
    }
    if job.keep_machine:
        os.makedirs(folder.kept, exist_ok=True)
    if job.gpu_ids is not None:
        # By default CUDA orders cards by speed; this makes it use the driver's order.
        contract.update(CUDA_VISIBLE_DEVICES=",".join(job.gpu_ids), CUDA_DEVICE_ORDER="PCI_BUS_ID")
    env = environment({**FRAMEWORKS, **os.environ}, {**job.env, **secrets}, contract, folder.python)
    if job.keep_machine and job.in_image:  # the rest of the image's file system is new in each attempt
        env.setdefault("XDG_CACHE_HOME", os.path.join(folder.kept, "cache"))
    if job.conda_env is not None:
        env = with_conda_env(job.conda_env, env)
    if job.venv is not None:
        env = with_venv(job.venv, env)
    env.update(thread_caps(env, OwnCgroup().cpu_quota(), len(os.sched_getaffinity(0))))
    folder.write_modules()
    return Workplace(_cwd(job, folder), env)


def _cwd(job: Job, folder: MachineFolder) -> str:
    """With a bundle `workdir` is relative to it, and never leads out of it. Without one it is a folder of the image,
    where a relative path starts at the image's WORKDIR, as in `docker run`."""
    if job.code is not None:
        return os.path.normpath(os.path.join(folder.code, (job.workdir or "").lstrip("/")))
    if job.in_image:
        return os.path.normpath(os.path.join(os.getcwd(), job.workdir or ""))
    return job.workdir or folder.scratch


def environment(
    base: Mapping[str, str], job_env: Mapping[str, str], contract: Mapping[str, Optional[str]], python: str
) -> Dict[str, str]:
    """The command's environment: the agent's own, the run's, and the contract's variables, which win.

    A contract value of None removes the variable. `python` is the folder with spot_progress.
    """
    env = {**base, **job_env, "PYTHONUNBUFFERED": "1"}
    for name, value in contract.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    env["PYTHONPATH"] = os.pathsep.join(part for part in (python, env.get("PYTHONPATH", "")) if part)
    return env


def thread_caps(env: Mapping[str, str], quota: Optional[float], cores: int) -> Dict[str, str]:
    """Variables for `env`, so that no library starts more threads than `quota` cores can run; empty where there is no
    quota below `cores`, and without variables that are set already."""
    if quota is None or quota >= cores:
        return {}
    threads = max(1, math.floor(quota))
    added = {name: str(threads) for name in THREAD_POOLS if not env.get(name)}
    if added:
        _log.info("%s = %d: our share of the CPU is %.3g cores", ", ".join(added), threads, quota)
    return added


def with_venv(prefix: str, env: Mapping[str, str]) -> Dict[str, str]:
    """`env` with the virtual environment in the folder `prefix` in front. Raises NotStarted where there is none."""
    if not os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
        raise NotStarted(NOT_FOUND, "%s%s is not on this machine" % (NO_VENV, prefix))
    return _activated(prefix, env, {"VIRTUAL_ENV": prefix})


def with_conda_env(wanted: str, env: Mapping[str, str]) -> Dict[str, str]:
    """`env` with the conda environment `wanted` (a name or an absolute path) in front. Raises NotStarted with the
    environments that exist."""
    prefixes = conda_envs(env)
    prefix = wanted if os.path.isabs(wanted) else prefixes.get(wanted)
    if prefix is None or not os.path.isdir(os.path.join(prefix, "conda-meta")):
        text = "%s%s is not on this machine; %s" % (NO_CONDA, wanted, _names_text(list(prefixes)))
        raise NotStarted(NOT_FOUND, text)
    variables = {"CONDA_PREFIX": prefix, "CONDA_DEFAULT_ENV": wanted}
    return _activated(prefix, {name: value for name, value in env.items() if name != "VIRTUAL_ENV"}, variables)


def _activated(prefix: str, env: Mapping[str, str], variables: Mapping[str, str]) -> Dict[str, str]:
    path = os.pathsep.join((os.path.join(prefix, "bin"), env.get("PATH", os.defpath)))
    active = {**env, "PATH": path, **variables}
    active.pop("PYTHONHOME", None)
    return active


def _names_text(names: List[str]) -> str:
    if not names:
        return "no conda environment was found there at all"
    more = ", ..." if len(names) > _SHOWN else ""
    return "there are: %s%s" % (", ".join(sorted(names)[:_SHOWN]), more)


def conda_envs(env: Mapping[str, str]) -> Dict[str, str]:
    """Name -> folder of every conda environment that can be found; the first of two with one name counts."""
    prefixes: Dict[str, str] = {}
    for root in _conda_roots(env):
        if os.path.isdir(os.path.join(root, "conda-meta")):
            prefixes.setdefault(BASE, root)
        for name in names_in(os.path.join(root, "envs")):
            prefixes.setdefault(name, os.path.join(root, "envs", name))
    for prefix in _conda_list(env):
        prefixes.setdefault(os.path.basename(prefix), prefix)
    return {name: path for name, path in prefixes.items() if os.path.isdir(os.path.join(path, "conda-meta"))}


def _conda_roots(env: Mapping[str, str]) -> Iterator[str]:
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


def _conda_list(env: Mapping[str, str]) -> List[str]:
    """Conda's own list of environments, which has those outside its folders too."""
    home = _home(env)
    text = "" if home is None else read_text(os.path.join(home, ".conda", "environments.txt"))
    return [line.strip().rstrip("/") for line in text.splitlines() if line.startswith("/")]


def _home(env: Mapping[str, str]) -> Optional[str]:
    home = env.get("HOME") or os.path.expanduser("~")
    return home if os.path.isabs(home) else None


# --- the code bundle ----------------------------------------------------------------------------------------------


def fetch_code(store: ObjectStore, sha256: str, folder: str, retrier: Retrier) -> None:
    """Unpack the bundle into `folder`, and remove everything else from it. Raises Unfit, GaveUp, OSError."""
    for number in range(1, TRIES + 1):
        problem = retrier.call(_FETCHING, _unpack, store, sha256, folder, retrier)
        if problem is None:
            _log.info("code %s unpacked into %s", sha256[:12], folder)
            return
        _log.warning("code %s: %s (try %d of %d)", sha256[:12], problem, number, TRIES)
        if number < TRIES:
            retrier.wait(_FETCHING, float(number))
    shutil.rmtree(folder, ignore_errors=True)
    raise Unfit(NO_CODE, "%s%s %s (fetched %d times)" % (BAD_CODE, sha256[:12], problem, TRIES))


def _unpack(store: ObjectStore, sha256: str, folder: str, retrier: Retrier) -> Optional[str]:
    """What is wrong with the bundle, None when it is unpacked. Raises GaveUp, StoreUnavailable, OSError."""
    from supervisor.contract.bundle import BundleRefused, Opened  # late: a command without a bundle needs no tarfile

    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    opened = Opened(_pieces(store, runfiles.code(sha256), retrier))
    try:
        for member, content in opened.files():
            _write(folder, member, content)
    except BundleRefused as error:
        return "is damaged: %s" % error
    except ObjectMissing:
        return "is not in the object store"
    return None if opened.sha256 == sha256 else "differs from its checksum"


def _pieces(store: ObjectStore, key: str, retrier: Retrier) -> Iterator[bytes]:
    for piece in store.read(key):
        retrier.check(_FETCHING)
        yield piece


def _write(folder: str, member: Member, content: Iterator[bytes]) -> None:
    path = os.path.join(folder, member.path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if member.link is not None:
        os.symlink(member.link, path)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o755 if member.executable else 0o644), "wb") as target:
        for piece in content:
            target.write(piece)
