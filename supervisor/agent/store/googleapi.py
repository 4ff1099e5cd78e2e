"""Calls to Google's services with the machine's own account, and the metadata server of the machine.

A busy or broken service (408, 429, 5xx, no response) is retried with growing, scattered backoffs until `retry_for_s`
are over; a 401 once with a new token. Every other response is final. If an earlier try may have been carried out, the
response is `doubtful`: it may describe the effect of our own request.

A machine on the supervisor's own computer uses the account of that computer: a person's login (`gcloud auth
application-default login`) if there is one, else the account of the metadata server. The metadata server is reached by
its address, without a name lookup; GCE_METADATA_HOST overrides it, as it does in Google's own libraries.
"""

from __future__ import annotations

import ipaddress
import json
import os
import random
import threading
import time
from typing import Callable, Mapping, NamedTuple, Optional, Protocol, Tuple
from urllib.parse import urlencode, urlsplit

from supervisor.agent.store.httpclient import NO_HEADERS, HttpClient, Request, Response, ResponseStream, Unreachable
from supervisor.contract.stores.bucket import is_passing, may_have_acted, message_of

HOST = "169.254.169.254"
TIMEOUT_S = 5.0
RETRY_FOR_S = 30.0
FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.25, 8.0
RENEW_S = 240.0  # before the token expires; the metadata server makes a new one five minutes before
_FLAVOR = {"Metadata-Flavor": "Google"}
_scattered = random.SystemRandom().uniform


class RetryPolicy(NamedTuple):
    """For how long a call is retried; `sleep` and `monotonic` for tests."""

    retry_for_s: float = RETRY_FOR_S
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic


class Retries:
    """The retries of one call. `wait` waits for the next try, or gives up by raising Unreachable."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._until, self._backoff_s = policy.monotonic() + policy.retry_for_s, FIRST_BACKOFF_S
        self.doubtful = False

    def wait(self, why: str, doubtful: bool = True) -> None:
        self.doubtful = self.doubtful or doubtful
        if self._policy.monotonic() >= self._until:
            raise Unreachable(why)
        self._policy.sleep(self._backoff_s * _scattered(0.5, 1.0))
        self._backoff_s = min(2 * self._backoff_s, MAX_BACKOFF_S)

    def reset(self) -> None:
        """The call made progress: the time for retries starts again."""
        self._until = self._policy.monotonic() + self._policy.retry_for_s
        self._backoff_s = FIRST_BACKOFF_S


class GoogleApi:
    """Safe to use from every thread. Every method raises Unreachable, with the last reason."""

    def __init__(self, client: HttpClient, account: Optional[Account], policy: RetryPolicy) -> None:
        self._client, self._account, self._policy = client, account, policy

    def close(self) -> None:
        """Close the idle connections."""
        self._client.close()
        if self._account is not None:
            self._account.close()

    def retries(self) -> Retries:
        return Retries(self._policy)

    def call(self, request: Request, retries: Optional[Retries] = None) -> Response:
        """Retried until there is a final response."""
        retries = retries or self.retries()
        while True:
            try:
                response = self.once(request)
            except Unreachable as error:
                retries.wait(str(error))
                continue
            if not is_passing(response.status):
                return response
            retries.wait(error_text(response), doubtful=may_have_acted(response.status))

    def once(self, request: Request) -> Response:
        """Not retried, except for a refused token."""
        with self.open(request) as stream:
            return stream.response()

    def open(self, request: Request) -> ResponseStream:
        account = self._account
        if account is None:
            return self._client.open(request)
        is_last = not (request.body is None or isinstance(request.body, bytes))  # pieces cannot be sent twice
        while True:
            token = account.token()
            headers = {**request.headers, "Authorization": "Bearer " + token}
            stream = self._client.open(request._replace(headers=headers))
            if stream.status != 401:
                return stream
            account.discard(token)
            if is_last:
                return stream
            is_last = True
            stream.__exit__()


def error_text(response: Response) -> str:
    """HTTP status and Google's message, as one line."""
    status = "HTTP %d" % response.status
    return "%s: %s" % (status, message_of(response.body)[:300]) if response.body else status


class TokenSource(Protocol):
    def token(self) -> Tuple[str, float]:
        """(access token, seconds until it expires). Unreachable."""
        ...

    def close(self) -> None:
        """Close the idle connections."""
        ...


class Account:
    """The account that a machine writes with. Safe to use from every thread."""

    def __init__(self, source: TokenSource, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0

    def token(self) -> str:
        """Unreachable when none is available."""
        with self._lock:
            if not self._token or self._monotonic() >= self._until:
                token, valid_s = self._source.token()
                self._token, self._until = token, self._monotonic() + max(valid_s - RENEW_S, valid_s / 2)
            return self._token

    def discard(self, token: str) -> None:
        """A service has refused this token."""
        with self._lock:
            if token == self._token:
                self._token = ""

    def close(self) -> None:
        self._source.close()


class MetadataServer:
    """A TokenSource. Errors of every method: Unreachable."""

    def __init__(self, host: Optional[str] = None) -> None:
        self._client = HttpClient("http://" + (host or os.environ.get("GCE_METADATA_HOST") or HOST), TIMEOUT_S)

    def close(self) -> None:
        self._client.close()

    def text(self, path: str, query: Mapping[str, str] = NO_HEADERS, timeout_s: float = TIMEOUT_S) -> Tuple[str, str]:
        """(value, ETag) of `path` below computeMetadata/v1."""
        full_path = "/computeMetadata/v1/%s%s" % (path, "?" + urlencode(query) if query else "")
        response = self._client.call(Request("GET", full_path, headers=_FLAVOR), timeout_s)
        if response.status != 200:
            raise Unreachable("the metadata server responded with %d to %s" % (response.status, path))
        return response.body.decode("utf-8", "replace").strip(), response.headers.get("etag", "")

    def token(self) -> Tuple[str, float]:
        text, _ = self.text("instance/service-accounts/default/token")
        return _parsed_token(text.encode(), "the metadata server's token")


class UserLogin:
    """A person's login on this computer, as Google's own libraries keep it (Application Default Credentials of the type
    `authorized_user`); a TokenSource. The key file of a service account does not work here: it needs a signature that
    the standard library cannot make."""

    def __init__(self, path: str, url: str = "https://oauth2.googleapis.com") -> None:
        self._path, self._client = path, HttpClient(url, TIMEOUT_S)

    def close(self) -> None:
        self._client.close()

    def token(self) -> Tuple[str, float]:
        form = {"grant_type": "refresh_token"}
        try:
            with open(self._path, encoding="utf-8") as file:
                login = json.load(file)
            form.update({name: str(login[name]) for name in ("client_id", "client_secret", "refresh_token")})
        except (OSError, ValueError, KeyError, TypeError):
            raise Unreachable("the login of this computer cannot be read: %s" % self._path) from None
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        response = self._client.call(Request("POST", "/token", urlencode(form).encode(), headers))
        if response.status != 200:
            raise Unreachable("the login of this computer is not renewed: %s" % error_text(response))
        return _parsed_token(response.body, "the response to the login of this computer")


def _parsed_token(body: bytes, source: str) -> Tuple[str, float]:
    try:
        data = json.loads(body.decode("utf-8", "replace"))
        return str(data["access_token"]), float(data["expires_in"])
    except (ValueError, KeyError, TypeError):
        raise Unreachable("%s cannot be parsed" % source) from None


def login_path(environ: Mapping[str, str]) -> Optional[str]:
    """The file with a person's login on this computer; None = there is no login."""
    folder = environ.get("CLOUDSDK_CONFIG") or os.path.join(environ.get("HOME", ""), ".config", "gcloud")
    path = os.path.join(folder, "application_default_credentials.json")
    try:
        with open(path, encoding="utf-8") as file:
            return path if json.load(file).get("type") == "authorized_user" else None
    except (OSError, ValueError, AttributeError):
        return None


def account_for(
    endpoint: str, monotonic: Callable[[], float] = time.monotonic, shares_computer: bool = False
) -> Optional[Account]:
    """None when no account is needed: the endpoint is a stand-in on this very machine. `shares_computer`: with the
    supervisor, so that a login of this computer counts."""
    login = login_path(os.environ) if shares_computer else None
    parts = urlsplit(endpoint)
    if parts.scheme == "http" and is_loopback(parts.hostname) and not os.environ.get("GCE_METADATA_HOST"):
        return None
    return Account(MetadataServer() if login is None else UserLogin(login), monotonic)


def is_loopback(host: Optional[str]) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
