"""`code` of a spec: a folder becomes a stored bundle, and its hash takes the folder's place."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import USAGE, CliError, Problem, Unreachable
from supervisor.cli.output import safe
from supervisor.domain.bundle_index import BundleIndex, unfit
from supervisor.wording.figures import plural, size_text

if TYPE_CHECKING:
    from supervisor.cli.files.pack import Packed

NAMED = re.compile(r"[0-9a-f]{64}\Z")
SHORT = 12
SHOWN = 5  # of the folders that are left out


def settle_code(client: Client, spec: Json, send: bool = True) -> bool:
    """Pack and store the folder that `code` names, and put its hash there. A hash, or what is no text, stays for the
    API to judge. Without `send` nothing is stored; True then: it would have been. Raises CliError, Problem,
    Unreachable."""
    code = spec.get("code")
    if not isinstance(code, str) or not code or NAMED.match(code):
        return False
    workdir = spec.get("workdir")
    if isinstance(workdir, str) and not os.path.isabs(workdir):
        spec["workdir"] = posixpath.normpath(workdir)
    folder = Path(code)
    if not folder.is_dir():
        text = f"code: {folder} is not a folder" + (", it is a file." if folder.exists() else ".")
        raise CliError(text, USAGE, "CODE_REFUSED")
    from supervisor.cli.files.pack import packed

    with packed(folder) as bundle:
        index = bundle.index
        _check(spec, index)
        _check_secrets(spec, folder, index)
        address = f"/v1/code/{index.sha256}"
        stored = _is_stored(client, address)
        if send and not stored:
            _send(client, address, bundle)
        sent = f"{size_text(index.stored_bytes)} {'sent' if send else 'to be sent'}"
        how = "stored already" if stored else f"{'' if send else 'not '}stored, {sent}"
        what = f"{plural(len(index.members), 'file')}, {size_text(index.size)} of {safe(str(folder))}"
        output.note(f"code {index.sha256[:SHORT]}: {what} ({how})")
        if bundle.left_out:
            names = ", ".join(safe(name) for name in bundle.left_out[:SHOWN])
            output.note(f"left out: {names}{', …' if len(bundle.left_out) > SHOWN else ''}")
        spec["code"] = index.sha256
        return not stored and not send


def _check(spec: Json, index: BundleIndex) -> None:
    """What the API would refuse need not be sent. Raises CliError."""
    command, workdir = spec.get("command"), spec.get("workdir")
    words = command if isinstance(command, list) else [command]
    if not all(isinstance(word, str) for word in (*words, workdir or "")):
        return
    misfit = unfit(command or [], workdir or "", index)
    if misfit is not None:
        raise CliError(misfit.text, USAGE, "CODE_REFUSED")


def _check_secrets(spec: Json, folder: Path, index: BundleIndex) -> None:
    """A bundle is stored: a secret's file is not to travel with it. Raises CliError."""
    secrets = spec.get("secrets")
    top = os.path.realpath(folder)
    for name, reference in secrets.items() if isinstance(secrets, dict) else ():
        if not isinstance(reference, str) or not reference.startswith("file:"):
            continue
        inside = os.path.relpath(os.path.realpath(reference.removeprefix("file:")), top)
        if inside in index.members:
            text = f"{safe(inside)} holds the secret {safe(name)} and would be stored with the code. Nothing was sent."
            hint = f"Put it outside of {safe(str(folder))}, or name it in .spotignore."
            raise CliError(text, USAGE, "CODE_REFUSED", (hint,))


def _send(client: Client, address: str, bundle: Packed) -> None:
    headers = {"Content-Type": "application/gzip", "Content-Length": str(bundle.index.stored_bytes)}
    try:
        client.send("PUT", address, headers=headers, content=bundle.file)
    except Unreachable as error:
        if not error.sent:
            raise
        bundle.file.seek(0)  # the answer was lost; a second time is once
        client.send("PUT", address, headers=headers, content=bundle.file)


def code_from(given: str, folder: str) -> str:
    """A hash as it is; a path taken from `folder`."""
    if not given or NAMED.match(given):
        return given
    return os.path.normpath(os.path.join(folder, os.path.expanduser(given)))


def _is_stored(client: Client, address: str) -> bool:
    try:
        client.get(address)
    except Problem as error:
        if error.code != "CODE_NOT_FOUND":
            raise
        return False
    return True


def code_lines(attempts: Iterable[Json]) -> list[str]:
    """`code 1f2e3d4c5b6a (attempts 1, 2), 9a8b… (attempt 3)`; nothing where no attempt had a bundle."""
    numbers: dict[str, list[int]] = {}
    for attempt in attempts:
        if attempt.get("code"):
            numbers.setdefault(attempt["code"], []).append(attempt["number"])
    parts = [f"{safe(code[:SHORT])} ({_named(attempt_numbers)})" for code, attempt_numbers in numbers.items()]
    return ["code " + ", ".join(parts)] if parts else []


def _named(numbers: list[int]) -> str:
    return ("attempt " if len(numbers) == 1 else "attempts ") + ", ".join(map(str, numbers))
