"""Mounts that only one process and its children see, as with `unshare -Urm`: for supervisors that are forks."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

NEW_USER, NEW_MOUNTS = 0x10000000, 0x00020000  # of unshare(2)


def own_mounts(script: str, *words: str) -> None:
    """From now on this process has a mount namespace of its own, with what the script of a shell mounts. `words`: its
    "$0", "$1" and so on. OSError, CalledProcessError."""
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_USER | NEW_MOUNTS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    subprocess.run(["sh", "-c", f"mount --make-rprivate / && {script}", *words], check=True)
