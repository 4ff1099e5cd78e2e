"""Talking to the supervisor: one request, one answer, over plain HTTP of the standard library; and with which token.

Every failure is one of two: `Unreachable` (no answer came) or `Problem` (the answer was an error). The address is
looked up again after a failure, because a supervisor that was started anew may listen elsewhere.

A token that a person names (--token-file, SPOT_TOKEN) goes where the person sends the command; where SPOT_URL is set,
SPOT_TOKEN belongs to that address and to no other. One that is found in a data folder goes only to the server that the
folder's server.json names, while that process lives: an address that somebody else has taken since gets nothing.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

from supervisor.cli.exits import USAGE, CliError, Problem, Unreachable
from supervisor.domain.callers import is_token
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


def same_server(address: str, other: str) -> bool:
    """Whether two addresses name one server, `localhost` and its number being one name."""
    try:
        return _place(address) == _place(other)
    except ValueError:
        return False


def _place(address: str) -> tuple[str, str, int | None, str]:
    parts = urlsplit(address)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, host, port, parts.path.rstrip("/")


def _serves(folder: Path, address: str) -> bool:
    record = read_server_file(folder)
    process = process_in(record)
    here = process is not None and process.lives()
    return here and same_server(str(record.get("url") or ""), address)


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


Json = dict[str, Any]
TIMEOUT_S = 30.0
PIECE_BYTES = 1 << 18  # of a body that is sent from a file
ANSWER_MAX = 64 * 1024 * 1024
RETRY_S = 0.5
LONGEST_PAUSE_S = 5.0  # before a request is repeated that came too soon
PATIENCE_S = 600.0  # how long a command that follows a run bears a supervisor that does not answer


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        """The body as JSON; CliError when it is none (something else listens at that address)."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise CliError(
                "The answer is not JSON: is this address a Spot Supervisor?", code="NOT_A_SUPERVISOR"
            ) from None


class Client:
    """`locate` gives the base URL; `explain` turns the reason of a failed connection into Unreachable; `credentials`
    has the token for an address."""

    def __init__(
        self, locate: Callable[[], str], explain: Callable[[str, str, bool], Unreachable], credentials: Credentials
    ):
        self._locate = locate
        self._explain = explain
        self._credentials = credentials
        self.url = locate()
        self.timeout_s = TIMEOUT_S

    def get(self, path: str, **params: object) -> Any:
        return self.send("GET", path, params=params).json()

    def post(self, path: str, body: Json, headers: Mapping[str, str] | None = None) -> Any:
        return self.send("POST", path, body=body, headers=headers).json()

    def send(
        self,
        method: str,
        path: str,
        params: Mapping[str, object] | None = None,
        body: Json | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        accept: int | None = None,
        content: IO[bytes] | None = None,
    ) -> Answer:
        """Raises Unreachable, or Problem for a status of 300 and above other than `accept`: redirects are not followed.
        A parameter that is None is left out. `content`: a body of bytes, whose type and length `headers` tell."""
        raw = content if body is None else json.dumps(body, allow_nan=False).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        for tries_left in (2, 1, 0):
            with self._exchange(method, path + _query(params or {}), raw, {**(headers or {}), **kind}) as response:
                answer = _whole(response)
            if answer.status != 429 or not tries_left or content is not None:
                break
            time.sleep(_pause_s(answer))  # it was refused before anything was done
        if answer.status >= 300 and answer.status != accept:
            raise self._problem(answer)
        return answer

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str]) -> Iterator[http.client.HTTPResponse]:
        """The answer to a GET, whose body the caller reads. Raises Unreachable, also when the connection is lost while
        the caller reads (so the caller must not let an OSError of its own pass here), and Problem."""
        with self._exchange("GET", path, None, headers) as response:
            if response.status >= 300:
                raise self._problem(_whole(response))
            yield response

    @contextmanager
    def _exchange(
        self, method: str, path: str, raw: bytes | IO[bytes] | None, headers: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            hints = ("such as http://127.0.0.1:8787 or https://spot.example.org",)
            raise CliError(f"{self.url} is not an http address.", USAGE, "URL_INVALID", hints)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        sent_headers = {"Accept": "application/json", "User-Agent": "spot-cli", **headers}
        token = self._credentials.of(self.url).token
        if token:
            sent_headers["Authorization"] = f"Bearer {token}"
        connection = kind(parts.hostname, parts.port, timeout=self.timeout_s, blocksize=PIECE_BYTES)
        sent = False
        try:
            connection.connect()
            sent = True
            connection.request(method, parts.path.rstrip("/") + path, raw, sent_headers)
            with connection.getresponse() as response:
                yield response
        except (OSError, http.client.HTTPException) as error:
            failed = self._explain(self.url, _reason(error, self.timeout_s), sent)
            self.url = self._locate()
            raise failed from None
        finally:
            connection.close()

    def _problem(self, answer: Answer) -> Problem:
        problem = _problem(answer)
        if problem.code == "UNAUTHORIZED":
            problem.hints = self._credentials.hints(self.url, "")
        elif problem.code == "SCOPE_MISSING":
            problem.hints = self._credentials.hints(self.url, _scope_needed(problem.text))
        elif problem.code == "HOST_REFUSED":
            name = urlsplit(self.url).hostname
            problem.hints = (f"start it with SPOT_ALLOWED_HOSTS={name}, or ask under a name that it has",)
        return problem

    def patiently(self, ask: Callable[[], Any], say: Callable[[str], None], limit_s: float | None = None) -> Any:
        """`ask()`, repeated while nobody answers, `limit_s` and PATIENCE_S long at most: a supervisor that restarts is
        no reason to stop following a run."""
        patience_s = PATIENCE_S if limit_s is None else min(limit_s, PATIENCE_S)
        since: float | None = None
        while True:
            try:
                answer = ask()
            except (Unreachable, Problem) as error:
                if isinstance(error, Problem) and error.status != 503:
                    raise
                if since is None:
                    since = time.monotonic()
                    say("No answer from the supervisor. Runs go on without it; waiting for its return.")
                if time.monotonic() - since >= patience_s:
                    raise
                time.sleep(RETRY_S)
            else:
                if since is not None:
                    say("The supervisor answers again.")
                return answer


def pages(client: Client, path: str, items: str, limit: int, **params: object) -> Iterator[Json]:
    """The pages of a list, until `limit` records were given; each page holds at most what is still wanted."""
    cursor: str | None = None
    while limit > 0:
        page = client.get(path, page_size=min(limit, 1000), cursor=cursor, **params)
        yield page
        limit -= len(page[items])
        cursor = page.get("next_cursor")
        if not cursor:
            return


def _pause_s(answer: Answer) -> float:
    seconds = answer.headers.get("retry-after", "")
    return min(float(seconds) if seconds.isdigit() else 1.0, LONGEST_PAUSE_S)


def _whole(response: http.client.HTTPResponse) -> Answer:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read(ANSWER_MAX))


def run_path(run_id: str, *more: str) -> str:
    return "/".join(["/v1/runs", quote(run_id, safe=""), *more])


def _query(params: Mapping[str, object]) -> str:
    given = {name: value for name, value in params.items() if value is not None}
    return "?" + urlencode(given, doseq=True) if given else ""


def _scope_needed(text: str) -> str:
    """The scope that a refusal names, in the words of the API's own text."""
    scope = re.search(r"\b(?:runs:read|runs:write|metrics:read|admin)\b", text)
    return scope.group() if scope else "admin"


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, ssl.SSLError) and "WRONG_VERSION" in str(error):
        return "no TLS is spoken there: http:// may be meant"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    return str(error) or type(error).__name__


# What the API calls a field of the body is a flag here.
_FLAGS = (("Say replace_spec ", "Say --replace-spec "), ("Say rerun ", "Say --rerun "))


def _problem(answer: Answer) -> Problem:
    """The problem document as an error; an answer without one is told by its status."""
    try:
        document = json.loads(answer.body)
        detail = str(document.get("detail") or document["title"])
        for field, flag in _FLAGS:
            detail = detail.replace(field, flag)
        errors = tuple((str(e.get("pointer", "")), str(e.get("detail", ""))) for e in document.get("errors") or ())
        return Problem(answer.status, str(document.get("code", "")), detail, errors)
    except (ValueError, KeyError, AttributeError, TypeError):
        return Problem(answer.status, "", f"The server answered with status {answer.status} and no explanation.")
