"""What the provider has laid down for this machine: `job.json`, read once at the start, and `command` beside it.

Keys and meanings stand in docs/training-contract.md. Times are seconds. A key that this agent does not know is
ignored, so that a newer supervisor can start an older agent.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

from supervisor.agent.store.googleapi import is_loopback
from supervisor.contract.baton import KEEP, Keep
from supervisor.contract.identifiers import is_run_id, parse_launch_id


class JobRefused(ValueError):
    """job.json is missing, torn or of another version; the text says what is wrong with it."""


@dataclass(frozen=True)
class ResultCheck:
    """Files promised under the results folder; `verify` is run by a shell on what was read back from the store."""

    path: str
    verify: str = ""
    min_count: int = 1


@dataclass(frozen=True)
class Job:
    """`command`: a tuple is run as it is, a str by /bin/sh -c. `machine`: the machine's name."""

    machine: str
    run_id: str
    attempt: int
    launch_id: str
    nonce: str
    store_url: str
    command: Union[str, Tuple[str, ...]]
    server_file: Optional[str] = None
    server_url: Optional[str] = None  # neither: beats go to the store only
    workdir: Optional[str] = None
    in_image: bool = False  # the agent was started in the WORKDIR of the run's image, and so the command is
    env: Mapping[str, str] = field(default_factory=dict)
    code: Optional[str] = None  # sha256 of the bundle in which the command is started
    conda_env: Optional[str] = None
    venv: Optional[str] = None
    secrets: Tuple[
        str, ...
    ] = ()  # names only; the values come by standard input, but for those of secret_refs
    secret_refs: Mapping[str, str] = field(default_factory=dict)
    storage_endpoint: Optional[str] = None  # None = Google's
    secret_manager_endpoint: Optional[str] = None
    sequence_from: int = 0  # beats begin above it
    notice_from: Optional[str] = None  # "gce": the metadata server tells of a preemption
    notice_s: float = 0.0  # how long before the end it does
    tracker_url: Optional[str] = None
    image_digest: Optional[str] = None  # None: the command runs in no image
    gpus: int = 0  # how many cards the shape promises
    gpu_ids: Optional[Tuple[str, ...]] = None  # its own; () = none at all; None = they are left alone
    keep: Keep = KEEP
    results_save_max_mb: float = 256.0  # what one save with a checkpoint may upload of the results
    results: Tuple[ResultCheck, ...] = ()
    results_generation: int = 1
    retry_exit_codes: Tuple[int, ...] = ()
    retry_patterns: Tuple[str, ...] = ()
    machine_max_s: float = 86400.0
    stop_grace_s: float = 120.0
    beat_push_s: float = 10.0
    beat_store_s: float = 60.0
    log_chunk_s: float = 300.0
    cut_off_s: float = 7200.0
    rest_s: float = 10.0
    upload_reserve_s: float = 8.0
    stall_dump_s: Optional[float] = None  # without progress for so long: take a thread dump; None = never
    first_dump_s: Optional[float] = None  # the same before the first step
    stop_consumed: Optional[str] = None
    steps_from_zero: bool = False  # earlier attempts have counted their steps from 0
    stays_after_success: bool = False  # the machine is kept for a person, so its agent does not leave
    stays_after_failure: bool = False


_PACES = (
    "machine_max_s", "stop_grace_s", "beat_push_s", "beat_store_s", "log_chunk_s", "cut_off_s", "rest_s",
    "upload_reserve_s", "stall_dump_s", "first_dump_s", "notice_s",
    "results_save_max_mb",
)  # fmt: skip


def read_job(path: str) -> Job:
    """Raises JobRefused."""
    try:
        with open(path, encoding="utf-8") as source:
            data = json.load(source)
        if isinstance(data, dict) and data.get("command_form") is not None:
            data["command"] = _laid_down(os.path.join(os.path.dirname(path), "command"), data["command_form"])
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
    return Job(
        machine=str(data["name"]),
        run_id=data["run_id"],
        attempt=parse_launch_id(data["launch_id"])[1],
        launch_id=data["launch_id"],
        nonce=str(data.get("nonce") or ""),
        store_url=str(data["store_url"]),
        command=_command(data["command"]),
        server_file=data.get("server_file"),
        server_url=_server_url(data.get("server_url")),
        workdir=data.get("workdir"),
        in_image=bool(data.get("in_image")),
        env={str(name): str(value) for name, value in (data.get("env") or {}).items()},
        code=data.get("code"),
        conda_env=data.get("conda_env"),
        venv=data.get("venv"),
        secrets=tuple(str(name) for name in data.get("secrets") or ()),
        secret_refs={str(name): str(ref) for name, ref in (data.get("secret_refs") or {}).items()},
        storage_endpoint=data.get("storage_endpoint"),
        secret_manager_endpoint=data.get("secret_manager_endpoint"),
        sequence_from=int(data.get("sequence_from") or 0),
        notice_from=data.get("notice_from"),
        tracker_url=data.get("tracker_url"),
        image_digest=data.get("image_digest"),
        gpus=int(data.get("gpus") or 0),
        gpu_ids=None if data.get("gpu_ids") is None else tuple(str(card) for card in data["gpu_ids"]),
        keep=Keep(
            int(kept.get("keep_last", KEEP.last)),
            int(kept.get("keep_best", KEEP.best)),
            kept.get("keep_every"),
        ),
        results=tuple(_result(rule) for rule in data.get("results") or ()),
        results_generation=int(data.get("results_generation") or data.get("generation") or 1),
        retry_exit_codes=tuple(int(code) for code in retry.get("exit_codes") or ()),
        retry_patterns=tuple(str(pattern) for pattern in retry.get("log_patterns") or ()),
        stop_consumed=data.get("stop_consumed"),
        steps_from_zero=data.get("steps_from_zero") is True,
        stays_after_success=data.get("stays_after_success") is True,
        stays_after_failure=data.get("stays_after_failure") is True,
        **{name: float(data[name]) for name in _PACES if data.get(name) is not None},
    )


def _laid_down(path: str, form: Any) -> Any:
    """The command of a file of its own: the text that a shell gets, or a JSON list. OSError, ValueError."""
    if form not in ("shell", "words"):
        raise ValueError("command_form is neither shell nor words")
    with open(path, encoding="utf-8", newline="") as source:
        text = source.read()
    return text if form == "shell" else json.loads(text)


def _server_url(url: Optional[str]) -> Optional[str]:
    """A beat carries what authenticates it, so it travels in the clear on this machine only."""
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname)):
        return url
    raise ValueError("server_url is neither https nor on this machine")


def _result(rule: Mapping[str, Any]) -> ResultCheck:
    return ResultCheck(str(rule["path"]), str(rule.get("verify") or ""), int(rule.get("min_count", 1)))


def _command(value: Any) -> Union[str, Tuple[str, ...]]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError("command is neither a text nor a list of texts")
    return tuple(str(part) for part in value)
