"""The machine's folder: what the provider wrote into it, its paths and its owner, and careful reading of files.

The agent holds a lock on `lock` until its end: a second agent on the same folder finds it locked and exits. The
training works below `work/`; it has no business with the rest of the folder.

`job.json` is read once at the start, and `command` beside it. Keys and meanings are in docs/training-contract.md. Times
are seconds. An unknown key is ignored, so that a newer supervisor can start an older agent.

Files that the command may have replaced are opened with care (`open_plain`): a pipe would block forever, a device has
no end, and a link may lead to private files (the log would carry them into the store).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from contextlib import suppress
from typing import Any, BinaryIO, Dict, Mapping, NamedTuple, Optional, Tuple, Union
from urllib.parse import urlsplit

from supervisor.agent.store.googleapi import is_loopback
from supervisor.contract.baton import KEEP, Keep
from supervisor.contract.identifiers import is_run_id, parse_launch_id

NO_VALUES: Mapping[str, str] = {}
TEXT_BYTES = 65536  # of one text file
NOTICE = "notice.json"
# No readable plain file has this path, and waiting does not change that.
_NO_PLAIN_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EACCES, errno.EPERM)

Command = Union[str, Tuple[str, ...]]


class JobRefused(ValueError):
    """job.json is missing, torn or of another version; the text says what is wrong with it."""


class ResultCheck(NamedTuple):
    """Files promised under the results folder; a shell runs `verify` on the files as read back from the store."""

    path: str
    verify: str = ""
    min_count: int = 1


class StagedFile(NamedTuple):
    """`to`: its name below the folder of staged files."""

    url: str
    to: str
    sha256: str


class Job(NamedTuple):
    """`command`: a tuple is run as it is, a str by /bin/sh -c. `machine`: the machine's name."""

    machine: str
    run_id: str
    attempt: int
    launch_id: str
    nonce: str
    store_url: str
    command: Command
    server_file: Optional[str] = None
    server_url: Optional[str] = None  # neither: beats go to the store only
    workdir: Optional[str] = None
    in_image: bool = False  # the agent and the command start in the WORKDIR of the run's image
    env: Mapping[str, str] = NO_VALUES
    code: Optional[str] = None  # sha256 of the bundle in which the command is started
    conda_env: Optional[str] = None
    venv: Optional[str] = None
    secrets: Tuple[str, ...] = ()  # names only; the values come by standard input, except those of secret_refs
    secret_refs: Mapping[str, str] = NO_VALUES
    storage_endpoint: Optional[str] = None  # None = Google's
    secret_manager_endpoint: Optional[str] = None
    sequence_from: int = 0  # beats begin above it
    # Who announces a preemption: "gce": the metadata server; "signal": USR1, also before the time limit of the machine;
    # "term": TERM itself, which is no stop then.
    notice_from: Optional[str] = None
    notice_s: float = 0.0  # how long before the end it does
    tracker_url: Optional[str] = None
    tracker_id: Optional[str] = None  # of the run in experiment trackers
    group: Optional[str] = None
    image_digest: Optional[str] = None  # None: the command runs in no image
    gpus: int = 0  # how many cards the shape promises
    gpu_ids: Optional[Tuple[str, ...]] = None  # its own; () = none at all; None = no restriction
    keep: Keep = KEEP
    results_save_max_mb: float = 256.0  # of results that one save with a checkpoint may upload
    results: Tuple[ResultCheck, ...] = ()
    stage: Tuple[StagedFile, ...] = ()
    setup: Optional[Mapping[str, Any]] = None  # what prepares the machine, as agent/life/setup reads it
    stage_dir: Optional[str] = None  # on a disk that outlives this machine, for downloaded files
    local_nvme: Optional[str] = None  # path of a fast disk that outlives it
    results_generation: int = 1
    retry_exit_codes: Tuple[int, ...] = ()
    retry_patterns: Tuple[str, ...] = ()
    machine_max_s: float = 86400.0
    expiry_s: float = 0.0  # so much later the platform itself ends the machine; 0 = its grace is that of a stop
    stop_grace_s: float = 120.0
    beat_push_s: float = 10.0
    beat_store_s: float = 60.0
    log_chunk_s: float = 300.0
    cut_off_s: float = 7200.0
    rest_s: float = 10.0
    upload_reserve_s: float = 8.0
    stall_dump_s: Optional[float] = None  # time without progress before a thread dump; None = never
    first_dump_s: Optional[float] = None  # the same before the first step
    hang: bool = False  # the agent judges hangs
    quiet_s: float = 1800.0  # a command without steps hangs after so long without any motion
    slow_s: float = 600.0  # the window of the figures that show why a run is slow
    scratch: Tuple[str, ...] = ()  # globs of what may be removed after a full disk
    watch: Optional[Mapping[str, Mapping[str, str]]] = None  # metric -> what the spec wants of it
    hazard: float = 1.0  # how much likelier a preemption is than by contract/saving.py; 0 = nothing preempts it
    on_resume_ignored: Optional[str] = None  # "warn": a command that starts over beside its checkpoint goes on
    stop_consumed: Optional[str] = None
    own_login: bool = False  # this computer's own login reaches the store
    relaunched: bool = False  # an agent of this machine ran before the last reboot of the computer
    steps_from_zero: bool = False  # earlier attempts have counted their steps from 0
    keep_machine: bool = False  # it is switched off, and the next attempt starts it again with its disks
    stays_after_success: bool = False  # the machine is kept for a person, so its agent stays
    stays_after_failure: bool = False


# Fields of a job that are keys of job.json with the same meaning.
_AS_IS = (
    "server_file", "workdir", "code", "conda_env", "venv", "storage_endpoint", "secret_manager_endpoint", "notice_from",
    "tracker_url", "tracker_id", "group", "image_digest", "stop_consumed", "stage_dir", "local_nvme", "watch", "setup",
    "on_resume_ignored",
)  # fmt: skip
_STAYS = ("stays_after_success", "stays_after_failure", "keep_machine")
_FLAGS = ("own_login", "relaunched", "steps_from_zero", "hang", *_STAYS)
_NUMBERS = (
    "machine_max_s", "stop_grace_s", "beat_push_s", "beat_store_s", "log_chunk_s", "cut_off_s", "rest_s", "slow_s",
    "upload_reserve_s", "stall_dump_s", "first_dump_s", "quiet_s", "notice_s", "results_save_max_mb", "expiry_s",
)  # fmt: skip


def read_job(path: str) -> Job:
    """Raises JobRefused."""
    try:
        with open(path, encoding="utf-8") as source:
            data = json.load(source)
        if isinstance(data, dict) and data.get("command_form") is not None:
            data["command"] = _command_file(os.path.join(os.path.dirname(path), "command"), data["command_form"])
    except (OSError, ValueError) as error:
        raise JobRefused("%s cannot be read: %s" % (path, error)) from None
    if not isinstance(data, dict) or data.get("version") != 1:
        raise JobRefused("%s is not a job of version 1" % path)
    try:
        return _job(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JobRefused("%s is not a job: %s %s" % (path, type(error).__name__, error)) from None


def _job(data: Dict[str, Any]) -> Job:
    if not is_run_id(data["run_id"]):
        raise ValueError("run_id is not a run id")
    retry, kept = data.get("retry") or {}, data.get("checkpoints") or {}
    plain: Dict[str, Any] = {name: data.get(name) for name in _AS_IS}
    plain.update((name, data.get(name) is True) for name in _FLAGS)
    plain.update((name, float(data[name])) for name in (*_NUMBERS, "hazard") if data.get(name) is not None)
    return Job(
        machine=str(data["name"]),
        run_id=data["run_id"],
        attempt=parse_launch_id(data["launch_id"])[1],
        launch_id=data["launch_id"],
        nonce=str(data.get("nonce") or ""),
        store_url=str(data["store_url"]),
        command=_command(data["command"]),
        server_url=_server_url(data.get("server_url")),
        in_image=bool(data.get("in_image")),
        env={str(name): str(value) for name, value in (data.get("env") or {}).items()},
        secrets=tuple(str(name) for name in data.get("secrets") or ()),
        secret_refs={str(name): str(ref) for name, ref in (data.get("secret_refs") or {}).items()},
        sequence_from=int(data.get("sequence_from") or 0),
        gpus=int(data.get("gpus") or 0),
        gpu_ids=None if data.get("gpu_ids") is None else tuple(str(card) for card in data["gpu_ids"]),
        keep=Keep(int(kept.get("keep_last", KEEP.last)), int(kept.get("keep_best", KEEP.best)), kept.get("keep_every")),
        results=tuple(_result(rule) for rule in data.get("results") or ()),
        stage=tuple(StagedFile(str(file["from"]), str(file["to"]), file["sha256"]) for file in data.get("stage") or ()),
        results_generation=int(data.get("results_generation") or data.get("generation") or 1),
        retry_exit_codes=tuple(int(code) for code in retry.get("exit_codes") or ()),
        retry_patterns=tuple(str(pattern) for pattern in retry.get("log_patterns") or ()),
        scratch=tuple(str(glob) for glob in data.get("scratch") or ()),
        **plain,
    )


def _command_file(path: str, form: Any) -> Any:
    """The command in a file of its own: the text for a shell, or a JSON list. OSError, ValueError."""
    if form not in ("shell", "words"):
        raise ValueError("command_form is neither shell nor words")
    with open(path, encoding="utf-8", newline="") as source:
        text = source.read()
    return text if form == "shell" else json.loads(text)


def _server_url(url: Optional[str]) -> Optional[str]:
    """A beat carries its own credential, so without encryption it may travel on this machine only."""
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname)):
        return url
    raise ValueError("server_url is neither https nor on this machine")


def _result(rule: Mapping[str, Any]) -> ResultCheck:
    return ResultCheck(str(rule["path"]), str(rule.get("verify") or ""), int(rule.get("min_count", 1)))


def _command(value: Any) -> Command:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError("command is neither a text nor a list of texts")
    return tuple(str(part) for part in value)


class MachineFolder:
    """Paths are absolute, so that the agent's own working directory never matters."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.job = os.path.join(self.root, "job.json")
        self.identity = os.path.join(self.root, "identity.json")
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

    def prepare(self) -> None:
        """Make what the training needs: its folders and an empty output."""
        for folder in (self.checkpoints, self.results, self.scratch, self.python, self.staging, self.threads):
            os.makedirs(folder, exist_ok=True)
        with open(self.output, "ab", opener=open_own):
            pass

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
