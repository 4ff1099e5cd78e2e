"""How many trainings this computer carries at once, where nobody has said it: by its GPUs, else by cores and memory.

Without this, a queue of three hundred runs would start three hundred processes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

MEMORY_BYTES = 2 * 2**30  # of each training
CGROUP = Path("/sys/fs/cgroup")  # of a container: the limits that it was given
CARDS = Path("/proc/driver/nvidia/gpus")  # one folder for each card, written by NVIDIA's driver


def carries(promised: Mapping[str, int], cards: Path = CARDS) -> tuple[int, str]:
    """(machines at once, why). `promised`: shape -> GPUs of each of its machines; these are counted one by one."""
    gpus = _cards(cards)
    if gpus and not any(promised.values()):
        return gpus, f"one for each of {gpus} GPUs" if gpus > 1 else "one GPU"
    cores = min(float(len(os.sched_getaffinity(0))), _quota(CGROUP / "cpu.max"))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    memory_bytes = min(float(memory), *_numbers(CGROUP / "memory.max"), float("inf"))
    by_cores, by_memory = max(1, int(cores)), max(1, int(memory_bytes // MEMORY_BYTES))
    most = max(gpus, min(by_cores, by_memory))
    if by_memory < by_cores:
        return most, f"one for each 2 GiB of {memory_bytes / 2**30:.1f} GiB of memory"
    return most, f"one for each of {by_cores} cores" if by_cores > 1 else "one core"


def _quota(file: Path) -> float:
    """In cores; infinite where there is no limit."""
    numbers = _numbers(file)
    return numbers[0] / numbers[1] if len(numbers) == 2 and numbers[1] else float("inf")


def _numbers(file: Path) -> list[float]:
    """Those that stand there; `max` is none."""
    try:
        return [float(word) for word in file.read_text().split() if word.isdigit()]
    except OSError:
        return []


def _cards(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:  # no NVIDIA driver here
        return 0
