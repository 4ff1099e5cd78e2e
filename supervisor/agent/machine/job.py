"""The job of a machine: `job.json`, which the provider has written, and `command` beside it.

It is read once, at the start of the agent. Keys and meanings are in docs/training-contract.md. Times are seconds. An
unknown key is ignored, so that a newer supervisor can start an older agent.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple, Union
from urllib.parse import urlsplit

from supervisor.agent.store.googleapi import is_loopback
from supervisor.contract.baton import KEEP, Keep
from supervisor.contract.identifiers import is_run_id, parse_launch_id

NO_VALUES: Mapping[str, str] = {}
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
    shows_beats: bool = False  # each beat is in a file of the machine's folder too, for the cell of a notebook


# Fields of a job that are keys of job.json with the same meaning.
_AS_IS = (
    "server_file", "workdir", "code", "conda_env", "venv", "storage_endpoint", "secret_manager_endpoint", "notice_from",
    "tracker_url", "tracker_id", "group", "image_digest", "stop_consumed", "stage_dir", "local_nvme", "watch", "setup",
    "on_resume_ignored",
)  # fmt: skip
_STAYS = ("stays_after_success", "stays_after_failure", "keep_machine")
_FLAGS = ("own_login", "relaunched", "steps_from_zero", "hang", "shows_beats", *_STAYS)
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
