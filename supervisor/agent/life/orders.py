"""The orders of a run: what people want of it while it lives. Here: code that was changed after the submit; commands
are in remote.py.

All orders are in one object (contract/runfiles.py). The agent reads it when the response to a beat names a newer
number, and now and then where no beat reaches a supervisor; so an agent without orders reads next to nothing.

Code comes as deltas of the bundle, which are applied in order and whole. Each is fetched into a folder of its own and
compared with its hash first. Then every file gets its name by a rename: a reader sees the old file or the new one, also
after a kill. A file with a content that no delta knows was changed by this machine. It is kept beside the new one, with
ORIG at its name. An agent that starts again unpacks the bundle anew and applies all deltas.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import time
from contextlib import contextmanager, suppress
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from supervisor.agent.life.beats import NEVER_S
from supervisor.agent.life.remote import FOLDER, Commands, Site, content_at, mark
from supervisor.agent.machine.command import Unfit
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.job import Job
from supervisor.agent.store.access import TRIES, Mismatch, Retrier, read_orders
from supervisor.contract import runfiles
from supervisor.contract.bundle import LINK, BundleRefused, Delta, Member, Opened, folders_of, read_delta
from supervisor.contract.heartbeat import BAD_CODE, NO_CODE
from supervisor.contract.runfiles import StoredDelta, Synced
from supervisor.contract.stores.promise import ObjectMissing, ObjectStore, StoreUnavailable

ORIG = ".orig"
KEPT_SHOWN = 20
RETRY_S, MAX_BACKOFF_S = 2.0, 60.0
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FETCHING = "fetching changed code"
_log = logging.getLogger("agent")


class OrdersDuty:
    """The step of the orders' thread, which starts with the first orders. `changed`: they are not read yet."""

    def __init__(self, site: Site) -> None:
        self._site, self._backoff_s = site, RETRY_S
        self._read_due = 0.0
        job, folder = site.job, site.folder
        self.sync = None if job.code is None else CodeSync(job, folder, site.store, folder.add_to_output)
        self.commands = Commands(site, None if self.sync is None else self.sync.placed)
        self.changed = True

    def step(self) -> float:
        now = time.monotonic()
        if self.changed or now >= self._read_due:
            self.changed = False
            self._read_due = now + self._read()
        return min(self.commands.step(), max(0.0, self._read_due - time.monotonic()))

    def _read(self) -> float:
        """Seconds until the next reading."""
        problem = ""
        try:
            orders, written_at = read_orders(self._site.store, self._site.job.run_id)
            self.commands.take(orders.commands, written_at)
            if self.sync is not None and orders.synced is not None:
                self.sync.catch_up(orders.synced)
        except (StoreUnavailable, BundleRefused, Mismatch, OSError) as error:
            problem = "orders are not carried out: %s" % error
            _log.warning("%s", problem)
        self._site.beat_state.note("orders", problem)
        self._backoff_s = min(2 * self._backoff_s, MAX_BACKOFF_S) if problem else RETRY_S
        return self._backoff_s if problem else NEVER_S


class CodeSync:
    """The code of one attempt. `began`: the revision at which its command was started. One thread at a time."""

    def __init__(self, job: Job, folder: MachineFolder, store: ObjectStore, say: Callable[[str], None]) -> None:
        """`say`: writes a line into the command's log."""
        self._job, self._store, self._say = job, store, say
        self._code, self._staging = folder.code, folder.synced
        self.began = self.revision = self._reported = 0
        self.tree = self.git = ""
        self.kept: List[str] = []
        self.placed: Dict[str, Tuple[int, ...]] = {}  # path -> mark of a file as it was written here

    def begin(self, retrier: Retrier) -> None:
        """Bring the unpacked bundle to the newest revision. Raises Unfit, GaveUp, OSError."""
        problem = ""
        for number in range(1, TRIES + 1):
            # Each time anew: deltas may have been merged meanwhile.
            orders, _ = retrier.call(_FETCHING, read_orders, self._store, self._job.run_id)
            try:
                if orders.synced is not None:
                    retrier.call(_FETCHING, self.catch_up, orders.synced, lambda: retrier.check(_FETCHING), True)
                return
            except (BundleRefused, Mismatch) as error:
                problem = str(error)
                _log.warning("changed code: %s (try %d of %d)", problem, number, TRIES)
                retrier.wait(_FETCHING, float(number))
        raise Unfit(NO_CODE, "%s%s was changed, and %s" % (BAD_CODE, str(self._job.code)[:12], problem))

    def catch_up(self, synced: Synced, check: Callable[[], None] = lambda: None, begins: bool = False) -> None:
        """Apply what is newer, and store how far that is. `begins`: the command is started with it. Raises
        BundleRefused, Mismatch (the object is gone, or another one), StoreUnavailable, OSError, what `check` raises."""
        if synced.code != self._job.code:
            return
        for delta in synced.deltas:
            if delta.last > self.revision:
                self._apply(delta, check)
        if self.revision == self._reported:
            return
        self.tree, self.git = synced.tree, synced.git
        if begins:
            self.began = self.revision
        report = {"began": self.began, "revision": self.revision, "kept": self.kept}
        self._store.put(runfiles.applied(self._job.run_id, self._job.attempt), json.dumps(report).encode())
        self._reported = self.revision

    def facts(self) -> Dict[str, Any]:
        """For the facts of the attempt: nothing where it runs its bundle."""
        if not self.revision:
            return {}
        return {"code_revision": self.revision, "code_tree": self.tree, "code_git": self.git or None}

    def _apply(self, delta: StoredDelta, check: Callable[[], None]) -> None:
        staged = _Staged(self._staging)
        staged.fetch(self._store, delta, check)
        kept = [path for path, before in staged.list.removed.items() if self._remove(path, before)]
        for path, (member, source) in staged.files.items():
            if self._place(member, source, staged.list.changed[path], staged.contents[path]):
                kept.append(path)
        staged.clear()
        self.revision = delta.last
        files = len(staged.files), len(staged.list.removed)
        self._say("sync %d: %d files changed, %d removed" % (delta.last, *files))
        for path in kept[:KEPT_SHOWN]:
            self._say("sync %d: %s was changed here too; this machine's is %s" % (delta.last, path, path + ORIG))
        self.kept = (self.kept + [path + ORIG for path in kept])[-KEPT_SHOWN:]
        _log.info("sync %d: %d files changed, %d removed, %d kept", delta.last, *files, len(kept))

    # --- one file -------------------------------------------------------------------------------------------------

    def _remove(self, path: str, before: Tuple[str, ...]) -> bool:
        """True: this machine's own content was kept."""
        name = path.rpartition("/")[2]
        with self._parent(path, make=False) as folder:
            content = None if folder is None else content_at(name, folder)
            if folder is None or content is None or content == FOLDER:
                return False
            if content not in before:
                _keep(name, folder)
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        for above in reversed(folders_of(path)):
            with self._parent(above, make=False) as folder, suppress(OSError):
                if folder is not None:
                    os.rmdir(above.rpartition("/")[2], dir_fd=folder)  # where nothing is left in it
        return content not in before

    def _place(self, member: Member, source: str, before: Tuple[str, ...], content: str) -> bool:
        """True: this machine's own content was kept."""
        name = member.path.rpartition("/")[2]
        with self._parent(member.path, make=True) as folder:
            there = content_at(name, folder)
            if there == FOLDER:
                with suppress(OSError):
                    os.rmdir(name, dir_fd=folder)
                    there = None
            is_own = there is not None and there != content and there not in before
            if is_own:
                _keep(name, folder)
            os.rename(source, name, dst_dir_fd=folder)
            self.placed[member.path] = mark(os.stat(name, dir_fd=folder, follow_symlinks=False))
        return is_own

    @contextmanager
    def _parent(self, path: str, make: bool) -> Iterator[Any]:
        """The descriptor of the folder that holds `path`; None: there is none, and none is made. No link is followed:
        the command may have put one there."""
        folder: Optional[int] = os.open(self._code, _OPEN | os.O_DIRECTORY)
        try:
            for part in path.split("/")[:-1]:
                if folder is not None:
                    below = _folder_below(part, folder, make)
                    os.close(folder)
                    folder = below
            yield folder
        finally:
            if folder is not None:
                os.close(folder)


class _Staged:
    """A delta on this machine's disk, before anything of the code is touched. `files`: path -> (member, where its
    content lies); `contents`: path -> content, as in the delta's list."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.list = Delta({}, {})
        self.files: Dict[str, Tuple[Member, str]] = {}
        self.contents: Dict[str, str] = {}

    def fetch(self, store: ObjectStore, delta: StoredDelta, check: Callable[[], None]) -> None:
        self.clear()
        opened = Opened(_checked(store.read(delta.key), check))
        try:
            self.list, files = read_delta(opened)
            for number, (member, content) in enumerate(files):
                path = os.path.join(self._folder, str(number))
                self.files[member.path] = member, path
                self.contents[member.path] = _write(path, member, content)
        except ObjectMissing:
            raise Mismatch("%s is not in the object store" % delta.key) from None
        if opened.sha256 != delta.sha256:
            raise Mismatch("%s differs from its checksum" % delta.key)

    def clear(self) -> None:
        for name in os.listdir(self._folder):
            os.unlink(os.path.join(self._folder, name))


def _checked(pieces: Iterator[bytes], check: Callable[[], None]) -> Iterator[bytes]:
    for piece in pieces:
        check()
        yield piece


def _write(path: str, member: Member, content: Iterator[bytes]) -> str:
    if member.link is not None:
        os.symlink(member.link, path)
        return LINK + member.link
    digest = hashlib.sha256()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o755 if member.executable else 0o644), "wb") as target:
        for piece in content:
            digest.update(piece)
            target.write(piece)
    return digest.hexdigest()


def _folder_below(name: str, folder: Any, make: bool) -> Optional[int]:
    """What is there and is no folder, such as a link, makes room."""
    try:
        return os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            return None
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        if not make:
            return None
        _keep(name, folder)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    return os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=folder)


def _keep(name: str, folder: int) -> None:
    """Also under NAME.orig, in the place of an earlier one. A file keeps its name until another one takes it."""
    orig = os.fsdecode(os.fsencode(name)[: 255 - len(ORIG)]) + ORIG
    there = content_at(orig, folder)
    if there == FOLDER:
        shutil.rmtree("/proc/self/fd/%d/%s" % (folder, orig), ignore_errors=True)
    elif there is not None:
        os.unlink(orig, dir_fd=folder)
    try:
        os.link(name, orig, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:  # a folder; or a file of another user
        os.rename(name, orig, src_dir_fd=folder, dst_dir_fd=folder)
