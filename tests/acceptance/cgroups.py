"""A control group of our own with a limit of memory, where this system lets us make one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LIMIT_BYTES = 320 << 20  # a supervisor, an agent, and little more
ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'  # for `sh -c`: the group's folder, then a command


@contextmanager
def memory_group(name: str) -> Iterator[Path | None]:
    """Its folder; None where none can be made. Whatever is left in it at the end goes up to its parent."""
    group = _make(name)
    try:
        yield group
    finally:
        if group is not None:
            _remove(group)


def _make(name: str) -> Path | None:
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    top, limit = (v1, "memory.limit_in_bytes") if v1.is_dir() else (v2, "memory.max")
    group = top / name
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        (group / limit).write_text(str(LIMIT_BYTES))
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
