"""What the start of a command looked like: its share of the CPU, its Python, the disks under its folders, its cards.

Everything here is read once, immediately before the command starts. The readers may touch a network disk or a driver
that hangs, so they run with a deadline (looks.py).
"""

from __future__ import annotations

import os
import re
import resource
import sys
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from supervisor.agent.facts.attempt_facts import python_of
from supervisor.agent.machine.cgroup import OwnCgroup
from supervisor.agent.machine.folder import MachineFolder, read_text
from supervisor.agent.machine.gpus import GpuReader
from supervisor.agent.machine.job import Job
from supervisor.agent.machine.nvml import driver_version
from supervisor.contract.beat_telemetry import Gpus

MIB, GIB = 1 << 20, 1 << 30
HELD_BYTES, HELD_SHARE = GIB, 0.05  # a driver itself may use less than the larger of the two
MOUNTS_BYTES = 1 << 20
VIRTUAL_DISKS = ("vd", "xvd", "loop", "ram", "zram", "nbd")
_OCTAL = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    point: str
    kind: str  # of file system, such as ext4 or nfs4
    source: str
    read_only: bool
    device: str = ""  # as major:minor


def start_facts(job: Job, folder: MachineFolder, cwd: str, env: Mapping[str, str]) -> Dict[str, Any]:
    """Not yet masked. `command_python`: the one that the command names, else the one on its PATH."""
    cores = os.sched_getaffinity(0)
    return {
        "affinity": ranges(cores),
        "cores": len(cores),
        "machine_cores": os.cpu_count(),
        "cpu_quota": OwnCgroup().cpu_quota(),
        "conda_prefix": env.get("CONDA_PREFIX") or None,
        "virtual_env": env.get("VIRTUAL_ENV") or None,
        "agent_python": sys.executable,
        "command_python": python_of(job.command, cwd, env),
        "mounts": mounts_of(_folders(job, folder, cwd), read_text("/proc/self/mountinfo", max_bytes=MOUNTS_BYTES)),
        "driver": driver_version() or None,
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }


def ranges(numbers: Iterable[int]) -> str:
    """As in /proc/<pid>/status: `0-3,8`."""
    parts: List[List[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def _folders(job: Job, folder: MachineFolder, cwd: str) -> Dict[str, str]:
    """Where the command reads and writes, by role."""
    folders = {**folder.roles(), "workdir": cwd}
    if job.stage:
        folders["data"] = job.local_nvme or job.stage_dir or folder.downloads
    return folders


def mounts_of(folders: Mapping[str, str], mountinfo: str) -> Dict[str, Dict[str, Any]]:
    """Role -> the mount under its folder, wherever links lead."""
    mounts = parse_mounts(mountinfo)
    places = {}
    for role, path in folders.items():
        mount = mount_under(os.path.realpath(path), mounts)
        if mount is not None:
            places[role] = {"path": path, **mount._asdict()}
    return places


def parse_mounts(mountinfo: str) -> List[Mount]:
    """The later of two at one point covers the other."""
    mounts = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if len(before) < 6 or len(after) < 3:
            continue
        read_only = "ro" in (*before[5].split(","), *after[2].split(","))
        mounts.append(Mount(_plain(before[4]), after[0], _plain(after[1]), read_only, before[2]))
    return mounts


def mount_under(path: str, mounts: Sequence[Mount]) -> Optional[Mount]:
    """The mount that holds this real path."""
    above = [mount for mount in mounts if mount.point == "/" or (path + "/").startswith(mount.point + "/")]
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)


def mounted_as(mount: Optional[Mount], sys: str = "/sys") -> str:
    """The kind of file system in lower case; `hdd` on a disk that rotates. A virtual disk says that it rotates whatever
    is below it, so it does not count. An image's own layers are no mount of a person."""
    kind = "" if mount is None else mount.kind.lower()
    if mount is None or kind == "fuse.fuse-overlayfs":
        return ""
    block = os.path.realpath("%s/dev/block/%s" % (sys, mount.device))
    for folder in (block, os.path.dirname(block)):  # of the disk, of the disk with this partition
        is_virtual = os.path.basename(folder).startswith(VIRTUAL_DISKS)
        if not is_virtual and read_text(folder + "/queue/rotational").strip() == "1":
            return "hdd"
    return kind


def mount_kind(path: str) -> str:
    """`mounted_as` of this path; "" where that cannot be read."""
    mounts = parse_mounts(read_text("/proc/self/mountinfo", max_bytes=1 << 20))
    return mounted_as(mount_under(os.path.realpath(path), mounts))


def _plain(path: str) -> str:
    """mountinfo writes blanks and backslashes as octal numbers."""
    return _OCTAL.sub(lambda match: chr(int(match.group(1), 8)), path)


# --- cards --------------------------------------------------------------------------------------------------------


def cards_before(gpus: GpuReader) -> Tuple[Tuple[int, int, int], ...]:
    """(card, bytes in use, all bytes) of each card whose memory can be read."""
    figures = gpus.read() or Gpus()
    rows = zip(figures.memory_used_mib, figures.memory_total_mib or [None] * len(figures.memory_used_mib))
    return tuple(
        (card, int(used * MIB), int((total or 0) * MIB)) for card, (used, total) in enumerate(rows) if used is not None
    )


def held(cards: Iterable[Tuple[int, int, int]]) -> Tuple[Tuple[int, float], ...]:
    """(card, bytes) where another process held memory: more than a driver itself uses."""
    return tuple((card, float(used)) for card, used, total in cards if used > max(HELD_BYTES, HELD_SHARE * total))
