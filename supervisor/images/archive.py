"""The laid-out folder as one .tgz whose bytes depend on nothing but the files: sorted names, one time, no owners."""

from __future__ import annotations

import gzip
import os
import tarfile
from pathlib import Path

from supervisor.images.context import TIME_S


def pack(folder: Path, target: Path) -> int:
    """Writes `target`; its size in bytes. OSError."""
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(_files(folder), key=os.fsencode):
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=_plain)
    return target.stat().st_size


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = TIME_S
    return member
