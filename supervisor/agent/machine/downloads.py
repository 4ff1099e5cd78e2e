"""The files of the spec's `stage`: downloaded before the command starts, and proven by their SHA-256.

A file is kept under its hash in one folder on the machine's fastest disk, so a later attempt on the same machine, or
another run there, downloads nothing. The command finds it by a link under the name that the spec gives. A transfer that
breaks off continues at its last byte, also in the next attempt. A source that does not respond decides nothing: the
agent retries, until the limit of this phase. A source that refuses the file ends the attempt.

    <sha256>         the file        <sha256>.part   what has arrived of it; the agent that writes it has a lock on it
    <sha256>.proof   its size and time when its hash was checked; another size or time: it is downloaded again
    <sha256>.lock    each agent that uses the file holds a shared lock until its end. Its time is that of the last use:
                     after KEPT_S without one, all four are removed
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import logging
import os
import ssl
import time
from contextlib import closing, suppress
from typing import BinaryIO, Callable, Generator, List, Mapping, Optional, Tuple
from urllib.parse import urlsplit

from supervisor.agent.machine.command import NotStarted
from supervisor.agent.machine.folder import MachineFolder, open_own
from supervisor.agent.machine.job import Job, StagedFile
from supervisor.agent.store.access import TRIES, Retrier
from supervisor.contract.stores.promise import ObjectMissing, ObjectStore, StoreForbidden, StoreUnavailable

KEPT_S = 14 * 86400.0
TIMEOUT_S = 30.0
PIECE_BYTES = 1 << 20
REPORT_S = 5.0
REFUSED = 1  # exit code of a command that was not started; the text beside it says more
SCRATCH = "SPOT_SCRATCH_DIR"
RETRIED = (408, 425, 429)  # besides 5xx
PART, PROOF, LOCK = ".part", ".proof", ".lock"
OWN, HUB = "spot", "huggingface"  # folders below the machine's fast disk
Pieces = Generator[bytes, None, None]
_log = logging.getLogger("agent")


class Downloads:
    """`open_bucket`: the store at an address without a key. `report` gets what is being downloaded, and "" at the
    end."""

    def __init__(
        self,
        job: Job,
        folder: MachineFolder,
        open_bucket: Callable[[str], ObjectStore],
        retrier: Retrier,
        report: Callable[[str], None],
    ) -> None:
        self._job, self._open_bucket, self._retrier, self._report = job, open_bucket, retrier, report
        self._links, self._authorities = folder.staged, folder.authorities
        self._files = kept_files(job, folder, os.environ)
        self.locks: List[int] = []  # never closed: the kernel releases them with the process

    def fetch(self) -> None:
        """All files of the spec. Raises NotStarted, GaveUp, OSError."""
        for item in self._job.stage:
            path = os.path.join(self._files, item.sha256)
            self.locks.append(_used(path + LOCK))
            if not _is_proven(path):
                self._download(item, path)
            _link(path, os.path.join(self._links, item.to))
        if self._job.stage:
            self._report("")
            self._remove_unused(time.time())

    def _download(self, item: StagedFile, path: str) -> None:
        part = path + PART
        with closing(self._alone(part)):
            if _is_proven(path):  # another agent has done it
                os.unlink(part)
                return
            for _ in range(TRIES):
                size = self._retrier.call("downloading %s" % item.to, self._continue, item, part)
                content = self._sha256(part)
                if content == item.sha256:
                    os.chmod(part, 0o444)  # other runs may use it too
                    os.rename(part, path)
                    _prove(path)
                    _log.info("%s is downloaded: %d bytes", item.to, size)
                    return
                os.truncate(part, 0)
        text = "%s is not the file of the spec: its sha256 is %s, and not %s (downloaded %d times)"
        raise NotStarted(REFUSED, text % (item.url, content, item.sha256, TRIES))

    def _continue(self, item: StagedFile, part: str) -> int:
        """The size of the whole file. Raises StoreUnavailable where the transfer breaks off, and what `fetch` does."""
        with open(part, "ab", opener=open_own) as target:
            start, pieces = self._open(item, target.tell())
            target.truncate(start)
            reported_at = 0.0
            with closing(pieces):
                for piece in pieces:
                    self._retrier.check("downloading %s" % item.to)
                    target.write(piece)
                    if time.monotonic() - reported_at >= REPORT_S:
                        reported_at = time.monotonic()
                        self._report("downloading %s: %.1f GB so far" % (item.to, target.tell() / 1e9))
            target.flush()
            os.fsync(target.fileno())
            return target.tell()

    def _open(self, item: StagedFile, offset: int) -> Tuple[int, Pieces]:
        """(the offset of the first byte, the bytes)."""
        if item.url.startswith(("https://", "http://")):
            return self._web_pieces(item, offset)
        return offset, self._bucket_pieces(item, offset)

    def _bucket_pieces(self, item: StagedFile, offset: int) -> Pieces:
        url = urlsplit(item.url)
        try:
            yield from self._open_bucket("%s://%s" % url[:2]).read(url.path[1:], offset)
        except (ObjectMissing, StoreForbidden, ValueError) as error:
            raise NotStarted(REFUSED, "%s cannot be downloaded: %s" % (item.url, error)) from None

    def _web_pieces(self, item: StagedFile, offset: int) -> Tuple[int, Pieces]:
        import urllib.error  # late: half a MB that few runs need
        import urllib.request

        headers = {"Range": "bytes=%d-" % offset} if offset else {}
        request = urllib.request.Request(item.url, headers=headers)  # noqa: S310 - the spec allows http and https only
        context = ssl.create_default_context(cafile=self._authorities)
        try:
            response = urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context)  # noqa: S310
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416:  # nothing follows this offset: the hash says whether the file is whole
                    return offset, _nothing()
                text = "%s responded %d %s" % (item.url, error.code, error.reason)
                if error.code in RETRIED or error.code >= 500:
                    raise StoreUnavailable(text) from None
                raise NotStarted(REFUSED, "%s cannot be downloaded: %s" % (item.to, text)) from None
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailable("%s: %s" % (item.url, error)) from None
        continues = response.status == 206 and _first_byte(response.headers.get("Content-Range")) == offset
        return (offset if continues else 0), _read(item.url, response)

    def _sha256(self, path: str) -> str:
        digest = hashlib.sha256()
        with open(path, "rb") as source:
            for piece in iter(lambda: source.read(PIECE_BYTES), b""):
                self._retrier.check("checking a downloaded file")
                digest.update(piece)
        return digest.hexdigest()

    # --- shared with other agents on this machine ---------------------------------------------------------------------

    def _alone(self, part: str) -> BinaryIO:
        """The open part, which no other agent writes until it is closed."""
        while True:
            file = open(part, "ab", opener=open_own)  # noqa: SIM115 - the caller closes it
            if _locked(file.fileno(), fcntl.LOCK_EX) and _is_at(file.fileno(), part):
                return file
            file.close()
            self._report("another run on this machine downloads the same file")
            self._retrier.wait("waiting for a download of another run", 1.0)

    def _remove_unused(self, now: float) -> None:
        for name in os.listdir(self._files):
            lock = os.path.join(self._files, name)
            if not name.endswith(LOCK):
                continue
            with suppress(OSError):  # another agent removes it, too
                if now - os.stat(lock).st_mtime < KEPT_S:
                    continue
                with open(lock, "ab", opener=open_own) as file:
                    if _locked(file.fileno(), fcntl.LOCK_EX) and _is_at(file.fileno(), lock):
                        _remove(lock[: -len(LOCK)])


def kept_files(job: Job, folder: MachineFolder, environ: Mapping[str, str]) -> str:
    """The folder of downloaded files: on the machine's fast disk where there is one, else beside the machines, else in
    the machine's own folder. OSError."""
    fast = fast_disk(job)
    for base in (fast, environ.get(SCRATCH), job.stage_dir):
        path = _made(os.path.join(base, "staged")) if base else None
        if path is not None:
            return path
    os.makedirs(folder.downloads, exist_ok=True)
    return folder.downloads


def fast_disk(job: Job) -> Optional[str]:
    """Our folder on the machine's fast disk; None: there is none, or this user cannot write there."""
    return _made(os.path.join(job.local_nvme, OWN)) if job.local_nvme else None


def hub_folder(job: Job) -> Optional[str]:
    """For HF_HOME: models that are downloaded once stay on the machine."""
    fast = fast_disk(job)
    return _made(os.path.join(fast, HUB)) if fast is not None else None


def _made(path: str) -> Optional[str]:
    with suppress(OSError):
        os.makedirs(path, exist_ok=True)
        if os.access(path, os.W_OK | os.X_OK):
            return path
    return None


def _used(lock: str) -> int:
    """A shared lock on the file, which nobody removes until it is closed."""
    while True:
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # it is held alone only for the moment of a removal
        if _is_at(descriptor, lock):
            os.utime(lock)
            return descriptor
        os.close(descriptor)


def _is_at(descriptor: int, path: str) -> bool:
    """The open file still has this name."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False


def _prove(path: str) -> None:
    seen = os.stat(path)
    with open(path + PROOF, "w", encoding="ascii", opener=open_own) as target:
        target.write("%d %d" % (seen.st_size, seen.st_mtime_ns))


def _is_proven(path: str) -> bool:
    """Its hash was checked, and nobody has written to it since."""
    with suppress(OSError):
        seen = os.stat(path)
        with open(path + PROOF, encoding="ascii") as source:
            return source.read() == "%d %d" % (seen.st_size, seen.st_mtime_ns)
    return False


def _remove(path: str) -> None:
    for end in ("", PROOF, PART, LOCK):  # the lock last
        with suppress(FileNotFoundError):
            os.unlink(path + end)


def _locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _link(path: str, link: str) -> None:
    os.makedirs(os.path.dirname(link), exist_ok=True)
    with suppress(FileNotFoundError):
        os.unlink(link)
    os.symlink(path, link)


def _nothing() -> Pieces:
    yield from ()


def _first_byte(content_range: Optional[str]) -> Optional[int]:
    """`bytes 100-199/200` -> 100."""
    text = (content_range or "").replace("bytes", "").strip().partition("-")[0]
    return int(text) if text.isdigit() else None


def _read(url: str, response: http.client.HTTPResponse) -> Pieces:
    with response:
        while True:
            try:
                piece = response.read(PIECE_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise StoreUnavailable("%s: %s" % (url, error)) from None
            if not piece:
                break
            yield piece
        if response.length:
            raise StoreUnavailable("%s: the response broke off" % url)
