"""Which supervisor is meant, which token it gets, and which run is meant.

The supervisor: --url, else SPOT_URL, else the address in DATA_DIR/server.json, else the host and port of the settings.

The token: --token-file or SPOT_TOKEN goes where the user sends the command; where SPOT_URL is set, SPOT_TOKEN belongs
to that address alone. A token in a data folder goes only to the address in the folder's server.json, and only while
that process lives: another program that has taken over the port gets nothing.

The run: the named one, else the only active one, else the newest; where several are active, they are listed.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from supervisor.cli.client import Client
from supervisor.cli.exits import NOT_FOUND, USAGE, CliError, Unreachable
from supervisor.cli.output import note
from supervisor.domain.callers import is_token
from supervisor.domain.errors import SpotError
from supervisor.domain.status import ACTIVE
from supervisor.settings.serving_process import SERVER, process_in, read_record, serving, starting

if TYPE_CHECKING:
    from supervisor.settings.loading import Settings

ACTIVE_STATUSES = sorted(ACTIVE)
TOKEN_FILE = "admin-token"  # noqa: S105 - the name of a file in the data folder
TOKEN_MAX_BYTES = 1000
STARTING_S = 60.0  # how long a command waits for a supervisor that is starting
POLL_S = 0.1


@dataclass(frozen=True)
class Target:
    """Which supervisor the command line names; None = not given. It is the client's Server."""

    named_url: str | None = None
    data_dir: str | None = None
    token_file: str | None = None

    def client(self, appears_s: float | None = None) -> Client:
        """A client of that supervisor; one of the data folder that is starting is waited for. `appears_s`: how long to
        look for its first sign; None = wait for nothing. Raises SpotError for refused settings, if they are needed."""
        if appears_s is not None and not self._given_url:
            wait_for_start(self._settings.data_dir, self._default_url(), appears_s)
        return Client(self)

    @cached_property
    def _given_url(self) -> str:
        """ "" = the address comes from the data folder."""
        url = self.named_url or (None if self.data_dir else os.environ.get("SPOT_URL"))
        return (url or "").rstrip("/")

    @cached_property
    def _settings(self) -> Settings:
        from supervisor.wiring import settings as wired

        file, env_file = os.environ.get("SPOT_CONFIG"), os.environ.get("SPOT_ENV_FILE")
        return wired.load({"data_dir": self.data_dir}, file=file, env_file=env_file)

    def _default_url(self) -> str:
        return f"http://{self._settings.access.host}:{self._settings.access.port}"

    def url(self) -> str:
        if self._given_url:
            return self._given_url
        return str(read_record(self._settings.data_dir / SERVER).get("url") or self._default_url())

    def token(self, url: str) -> str:
        return self._credential(url)[0]

    def _credential(self, url: str) -> tuple[str, str]:
        """(token, where it is from); ("", "") = none."""
        if self.token_file:
            return _token_in(Path(self.token_file)), self.token_file
        given, its_url = os.environ.get("SPOT_TOKEN", ""), os.environ.get("SPOT_URL", "")
        if given and (not its_url or same_server(its_url, url)):
            return _usable(given, "SPOT_TOKEN"), "SPOT_TOKEN"
        file = self._found_token_file(url)
        try:
            return ("", "") if file is None else (_token_in(file), str(file))
        except CliError:
            return "", ""  # absent or unreadable: the supervisor's response says what is missing

    def _found_token_file(self, url: str) -> Path | None:
        """Of the data folder whose live server has this address; None = its token must not be sent there."""
        try:
            folder = self._settings.data_dir
        except SpotError:  # an address that was given needs no settings
            return None
        return folder / TOKEN_FILE if _serves(folder, url) else None

    def token_hints(self, url: str, scope: str) -> tuple[str, ...]:
        if scope:
            return (
                f"an administrator creates a token with that scope: spot token create NAME --scope {scope}",
                "and lists the scopes of all tokens: spot token ls",
            )
        token, source = self._credential(url)
        if token:
            why = "it is mistyped or cut off (its checksum is wrong)"
            if is_token(token):
                why = "revoked, expired, or of another supervisor"
            return (
                f"the token of {source} is not valid there: {why}",
                "an administrator creates a new one: spot token create NAME",
            )
        file = self._found_token_file(url)
        if file is not None:
            return (
                f"{file} does not exist or you may not read it: ask the person who runs the supervisor",
                "if it is lost, restart the supervisor: it creates a new token and revokes the old one",
            )
        return (
            "no token was sent: name one with --token-file FILE or SPOT_TOKEN",
            "on the supervisor's own computer its data folder has one: --data-dir DIR",
        )

    def unreachable(self, url: str, reason: str, sent: bool) -> Unreachable:
        text = f"No supervisor responds at {url} ({reason})."
        if self._given_url:
            return Unreachable(text, ("check --url or SPOT_URL, or start one: spot up",), sent)
        folder = self._settings.data_dir
        start = f"start it: spot up --data-dir {folder}"
        process = process_in(read_record(folder / SERVER))
        if process is None or process.lives():
            return Unreachable(text, (start, "or name another one with --url or SPOT_URL"), sent)
        text = f"The supervisor of {folder} (pid {process.pid}) is not running any more; trainings continue without it."
        return Unreachable(text, (start,), sent)


def _serves(folder: Path, url: str) -> bool:
    """The process in the folder's server.json lives and has this address."""
    record = read_record(folder / SERVER)
    process = process_in(record)
    return process is not None and process.lives() and same_server(str(record.get("url") or ""), url)


def same_server(url: str, other: str) -> bool:
    """Whether two addresses name one server; `localhost` is 127.0.0.1."""
    try:
        return _origin(url) == _origin(other)
    except ValueError:
        return False


def _origin(url: str) -> tuple[str, str, int | None, str]:
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, host, port, parts.path.rstrip("/")


def _token_in(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(TOKEN_MAX_BYTES).decode("ascii", "replace")
    except OSError as error:
        reason = f"The token file {path} cannot be read: {error.strerror}."
        raise CliError(reason, USAGE, "TOKEN_UNREADABLE") from None
    return _usable(text, str(path))


def _usable(text: str, source: str) -> str:
    """Raises CliError for text that cannot be a header; the error does not repeat it."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise CliError(f"{source} holds no token.", USAGE, "TOKEN_UNREADABLE", ("a token is one word: sup_…",))
    return token


def wait_for_start(data_dir: Path, default_url: str, appears_s: float) -> None:
    """Return when the folder's supervisor listens, has ended, or STARTING_S have passed. `default_url`: the address of
    the settings, where a supervisor of another folder or computer may respond instead."""
    began, noted = time.monotonic(), False
    while serving(data_dir) is None and time.monotonic() - began < STARTING_S:
        process = starting(data_dir)
        if process is None and (noted or time.monotonic() - began >= appears_s or _listens(default_url)):
            return
        if process is not None and not noted:
            noted = True
            note(f"Waiting for the supervisor of {data_dir}, which is starting (pid {process.pid}).")
        time.sleep(POLL_S)


def _listens(url: str) -> bool:
    try:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port), timeout=POLL_S):
            return True
    except (OSError, ValueError):
        return False


def choose_run(client: Client, run_id: str | None) -> str:
    """The run that is meant. Raises CliError where there is none (not found) or several are active (usage)."""
    if run_id:
        return run_id
    active = client.get("/v1/runs", status=ACTIVE_STATUSES, page_size=10)["runs"]
    if len(active) == 1:
        return str(active[0]["run_id"])
    if active:
        names = tuple(f"{run['run_id']}  {run['status']}" for run in active)
        raise CliError("Several runs are active; name one:", USAGE, "RUN_AMBIGUOUS", names)
    newest = client.get("/v1/runs", page_size=1)["runs"]
    if not newest:
        raise CliError("There is no run yet.", NOT_FOUND, "RUN_NOT_FOUND", ("submit one: spot submit -- COMMAND",))
    return str(newest[0]["run_id"])
