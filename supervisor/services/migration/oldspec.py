"""A spec of ours from the older runner's files of a run. Fields that cannot be carried over are listed.

The values come from files that anyone could edit: a value that our own spec refuses is left out with its reason, and a
value that may be a secret is not repeated.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.domain.texts import is_utf8, looks_secret
from supervisor.services.migration.oldrun import CONFIGS, OldRun
from supervisor.wording.figures import clip

COMMAND_MAX_BYTES = 190 * 1024  # the bounds of a spec (api/shapes/run_spec.py), as in the next lines
IMAGE = re.compile(r"[!-~]{1,512}")
CONDA = re.compile(r"[^\x00\s]{1,512}")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
ENV_VALUE_MAX, ENV_COUNT = 8192, 64
TEN_YEARS_S = 315_360_000.0
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")  # the older entry point decodes any such text
# Keys of the old configuration files -> why they are not carried over.
LEFT_OUT = {
    "machine_type": "the setting gce_shapes lists the machine types",
    "gpu_type": "the setting gce_shapes lists the machine types",
    "zone": "the setting gce_zones lists the zones",
    "fallback_zones": "the setting gce_zones lists the zones",
    "boot_disk_size": "the setting gce_boot_disk_gb",
    "service_account": "the setting gce_service_account",
    "sa": "the setting gce_service_account",
    "max_restarts": "the setting max_attempts, or limits.max_attempts of a spec",
    "wall_clock_deadline": "put limits.deadline into a spec (--spec), if it still applies",
    "deadline": "put limits.deadline into a spec (--spec), if it still applies",
    "data_disk_name": "the setting gce_data_disk",
    "pre_job_sync_cmd": "put it before the command",
    "results_finalize_cmd": "put it after the command",
    "profile_name": "it belongs to the older runner's scripts",
}
OWN_WORDS = re.compile(r"checkpoint_sync|\$\{?(GCS_BUCKET|RUN_ID)\b|gs://[^ ]*/runs/")


@dataclass(frozen=True)
class Carried:
    """`spec` without `command`: the old folder contains none. `left_out`: a sentence each."""

    spec: Mapping[str, Any]
    left_out: tuple[str, ...]


def carried(old: OldRun) -> Carried:
    given: dict[str, Any] = {}
    for name in CONFIGS:
        for key, value in old.documents.get(name, {}).items():
            if value not in (None, "", [], {}):
                given.setdefault(key.lower(), value)
    left: list[str] = []
    spec: dict[str, Any] = {}
    command = _command(given, left)
    if command:
        spec["command"] = command
        if OWN_WORDS.search(command):
            left.append(
                "The command itself reads or writes the older runner's folder (GCS_BUCKET, RUN_ID, checkpoint_sync): "
                "here last.pt is in $SPOT_CHECKPOINT_DIR. docs/migration.md shows what to change; give the new "
                "command with --spec."
            )
    _texts(given, spec, left)
    _env(given, spec, left)
    max_s = _first(given, "max_runtime_sec")
    if max_s is not None:
        seconds = _number(max_s)
        if seconds is not None and 0 < seconds <= TEN_YEARS_S:
            spec["limits"] = {"max_runtime_s": seconds}
        else:
            left.append("max_runtime_sec is no valid time.")
    left += [f"{key}: {why}." for key, why in LEFT_OUT.items() if key in given]
    return Carried(spec, tuple(left))


def _command(given: Mapping[str, object], left: list[str]) -> str:
    encoded = _first(given, "job_command_b64", "job_command_base64")
    plain = _first(given, "job_command", "command")
    text = plain if encoded is None else encoded
    if isinstance(text, str):
        text = _decoded(text) or text
    if text is None:
        return ""
    if not isinstance(text, str) or "\x00" in text or not text.strip():
        left.append("job_command is no valid command.")
        return ""
    if len(text.encode("utf-8", "surrogatepass")) > COMMAND_MAX_BYTES or not is_utf8(text):
        left.append(f"job_command is longer than {COMMAND_MAX_BYTES} bytes, or not UTF-8.")
        return ""
    return text


def _decoded(text: str) -> str:
    """The text of base64 in metadata; "" = no base64 of a text."""
    packed = "".join(text.split())
    if len(packed) % 4 or not _BASE64.fullmatch(packed):
        return ""
    try:
        text = base64.b64decode(packed, validate=True).decode()
    except ValueError:
        return ""
    return text if all(char.isprintable() or char in "\n\t\r" for char in text) else ""


def _texts(given: Mapping[str, Any], spec: dict[str, Any], left: list[str]) -> None:
    for field, form, keys in (
        ("image", IMAGE, ("image", "image_ref", "image_uri", "container_image")),
        ("conda_env", CONDA, ("conda_env",)),
    ):
        value = _first(given, *keys)
        if value is None:
            continue
        if isinstance(value, str) and form.fullmatch(value) and is_utf8(value):
            spec[field] = value
        else:
            left.append(f"{field}: the old run's value is no valid name.")


def _env(given: Mapping[str, Any], spec: dict[str, Any], left: list[str]) -> None:
    value = _first(given, "env", "extra_env", "environment")
    if value is None:
        return
    env: dict[str, str] = {}
    for name, text in list(value.items())[:ENV_COUNT] if isinstance(value, dict) else ():
        if not isinstance(name, str) or not ENV_NAME.fullmatch(name) or name.startswith("SPOT_"):
            left.append(f"env: {clip(str(name), 60)} is no valid name of a variable.")
        elif looks_secret(name):
            left.append(f"env: {clip(name, 60)} may be a secret: put a reference to it into `secrets`.")
        elif not isinstance(text, str) or "\x00" in text or len(text) > ENV_VALUE_MAX or not is_utf8(text):
            left.append(f"env: the value of {clip(name, 60)} is no valid text.")
        else:
            env[name] = text
    if not isinstance(value, dict) or len(value) > ENV_COUNT:
        left.append(f"env: not a map of names to values, or more than {ENV_COUNT} of them.")
    if env:
        spec["env"] = env


def _first(given: Mapping[str, Any], *keys: str) -> Any:
    return next((given[key] for key in keys if key in given), None)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
