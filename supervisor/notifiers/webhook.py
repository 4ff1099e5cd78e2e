"""Announcements as webhooks: one POST each, in the form of Standard Webhooks 1.0, signed where a secret is set.

Discord and Slack do not know that form: at their addresses the sentence is sent as their own message. The address is a
credential (whoever has it can write there), so it stands in no log line and in no error; httpx, which would log it, is
told to be quiet. What does not answer rests for a while: a dead receiver must not hold back the other channels.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote_plus, urlsplit

from supervisor.notifiers.deadline import Deadline
from supervisor.ports.notifier import DeliveryFailed, Notification

CONNECT_S, ANSWER_S = 5.0, 15.0
ANSWER_BYTES = 4096  # more of an answer is never read
BODY_BYTES = 20_000  # Standard Webhooks asks for less than 20 KB
REST_S = 30.0  # after no answer at all
RETRY_MAX_S = 8 * 3600.0
HIDDEN_FROM = 4  # characters: a part of the address that is this long is repeated nowhere
TEXT_MAX = 1900  # Discord takes 2000 characters of content
GONE = (404, 410)  # the receiver says that nobody lives there any more
TEST = "test"  # the kind of a message that tells nothing
BASE64 = "whsec_"  # what a secret begins with that goes on in base64
DISCORD = ("discord.com", "discordapp.com")
SLACK = ("hooks.slack.com", "hooks.slack-gov.com")


class WebhookNotifier:
    """`secret`: "" = not signed; `whsec_…` as Standard Webhooks writes it; any other text is the key itself, in UTF-8.
    `sender` makes the ids of two supervisors differ. One thread at a time."""

    name = "alerts"

    def __init__(
        self,
        url: str,
        secret: str = "",
        sender: str = "",
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """ValueError for a `whsec_` that is not base64."""
        self._url, self._sender = url, sender
        self.host = (urlsplit(url).hostname or "").lower()  # all of the address that may be shown
        self._hidden = _parts_of(url)
        self._signer = _signer(secret)
        self._monotonic, self._wall = monotonic, wall
        self._rests_until = 0.0

    def send(self, notification: Notification) -> None:
        """Raises DeliveryFailed; its text names the host and never the address."""
        if self._monotonic() < self._rests_until:
            raise DeliveryFailed(f"{self.host} did not answer a moment ago; it is left alone for a while")
        self._post(self._id(notification.event_id), _body(self.host, notification), ANSWER_S)

    def send_test(self, now: float, timeout_s: float = ANSWER_S) -> None:
        """One message that tells a person that the way is open, whatever happened before. Raises DeliveryFailed."""
        text = "Test of the Spot Supervisor: alerts arrive here."
        notification = Notification(0, 0, "", TEST, text, now, {})
        self._post(self._id(f"test_{int(now * 1000)}"), _body(self.host, notification), timeout_s)

    def _id(self, number: object) -> str:
        return f"evt_{self._sender}_{number}" if self._sender else f"evt_{number}"

    def _post(self, message_id: str, body: str, within_s: float) -> None:
        import httpx  # a quarter of a second of a start that may never need it

        for noisy in ("httpx", "httpcore"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        timeout = httpx.Timeout(within_s, connect=min(CONNECT_S, within_s))
        headers, deadline = self._headers(message_id, body), Deadline(within_s)
        try:
            with (
                deadline,
                httpx.Client(timeout=timeout, trust_env=False, follow_redirects=False) as client,
                client.stream(
                    "POST", self._url, content=body, headers=headers, extensions={"trace": deadline.trace}
                ) as got,
            ):
                said = self._read(got, within_s)
                status, answered = got.status_code, dict(got.headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self._rests_until = self._monotonic() + REST_S
            why = _why(httpx.ReadTimeout("") if deadline.passed else error, within_s)
            raise DeliveryFailed(f"{why} ({self.host})") from None
        self._judge(status, answered, said)

    def _headers(self, message_id: str, body: str) -> dict[str, str]:
        at = datetime.fromtimestamp(int(self._wall()), UTC)
        headers = {
            "content-type": "application/json",
            "webhook-id": message_id,
            "user-agent": "spot-supervisor",
        }
        headers["webhook-timestamp"] = str(int(at.timestamp()))
        if self._signer is not None:
            headers["webhook-signature"] = self._signer.sign(msg_id=message_id, timestamp=at, data=body)
        return headers

    def _read(self, response: Any, within_s: float) -> bytes:
        """The beginning of the answer, within the time that an answer may take; a body that breaks off changes nothing,
        its status is known."""
        import httpx

        until, found = self._monotonic() + within_s, b""
        with suppress(httpx.HTTPError):
            for piece in response.iter_raw():
                found += piece
                if len(found) >= ANSWER_BYTES or self._monotonic() > until:
                    break
        return found[:ANSWER_BYTES]

    def _judge(self, status: int, headers: dict[str, str], said: bytes) -> None:
        """2xx is delivered, nothing else. Raises DeliveryFailed."""
        if 200 <= status < 300:
            return
        text = f"HTTP {status} from {self.host}"
        if 300 <= status < 400:
            text += ": it leads elsewhere, and no redirect is followed"
            raise DeliveryFailed(text, permanent=True, status=status)
        if status in GONE:
            text += ": nobody takes messages at this address"
            raise DeliveryFailed(text, permanent=True, status=status)
        if said and status < 500:
            text += f": {_plain(said, self._hidden)}"
        after_s = _retry_after_s(headers.get("retry-after", ""), self._wall())
        raise DeliveryFailed(text, after_s, status=status)


def _why(error: Exception, within_s: float) -> str:
    """Never the error's own text, which may hold the address."""
    causes: list[BaseException] = [error]
    while (below := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(below)
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "no such host"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "connection refused"
    if "Timeout" in type(error).__name__:
        return f"no answer within {within_s:g} s"
    return f"no answer: {type(error).__name__}"


def _signer(secret: str) -> Any:
    """None = nothing is signed."""
    if not secret:
        return None
    from standardwebhooks import Webhook
    from standardwebhooks.webhooks import EmptyWebhookSecretError

    try:
        return Webhook(secret if secret.startswith(BASE64) else secret.encode())
    except (ValueError, EmptyWebhookSecretError):
        raise ValueError("a secret that begins with whsec_ goes on in base64") from None


def _body(host: str, notification: Notification) -> str:
    if host.endswith(tuple(f".{name}" for name in DISCORD)) or host in DISCORD:
        # A run's name must ping nobody.
        return json.dumps({"content": _sentence(notification), "allowed_mentions": {"parse": []}})
    if host in SLACK:
        escaped = _sentence(notification).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return json.dumps({"text": escaped})
    body = json.dumps(_standard(notification, dict(notification.data)))
    return body if len(body.encode()) < BODY_BYTES else json.dumps(_standard(notification, {}))


def _standard(notification: Notification, more: dict[str, object]) -> dict[str, object]:
    at = (
        datetime.fromtimestamp(notification.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
    return {
        "type": f"run.{notification.kind}" if notification.run_id else f"supervisor.{notification.kind}",
        "timestamp": at,
        "data": {
            "run_id": notification.run_id or None,
            "kind": notification.kind,
            "text": notification.text[:TEXT_MAX],
            "sequence": notification.sequence,
            "event_id": notification.event_id,
            "details": more,
        },
    }


def _sentence(notification: Notification) -> str:
    name = f"{notification.run_id}: " if notification.run_id else ""
    return (name + notification.text)[:TEXT_MAX]


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
