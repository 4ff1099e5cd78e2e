"""What the processes of the command have done so far: CPU, reads, workers, downloads, and where their data lie.

Two of these readings, minutes apart, are what agent/watch/slow.py judges. A process may end at any time: what cannot be
read of it is left out, never counted as zero.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Dict, Iterable, List, Mapping, Sequence, Set, Tuple

from supervisor.agent.facts.start import mount_under, mounted_as, parse_mounts
from supervisor.agent.machine.cgroup import OwnCgroup
from supervisor.agent.machine.folder import names_in, read_fields, read_text
from supervisor.agent.machine.gpus import GpuReader
from supervisor.agent.machine.processes import stat_fields
from supervisor.agent.watch.slow import Wanted, Work
from supervisor.contract.signs import SLOW_MOUNTS

DOWNLOADS = (".incomplete", ".part", ".partial", ".download", ".crdownload")  # names of files on their way
WORKERS, TASKS, OPEN_FILES = 256, 1000, 64  # processes, threads of all of them, files of each that are looked at
_SPAWNED = ("multiprocessing.spawn", "multiprocessing.forkserver", "multiprocessing-fork")
_OURS_NOT = ("/dev/", "/proc/", "/sys/", "/usr/", "/lib", "/etc/", "/tmp/", "/opt/")  # no data lie there  # noqa: S108
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read_work(pids: Sequence[int], wanted: Wanted, group: OwnCgroup, gpus: GpuReader) -> Work:
    """What these processes have done so far."""
    at, pids = time.monotonic(), pids[:WORKERS]
    cpu_s: Dict[int, float] = {}
    reads: Dict[int, Tuple[float, float]] = {}
    parents: Dict[int, int] = {}
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            fields = stat_fields(pid)
            parents[pid], cpu_s[pid] = int(fields[1]), sum(int(ticks) for ticks in fields[11:13]) / _TICKS_PER_S
        io = read_fields("/proc/%d/io" % pid)
        with suppress(KeyError, ValueError):
            reads[pid] = float(io["syscr"]), float(io["rchar"])
    workers = _workers(parents)
    mains = [parents[pid] for pid in workers]
    return Work(
        at,
        cpu_s,
        reads,
        workers,
        max(mains, key=mains.count) if mains else None,
        group.periods(),
        gpus.others_bytes(set(pids)),
        _runnable(pids) if wanted.runnable else None,
        _downloads(pids) if wanted.downloads else None,
        _data_mount(pids) if wanted.mount else "",
    )


def _workers(parents: Mapping[int, int]) -> List[int]:
    """Processes of a pool: named so by torch, forked (the same command line as their parent), or spawned. A spawned one
    with a card open is a rank of the training."""
    lines = {pid: read_text("/proc/%d/cmdline" % pid) for pid in parents}
    workers = []
    for pid, parent in parents.items():
        is_spawned = any(word in lines[pid] for word in _SPAWNED) and "resource_tracker" not in lines[pid]
        if parent not in lines or not lines[pid]:
            continue
        is_forked = lines[pid] == lines[parent] or read_text("/proc/%d/comm" % pid).startswith("pt_data_worker")
        if is_forked or (is_spawned and not any(path.startswith("/dev/nvidia") for _, path in _open_files(pid))):
            workers.append(pid)
    return workers


def _open_files(pid: int) -> List[Tuple[str, str]]:
    """(place in /proc, path) of some. No disk is touched."""
    files, folder = [], "/proc/%d/fd" % pid
    for name in names_in(folder)[:OPEN_FILES]:
        with suppress(OSError):
            files.append(("%s/%s" % (folder, name), os.readlink("%s/%s" % (folder, name))))
    return files


def _runnable(pids: Iterable[int]) -> float:
    """Threads that run or wait for a CPU."""
    tasks = [(pid, task) for pid in pids for task in names_in("/proc/%d/task" % pid)][:TASKS]
    states = (read_text("/proc/%d/task/%s/stat" % task).rpartition(")")[2].split()[:1] for task in tasks)
    return float(sum(1 for state in states if state == ["R"]))


def _downloads(pids: Iterable[int]) -> Dict[str, float]:
    sizes: Dict[str, float] = {}
    for place, path in (file for pid in pids for file in _open_files(pid)):
        if path.endswith(DOWNLOADS):
            with suppress(OSError):
                sizes[path] = float(os.stat(place).st_size)
    return sizes


def _data_mount(pids: Iterable[int]) -> str:
    """The kind of file system on which these processes have files open: of a slow one where there is one; "" where none
    of them has a file open that may be data."""
    mounts = parse_mounts(read_text("/proc/self/mountinfo", max_bytes=1 << 20))
    paths: Set[str] = {path for pid in pids for _, path in _open_files(pid) if path.startswith("/")}
    kinds = [mounted_as(mount_under(path, mounts)) for path in sorted(paths) if not path.startswith(_OURS_NOT)]
    slow = [kind for kind in kinds if any(word in kind for word in SLOW_MOUNTS)]
    return max(slow or kinds, key=(slow or kinds).count, default="")
