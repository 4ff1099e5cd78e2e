"""Requests to the supervisor's HTTP API with the standard library: one connection, one request, one response.

A request fails as `Unreachable` (no response) or as `Problem` (an error response). After a failed connection the client
looks the address up again, because a restarted supervisor may listen elsewhere.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Protocol
from urllib.parse import quote, urlencode, urlsplit

from supervisor.cli.exits import USAGE, CliError, Problem, Unreachable
from supervisor.cli.output import note

Json = dict[str, Any]
TIMEOUT_S = 30.0
PIECE_BYTES = 1 << 18  # of a body that is sent from a file
RESPONSE_MAX_BYTES = 64 * 1024 * 1024
RETRY_S = 0.5
LONGEST_BACKOFF_S = 5.0  # after a response 429
PATIENCE_S = 600.0  # how long a command that follows a run retries while the supervisor does not respond
_SCOPE = re.compile(r"\b(?:runs:read|runs:write|runs:exec|metrics:read|admin)\b")
# The API's advice to send a field of the body; here the field is an option.
_ADVICE = re.compile(r"\b(?:Say|Send|Set|Use) (replace_spec|rerun)\b")


class Server(Protocol):
    """What the client needs to know of the supervisor."""

    def url(self) -> str:
        """Its address now."""

    def token(self, url: str) -> str:
        """The token for this address; "" = none. Raises CliError where the named token cannot be used."""

    def token_hints(self, url: str, scope: str) -> tuple[str, ...]:
        """What helps against a response 403 that misses `scope`, or against a 401 ("")."""

    def unreachable(self, url: str, reason: str, sent: bool) -> Unreachable:
        """The error for a connection that failed."""


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        """The body as JSON. Raises CliError where it is none, because another program listens at that address."""
        try:
            return json.loads(self.body)
        except ValueError:
            text = "The response is not JSON. Is this address a Spot Supervisor?"
            raise CliError(text, code="NOT_A_SUPERVISOR") from None


class Client:
    def __init__(self, server: Server):
        self._server = server
        self.url = server.url()
        self.timeout_s = TIMEOUT_S

    def get(self, path: str, **params: object) -> Any:
        return self.send("GET", path, params=params).json()

    def post(self, path: str, body: Json, headers: Mapping[str, str] | None = None) -> Any:
        return self.send("POST", path, body=body, headers=headers).json()

    def run(self, run_id: str) -> Json:
        """The run; retried while the supervisor does not respond."""
        return dict(self.patiently(lambda: self.get(run_path(run_id))))

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
    ) -> Response:
        """Raises Unreachable, or Problem for a status from 300 on other than `accept`: redirects are not followed. A
        parameter that is None is left out. `content`: a body of bytes; `headers` give its type and length."""
        raw = content if body is None else json.dumps(body, allow_nan=False).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        for tries_left in (2, 1, 0):
            with self._exchange(method, path + _query(params or {}), raw, {**(headers or {}), **kind}) as reply:
                response = _whole(reply)
            if response.status != 429 or not tries_left or content is not None:
                break
            time.sleep(_backoff_s(response))  # a refused request has no effect
        if response.status >= 300 and response.status != accept:
            raise self._problem(response)
        return response

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str]) -> Iterator[http.client.HTTPResponse]:
        """The response to a GET, whose body the caller reads. Raises Problem and Unreachable, also when the connection
        is lost while the caller reads: an OSError of the caller's own must not leave the block."""
        with self._exchange("GET", path, None, headers) as reply:
            if reply.status >= 300:
                raise self._problem(_whole(reply))
            yield reply

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
        if token := self._server.token(self.url):
            sent_headers["Authorization"] = f"Bearer {token}"
        connection = kind(parts.hostname, parts.port, timeout=self.timeout_s, blocksize=PIECE_BYTES)
        sent = False
        try:
            connection.connect()
            sent = True
            connection.request(method, parts.path.rstrip("/") + path, raw, sent_headers)
            with connection.getresponse() as reply:
                yield reply
        except (OSError, http.client.HTTPException) as error:
            failure = self._server.unreachable(self.url, _reason(error, self.timeout_s), sent)
            self.url = self._server.url()
            raise failure from None
        finally:
            connection.close()

    def _problem(self, response: Response) -> Problem:
        problem = _problem(response)
        if problem.code == "UNAUTHORIZED":
            problem.hints = self._server.token_hints(self.url, "")
        elif problem.code == "SCOPE_MISSING":
            scope = _SCOPE.search(problem.text)  # the refusal names it
            problem.hints = self._server.token_hints(self.url, scope.group() if scope else "admin")
        elif problem.code == "HOST_REFUSED":
            name = urlsplit(self.url).hostname
            problem.hints = (f"start the supervisor with SPOT_ALLOWED_HOSTS={name}, or use a name that it accepts",)
        return problem

    def patiently(self, request: Callable[[], Any], limit_s: float | None = None) -> Any:
        """`request()`, retried while the supervisor does not respond, at most `limit_s` and PATIENCE_S: a restart of
        the supervisor does not end a command that follows a run."""
        patience_s = PATIENCE_S if limit_s is None else min(limit_s, PATIENCE_S)
        since: float | None = None
        while True:
            try:
                result = request()
            except (Unreachable, Problem) as error:
                if isinstance(error, Problem) and error.status != 503:
                    raise
                if since is None:
                    since = time.monotonic()
                    note("The supervisor does not respond; retrying. Runs continue without it.")
                if time.monotonic() - since >= patience_s:
                    raise
                time.sleep(RETRY_S)
            else:
                if since is not None:
                    note("The supervisor responds again.")
                return result


def pages(client: Client, path: str, items: str, limit: int, **params: object) -> Iterator[Json]:
    """The pages of a list, with `limit` records at most in all."""
    cursor: str | None = None
    while limit > 0:
        page = client.get(path, page_size=min(limit, 1000), cursor=cursor, **params)
        yield page
        limit -= len(page[items])
        cursor = page.get("next_cursor")
        if not cursor:
            return


def run_path(run_id: str, *more: str) -> str:
    return "/".join(["/v1/runs", quote(run_id, safe=""), *more])


def _query(params: Mapping[str, object]) -> str:
    given = {name: value for name, value in params.items() if value is not None}
    return "?" + urlencode(given, doseq=True) if given else ""


def _whole(reply: http.client.HTTPResponse) -> Response:
    headers = {name.lower(): value for name, value in reply.getheaders()}
    return Response(reply.status, headers, reply.read(RESPONSE_MAX_BYTES))


def _backoff_s(response: Response) -> float:
    seconds = response.headers.get("retry-after", "")
    return min(float(seconds) if seconds.isdigit() else 1.0, LONGEST_BACKOFF_S)


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, ssl.SSLError) and "WRONG_VERSION" in str(error):
        return "the server speaks no TLS: try http://"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return f"no response within {timeout_s:g} s"
    return str(error) or type(error).__name__


def _problem(response: Response) -> Problem:
    """The problem document as an error; a response without such a document is described by its status."""
    try:
        document = json.loads(response.body)
        detail = str(document.get("detail") or document["title"])
        detail = _ADVICE.sub(lambda match: f"Use --{match[1].replace('_', '-')}", detail)
        errors = tuple((str(e.get("pointer", "")), str(e.get("detail", ""))) for e in document.get("errors") or ())
        return Problem(response.status, str(document.get("code", "")), detail, errors)
    except (ValueError, KeyError, AttributeError, TypeError):
        text = f"The server responded with status {response.status} and no explanation."
        return Problem(response.status, "", text)
