"""The doctor's look at this computer: Python, the disk of the data folder, the agent, the GPUs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.domain.machines.cards import Card
from supervisor.ports.provider import ProviderUnavailable
from supervisor.wording.figures import gib_text

DISK_WARN_BYTES, DISK_FAIL_BYTES = 5 * 10**9, 500 * 10**6
INODES_WARN, INODES_FAIL = 100_000, 5_000


def python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", OK, f"Python {version} at {sys.executable}")


def disk(data_dir: Path) -> Finding:
    try:
        free = shutil.disk_usage(data_dir).free
    except OSError as error:
        return Finding("disk", FAIL, f"{data_dir} cannot be read", str(error), f"ls -ld {data_dir}")
    result = FAIL if free < DISK_FAIL_BYTES else WARN if free < DISK_WARN_BYTES else OK
    fact = f"{gib_text(free)} GiB free at {data_dir}"
    if result == OK:
        return Finding("disk", OK, fact)
    return Finding("disk", result, fact, "checkpoints and the database need room", f"du -sh {data_dir}/*")


def inodes(data_dir: Path) -> Finding:
    try:
        stats = os.statvfs(data_dir)
    except OSError as error:
        return Finding("inodes", FAIL, f"{data_dir} cannot be read", str(error), f"ls -ld {data_dir}")
    if stats.f_files == 0:
        return Finding("inodes", OK, "this file system has no limit on files")
    result = FAIL if stats.f_favail < INODES_FAIL else WARN if stats.f_favail < INODES_WARN else OK
    fact = f"{stats.f_favail:,} files can still be made at {data_dir}"
    if result == OK:
        return Finding("inodes", OK, fact)
    fix = f"df -i {data_dir}; du --inodes -s {data_dir}/* shows who has them"
    return Finding("inodes", result, fact, "a disk dies on inodes before bytes", fix)


def agent(bundle: Path | None) -> Finding:
    if bundle is not None and bundle.is_file():
        return Finding("agent", OK, f"{bundle.name}, {bundle.stat().st_size / 1000:.0f} kB")
    cause = "no machine can be started: this checkout has not built it"
    return Finding("agent", FAIL, "the agent's bundle is missing", cause, "make agent")


def gpus(read: Callable[[], Sequence[Card]], promised: int) -> Finding:
    """Each card and who has it. One that a stranger holds, or that is set aside, is not given to any machine."""
    try:
        cards = read()
    except ProviderUnavailable as error:
        return Finding("gpus", FAIL, "the GPUs cannot be read", str(error), "nvidia-smi")
    fact = "; ".join(f"{card.label} ({card.name or 'of unknown kind'}) is {card.state}" for card in cards)
    there = sum(card.index is not None for card in cards)
    aside = [card.uuid for card in cards if card.aside is not None]
    if there < promised and not aside:
        cause = f"a shape promises {promised}, and this computer has {there}"
        return Finding("gpus", FAIL, fact or "no GPU was found", cause, "set local_gpus to what is there")
    if aside:
        cause = "its driver said that it is broken: no run gets it before a person says that it is back"
        return Finding("gpus", WARN, fact, cause, "; ".join(f"spot gpus --back {uuid}" for uuid in aside))
    if any(card.holder and not card.ours for card in cards):
        return Finding("gpus", WARN, fact, "what others hold is not given out, and runs wait", "nvidia-smi")
    return Finding("gpus", OK, fact)
