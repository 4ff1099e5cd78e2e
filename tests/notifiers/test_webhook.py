"""The webhook: the message for each receiver, which responses end the tries, and that no secret leaks."""

from __future__ import annotations

import io
import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from supervisor.notifiers import forms, webhook
from supervisor.notifiers.webhook import WebhookCourier, WebhookNotifier
from supervisor.ports.notifier import DeliveryFailed, Form, Notification, Target
from tests.cloud.web import Request, Response, WebServer

TOLD = Notification(7, 3, "digits-7", "failed", "The command <exited> with 1.", 1_800_000_000.25, {"step": 12})


class Receiver:
    def __init__(self) -> None:
        self.answer = Response(204)
        self.requests: list[Request] = []
        self.server = WebServer(self._take)

    def _take(self, request: Request) -> Response:
        self.requests.append(request)
        return self.answer

    @property
    def url(self) -> str:
        return self.server.url + "/hook/hunter2?wait=true"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.close()


def refusal(receiver: Receiver, answer: Response) -> DeliveryFailed:
    receiver.answer = answer
    with pytest.raises(DeliveryFailed) as caught:
        WebhookNotifier(receiver.url).send(TOLD)
    assert "hunter2" not in str(caught.value)
    return caught.value


def test_a_receiver_of_standard_webhooks_gets_the_facts(receiver: Receiver) -> None:
    WebhookNotifier(receiver.url, "any old text").send(TOLD)
    (request,) = receiver.requests
    told = Webhook(b"any old text").verify(request.body, dict(request.headers))
    assert (told["type"], told["timestamp"]) == ("run.failed", "2027-01-15T08:00:00.250Z")
    assert told["data"] == {
        "run_id": "digits-7", "kind": "failed", "text": f"digits-7: {TOLD.text}", "sequence": 3, "event_id": 7,
        "details": {"step": 12},
    }  # fmt: skip
    assert request.path == "/hook/hunter2"
    assert request.one("wait") == "true"


def test_no_message_holds_hidden_characters() -> None:
    hidden = "\u202egnp.exe \x9b31m \x1b[2J"
    said = replace(TOLD, text=hidden, data={"status_text": hidden, hidden: [hidden, {"deep": hidden}], "n": 1})
    for form in Form:
        text = str(json.loads(forms.body_of(form, [said])))
        assert not any(char in text for char in ("\u202e", "\x9b", "\x1b", "\\u202e", "\\x9b", "\\x1b")), form
        assert "gnp.exe" in text


def test_no_proxy_of_the_environment_comes_between(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would look the name up by itself, behind the guard."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    WebhookNotifier(receiver.url).send(TOLD)
    assert len(receiver.requests) == 1


def test_without_a_secret_nothing_is_signed(receiver: Receiver) -> None:
    WebhookNotifier(receiver.url).send(TOLD)
    assert "webhook-signature" not in receiver.requests[0].headers


def test_details_that_are_too_large_are_left_out(receiver: Receiver) -> None:
    WebhookNotifier(receiver.url).send(replace(TOLD, data={"log": "x" * 30_000}))
    body = receiver.requests[0].body
    assert len(body) < 20_000
    assert json.loads(body)["data"]["details"] == {}


@pytest.mark.parametrize(
    ("host", "form"),
    [
        ("discord.com", Form.DISCORD),
        ("canary.discord.com", Form.DISCORD),
        ("discordapp.com", Form.DISCORD),
        ("hooks.slack.com", Form.SLACK),
        ("notdiscord.com", Form.STANDARD),
        ("hooks.slack.com.example.org", Form.STANDARD),
    ],
)
def test_the_host_tells_which_form_its_receiver_knows(host: str, form: Form) -> None:
    assert webhook.form_of(f"https://{host}/x") is form


def test_discord_gets_a_message_that_pings_nobody() -> None:
    told = json.loads(forms.body_of(Form.DISCORD, [TOLD, TOLD]))
    assert told["allowed_mentions"] == {"parse": []}
    assert "digits-7" in str(told)


def test_slack_gets_a_text_in_which_a_name_forms_no_mention() -> None:
    told = forms.body_of(Form.SLACK, [replace(TOLD, text="<!channel> & all")])
    assert "<!channel>" not in told
    assert "&lt;!channel&gt; &amp; all" in told


@pytest.mark.parametrize(
    ("status", "permanent"), [(410, True), (404, True), (302, True), (400, False), (500, False), (503, False)]
)
def test_only_success_is_delivered(receiver: Receiver, status: int, permanent: bool) -> None:
    failed = refusal(receiver, Response(status, b"no", {"Location": "/elsewhere"}))
    assert (failed.permanent, failed.retry_after_s) == (permanent, None)
    assert str(failed).startswith(f"HTTP {status} from 127.0.0.1")
    assert failed.status == status
    assert len(receiver.requests) == 1, "a redirect is not followed"


def test_retry_after_is_kept_to_in_seconds_and_as_a_date(receiver: Receiver) -> None:
    assert refusal(receiver, Response(429, b"", {"Retry-After": "120"})).retry_after_s == 120.0
    late = refusal(receiver, Response(429, b"", {"Retry-After": "Fri, 31 Dec 2100 00:00:00 GMT"}))
    assert late.retry_after_s == webhook.RETRY_MAX_S
    assert refusal(receiver, Response(429, b"", {"Retry-After": "soon"})).retry_after_s is None


def test_of_a_long_answer_only_the_beginning_is_told(receiver: Receiver) -> None:
    failed = refusal(receiver, Response(400, b"\x1b[31m" + b"y" * 5_000_000))
    assert len(str(failed)) < 300
    assert str(failed).isprintable()


def test_of_an_answer_without_end_no_more_is_read() -> None:
    class Endless:
        read = 0

        def iter_raw(self) -> Iterator[bytes]:
            while self.read < 100 * webhook.RESPONSE_BYTES:
                self.read += 1000
                yield b"y" * 1000

    endless = Endless()
    assert webhook._beginning(endless, 60.0) == b"y" * webhook.RESPONSE_BYTES
    assert endless.read < webhook.RESPONSE_BYTES + 1000


def test_a_refused_connection_says_so_and_no_more() -> None:
    with socket.socket() as nobody:  # bound and not listening: connections are refused
        nobody.bind(("127.0.0.1", 0))
        notifier = WebhookNotifier("http://127.0.0.1:%d/hunter2" % nobody.getsockname()[1])
        with pytest.raises(DeliveryFailed, match=r"^connection refused \(127\.0\.0\.1\)$"):
            notifier.send(TOLD)


def test_a_test_message_says_that_it_is_one(receiver: Receiver) -> None:
    WebhookNotifier(receiver.url, "s", "me").send_test(1_800_000_000.0, 2.0)
    told: Any = Webhook(b"s").verify(receiver.requests[0].body, dict(receiver.requests[0].headers))
    assert (told["type"], told["data"]["run_id"]) == ("supervisor.test", None)


def test_while_a_secret_is_replaced_both_sign(receiver: Receiver) -> None:
    """A receiver with either secret accepts the message; a receiver with a third one does not."""
    target = Target(receiver.url, Form.STANDARD, ("new", "old"), trusted=True)
    assert WebhookCourier("me").send(target, [TOLD]) == 204
    (request,) = receiver.requests
    for known in (b"new", b"old"):
        Webhook(known).verify(request.body, dict(request.headers))
    with pytest.raises(WebhookVerificationError):
        Webhook(b"third").verify(request.body, dict(request.headers))


@pytest.mark.parametrize("form", [Form.SLACK, Form.DISCORD])
def test_a_message_to_people_links_to_its_run_where_that_is_known(receiver: Receiver, form: Form) -> None:
    target, page = Target(receiver.url, form, trusted=True), "https://spot.example/ui/runs/"
    WebhookCourier(run_page=page).send(target, [TOLD])
    WebhookCourier().send(target, [TOLD])
    linked, plain = [request.body.decode() for request in receiver.requests]
    assert f"<{page}{TOLD.run_id}" in linked
    assert "/ui/runs/" not in plain


def test_only_410_says_for_good_that_a_receiver_is_gone(receiver: Receiver) -> None:
    assert refusal(receiver, Response(410)).gone
    assert not refusal(receiver, Response(404)).gone
    chat = Target(receiver.url, Form.SLACK, trusted=True)
    receiver.answer = Response(404)
    with pytest.raises(DeliveryFailed) as caught:
        WebhookCourier().send(chat, [TOLD])
    assert caught.value.gone


def test_a_receiver_that_repeats_the_address_does_not_get_it_into_our_history(receiver: Receiver) -> None:
    said = b'{"error": "no hook hunter2 at /hook/hunter2?wait=true"}'
    assert str(refusal(receiver, Response(400, said))).endswith('no *** *** at /***/***?***=***"}')
    assert "hunter" not in str(refusal(receiver, Response(400, b"x" * 195 + b"hunter2"))), "nor half of it"


@pytest.mark.parametrize("drop", [b"X: y\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_who_answers_a_little_for_ever_holds_nobody_up(drop: bytes) -> None:
    first = b"" if drop.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n"
    late = pytest.raises(DeliveryFailed, match=r"^no response within 0\.3 s \(127\.0\.0\.1\)$")
    with dripping(first, drop) as url, late:
        WebhookNotifier(url).send_test(1_800_000_000.0, 0.3)


def test_a_message_that_was_taken_is_delivered_however_slow_the_rest_of_the_answer_is() -> None:
    with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x") as url:
        WebhookNotifier(url).send_test(1_800_000_000.0, 0.3)


@contextmanager
def dripping(first: bytes, drop: bytes) -> Iterator[str]:
    """The URL of a server that sends `first`, and then `drop` repeatedly while a client is connected."""

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(first)
                while not over.wait(0.02):
                    connection.sendall(drop)

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/hunter2"
        finally:
            over.set()
            thread.join(5)


def test_neither_address_nor_secret_gets_into_a_log(receiver: Receiver) -> None:
    lines = io.StringIO()
    handler, root = logging.StreamHandler(lines), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        WebhookNotifier(receiver.url, "s3cr3t").send(TOLD)
        receiver.answer = Response(500)
        with pytest.raises(DeliveryFailed):
            WebhookNotifier(receiver.url, "s3cr3t").send(TOLD)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert "hunter2" not in lines.getvalue()
    assert "s3cr3t" not in lines.getvalue()


def test_a_secret_that_is_no_base64_is_refused_without_being_told() -> None:
    with pytest.raises(ValueError, match="base64") as caught:
        WebhookNotifier("https://example.org", "whsec_ä")
    assert "ä" not in str(caught.value)


def test_a_host_that_nobody_knows_and_one_that_is_silent_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown_host(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown_host)
    with pytest.raises(DeliveryFailed, match=r"^no such host \(nobody\.invalid\)$") as unknown:
        WebhookNotifier("https://nobody.invalid/hunter2").send(TOLD)
    monkeypatch.undo()
    assert unknown.value.status is None
    with socket.socket() as silent:  # takes the connection and never reads
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        notifier = WebhookNotifier("http://127.0.0.1:%d/hunter2" % silent.getsockname()[1])
        with pytest.raises(DeliveryFailed, match=r"^no response within 0\.2 s \(127\.0\.0\.1\)$"):
            notifier.send_test(1_800_000_000.0, 0.2)
