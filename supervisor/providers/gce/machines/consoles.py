"""The console of a VM: in parts from the VM itself, and from Cloud Logging.

The output of the serial port is read by byte offset. Google sends text, not bytes: a character that is cut at the end
of a response becomes U+FFFD, and its bytes are requested again with the next part.

Cloud Logging identifies a VM by its numeric id: names are reused, ids are not. It has the console only of a VM with the
metadata `serial-port-logging-enable`. Google itself writes it there: machines run as an account without permission to
write logs, so the lines of their guest agent are never there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from supervisor.domain.machines import MachineRef
from supervisor.ports.platform import ConsolePart
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError, access_fix
from supervisor.providers.gce.config import GceConfig

LOGGING = "https://logging.googleapis.com"
SERIAL_LOG = "serialconsole.googleapis.com%2Fserial_port_1_output"
PAGE = 1000
PAGES = 12  # a project has 60 reads a minute
CUT_MAX = 3  # bytes of a character whose rest is missing
REPLACEMENT = "\ufffd"
NOT_READY = "resourceNotReady"  # Google's reason where a machine is off, or not yet on


def part_after(compute: Compute, ref: MachineRef, start: int, max_bytes: int) -> ConsolePart | None:
    """None: the machine does not exist, or it is off and its console with it. ApiError."""
    try:
        response = compute.read(f"zones/{ref.zone}/instances/{ref.name}/serialPort", port=1, start=start)
    except ApiError as error:
        if error.missing or error.reason == NOT_READY:
            return None
        raise
    first, following = int(response.get("start") or 0), int(response.get("next") or 0)
    return part_of(str(response.get("contents") or ""), first, following, max_bytes)


def part_of(text: str, start: int, following: int, max_bytes: int) -> ConsolePart:
    """`following`: the offset after the text, as Google counts its bytes."""
    whole = text.rstrip(REPLACEMENT).encode()
    cut = following - start - len(whole)
    if cut < 0 or cut > CUT_MAX or (cut and not text.endswith(REPLACEMENT)):
        # Google replaced bytes in the middle: the lengths differ, so no end can be removed and requested again.
        return ConsolePart(text.encode(), start, following)
    content = whole[:max_bytes].decode(errors="ignore").encode()  # this limit may cut a character too
    return ConsolePart(content, start, start + len(content))


def archived(config: GceConfig, compute: Compute, ref: MachineRef, since: float, max_lines: int) -> list[str]:
    """The newest lines in Cloud Logging, oldest first. ApiError, with the missing permission."""
    machine_id = ref.machine_id or ""
    if not machine_id.isdigit():
        return []
    lines: list[str] = []
    try:
        for entry in _entries(config, compute, _filter(config.project, machine_id, since), max_lines):
            lines[:0] = _lines(entry)
            if len(lines) >= max_lines:
                break
    except ApiError as error:
        raise ApiError(error.text + _advice(error, config.project), error.status, error.reason) from error
    return lines[-max_lines:]


def _filter(project: str, machine_id: str, since: float) -> str:
    """In the Logging query language; the machine's id has digits only."""
    moment = datetime.fromtimestamp(since, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return (
        f'logName="projects/{project}/logs/{SERIAL_LOG}" AND resource.type="gce_instance" AND '
        f'resource.labels.instance_id="{machine_id}" AND timestamp>="{moment}"'
    )


def _entries(config: GceConfig, compute: Compute, wanted: str, max_lines: int) -> Iterator[Mapping[str, Any]]:
    """Newest first. An empty page is not always the last one."""
    root = (config.logging_endpoint or LOGGING).rstrip("/")
    body: dict[str, Any] = {
        "resourceNames": [f"projects/{config.project}"],
        "filter": wanted,
        "orderBy": "timestamp desc",
        "pageSize": min(PAGE, max_lines),
    }
    for _ in range(PAGES):
        page = compute.other_api("POST", f"{root}/v2/entries:list", body)
        yield from page.get("entries") or ()
        body["pageToken"] = page.get("nextPageToken") or ""
        if not body["pageToken"]:
            return


def _lines(entry: Mapping[str, Any]) -> list[str]:
    text = entry.get("textPayload")
    if text is None:
        text = (entry.get("jsonPayload") or {}).get("message")
    return [] if text is None else str(text).splitlines()


def _advice(error: ApiError, project: str) -> str:
    """What the user can do; "" = wait."""
    if error.status != 403:
        return ""
    fix = access_fix(error, "logging.googleapis.com", project)
    if fix:
        return f"; to fix it: {fix}"
    return "; the supervisor's account needs the permission logging.logEntries.list (roles/logging.viewer)"
