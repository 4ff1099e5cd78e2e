"""The guard: public addresses, allowed names, and that a name whose address changes reaches nothing."""

from __future__ import annotations

import ipaddress
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from supervisor.notifiers.guard import NOT_PUBLIC, URL_MAX, Guard, NoSuchHost, Refused, is_literal, is_public
from supervisor.notifiers.webhook import WebhookCourier
from supervisor.ports.notifier import DeliveryFailed, Form, Notification, Target
from tests.cloud.web import Request, Response, WebServer

TOLD = Notification(7, 3, "digits-7", "failed", "It failed.", 1_800_000_000.0, {})
OPEN = (
    "8.8.8.8", "1.1.1.1", "93.184.216.34", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.0",
    "192.169.0.1", "223.255.255.255", "2606:4700:4700::1111", "2a00:1450:4001:80b::200e", "::ffff:8.8.8.8",
    "64:ff9b::808:808", "2400:cb00::1",
)  # fmt: skip
CLOSED = (
    "0.0.0.0",  # noqa: S104 - judged, not bound
    "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255", "127.0.0.1",
    "127.255.255.254", "168.63.129.16", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.8",
    "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9",
    "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1",
    "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::808:808", "2002:a9fe:a9fe::1",
    "2002:7f00:1::", "2002:808:808::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1", "3fff::1", "fc00::1",
    "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "100::1", "5f00::1", "4000::1",
    "2606:4700::5efe:a9fe:a9fe", "2606:4700::200:5efe:a00:1", "", "example.org", "8.8.8.8 ", "8.8.8",
)  # fmt: skip


@pytest.mark.parametrize("address", OPEN)
def test_an_address_of_the_open_internet(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", CLOSED)
def test_an_address_that_leads_somewhere_inside(address: str) -> None:
    assert not is_public(address)


def test_pythons_own_judgement_would_let_some_of_them_pass() -> None:
    """What this list is for: were `is_global` enough, the module would not be needed."""
    let_pass = [text for text in CLOSED if _is_global(text)]
    assert {"224.0.0.1", "64:ff9b::a9fe:a9fe", "168.63.129.16"} <= set(let_pass)


def _is_global(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_global
    except ValueError:
        return False


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "::1", "8.8.8.8", "1.2.3.4."]
)
def test_numbers_in_every_spelling_are_no_names(host: str) -> None:
    assert is_literal(host)
    assert not is_literal("hooks.example.org")
    assert not is_literal("0xabc.example")


def answering(*rounds: Sequence[str]) -> Guard:
    """Each lookup of its name gives the next of `rounds`; the last one repeats."""
    left = list(rounds)
    return Guard(resolve=lambda host, port: left.pop(0) if len(left) > 1 else left[0])


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://hooks.example.org/x", "https"),
        ("ftp://hooks.example.org/x", "not an address"),
        ("https://", "not an address"),
        ("https://h:x/", "not an address"),
        ("https://h:0/", "not an address"),
        ("https://user:pass@hooks.example.org/", "user name"),
        ("https://hooks.example.org@10.0.0.1/", "user name"),
        ("https://127.0.0.1/", "not a number"),
        ("https://[::1]/", "not a number"),
        ("https://2130706433/", "not a number"),
        ("https://0x7f.1/", "not a number"),
        ("https://localhost/", "full name"),
        ("https://metadata/", "full name"),
        ("https://hooks.example.org./", "full name"),
        ("https://hooks_a.example.org/", "full name"),
        ("https://hooks.example.org:22/", "port"),
        ("https://hooks.example.org:80/", "port"),
        ("https://hooks.example.org/x#y", "after #"),
        ("https://hooks.example.org/ x", "printable"),
        ("https://hooks.example.org\\@evil.org/", "printable"),
        ("https://hooks.example.org/\r\nX: y", "printable"),
        ("https://h\u00f6oks.example.org/", "printable"),
        ("https://hooks.example.org/" + "x" * URL_MAX, "at most"),
        ("", "printable"),
    ],
)
def test_an_address_that_may_not_be_named(url: str, why: str) -> None:
    told = answering(["8.8.8.8"]).why_refused(url)
    assert why in told
    assert len(told) < 120, "the address itself is not repeated"


@pytest.mark.parametrize("url", ["https://hooks.example.org/x?y=z", "https://HOOKS.example.org:8443/", "https://a.b"])
def test_an_address_that_may(url: str) -> None:
    assert answering(["8.8.8.8", "2606:4700:4700::1111"]).why_refused(url) == ""


def test_all_addresses_of_a_name_are_looked_at_and_none_is_told() -> None:
    guard = answering(["8.8.8.8", "10.1.2.3"])
    assert guard.why_refused("https://hooks.example.org/x") == NOT_PUBLIC
    assert "10." not in NOT_PUBLIC


def test_a_name_that_is_not_there_is_told_in_the_same_words() -> None:
    """Otherwise the responses would reveal the names of a private network."""

    def unknown(host: str, port: int) -> Sequence[str]:
        raise NoSuchHost

    assert Guard(resolve=unknown).why_refused("https://db.corp.example.org/") == NOT_PUBLIC


def test_allowed_hosts_may_be_private_and_need_no_https() -> None:
    guard = Guard({"127.0.0.1:9000", "internal"}, lambda host, port: ["127.0.0.1"])
    assert guard.way("http://127.0.0.1:9000/x").netloc == "127.0.0.1:9000"
    assert guard.way("http://internal/x").addresses == ("127.0.0.1",)
    assert guard.way("https://internal:444/x").netloc == "internal:444"
    for other in ("http://127.0.0.1:9001/x", "http://other/x", "http://internal.evil.org/"):
        with pytest.raises(Refused):
            guard.way(other)


def test_a_name_that_changes_its_mind_leads_nowhere() -> None:
    """The connection goes to the checked address; the next try checks again."""
    asked: list[Request] = []

    def take(request: Request) -> Response:
        asked.append(request)
        return Response(204)

    inside = WebServer(take)
    rounds = [["8.8.8.8"], ["127.0.0.1"]]
    looked_up: list[str] = []

    def resolve(host: str, port: int) -> Sequence[str]:
        looked_up.append(host)
        return rounds[min(len(looked_up) - 1, 1)]

    guard = Guard(resolve=resolve)
    url = "https://rebinding.example.org:8443/x"
    assert guard.why_refused(url) == "", "when it was added it looked well"
    with pytest.raises(DeliveryFailed, match="no public address"):
        WebhookCourier(guard=guard).send(Target(url, Form.STANDARD), [TOLD])
    assert looked_up == ["rebinding.example.org"] * 2
    assert asked == []
    inside.close()


def test_the_connection_goes_to_the_judged_address_and_never_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Request] = []

    def take(request: Request) -> Response:
        asked.append(request)
        return Response(204)

    server = WebServer(take)
    port = int(server.host.rpartition(":")[2])
    guard = Guard({f"receiver.test:{port}"}, lambda host, _: ["127.0.0.1"])
    # Were the name used for the connection, the guard of the tests' network would raise.
    courier = WebhookCourier(guard=guard)
    assert courier.send(Target(f"http://receiver.test:{port}/x", Form.STANDARD), [TOLD]) == 204
    assert asked[0].headers["host"] == f"receiver.test:{port}"
    server.close()


def test_where_the_first_address_takes_no_connection_the_next_one_is_tried() -> None:
    server = WebServer(lambda request: Response(204))
    port = int(server.host.rpartition(":")[2])
    guard = Guard({"receiver.test"}, lambda host, _: ["127.0.0.2", "127.0.0.1"])
    assert WebhookCourier(guard=guard).send(Target(f"http://receiver.test:{port}/", Form.STANDARD), [TOLD]) == 204
    server.close()


def test_the_certificate_is_that_of_the_name(tmp_path: Path) -> None:
    """TLS to a bare address would be checked against that address: the name goes along, and another one fails."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=receiver.test", "-addext", "subjectAltName=DNS:receiver.test", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(cert, key)
    server = WebServer(lambda request: Response(204), tls=served)
    port = int(server.host.rpartition(":")[2])
    guard = Guard({"receiver.test", "other.test"}, lambda host, _: ["127.0.0.1"])
    courier = WebhookCourier(guard=guard, certificates=ssl.create_default_context(cafile=str(cert)))
    assert courier.send(Target(f"https://receiver.test:{port}/x", Form.STANDARD), [TOLD]) == 204
    with pytest.raises(DeliveryFailed, match=r"certificate is not valid for this name \(other\.test\)"):
        courier.send(Target(f"https://other.test:{port}/x", Form.STANDARD), [TOLD])
    server.close()
