"""Attacks by the head of a request, and by what is no HTTP: one line each, with the answer that is promised."""

from __future__ import annotations

from collections.abc import Iterator

from tests.attacks.house import House
from tests.attacks.requests import Attack
from tests.attacks.wire import JSON, ask

NO_HTTP, NOT_FOUND, NO_METHOD = "400 INVALID_HTTP", "404 NOT_FOUND", "405 METHOD_NOT_ALLOWED"
OTHER_SITE, OTHER_NAME = "403 ORIGIN_REFUSED", "400 HOST_REFUSED"


def names(house: House) -> Iterator[Attack]:
    """Names that were made to point here."""
    for host in (
        "rebound.example", "127.0.0.1.rebound.example", "localhost.rebound.example", "127.0.0.1@rebound.example",
        "localhost:80@rebound", "[::2]", "169.254.169.254", "localhost.", "127.0.0.1%00.rebound", "",
    ):  # fmt: skip
        yield f"under the name {host!r}", ask("GET", "/v1/runs", token=house.admin, host=host), OTHER_NAME
    spoofed = ("X-Forwarded-Host: localhost", "X-Forwarded-For: 127.0.0.1", "Forwarded: host=localhost")
    yield ("a forwarded name", ask("GET", "/v1/runs", *spoofed, token=house.admin, host="rebound.example"), OTHER_NAME)


def sites(house: House) -> Iterator[Attack]:
    """Pages of other sites, in the browser of somebody who may."""
    stop, hook = f"/v1/runs/{house.theirs}/stop", f"/v1/webhooks/{house.webhook}"
    for line in (
        "Origin: https://evil.example", "Origin: null", "Origin: http://127.0.0.1:1", "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site", "Origin: http://127.0.0.1.evil.example", "Origin: http://localhost",
    ):  # fmt: skip
        yield f"stop, {line}", ask("POST", stop, line, token=house.admin, body=b"{}"), OTHER_SITE
        yield f"DELETE, {line}", ask("DELETE", hook, line, token=house.admin), OTHER_SITE


def methods(house: House) -> Iterator[Attack]:
    run, admin = f"/v1/runs/{house.theirs}", house.admin
    for method in ("TRACE", "get", "Delete", "PROPFIND", "OPTIONS", "DELETE", "CONNECT"):
        yield method, ask(method, run, token=admin), NO_METHOD
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        yield name, ask("POST", run, f"{name}: DELETE", token=admin), NO_METHOD
    yield "_method", ask("POST", f"{run}?_method=DELETE", token=admin), NO_METHOD


def paths(house: House) -> Iterator[Attack]:
    for path in (
        "//v1/runs", "/v1//runs", "/v1/runs/", "/v1/./runs", "/v1/x/../tokens", "/livez/../v1/tokens", "/v1/runs;a=b",
        "/v1/%2e%2e/v1/tokens", "/v1%2fruns%2f", "/V1/runs", "/v1/runs%00", "/%00", "/../../etc/passwd",
        "/livez%2f..%2fv1%2ftokens", "/docs/", "/openapi.json/", "/.git/config", "http://evil.example/v1/runs",
        "/v1/runs%0d%0aSet-Cookie:a=b", "*",
    ):  # fmt: skip
        yield path, ask("GET", path, token=house.admin), NOT_FOUND
    for name in ("%2e%2e", "a%00b", "%ED%A0%80", "A", "%F0%9F%98%80", "x" * 3000, "%C0%AF", "-1", "..;"):
        yield f"the run {name[:9]}", ask("GET", f"/v1/runs/{name}", token=house.admin), "404 RUN_NOT_FOUND"


def heads(house: House) -> Iterator[Attack]:
    admin, large = house.admin, "431 HEAD_TOO_LARGE"
    yield "an address of 15 KB", ask("GET", "/v1/runs?q=" + "a" * 15_000, token=admin), "422 INVALID_REQUEST"
    yield "an address of 17 KB", ask("GET", "/v1/runs?q=" + "a" * 17_000, token=admin), large
    yield "a header of 20 KB", ask("GET", "/v1/runs", "X-Large: " + "a" * 20_000, token=admin), large
    yield "2,000 headers", ask("GET", "/v1/runs", *[f"X-{n}: {n}" for n in range(2000)], token=admin), large
    yield ("a head of 400 KB", ask("GET", "/v1/runs", "X-Large: " + "a" * 400_000, token=admin), f"{NO_HTTP}|closed")
    yield "a line break in a header", ask("GET", "/v1/runs", "X-A: a\rSet-Cookie: b=c", token=admin), NO_HTTP
    yield "NUL in a header", ask("GET", "/v1/runs", "X-A: a\0b", token=admin), NO_HTTP
    yield ("a folded header", ask("GET", "/v1/runs", "X-A: a", " b: c", "Content-Length : 3", token=admin), NO_HTTP)
    yield from (
        (f"{name} given twice", ask(method, "/v1/none", f"{name}: {value}", f"{name}: {value}", token=admin), NO_HTTP)
        for name, value in (
            ("Content-Length", "0"), ("Content-Type", "application/json"), ("Origin", "http://127.0.0.1"),
            ("Sec-Fetch-Site", "none"), ("Cookie", house.cookie.partition(": ")[2]),
            ("Content-Encoding", "identity"),
        )
        for method in ("GET", "POST")
    )  # fmt: skip
    token = f"Authorization: Bearer {house.tokens['reader']}"
    yield "two tokens", ask("GET", "/v1/runs", token, token=admin), NO_HTTP
    yield "the same token twice", ask("GET", "/v1/runs", token, token), NO_HTTP
    for fold in (" ", "\t", "  \t"):
        yield (
            f"a token on a folded line, {fold!r}",
            ask("GET", "/v1/runs", "Authorization: Bearer", fold + house.tokens["reader"]),
            NO_HTTP,
        )
        yield f"a folded first line, {fold!r}", ask("GET", "/v1/none", fold + "X-A: b", token=admin), NO_HTTP
    yield "a header without a name", ask("GET", "/v1/runs", ": x", token=admin), NO_HTTP
    yield "two hosts", ask("GET", "/v1/runs", "Host: evil.example", token=admin), NO_HTTP
    injected = "X-Request-Id: a\tb<script>"
    yield "a request id of HTML", ask("GET", "/v1/none", injected, token=admin), NOT_FOUND
    yield (
        "an upgrade to HTTP/2",
        ask("GET", "/v1/none", "Connection: Upgrade", "Upgrade: h2c", token=admin),
        NOT_FOUND,
    )
    socket = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AA==")
    yield "an upgrade to a websocket", ask("GET", "/v1/none", *socket, token=admin), NOT_FOUND


def smuggling(house: House) -> Iterator[Attack]:
    """A second request inside of the body of a first: shapes on whose end two servers could disagree."""
    token = house.tokens["mallory"]
    inner = ask("GET", "/v1/none", token=token)

    def chunked(*lines: str, body: bytes = b"0\r\n\r\n") -> bytes:
        return ask("POST", "/v1/runs", JSON, *lines, token=token) + body + inner

    both = "Content-Length: 5", "Transfer-Encoding: chunked"
    yield "length and chunks", chunked(*both), NO_HTTP
    yield "chunks and length", chunked(*reversed(both)), NO_HTTP
    yield "two lengths", chunked("Content-Length: 5", "Content-Length: 6"), NO_HTTP
    yield "a list of lengths", chunked("Content-Length: 5, 6"), NO_HTTP
    for length in ("0, 0", "0,0", "5, 5", "0,", ",0", "0\r\nContent-Length: 0", "0\r\n 0"):
        yield f"a length of {length!r}", chunked(f"Content-Length: {length}"), NO_HTTP
    for length in ("-1", "+5", "0x5", "5e0", "1_0", "9" * 30):
        yield f"a length of {length[:5]}", chunked(f"Content-Length: {length}"), NO_HTTP
    for coding in ("chunked, identity", "xchunked", "chunked, chunked", "gzip, chunked", "\x0bchunked"):
        yield f"the coding {coding!r}", chunked(f"Transfer-Encoding: {coding}"), NO_HTTP
    yield "a space before the colon", chunked("Transfer-Encoding : chunked"), NO_HTTP
    yield "a chunk of 25 F", chunked(both[1], body=b"F" * 25 + b"\r\nx"), NO_HTTP
    yield "a chunk that is none", chunked(both[1], body=b"zz\r\nx\r\n"), NO_HTTP


def no_http(house: House) -> Iterator[Attack]:
    for name, data in (
        ("zeros", b"\0" * 2000), ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xaa" * 200 + b"\r\n\r\n"),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), ("HTTP/0.9", b"GET /v1/runs\r\n\r\n"),
        ("HTTP/9.9", b"GET /livez HTTP/9.9\r\nHost: localhost\r\n\r\n"), ("SSH", b"SSH-2.0-x\r\n\r\n"),
        ("no host", b"GET /livez HTTP/1.1\r\n\r\n"),
        ("bytes in the path", b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ("a bare line feed in the address", b"GET /a\nX: y HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ):  # fmt: skip
        yield name, data, NO_HTTP
