"""Calls to Google's services with the machine's own account, and what its metadata server knows of the machine.

Busy and broken (408, 429, 5xx, no answer) is repeated with growing, scattered pauses until `retry_for_s` are over; 401
once with a new token. Everything else is an answer. An answer after tries that may have been carried out is
`doubtful`: what it says may be our own doing.

A machine on the supervisor's own computer has the account of that computer: the login of a person (`gcloud auth
application-default login`) where there is one, else what a metadata server knows.

The metadata server is reached without a name to be looked up; GCE_METADATA_HOST takes its place, as it does for
Google's own libraries. A preemption is announced there: `instance/preempted` becomes TRUE. Then, at once or 120 s later
as the machine was made, the system is shut down, for which there are 30 s at best. The value is read once before
anything is waited for, since a wait ends with a change only; every wait names the value it has seen, so nothing is
missed between two. The notice is laid down as any other, in the machine's folder.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import random
import threading
import time
from dataclasses import dataclass
from typing import Callable, Dict, Mapping, Optional, Protocol, Tuple
from urllib.parse import urlencode, urlsplit

from supervisor.agent.store.site import Answer, Body, Site, Stream, Unreachable
from supervisor.contract.stores.bucket import is_passing, may_have_acted, message_of

HOST = "169.254.169.254"
TIMEOUT_S = 5.0
_FLAVOR = {"Metadata-Flavor": "Google"}
_NOTHING: Mapping[str, str] = {}
RETRY_FOR_S = 30.0
FIRST_PAUSE_S, PAUSE_MAX_S = 0.25, 8.0
RENEW_S = 240.0  # before its end; the metadata server makes a new token five minutes before
_scattered = random.SystemRandom().uniform
PATH = "instance/preempted"
SHUTDOWN_S = 25.0  # of the 30 s at best between the system's shutdown and the end
WAIT_S = 60.0  # the server answers after it though nothing has changed
SPARE_S = 15.0
BETWEEN_S = 0.2  # two waits
AGAIN_S = 2.0  # after an error
_log = logging.getLogger("agent")


class MetadataServer:
    """Errors of every method: Unreachable."""

    def __init__(self, host: Optional[str] = None) -> None:
        self._site = Site("http://" + (host or os.environ.get("GCE_METADATA_HOST") or HOST), TIMEOUT_S)

    def close(self) -> None:
        """Idle connections, that is."""
        self._site.close()

    def text(self, path: str, query: Mapping[str, str] = _NOTHING, timeout_s: float = TIMEOUT_S) -> Tuple[str, str]:
        """(value, ETag) of what lies at `path` below computeMetadata/v1."""
        where = "/computeMetadata/v1/%s%s" % (path, "?" + urlencode(query) if query else "")
        answer = self._site.call("GET", where, headers=_FLAVOR, timeout_s=timeout_s)
        if answer.status != 200:
            raise Unreachable("the metadata server answered %d to %s" % (answer.status, path))
        return answer.body.decode("utf-8", "replace").strip(), answer.headers.get("etag", "")

    def token(self) -> Tuple[str, float]:
        """(access token of the machine's account, seconds it is good for)."""
        text, _ = self.text("instance/service-accounts/default/token")
        return _token_of(text.encode(), "the metadata server's token")


class UserLogin:
    """The login of a person on this computer, as Google's own libraries keep it (Application Default Credentials of the
    type `authorized_user`). A key file of a service account is none: it takes a signature that the standard library
    cannot make."""

    def __init__(self, path: str, url: str = "https://oauth2.googleapis.com") -> None:
        self._path, self._site = path, Site(url, TIMEOUT_S)

    def close(self) -> None:
        """Idle connections, that is."""
        self._site.close()

    def token(self) -> Tuple[str, float]:
        """(access token, seconds it is good for). Unreachable."""
        form = {"grant_type": "refresh_token"}
        try:
            with open(self._path, encoding="utf-8") as file:
                login = json.load(file)
            form.update({name: str(login[name]) for name in ("client_id", "client_secret", "refresh_token")})
        except (OSError, ValueError, KeyError, TypeError):
            raise Unreachable("the login of this computer cannot be read: %s" % self._path) from None
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = self._site.call("POST", "/token", urlencode(form).encode(), kind)
        if answer.status != 200:
            raise Unreachable("the login of this computer is not renewed: %s" % said(answer))
        return _token_of(answer.body, "the answer to the login of this computer")


def login_of_this_computer(environ: Mapping[str, str]) -> Optional[str]:
    """Path of the file that keeps it; None = nobody has logged in."""
    folder = environ.get("CLOUDSDK_CONFIG") or os.path.join(environ.get("HOME", ""), ".config", "gcloud")
    path = os.path.join(folder, "application_default_credentials.json")
    try:
        with open(path, encoding="utf-8") as file:
            return path if json.load(file).get("type") == "authorized_user" else None
    except (OSError, ValueError, AttributeError):
        return None


def _token_of(body: bytes, what: str) -> Tuple[str, float]:
    try:
        data = json.loads(body.decode("utf-8", "replace"))
        return str(data["access_token"]), float(data["expires_in"])
    except (ValueError, KeyError, TypeError):
        raise Unreachable("%s cannot be understood" % what) from None


class TokenSource(Protocol):
    def token(self) -> Tuple[str, float]: ...

    def close(self) -> None: ...


class Account:
    """The account that a machine writes with. Safe to use from every thread."""

    def __init__(self, server: TokenSource, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0

    def token(self) -> str:
        """Unreachable where there is none to be had."""
        with self._lock:
            if not self._token or self._monotonic() >= self._until:
                token, good_for_s = self._server.token()
                self._token, self._until = (token, self._monotonic() + max(good_for_s - RENEW_S, good_for_s / 2))
            return self._token

    def close(self) -> None:
        """Idle connections, that is."""
        self._server.close()

    def refused(self, token: str) -> None:
        """A service would not take this one."""
        with self._lock:
            if token == self._token:
                self._token = ""


def account_for(
    endpoint: str, monotonic: Callable[[], float] = time.monotonic, shares_computer: bool = False
) -> Optional[Account]:
    """None where nobody asks for an account: a stand-in on this very machine. `shares_computer`: with the supervisor,
    so a login of this computer counts."""
    login = login_of_this_computer(os.environ) if shares_computer else None
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


@dataclass(frozen=True)
class Pace:
    """How long and how a call is repeated; `pause` sleeps."""

    retry_for_s: float = RETRY_FOR_S
    pause: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic


class Effort:
    """The repeating of one call. `again` pauses, or gives up by raising Unreachable."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._until = pace.monotonic() + pace.retry_for_s
        self._pause_s = FIRST_PAUSE_S
        self.doubtful = False

    def again(self, why: str, doubtful: bool = True) -> None:
        self.doubtful = self.doubtful or doubtful
        if self._pace.monotonic() >= self._until:
            raise Unreachable(why)
        self._pace.pause(self._pause_s * _scattered(0.5, 1.0))
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def refreshed(self) -> None:
        """It came further: the time for repeating begins anew."""
        self._until = self._pace.monotonic() + self._pace.retry_for_s
        self._pause_s = FIRST_PAUSE_S


class GoogleApi:
    """Safe to use from every thread. Unreachable, with the last reason, from every method."""

    def __init__(self, site: Site, account: Optional[Account], pace: Pace) -> None:
        self._site, self._account, self._pace = site, account, pace

    def close(self) -> None:
        """Idle connections, that is."""
        self._site.close()
        if self._account is not None:
            self._account.close()

    def effort(self) -> Effort:
        return Effort(self._pace)

    def call(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        headers: Mapping[str, str] = _NOTHING,
        effort: Optional[Effort] = None,
    ) -> Answer:
        """Repeated until there is an answer that says something."""
        effort = effort or self.effort()
        while True:
            try:
                answer = self.once(method, path, body, headers)
            except Unreachable as error:
                effort.again(str(error))
                continue
            if not is_passing(answer.status):
                return answer
            effort.again(said(answer), doubtful=may_have_acted(answer.status))

    def once(self, method: str, path: str, body: Body = None, headers: Mapping[str, str] = _NOTHING) -> Answer:
        """Not repeated, but for a token that was refused."""
        with self.open(method, path, body, headers) as stream:
            return Answer(stream.status, stream.headers, b"".join(stream.pieces()))

    def open(self, method: str, path: str, body: Body = None, headers: Mapping[str, str] = _NOTHING) -> Stream:
        for last in (False, True):
            token = None if self._account is None else self._account.token()
            stream = self._site.open(method, path, body, _with(headers, token))
            if stream.status != 401 or token is None or self._account is None:
                return stream
            self._account.refused(token)
            if last or not (body is None or isinstance(body, bytes)):
                return stream
            stream.__exit__()
        raise AssertionError("unreachable")


def said(answer: Answer) -> str:
    """HTTP status and Google's message, as one line."""
    return "HTTP %d: %s" % (answer.status, message_of(answer.body)[:300]) if answer.body else "HTTP %d" % answer.status


def _with(headers: Mapping[str, str], token: Optional[str]) -> Dict[str, str]:
    return dict(headers) if token is None else {**headers, "Authorization": "Bearer " + token}


class TakesNotice(Protocol):
    def give_notice(self, notice_s: float) -> None:
        """The machine is taken away in so many seconds."""
        ...


class PreemptionWatch:
    """`step` is repeated by a thread of its own."""

    def __init__(self, server: MetadataServer, folder: TakesNotice, notice_s: float) -> None:
        self._server, self._folder, self._notice_s = server, folder, notice_s
        self._etag = ""  # of the value that was seen last; "" = none yet
        self._failing = False

    def step(self) -> Optional[float]:
        """Wait for the notice; seconds until the next step, None once it was given."""
        try:
            value = self._look()
        except Unreachable as error:
            if not self._failing:
                _log.warning("the metadata server does not tell of preemptions: %s", error)
            self._failing = True
            return AGAIN_S
        self._failing = False
        if value.upper() != "TRUE":
            return BETWEEN_S if self._etag else AGAIN_S
        self._etag = ""  # should it fail, it is read again, not waited for
        self._folder.give_notice(self._notice_s + SHUTDOWN_S)
        return None

    def _look(self) -> str:
        wait = {"wait_for_change": "true", "last_etag": self._etag, "timeout_sec": "%d" % WAIT_S}
        value, self._etag = self._server.text(PATH, wait, WAIT_S + SPARE_S) if self._etag else self._server.text(PATH)
        return value
