"""The log notifier, the webhook, and the one that tests read."""

import base64
import io
import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from standardwebhooks import Webhook

from supervisor.notifiers.log import LogNotifier
from supervisor.notifiers.webhook import WebhookNotifier
from supervisor.ports.notifier import DeliveryFailed, Notification
from supervisor.telemetry import logs as telemetry
from tests.cloud.web import Request, Response, WebServer
from tests.contracts.notifier_suite import FIRST, SECOND, Inbox, NotifierContract
from tests.fakes.notifier import FakeNotifier


class LogInbox(Inbox):
    """Reads the very lines that a log collector would."""

    def __init__(self) -> None:
        self.notifier = LogNotifier()
        self.lines = io.StringIO()

    def received(self) -> Sequence[tuple[int, str, str]]:
        lines = [json.loads(line) for line in self.lines.getvalue().splitlines()]
        assert {line["action"] for line in lines} <= {"notify"}
        return [(line["event_id"], line.get("run_id", ""), line["message"]) for line in lines]


class TestLogNotifier(NotifierContract):
    @pytest.fixture
    def inbox(self) -> Iterator[LogInbox]:
        inbox = LogInbox()
        handler = logging.StreamHandler(inbox.lines)
        handler.setFormatter(telemetry.JsonFormatter())
        logger = logging.getLogger("supervisor.notifiers.log")
        level, logger.level = logger.level, logging.INFO
        logger.addHandler(handler)
        yield inbox
        logger.removeHandler(handler)
        logger.level = level

    def test_the_line_says_which_kind_of_event_it_was(self, inbox: LogInbox) -> None:
        inbox.notifier.send(FIRST)
        line = json.loads(inbox.lines.getvalue())
        assert (line["event"], line["sequence"], line["level"]) == ("recovered", 1, "info")


class FakeInbox(Inbox):
    def __init__(self) -> None:
        self.notifier = FakeNotifier()

    def received(self) -> Sequence[tuple[int, str, str]]:
        return [(n.event_id, n.run_id, n.text) for n in self.notifier.sent]


class TestFakeNotifier(NotifierContract):
    @pytest.fixture
    def inbox(self) -> FakeInbox:
        return FakeInbox()

    def test_it_fails_as_often_as_it_was_told_to(self, inbox: FakeInbox) -> None:
        inbox.notifier.fail(times=2, retry_after_s=30.0)
        for _ in range(2):
            with pytest.raises(DeliveryFailed) as refused:
                inbox.notifier.send(FIRST)
            assert (refused.value.retry_after_s, refused.value.permanent) == (30.0, False)
        inbox.notifier.send(SECOND)
        assert [n.event_id for n in inbox.notifier.sent] == [8]
        assert inbox.notifier.attempts == 3


class NewIdEachTime(FakeNotifier):
    """Broken: a repeat looks like news."""

    def send(self, notification: Notification) -> None:
        self.sent.append(Notification(len(self.sent) + 7, 1, "", "", notification.text, 0.0, {}))


class Formats(FakeNotifier):
    """Broken: the text is taken for a format."""

    def send(self, notification: Notification) -> None:
        text = notification.text % {"not": "?"} if "%(" in notification.text else notification.text
        self.sent.append(Notification(notification.event_id, 1, notification.run_id, "", text, 0.0, {}))


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (NewIdEachTime, NotifierContract.test_sending_twice_is_harmless_and_carries_the_same_id),
        (Formats, NotifierContract.test_percent_signs_and_line_breaks_are_text),
    ],
)
def test_a_broken_notifier_is_caught(broken: type[FakeNotifier], promise: object) -> None:
    inbox = FakeInbox()
    inbox.notifier = broken()
    with pytest.raises((AssertionError, TypeError)):
        promise(NotifierContract(), inbox)


SECRET = "whsec_" + base64.b64encode(b"thirty-two bytes of a test secret").decode()


class Receiver(Inbox):
    """Takes a message only when the official library verifies it."""

    def __init__(self) -> None:
        self.verified: list[tuple[str, Any]] = []
        self.server = WebServer(self._answer)
        self.notifier = WebhookNotifier(self.server.url + "/hook", SECRET, "me")

    def _answer(self, request: Request) -> Response:
        told = Webhook(SECRET).verify(request.body, dict(request.headers))
        self.verified.append((request.headers["webhook-id"], told))
        return Response(204)

    def received(self) -> Sequence[tuple[int, str, str]]:
        for message_id, told in self.verified:
            assert message_id == f"evt_me_{told['data']['event_id']}"
        bodies = [told["data"] for _, told in self.verified]
        return [(data["event_id"], data["run_id"] or "", data["text"]) for data in bodies]


class TestWebhookNotifier(NotifierContract):
    @pytest.fixture
    def inbox(self) -> Iterator[Receiver]:
        inbox = Receiver()
        yield inbox
        inbox.server.close()
