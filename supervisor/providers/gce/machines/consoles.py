"""The console of a VM in parts, and as Cloud Logging kept it.

The serial port's output is asked for by byte offset. Google answers with text, not with bytes: a character that is torn
at the end of an answer comes as U+FFFD, and what it stands for is asked for again with the next part.

Cloud Logging knows a VM by its numeric id: names are used again, ids are not. The console is there only where the VM
was started with the metadata `serial-port-logging-enable`. Google writes it there itself: machines run as an account
that may not write logs, so that what their guest agent would log is never there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from supervisor.domain.machines import MachineRef
from supervisor.ports.platform import ConsolePart
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError, open_door
from supervisor.providers.gce.config import GceConfig

LOGGING = "https://logging.googleapis.com"
SERIAL_LOG = "serialconsole.googleapis.com%2Fserial_port_1_output"
PAGE = 1000
PAGES = 12  # reads are 60 a minute for a whole project
TORN_MAX = 3  # bytes of a character whose rest is still to come
LOST = "\ufffd"
NOT_READY = "resourceNotReady"  # Google's reason where a machine is off, or not yet on


def part_after(compute: Compute, ref: MachineRef, start: int, max_bytes: int) -> ConsolePart | None:
    """None: the machine is gone, or off: its console goes with its power. ApiError."""
    try:
        answer = compute.read(f"zones/{ref.zone}/instances/{ref.name}/serialPort", port=1, start=start)
    except ApiError as error:
        if error.missing or error.reason == NOT_READY:
            return None
        raise
    first, following = int(answer.get("start") or 0), int(answer.get("next") or 0)
    return part_of(str(answer.get("contents") or ""), first, following, max_bytes)


def part_of(text: str, start: int, following: int, max_bytes: int) -> ConsolePart:
    """`following`: the offset after it, as Google counts its bytes."""
    whole = text.rstrip(LOST).encode()
    torn = following - start - len(whole)
    if torn < 0 or torn > TORN_MAX or (torn and not text.endswith(LOST)):
        # Bytes were replaced in the middle: the lengths do not agree, so nothing can be cut off and asked for again.
        return ConsolePart(text.encode(), start, following)
    content = whole[:max_bytes].decode(errors="ignore").encode()  # the cut may tear a character too
    return ConsolePart(content, start, start + len(content))


def archived(config: GceConfig, compute: Compute, ref: MachineRef, since: float, max_lines: int) -> list[str]:
    """Lines, oldest first. ApiError, which says what is missing where the account may not read them."""
    machine_id = ref.machine_id or ""
    if not machine_id.isdigit():
        return []
    try:
        return _archived(config, compute, machine_id, since, max_lines)
    except ApiError as error:
        text = Exception.__str__(error) + _advice(error, config.project)
        raise ApiError(text, error.status, error.reason) from error


def _archived(config: GceConfig, compute: Compute, machine_id: str, since: float, max_lines: int) -> list[str]:
    lines: list[str] = []
    for entry in _entries(config, compute, _filter(config.project, machine_id, since), max_lines):
        lines[:0] = _lines(entry)
        if len(lines) >= max_lines:
            break
    return lines[-max_lines:]


def _filter(project: str, machine_id: str, since: float) -> str:
    """In the Logging query language; the machine's id is digits."""
    moment = datetime.fromtimestamp(since, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return (
        f'logName="projects/{project}/logs/{SERIAL_LOG}" AND resource.type="gce_instance" AND '
        f'resource.labels.instance_id="{machine_id}" AND timestamp>="{moment}"'
    )


def _entries(config: GceConfig, compute: Compute, wanted: str, max_lines: int) -> Iterator[Mapping[str, Any]]:
    """Newest first. A page may be empty and yet not be the last."""
    root = (config.logging_endpoint or LOGGING).rstrip("/")
    body: dict[str, Any] = {
        "resourceNames": [f"projects/{config.project}"],
        "filter": wanted,
        "orderBy": "timestamp desc",
        "pageSize": min(PAGE, max_lines),
    }
    for _ in range(PAGES):
        answer = compute.elsewhere("POST", f"{root}/v2/entries:list", body)
        yield from answer.get("entries") or ()
        body["pageToken"] = answer.get("nextPageToken") or ""
        if not body["pageToken"]:
            return


def _lines(entry: Mapping[str, Any]) -> list[str]:
    text = entry.get("textPayload")
    if text is None:
        text = (entry.get("jsonPayload") or {}).get("message")
    return [] if text is None else str(text).splitlines()


def _advice(error: ApiError, project: str) -> str:
    """What a person can do about it; "" = wait."""
    if error.status != 403:
        return ""
    door = open_door(error, "logging.googleapis.com", project)
    if door:
        return f"; do this: {door}"
    return "; the supervisor's account needs the permission logging.logEntries.list (roles/logging.viewer)"
