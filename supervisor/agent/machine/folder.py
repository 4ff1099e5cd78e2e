"""The machine's folder: what the provider wrote into it, its paths and its owner, and careful reading of files.

The agent holds a lock on `lock` until its end: a second agent on the same folder finds it locked and exits. The
training works below `work/`; it has no business with the rest of the folder.

Files that the command may have replaced are opened with care (`open_plain`): a pipe would block forever, a device has
no end, and a link may lead to private files (the log would carry them into the store).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pkgutil
import stat
import threading
import time
from contextlib import suppress
from typing import BinaryIO, Dict, Mapping, Optional, Tuple

TEXT_BYTES = 65536  # of one text file
NOTICE = "notice.json"
BEAT = "beat.json"
# The modules that a training may import, and what lets both packages of Lightning find their callback there.
_MODULES = ("spot_progress.py", "spot_frameworks.py", "spot_trackers.py")
_METADATA = "spot_progress-1.dist-info"
_ENTRY_POINTS = b"""\
[lightning.pytorch.callbacks_factory]
spot = spot_frameworks:lightning_callbacks

[pytorch_lightning.callbacks_factory]
spot = spot_frameworks:pytorch_lightning_callbacks
"""
# No readable plain file has this path, and waiting does not change that.
_NO_PLAIN_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EACCES, errno.EPERM)


class MachineFolder:
    """Paths are absolute, so that the agent's own working directory never matters."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.job = os.path.join(self.root, "job.json")
        self.identity = os.path.join(self.root, "identity.json")
        self.pass_file = os.path.join(self.root, "pass.json")
        self._notice = os.path.join(self.root, NOTICE)
        work = os.path.join(self.root, "work")
        self.checkpoints = os.path.join(work, "checkpoints")
        self.results = os.path.join(work, "results")
        self.scratch = os.path.join(work, "scratch")
        self.code = os.path.join(work, "code")  # made when a bundle is unpacked
        self.synced = os.path.join(work, "synced")  # changed code until it is applied
        self.unpacked = os.path.join(work, "unpacked")  # made with the code: what changes there later has a later time
        self.python = os.path.join(work, "python")
        self.staging = os.path.join(work, "staging")
        self.staged = os.path.join(work, "staged")  # links to the files of the spec's `stage`
        self.downloads = os.path.join(work, "downloads")  # these files, where no disk outlives this machine
        self.moments = os.path.join(work, "moments")  # copies of results, until they are saved
        self.incoming = os.path.join(work, "incoming")  # of results that are restored
        self.readback = os.path.join(work, "readback")  # made where results are checked by loading them
        self.aside = os.path.join(work, "aside")  # what a drill has replaced, until the command has resumed
        self.threads = os.path.join(work, "threads")
        self.kept = os.environ.get("SPOT_KEEP_DIR") or os.path.join(self.root, "kept")  # stays as long as the disk
        self.progress = os.path.join(work, "progress.jsonl")
        self.output = os.path.join(work, "output.log")
        self.stopping = os.path.join(work, "stopping")
        self.save_due = os.path.join(work, "save-due")
        self.status_token = os.path.join(work, "status-token")
        self.marker = "SPOT_MACHINE_DIR=%s" % self.root  # in the environment of every process of this machine
        self._lock: Optional[int] = None
        self._deadline: Optional[float] = None  # of a notice that this agent itself received

    def roles(self) -> Dict[str, str]:
        """Where the command writes."""
        return {"checkpoints": self.checkpoints, "results": self.results, "scratch": self.scratch}

    def lock(self) -> bool:
        """False when another agent holds this folder. OSError."""
        flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(os.path.join(self.root, "lock"), flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._lock = descriptor  # never closed: the kernel releases the lock with the process
        return True

    def write_agent(self, pid: int, start_ticks: int, boot_id: str) -> None:
        """Tell the provider which process this machine is. The first action of an agent."""
        self._write_json("agent.json", {"pid": pid, "start_ticks": start_ticks, "boot_id": boot_id})

    def write_left(self, by_shutdown: bool) -> None:
        """Tell the host why this agent ends: by the shutdown of the computer, or for a reason that a new start of it
        would not change."""
        with suppress(OSError):
            self._write_json("left.json", {"by_shutdown": by_shutdown})

    def write_beat(self, raw: bytes) -> None:
        """The newest beat, for whoever watches this machine from beside it. A full disk costs the picture only."""
        draft = os.path.join(self.root, ".beat.%d" % threading.get_ident())
        with suppress(OSError):
            with open(draft, "wb", opener=open_own) as target:
                target.write(raw)
            os.rename(draft, os.path.join(self.root, BEAT))

    def prepare(self) -> None:
        """Make what the training needs: its folders and an empty output."""
        for folder in (self.checkpoints, self.results, self.scratch, self.python, self.staging, self.threads):
            os.makedirs(folder, exist_ok=True)
        with open(self.output, "ab", opener=open_own):
            pass

    def write_modules(self) -> None:
        """OSError."""
        os.makedirs(os.path.join(self.python, _METADATA), exist_ok=True)
        files = {
            os.path.join(_METADATA, "METADATA"): b"Metadata-Version: 2.1\nName: spot-progress\nVersion: 1\n",
            os.path.join(_METADATA, "entry_points.txt"): _ENTRY_POINTS,
            **{name: pkgutil.get_data("supervisor.agent", name) or b"" for name in _MODULES},
        }
        for name, content in files.items():
            with open(os.path.join(self.python, name), "wb", opener=open_own) as target:
                target.write(content)

    def add_to_output(self, text: str) -> None:
        """A line of ours in the command's output. It is left out where the disk is full or a pipe without a reader has
        this name; the beat has the text anyway."""
        with suppress(OSError), open(self.output, "ab", opener=open_own) as target:
            target.write(b"spot: %s\n" % text.encode("utf-8", "replace"))

    def write_stop_file(self, reason: str) -> None:
        """For `spot_progress.stopping()`, also in processes that get no TERM. Neither a full disk nor a pipe in the
        file's place may delay the end."""
        with suppress(OSError), open(self.stopping, "w", encoding="utf-8", opener=open_own) as target:
            target.write(reason + "\n")

    @property
    def authorities(self) -> Optional[str]:
        """The host's certificates, if the provider wrote them here: an image may have none."""
        path = os.path.join(self.root, "ca-certificates.crt")
        return path if os.path.exists(path) else None

    def write_notice(self, notice_s: float) -> None:
        """This machine will be preempted in so many seconds. OSError where that cannot be written."""
        deadline = self._deadline = time.clock_gettime(time.CLOCK_BOOTTIME) + notice_s
        self._write_json(NOTICE, {"deadline_boottime_s": deadline, "notice_s": notice_s})

    def write_bad_gpus(self, cards: Mapping[str, str]) -> None:
        """For the provider, which gives such a card to no other machine. OSError."""
        now = time.time()
        self._write_json("bad_gpus.json", {name: {"why": why, "at": now} for name, why in cards.items()})

    def _write_json(self, name: str, data: Mapping[str, object]) -> None:
        """By rename, so that the provider reads all of it or nothing. OSError."""
        temporary = os.path.join(self.root, ".%s.%d" % (name, os.getpid()))
        with open(temporary, "w", encoding="utf-8", opener=open_own) as target:
            json.dump(data, target)
            target.flush()
            os.fsync(target.fileno())
        os.rename(temporary, os.path.join(self.root, name))

    def notice_s(self) -> Optional[float]:
        """Seconds until this machine is preempted; None without a notice. A torn notice is read again. A notice of zero
        seconds does not count: the machine is being killed, and there is no time for anything."""
        deadline = self._deadline
        if deadline is None:
            if not os.access(self._notice, os.F_OK):
                return None  # at nearly all of many calls
            try:
                with open(self._notice, encoding="utf-8") as source:
                    notice = json.load(source)
                deadline, given_s = float(notice["deadline_boottime_s"]), float(notice["notice_s"])
            except (OSError, ValueError, KeyError, TypeError):
                return None
            if given_s <= 0:
                return None
        return max(0.0, deadline - time.clock_gettime(time.CLOCK_BOOTTIME))


def open_own(path: str, flags: int) -> int:
    """An opener for a file of this folder: it follows no link of the training and waits for no pipe."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)


def open_plain(path: str) -> Optional[BinaryIO]:
    """The file; None where there is no readable plain file. OSError: the disk does not respond."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NO_PLAIN_FILE:
            return None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def read_bytes(path: str, offset: int = 0, max_bytes: int = TEXT_BYTES) -> bytes:
    """A part of the file; a negative `offset` counts from its end. Empty for a missing or unreadable file."""
    try:
        source = open_plain(path)
        if source is None:
            return b""
        with source:
            if offset:
                source.seek(max(0, source.seek(0, os.SEEK_END) + offset) if offset < 0 else offset)
            return source.read(max_bytes)
    except OSError:
        return b""


def read_text(path: str, offset: int = 0, max_bytes: int = TEXT_BYTES) -> str:
    return read_bytes(path, offset, max_bytes).decode("utf-8", "replace")


def read_fields(path: str) -> Dict[str, str]:
    """The lines `name: value` of such a file in /proc; the first of two with one name counts."""
    fields: Dict[str, str] = {}
    for line in read_text(path).splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields


def names_in(folder: str) -> Tuple[str, ...]:
    """Sorted; none for a missing or unreadable folder."""
    try:
        return tuple(sorted(os.listdir(folder)))
    except OSError:
        return ()


def size_of(path: str) -> int:
    """In bytes; 0 for a missing or unreadable file."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
