"""Code bundles by hand, for tests of those who receive one."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping

CODE = {"train.py": b"print(1)\n", "lib/model.py": b"x = 1\n", "run.sh": b"#!/bin/sh\npython train.py\n"}


def tar_of(files: Mapping[str, bytes] = CODE) -> bytes:
    """Names that end in .sh may be executed."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755 if name.endswith(".sh") else 0o644
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def bundle_of(files: Mapping[str, bytes] = CODE) -> tuple[str, bytes]:
    """(its name, its gzip)."""
    tar = tar_of(files)
    return hashlib.sha256(tar).hexdigest(), gzip.compress(tar, mtime=0)
