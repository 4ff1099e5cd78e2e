"""The machine under the training: kernel, processor, memory, the graphics driver and its cards.

Read from /proc, which containers see too. Where the driver shows nothing there (WSL, say) nvidia-smi is asked.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from typing import Any, Dict, List, Optional, Sequence, Tuple

from supervisor.agent.machine.nvidiasmi import PROGRAM, query

NVIDIA = "/proc/driver/nvidia"
SMI_TIMEOUT_S = 15.0
_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")


def host_facts() -> Dict[str, Any]:
    """kernel, cpu, cores (that this machine may use) and memory_bytes; what cannot be read is left out."""
    system = os.uname()
    found: Dict[str, Any] = {
        "kernel": system.release,
        "cpu": _field("/proc/cpuinfo", "model name") or system.machine,
        "cores": len(os.sched_getaffinity(0)),
    }
    total = _field("/proc/meminfo", "MemTotal").split()
    if total and total[0].isdigit():
        found["memory_bytes"] = int(total[0]) * 1024
    return found


def gpu_facts(only: Optional[Sequence[str]], proc: str = NVIDIA) -> Tuple[Dict[str, Any], str]:
    """(driver and gpus, why they are not known). `only`: indexes or UUIDs of this machine's cards; None = all.

    driver None: no NVIDIA driver is loaded, and so there is no card.
    """
    version = None
    try:
        with open(os.path.join(proc, "version"), encoding="utf-8") as source:
            version = _VERSION.search(source.read())
    except FileNotFoundError:
        if shutil.which(PROGRAM) is None:
            return {"driver": None, "gpus": []}, ""
    except OSError as error:
        return {}, "the driver cannot be read: %s" % error
    cards = _cards(proc)
    if version is not None and cards:
        return {"driver": version.group(1), "gpus": _names(cards, only)}, ""
    return _ask_smi(only)


def _cards(proc: str) -> List[Tuple[str, str, str]]:
    """(index, uuid, name) in the order of the bus, as CUDA counts them."""
    found = []
    for number, path in enumerate(sorted(glob.glob(os.path.join(proc, "gpus", "*", "information")))):
        found.append((str(number), _field(path, "GPU UUID"), _field(path, "Model")))
    return found


def _ask_smi(only: Optional[Sequence[str]]) -> Tuple[Dict[str, Any], str]:
    try:
        rows = query(("index", "uuid", "name", "driver_version"), SMI_TIMEOUT_S)
        cards = [(index, uuid, name) for index, uuid, name, _ in rows]
        return {"driver": rows[0][3], "gpus": _names(cards, only)}, ""
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return {}, "nvidia-smi did not tell of the driver: %s" % error


def _names(cards: Sequence[Tuple[str, str, str]], only: Optional[Sequence[str]]) -> List[str]:
    return [name for index, uuid, name in cards if only is None or index in only or uuid in only]


def _field(path: str, name: str) -> str:
    """The first value of `name: value` in this file; "" when there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            for line in source:
                key, colon, value = line.partition(":")
                if colon and key.strip() == name:
                    return value.strip()
    except OSError:
        pass
    return ""
