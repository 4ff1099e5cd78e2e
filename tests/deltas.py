"""Deltas of a bundle by hand, for tests of those who receive one."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable, Mapping

from supervisor.contract.bundle import DELTA, LINK, Delta, encode_delta

Files = Mapping[str, bytes | str]  # bytes: a file; a text: the target of a link


def content_of(content: bytes | str) -> str:
    return LINK + content if isinstance(content, str) else hashlib.sha256(content).hexdigest()


def delta_of(before: Files, after: Files, also_before: Iterable[bytes] = ()) -> tuple[str, bytes]:
    """(sha256 of the tar, its gzip). `also_before`: contents that count as known for every file."""
    known = {path: (content_of(content), *map(content_of, also_before)) for path, content in before.items()}
    changed = {path: content for path, content in after.items() if before.get(path) != content}
    removed = {path: known[path] for path in before if path not in after}
    return packed(Delta({path: known.get(path, ()) for path in changed}, removed), changed)


def packed(delta: Delta, files: Files) -> tuple[str, bytes]:
    """Names that end in .sh may be executed."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in {DELTA: encode_delta(delta), **files}.items():
            info = tarfile.TarInfo(path)
            info.mode = 0o755 if path.endswith(".sh") else 0o644
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return hashlib.sha256(target.getvalue()).hexdigest(), gzip.compress(target.getvalue(), mtime=0)
