"""The courier of announcements: one POST for each message, in the form that its receiver understands.

A standard message is signed again at every try; Slack and Discord get one message for many announcements. The address
is a credential (its holder can write there), so no log line and no error contains it: only its host.

A POST goes to an address that the guard has checked, without redirects, proxies or cookies; the certificate is compared
with the name. httpx limits each wait, not their sum: a receiver that sends a byte now and then would occupy a thread
without end. So at the deadline the connection is shut down, which wakes the reader. Only the beginning of the response
is read.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import unquote_plus, urlsplit

from supervisor.domain.texts import clause
from supervisor.notifiers import forms
from supervisor.notifiers.guard import Guard, NoSuchHost, Refused, Way
from supervisor.ports.notifier import DeliveryFailed, Form, Notification, Target

RESPONSE_S = 15.0
CONNECT_S = 5.0
RESPONSE_BYTES = 4096  # no more of a response is read
ADDRESSES = 3  # of one host that are tried, where no connection can be made
RETRY_MAX_S = 8 * 3600.0
HIDDEN_FROM = 4  # characters: a part of the address that is this long is never repeated
GONE = (404, 410)  # the receiver no longer exists
TEST = "test"  # the kind of a test message
TEST_TEXT = "Test of the Spot Supervisor: alerts arrive here."
DISCORD = (".discord.com", ".discordapp.com")
SLACK = ("hooks.slack.com", "hooks.slack-gov.com")
_OPENED = ("connection.connect_tcp.complete", "connection.start_tls.complete")


def form_of(url: str) -> Form:
    """What the receiver at this address understands."""
    host = _host(url)
    if host in SLACK:
        return Form.SLACK
    return Form.DISCORD if f".{host}".endswith(DISCORD) else Form.STANDARD


class WebhookCourier:
    """`sender` makes the message ids of two supervisors differ. `certificates` None: the usual authorities. `run_page`:
    the address of a run's page, without the id at its end; "" = messages to people have no links."""

    def __init__(
        self,
        sender: str = "",
        guard: Guard | None = None,
        wall: Callable[[], float] = time.time,
        certificates: ssl.SSLContext | None = None,
        run_page: str = "",
    ) -> None:
        self._sender, self._wall, self._certificates, self._run_page = sender, wall, certificates, run_page
        self._guard = Guard() if guard is None else guard

    def form_of(self, url: str) -> Form:
        return form_of(url)

    def why_refused(self, url: str) -> str:
        return self._guard.why_refused(url)

    def send(self, target: Target, batch: Sequence[Notification]) -> int:
        return self._post(target, str(batch[0].event_id), batch, RESPONSE_S)

    def send_test(self, target: Target, now: float, timeout_s: float = RESPONSE_S) -> int:
        """Does not depend on the result of earlier messages."""
        notification = Notification(0, 0, "", TEST, TEST_TEXT, now, {})
        return self._post(target, f"test_{int(now * 1000)}", [notification], timeout_s)

    def _post(self, target: Target, number: str, batch: Sequence[Notification], within_s: float) -> int:
        host = _host(target.url)
        body = forms.body_of(target.form, batch, self._run_page)
        headers = {"content-type": "application/json", "user-agent": "spot-supervisor"}
        message_id = "_".join(filter(None, ("evt", self._sender, number)))
        headers |= forms.standard_headers(message_id, body, target.secrets, self._wall())
        try:
            way = self._guard.way(target.url, target.trusted)
            answered = post(way, body, headers, within_s, self._certificates)
        except Refused as error:
            raise DeliveryFailed(f"the address cannot be used: {error} ({host})") from None
        except (NoSuchHost, NoResponse) as error:
            raise DeliveryFailed(f"{error} ({host})") from None
        self._judge(answered, target, host)
        return answered.status

    def _judge(self, answered: Answered, target: Target, host: str) -> None:
        """Only 2xx means delivered. Raises DeliveryFailed."""
        status = answered.status
        if 200 <= status < 300:
            return
        text = f"HTTP {status} from {host}"
        if 300 <= status < 400:
            raise DeliveryFailed(f"{text}: redirects are not followed", permanent=True, status=status)
        if status in GONE:
            # A server may lose a path for an hour; Slack and Discord mean it.
            gone = status == 410 or target.form.chat
            text += ": there is no receiver at this address"
            raise DeliveryFailed(text, permanent=True, status=status, gone=gone)
        if answered.said and status < 500:
            text += f": {clause(_plain(answered.said, _parts_of(target.url)))}"
        after_s = _retry_after_s(answered.headers.get("retry-after", ""), self._wall())
        raise DeliveryFailed(text, after_s, status=status)


class WebhookNotifier:
    """The one receiver that the settings name, for the doctor's test. `secret` "" = not signed."""

    name = "webhooks"

    def __init__(self, url: str, secret: str = "", sender: str = "", wall: Callable[[], float] = time.time) -> None:
        """Raises ValueError for a `whsec_` that is not base64."""
        if secret:
            forms.signer(secret)
        self.target = Target(url, form_of(url), (secret,) if secret else (), trusted=True)
        self._courier = WebhookCourier(sender, wall=wall)

    def send(self, notification: Notification) -> None:
        """Raises DeliveryFailed; its text names the host, never the address."""
        self._courier.send(self.target, [notification])

    def send_test(self, now: float, timeout_s: float = RESPONSE_S) -> None:
        """One message that tells a person that alerts arrive. Raises DeliveryFailed."""
        self._courier.send_test(self.target, now, timeout_s)


class NoResponse(Exception):
    """The text says why, and does not contain the address."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The response of a receiver. `said`: the beginning of its body."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    said: bytes


def post(
    way: Way, body: str, headers: Mapping[str, str], within_s: float, certificates: ssl.SSLContext | None = None
) -> Answered:
    """Raises NoResponse."""
    import httpx  # takes a quarter of a second, and a start may never need it

    for noisy in ("httpx", "httpcore"):  # they would log the whole address
        logging.getLogger(noisy).setLevel(logging.WARNING)
    timeout = httpx.Timeout(within_s, connect=min(CONNECT_S, within_s))
    client = httpx.Client(
        timeout=timeout, trust_env=False, follow_redirects=False, verify=certificates or _certificates()
    )
    with Deadline(within_s) as deadline, client:
        try:
            return _first_that_connects(client, way, body, {**headers, "host": way.netloc}, deadline)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            late = deadline.passed or isinstance(error, httpx.TimeoutException)
            raise NoResponse(f"no response within {within_s:g} s" if late else _why(error)) from None


@cache
def _certificates() -> ssl.SSLContext:
    """Kept: reading them takes longer than a whole delivery."""
    import httpx

    return httpx.create_ssl_context(trust_env=False)


class Deadline:
    """Shuts the connection down after `within_s` seconds. `passed`: that has happened, and explains the error of the
    request. A name lookup is not limited."""

    def __init__(self, within_s: float) -> None:
        self.within_s = within_s
        self.passed = False
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(within_s, self._pass)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """For the `trace` extension of httpx."""
        if event in _OPENED:
            with self._guard:
                self._socket = info["return_value"].get_extra_info("socket")
                if self.passed:
                    self._shut()

    def _pass(self) -> None:
        with self._guard:
            self.passed = True
            self._shut()

    def _shut(self) -> None:
        with suppress(OSError):  # it is closed already
            if self._socket is not None:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # TLS's own shutdown does not wake a reader


def _first_that_connects(client: Any, way: Way, body: str, headers: Mapping[str, str], deadline: Deadline) -> Answered:
    """Raises the errors of httpx. The next address is tried only while nothing has been sent."""
    import httpx

    extensions = {"trace": deadline.trace, "sni_hostname": way.host}
    addresses = way.addresses[:ADDRESSES]
    for address in addresses:
        url = httpx.URL(way.url).copy_with(host=address)
        try:
            with client.stream("POST", url, content=body, headers=headers, extensions=extensions) as response:
                said = _beginning(response, deadline.within_s)
                return Answered(response.status_code, dict(response.headers), said)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            if address == addresses[-1] or deadline.passed:
                raise
    raise NoSuchHost


def _beginning(response: Any, within_s: float) -> bytes:
    """A body that breaks off or takes too long changes nothing: its status is known."""
    import httpx

    until, said = time.monotonic() + within_s, b""
    with suppress(httpx.HTTPError):
        for piece in response.iter_raw():
            said += piece
            if len(said) >= RESPONSE_BYTES or time.monotonic() > until:
                break
    return said[:RESPONSE_BYTES]


def _why(error: Exception) -> str:
    """Never the error's own text, which may contain the address."""
    causes: list[BaseException] = [error]
    while (below := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(below)
    words = {
        socket.gaierror: "no such host",
        ConnectionRefusedError: "connection refused",
        ssl.SSLCertVerificationError: "its certificate is not valid for this name",
    }
    fitting = (text for kind, text in words.items() if any(isinstance(cause, kind) for cause in causes))
    return next(fitting, f"no response: {type(error).__name__}")


def _host(url: str) -> str:
    return (urlsplit(url).hostname or "").lower()


def _parts_of(url: str) -> list[str]:
    """The parts of the address that a response may repeat, as written and decoded; the longest first."""
    address = urlsplit(url)
    parts = re.findall(f"[^/?&=;#]{{{HIDDEN_FROM},}}", f"{address.path}?{address.query}")
    return sorted({*parts, *map(unquote_plus, parts)}, key=len, reverse=True)


def _plain(said: bytes, hidden: list[str]) -> str:
    """A receiver that complains about a wrong token may repeat it."""
    text = said.decode("utf-8", "replace")
    for part in hidden:
        text = text.replace(part, "***")
    return "".join(char if char.isprintable() else " " for char in text[:200]).strip()


def _retry_after_s(text: str, now: float) -> float | None:
    """Seconds, or a date (RFC 9110 section 10.2.3); None where neither can be read."""
    try:
        wait_s = float(text) if text.isdigit() else parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(wait_s, 0.0), RETRY_MAX_S)
