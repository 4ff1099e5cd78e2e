"""The courier of announcements: one POST for each message, in the form that its receiver knows.

Standard Webhooks are signed anew at every try; Slack and Discord get a message for people, for many announcements at
once. An address is a credential (whoever has it can write there), so it stands in no log line and in no error: only its
host does.

A POST goes to an address that was judged, within a time for all of it, without redirects, proxies or cookies, and with
little of the answer read. The certificate is compared with the name, whatever address the connection goes to. httpx
bounds each wait by itself, so who sends a byte now and then, or an endless row of headers, would hold a thread for
ever. When time is up the connection is shut, which wakes the reader.
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
from types import TracebackType
from typing import Any
from urllib.parse import unquote_plus, urlsplit

from supervisor.domain.texts import clause
from supervisor.notifiers import forms
from supervisor.notifiers.guard import Guard, NoSuchHost, Refused, Way
from supervisor.ports.notifier import DeliveryFailed, Form, Notification, Target

_OPENED = ("connection.connect_tcp.complete", "connection.start_tls.complete")


class Deadline:
    """`passed`: the time was up, and what the request raised comes from that. Looking up a name is not bounded."""

    def __init__(self, within_s: float) -> None:
        self.within_s = within_s
        self.passed = False
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(within_s, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """httpx's `trace` extension of the request."""
        if event not in _OPENED:
            return
        with self._guard:
            self._socket = info["return_value"].get_extra_info("socket")
            if self.passed:
                self._shut()

    def _cut(self) -> None:
        with self._guard:
            self.passed = True
            self._shut()

    def _shut(self) -> None:
        with suppress(OSError):  # it is closed already
            if self._socket is not None:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not TLS's own, which a reader would miss


CONNECT_S = 5.0
ANSWER_BYTES = 4096  # more of an answer is never read
ADDRESSES = 3  # of one host that are tried, where a connection cannot be made


class NoAnswer(Exception):
    """The text says why and names no address."""


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: Mapping[str, str]  # names in lower case
    said: bytes  # its beginning


@cache
def _certificates() -> ssl.SSLContext:
    """Reading them takes longer than a whole delivery."""
    import httpx

    return httpx.create_ssl_context(trust_env=False)


def post(
    way: Way, body: str, headers: Mapping[str, str], within_s: float, certificates: ssl.SSLContext | None = None
) -> Answered:
    """Raises NoAnswer."""
    import httpx  # a quarter of a second of a start that may never need it

    for noisy in ("httpx", "httpcore"):  # they would log the whole address
        logging.getLogger(noisy).setLevel(logging.WARNING)
    deadline = Deadline(within_s)
    timeout = httpx.Timeout(within_s, connect=min(CONNECT_S, within_s))
    verify = certificates if certificates is not None else _certificates()
    with deadline, httpx.Client(timeout=timeout, trust_env=False, follow_redirects=False, verify=verify) as client:
        try:
            return _first_that_connects(client, way, body, {**headers, "host": way.netloc}, deadline)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            late = deadline.passed or isinstance(error, httpx.TimeoutException)
            raise NoAnswer(f"no answer within {within_s:g} s" if late else _why(error)) from None


def _first_that_connects(client: Any, way: Way, body: str, headers: Mapping[str, str], deadline: Deadline) -> Answered:
    """Raises what httpx raises; what it raises for one address leads to the next only while nothing was sent."""
    import httpx

    addresses = way.addresses[:ADDRESSES]
    extensions = {"trace": deadline.trace, "sni_hostname": way.host}
    for address in addresses:
        url = httpx.URL(way.url).copy_with(host=address)
        try:
            with client.stream("POST", url, content=body, headers=headers, extensions=extensions) as got:
                return Answered(got.status_code, dict(got.headers), _beginning(got, deadline.within_s))
        except (httpx.ConnectError, httpx.ConnectTimeout):
            if address == addresses[-1] or deadline.passed:
                raise
    raise NoAnswer("no such host")


def _beginning(response: Any, within_s: float) -> bytes:
    """A body that breaks off or takes too long changes nothing: its status is known."""
    import httpx

    until, found = time.monotonic() + within_s, b""
    with suppress(httpx.HTTPError):
        for piece in response.iter_raw():
            found += piece
            if len(found) >= ANSWER_BYTES or time.monotonic() > until:
                break
    return found[:ANSWER_BYTES]


def _why(error: Exception) -> str:
    """Never the error's own text, which may hold the address."""
    causes: list[BaseException] = [error]
    while (below := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(below)
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "no such host"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "connection refused"
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return "its certificate is not valid for this name"
    return f"no answer: {type(error).__name__}"


ANSWER_S = 15.0
RETRY_MAX_S = 8 * 3600.0
HIDDEN_FROM = 4  # characters: a part of the address that is this long is repeated nowhere
GONE = (404, 410)  # the receiver says that nobody lives there any more
TEST = "test"  # the kind of a message that tells nothing
TEST_TEXT = "Test of the Spot Supervisor: alerts arrive here."
DISCORD = ("discord.com", "discordapp.com")
SLACK = ("hooks.slack.com", "hooks.slack-gov.com")


def form_of(url: str) -> Form:
    """What the receiver at this address understands."""
    host = (urlsplit(url).hostname or "").lower()
    if host in SLACK:
        return Form.SLACK
    if host in DISCORD or host.endswith(tuple(f".{name}" for name in DISCORD)):
        return Form.DISCORD
    return Form.STANDARD


class WebhookCourier:
    """`sender` makes the ids of two supervisors differ. `certificates` None: those that everybody trusts. `run_page`:
    where the page of a run lies, before its id; "" = messages to people have no links."""

    def __init__(
        self,
        sender: str = "",
        guard: Guard | None = None,
        wall: Callable[[], float] = time.time,
        certificates: ssl.SSLContext | None = None,
        run_page: str = "",
    ) -> None:
        self._run_page = run_page
        self._sender, self._wall, self._certificates = sender, wall, certificates
        self._guard = Guard() if guard is None else guard

    def form_of(self, url: str) -> Form:
        return form_of(url)

    def why_refused(self, url: str) -> str:
        return self._guard.why_refused(url)

    def send(self, target: Target, batch: Sequence[Notification]) -> int:
        return self._post(target, self._id(batch[0].event_id), batch, ANSWER_S)

    def send_test(self, target: Target, now: float, timeout_s: float = ANSWER_S) -> int:
        """Whatever became of the messages before it."""
        notification = Notification(0, 0, "", TEST, TEST_TEXT, now, {})
        return self._post(target, self._id(f"test_{int(now * 1000)}"), [notification], timeout_s)

    def _id(self, number: object) -> str:
        return f"evt_{self._sender}_{number}" if self._sender else f"evt_{number}"

    def _post(self, target: Target, message_id: str, batch: Sequence[Notification], within_s: float) -> int:
        host = (urlsplit(target.url).hostname or "").lower()
        body = body_of(target.form, batch, self._run_page)
        headers = {"content-type": "application/json", "user-agent": "spot-supervisor"}
        headers |= forms.standard_headers(message_id, body, target.secrets, self._wall())
        try:
            way = self._guard.way(target.url, target.trusted)
            answered = post(way, body, headers, within_s, self._certificates)
        except Refused as error:
            raise DeliveryFailed(f"the address may not be used: {error} ({host})") from None
        except NoSuchHost:
            raise DeliveryFailed(f"no such host ({host})") from None
        except NoAnswer as error:
            raise DeliveryFailed(f"{error} ({host})") from None
        self._judge(answered, target, host)
        return answered.status

    def _judge(self, answered: Answered, target: Target, host: str) -> None:
        """2xx is delivered, nothing else. Raises DeliveryFailed."""
        status = answered.status
        if 200 <= status < 300:
            return
        text = f"HTTP {status} from {host}"
        if 300 <= status < 400:
            text += ": it leads elsewhere, and no redirect is followed"
            raise DeliveryFailed(text, permanent=True, status=status)
        if status in GONE:
            text += ": nobody takes messages at this address"
            # A server may lose a path for an hour; Slack and Discord mean it.
            gone = status == 410 or target.form.chat
            raise DeliveryFailed(text, permanent=True, status=status, gone=gone)
        if answered.said and status < 500:
            text += f": {clause(_plain(answered.said, _parts_of(target.url)))}"
        after_s = _retry_after_s(answered.headers.get("retry-after", ""), self._wall())
        raise DeliveryFailed(text, after_s, status=status)


class WebhookNotifier:
    """One receiver that the settings name, as the doctor tries it. `secret` "" = not signed."""

    name = "webhooks"

    def __init__(self, url: str, secret: str = "", sender: str = "", wall: Callable[[], float] = time.time) -> None:
        """ValueError for a `whsec_` that is not base64."""
        if secret:
            forms.signer(secret)
        self.target = Target(url, form_of(url), (secret,) if secret else (), trusted=True)
        self._courier = WebhookCourier(sender, wall=wall)

    def send(self, notification: Notification) -> None:
        """Raises DeliveryFailed; its text names the host and never the address."""
        self._courier.send(self.target, [notification])

    def send_test(self, now: float, timeout_s: float = ANSWER_S) -> None:
        """One message that tells a person that the way is open. Raises DeliveryFailed."""
        self._courier.send_test(self.target, now, timeout_s)


def body_of(form: Form, batch: Sequence[Notification], run_page: str = "") -> str:
    if form is Form.DISCORD:
        return forms.discord_body(batch, run_page)
    return forms.slack_body(batch, run_page) if form is Form.SLACK else forms.standard_body(batch[0])


def _parts_of(url: str) -> list[str]:
    """What an answer may repeat of the address, as it stands there and as it is meant; the longest first."""
    address = urlsplit(url)
    parts = re.findall(f"[^/?&=;#]{{{HIDDEN_FROM},}}", f"{address.path}?{address.query}")
    return sorted({*parts, *(unquote_plus(part) for part in parts)}, key=len, reverse=True)


def _plain(said: bytes, hidden: list[str]) -> str:
    """A receiver that complains of a wrong token may repeat it."""
    text = said.decode("utf-8", "replace")
    for part in hidden:
        text = text.replace(part, "***")
    text = text[:200]
    return "".join(char if char.isprintable() else " " for char in text).strip()


def _retry_after_s(text: str, now: float) -> float | None:
    """Seconds, or a date (RFC 9110 section 10.2.3); None where there is none that can be read."""
    try:
        wait_s = float(text) if text.isdigit() else parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(wait_s, 0.0), RETRY_MAX_S)
