"""Which token goes to which address.

One that a person names (--token-file, SPOT_TOKEN) goes where the person sends the command; where SPOT_URL is set,
SPOT_TOKEN belongs to that address and to no other. One that is found in a data folder goes only to the server that the
folder's server.json names, while that process lives: an address that somebody else has taken since gets nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from supervisor.cli.exits import USAGE, CliError
from supervisor.domain.access.callers import is_token
from supervisor.settings.serving_process import SERVER, process_in, read_record

FILE = "admin-token"
MOST_BYTES = 1000


@dataclass(frozen=True)
class Credential:
    """`token` "" = none is sent. `source`: where it is from, for people."""

    token: str = ""
    source: str = ""


@dataclass(frozen=True)
class Credentials:
    """`named`: the file that the command line names. `folder`: the data folder whose server may be meant; None = there
    is none that could be read from the settings."""

    named: str | None
    folder: Callable[[], Path | None]

    def of(self, address: str) -> Credential:
        """Raises CliError where a token that was named cannot be used."""
        if self.named:
            return Credential(_in_file(Path(self.named)), self.named)
        given, its_address = os.environ.get("SPOT_TOKEN", ""), os.environ.get("SPOT_URL", "")
        if given and (not its_address or same_server(its_address, address)):
            return Credential(_usable(given, "SPOT_TOKEN"), "SPOT_TOKEN")
        folder = self.folder()
        if folder is None or not _serves(folder, address):
            return Credential()
        try:
            return Credential(_in_file(folder / FILE), str(folder / FILE))
        except CliError:
            return Credential()  # not ours to read, or not there: the server says what it thinks of that

    def hints(self, address: str, needed: str) -> tuple[str, ...]:
        """What helps against a 403 that misses the scope `needed`, or against a 401 ("")."""
        if needed:
            return (
                f"an administrator makes a token that may: spot token create NAME --scope {needed}",
                "and sees what each of them may do: spot token ls",
            )
        sent = self.of(address)
        if sent.token:
            why = "revoked, expired, or another supervisor's"
            if not is_token(sent.token):
                why = "it is mistyped or cut off (its checksum is wrong)"
            return (
                f"the token of {sent.source} is not valid there: {why}",
                "an administrator makes another: spot token create NAME",
            )
        folder = self.folder()
        if folder is not None and _serves(folder, address):
            return (
                f"{folder / FILE} is not there, or not yours to read: take it from whoever runs the supervisor",
                "where it is lost, start the supervisor anew: it makes another and revokes the one before",
            )
        return (
            "no token was sent: name one by --token-file FILE or SPOT_TOKEN",
            "on the supervisor's own computer its data folder holds one: --data-dir DIR",
        )


def read_server_file(data_dir: Path) -> dict[str, Any]:
    """DATA_DIR/server.json {url, pid, …}; empty when there is none or it is torn."""
    return read_record(data_dir / SERVER)


def same_server(one: str, other: str) -> bool:
    """Whether two addresses name one server, `localhost` and its number being one name."""
    try:
        return _place(one) == _place(other)
    except ValueError:
        return False


def _place(address: str) -> tuple[str, str, int | None, str]:
    parts = urlsplit(address)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, host, port, parts.path.rstrip("/")


def _serves(folder: Path, address: str) -> bool:
    told = read_server_file(folder)
    process = process_in(told)
    here = process is not None and process.lives()
    return here and same_server(str(told.get("url") or ""), address)


def _in_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES).decode("ascii", "replace")
    except OSError as error:
        reason = f"The token file {path} cannot be read: {error.strerror}."
        raise CliError(reason, USAGE, "TOKEN_UNREADABLE") from None
    return _usable(text, str(path))


def _usable(text: str, source: str) -> str:
    """Raises CliError for what cannot stand in a header; it is not repeated."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise CliError(f"{source} holds no token.", USAGE, "TOKEN_UNREADABLE", ("it is one word: sup_…",))
    return token
