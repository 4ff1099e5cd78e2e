"""Which supervisor is meant, and which run.

The supervisor: --url, else SPOT_URL, else the address in DATA_DIR/server.json, else the host and port of the settings.
Its token: see credentials.
The run: the one that is named, else the only active one, else the newest; where several are active they are listed.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from supervisor.cli import output
from supervisor.cli.client import Client, Credentials, read_server_file
from supervisor.cli.exits import NOT_FOUND, USAGE, CliError, Problem, Unreachable
from supervisor.domain.errors import SpotError
from supervisor.settings.serving_process import process_in, serving, starting

if TYPE_CHECKING:
    from supervisor.settings.loading import Settings

TERMINAL = ("completed", "partial", "failed", "stopped")


STARTING_S = 60.0  # how long a command waits for a supervisor that is starting
LOOK_S = 0.1


def client_for(
    url: str | None, data_dir: str | None, token_file: str | None = None, appears_s: float | None = 0.0
) -> Client:
    """A client of the supervisor that is meant; one of the data folder that is starting is waited for. `appears_s`: how
    long to look for a first sign of it; None = nothing is waited for. Raises SpotError when the settings needed to find
    it are refused."""
    given = url or (None if data_dir else os.environ.get("SPOT_URL"))
    if given:
        here = Credentials(token_file, lambda: _folder(data_dir))
        return Client(lambda: given.rstrip("/"), _explain_given, here)
    settings = _settings(data_dir)
    fallback = f"http://{settings.host}:{settings.port}"

    if appears_s is not None:
        wait_for_start(settings.data_dir, fallback, appears_s)

    def locate() -> str:
        return str(read_server_file(settings.data_dir).get("url") or fallback)

    def explain(address: str, reason: str, sent: bool) -> Unreachable:
        return _explain_folder(settings.data_dir, address, reason, sent)

    return Client(locate, explain, Credentials(token_file, lambda: settings.data_dir))


def _settings(data_dir: str | None) -> Settings:
    from supervisor.wiring import settings as wired

    file, env_file = os.environ.get("SPOT_CONFIG"), os.environ.get("SPOT_ENV_FILE")
    return wired.load({"data_dir": data_dir}, file=file, env_file=env_file)


def _folder(data_dir: str | None) -> Path | None:
    """None where the settings are refused: an address that was given needs none of them."""
    try:
        return _settings(data_dir).data_dir
    except SpotError:
        return None


def wait_for_start(data_dir: Path, fallback: str, appears_s: float) -> None:
    """Return when the folder's supervisor listens, has ended, or STARTING_S have passed. `fallback`: the address of the
    settings, where a supervisor of another folder or computer may answer instead."""
    began, said = time.monotonic(), False
    while serving(data_dir) is None and time.monotonic() - began < STARTING_S:
        process = starting(data_dir)
        if process is None and (said or time.monotonic() - began >= appears_s or _listens(fallback)):
            return
        if process is not None and not said:
            said = True
            output.note(f"The supervisor of {data_dir} is starting (pid {process.pid}); waiting for it.")
        time.sleep(LOOK_S)


def _listens(address: str) -> bool:
    try:
        parts = urlsplit(address)
        with socket.create_connection((parts.hostname, parts.port), timeout=LOOK_S):
            return True
    except (OSError, ValueError):
        return False


def _explain_given(address: str, reason: str, sent: bool) -> Unreachable:
    text = f"No supervisor answers at {address} ({reason})."
    return Unreachable(text, ("check --url or SPOT_URL, or start one: spot up",), sent)


def _explain_folder(data_dir: Path, address: str, reason: str, sent: bool) -> Unreachable:
    start = f"start it: spot up --data-dir {data_dir}"
    process = process_in(read_server_file(data_dir))
    if process is not None and not process.lives():
        text = f"The supervisor of {data_dir} (pid {process.pid}) is not running any more; trainings go on without it."
        return Unreachable(text, (start,), sent)
    text = f"No supervisor answers at {address} ({reason})."
    return Unreachable(text, (start, "or name another one by --url or SPOT_URL"), sent)


def choose_run(client: Client, run_id: str | None) -> str:
    """The run that is meant. Raises CliError: there is none (not found), or several are active (usage)."""
    if run_id:
        return run_id
    active = client.get("/v1/runs", status=active_statuses(), page_size=10)["runs"]
    if len(active) == 1:
        return str(active[0]["run_id"])
    if active:
        names = tuple(f"{run['run_id']}  {run['status']}" for run in active)
        raise CliError("Several runs are active; name one:", USAGE, "RUN_AMBIGUOUS", names)
    newest = client.get("/v1/runs", page_size=1)["runs"]
    if not newest:
        raise CliError("There is no run yet.", NOT_FOUND, "RUN_NOT_FOUND", ("submit one: spot submit -- COMMAND",))
    return str(newest[0]["run_id"])


def active_statuses() -> list[str]:
    from supervisor.domain.status import ACTIVE

    return sorted(str(status) for status in ACTIVE)


def machines_here(client: Client, flag: Sequence[str] = ()) -> Callable[[Sequence[str]], bool]:
    """Whether all machines are on this computer, for the providers that a spec names (`flag` wins). The
    supervisor knows it of each; an older one, which does not know the question, calls its own machines local."""

    @cache
    def here() -> dict[str, bool]:
        """In the supervisor's order; its own first."""
        try:
            providers = client.get("/v1/providers")["providers"]
            return {each["name"]: each["shares_computer"] for each in providers}
        except Problem as error:
            if error.status != 404:
                raise
        name = own()
        return {name: name == "local"}

    def own() -> str:
        try:
            return str(client.get("/v1/meta")["provider"])
        except Problem as error:
            if error.status != 404:
                raise
            return "local"

    def is_here(named: Sequence[str]) -> bool:
        wanted = flag or named
        if not wanted:
            return next(iter(here().values()))
        return all(here().get(name, name == "local") for name in wanted)

    return is_here
