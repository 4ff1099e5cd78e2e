"""A control group of our own with a limit of memory or of the CPU, where this system lets us make one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

LIMIT_BYTES = 320 << 20  # a supervisor, an agent, and little more
ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'  # for `sh -c`: the group's folder, then a command


PERIOD_US = 100_000


def enter(group: Path) -> None:
    """This process, and all that it starts from now on."""
    (group / "cgroup.procs").write_text(str(os.getpid()))


def memory_group(name: str) -> AbstractContextManager[Path | None]:
    return _group(name, "memory", ("memory.limit_in_bytes", "memory.max"), str(LIMIT_BYTES))


def cpu_group(name: str, cores: float) -> AbstractContextManager[Path | None]:
    quota = round(cores * PERIOD_US)
    v2 = f"{quota} {PERIOD_US}"
    return _group(name, "cpu", ("cpu.cfs_quota_us", "cpu.max"), str(quota), v2)


@contextmanager
def _group(
    name: str, controller: str, limits: tuple[str, str], value: str, value_v2: str = ""
) -> Iterator[Path | None]:
    """Its folder; None where none can be made. Whatever is left in it at the end goes up to its parent.

    `limits`: the file of the limit in version 1 and in version 2."""
    v1, v2 = Path("/sys/fs/cgroup", controller), Path("/sys/fs/cgroup")
    group = _make(v1 / name, limits[0], value) if v1.is_dir() else _make(v2 / name, limits[1], value_v2 or value)
    try:
        yield group
    finally:
        if group is not None:
            _remove(group)


def _make(group: Path, limit: str, value: str) -> Path | None:
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        (group / limit).write_text(value)
    except OSError:
        _remove(group)
        return None
    return group


def _remove(group: Path) -> None:
    for _ in range(500):
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (group.parent / "cgroup.procs").write_text(pid)
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise OSError(f"{group} cannot be removed")
