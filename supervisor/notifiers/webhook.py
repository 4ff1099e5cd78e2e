"""The courier of announcements: one POST for each message, in the form that its receiver knows.

Standard Webhooks are signed anew at every try; Slack and Discord get a message for people, for many announcements at
once. An address is a credential (whoever has it can write there), so it stands in no log line and in no error: only its
host does.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from urllib.parse import unquote_plus, urlsplit

from supervisor.notifiers import discord, slack, standard
from supervisor.notifiers.guard import Guard, NoSuchHost, Refused
from supervisor.notifiers.posting import Answered, NoAnswer, post
from supervisor.ports.endpoints import Form
from supervisor.ports.notifier import DeliveryFailed, Notification, Target
from supervisor.wording.figures import clause

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
        headers |= standard.headers(message_id, body, target.secrets, self._wall())
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

    def __init__(
        self, url: str, secret: str = "", sender: str = "", wall: Callable[[], float] = time.time
    ) -> None:
        """ValueError for a `whsec_` that is not base64."""
        if secret:
            standard.signer(secret)
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
        return discord.body(batch, run_page)
    return slack.body(batch, run_page) if form is Form.SLACK else standard.body(batch[0])


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
