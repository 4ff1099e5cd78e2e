"""Attacks by requests that are good HTTP: one line each, with the answer that docs/errors.md promises."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

from supervisor.api.document.build import document, operations
from supervisor.api.server import create_app
from supervisor.domain.callers import Scope
from tests.attacks.house import House
from tests.attacks.wire import ask

INVALID, TOO_LARGE = "422 INVALID_REQUEST", "413 BODY_TOO_LARGE"
Attack = tuple[str, bytes, str]  # name, what is sent, what is answered


def submit(house: House, body: bytes | object, *lines: str, token: str = "") -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ask("POST", "/v1/runs", *lines, token=token or house.tokens["mallory"], body=raw)


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": {"command": "true", **fields}}


def budget(text: str) -> bytes:
    return b'{"spec":{"command":"x","limits":{"budget_usd":%s}}}' % text.encode()


def bodies(house: House) -> Iterator[Attack]:
    for text in ("NaN", "Infinity", "-Infinity", "1e400", "-1", "9" * 5000, '"5"', "true", "0x10", "1_0"):
        told = "400 INVALID_JSON" if text in ("0x10", "1_0", "9" * 5000) else INVALID
        yield f"a budget of {text[:9]}", submit(house, budget(text)), told
    yield "10**400 tries", submit(house, spec(limits={"max_attempts": 10**400})), INVALID
    for name, text in (("surrogate", b"\\ud800"), ("NUL", b"\\u0000"), ("half a pair", b"\\udc00\\ud800")):
        told = INVALID if name == "NUL" else "400 INVALID_JSON"
        yield f"{name} in the command", submit(house, b'{"spec":{"command":"a%s"}}' % text), told
    yield "overlong UTF-8", submit(house, b'{"spec":{"command":"\xc0\xaf"}}'), "400 INVALID_JSON"
    yield "UTF-16", submit(house, json.dumps(spec()).encode("utf-16")), "400 INVALID_JSON"
    yield "homoglyph in a run id", submit(house, {"run_id": "d\u0456gits-7", **spec()}), INVALID
    yield "bidi in a run id", submit(house, {"run_id": "a\u202eb", **spec()}), INVALID
    yield "HTML as a run id", submit(house, {"run_id": "<script>alert(1)</script>", **spec()}), INVALID
    yield "line break in a label's name", submit(house, spec(labels={"a\r\nb": "c"})), INVALID
    yield "depth 100,000", submit(house, b"[" * 100_000), "400 INVALID_JSON"
    yield "10,000 unknown fields", submit(house, spec(**{f"k{n}": n for n in range(10_000)})), INVALID
    for char in "\n\x7f\x9b\u202e\u2066":
        yield f"U+{ord(char):04X} in a label", submit(house, spec(labels={"a": f"b{char}c"})), INVALID
    yield "10,000 labels", submit(house, spec(labels={f"k{n}": "" for n in range(10_000)})), INVALID
    yield "a name twice", submit(house, b'{"spec":{"command":"true"},"spec":7}'), INVALID
    yield "a body of 1 MB and one byte", submit(house, b" " * 1_000_001), TOO_LARGE
    packed = gzip.compress(json.dumps(spec()).encode())
    yield "a gzip as JSON", submit(house, packed), "400 INVALID_JSON"
    yield "a gzip that says so", submit(house, packed, "Content-Encoding: gzip"), "415 UNSUPPORTED_MEDIA_TYPE"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-7"):
        yield kind, submit(house, spec(), f"Content-Type: {kind}"), "415 UNSUPPORTED_MEDIA_TYPE"
    yield "__proto__", submit(house, {"__proto__": {"admin": True}, **spec()}), INVALID
    yield "a variable of the agent", submit(house, spec(env={"SPOT_RUN_ID": "x"})), INVALID
    yield "results outside", submit(house, spec(results=[{"path": "../../etc/passwd"}])), INVALID
    yield "a bomb as code", ask(
        "PUT", f"/v1/code/{'0' * 64}", "Content-Type: application/gzip", token=house.tokens["mallory"],
        body=gzip.compress(b"\0" * 20_000_000),
    ), "422 CODE_REFUSED"  # fmt: skip


def keys(house: House) -> Iterator[Attack]:
    good = json.dumps(spec(zones=["local-c"])).encode()
    for name, key in (("empty", ""), ("long", "k" * 300), ("of bytes", "\udcff\udcfe"), ("emoji", "\U0001f600")):
        yield f"an {name} idempotency key", submit(house, good, f"Idempotency-Key: {key}"), INVALID
    yield "two idempotency keys", submit(house, good, "Idempotency-Key: a", "Idempotency-Key: b"), INVALID


def door(house: House) -> Iterator[Attack]:
    """Nobody has a ticket or a pass here."""
    signed = f"_{house.theirs}_1.1.1_9999999999_" + "0" * 64
    for name, ticket in (("no ticket", "x"), ("a forged ticket", f"ticket{signed}"), ("a token", house.admin)):
        claim = json.dumps({"ticket": ticket, "claimant": "5d" * 16}).encode()
        yield name, ask("POST", "/v1/claims", body=claim, token=house.admin), "403 TICKET_REFUSED"
    yield "a long claim", ask("POST", "/v1/claims", body=b" " * 20_000), TOO_LARGE
    object_ = f"/v1/door/{house.theirs}/objects/runs/{house.theirs}/baton.json"
    for name, token in (("no pass", "x"), ("a forged pass", f"pass{signed}"), ("the admin's token", house.admin)):
        for method in ("GET", "PUT", "DELETE"):
            yield f"{method} with {name}", ask(method, object_, token=token, body=b"{}"), "403 PASS_REFUSED"
    yield "a pass as a token", ask("GET", "/v1/runs", token=f"pass{signed}"), "401 UNAUTHORIZED"


def lists(house: House) -> Iterator[Attack]:
    token, refused = house.tokens["reader"], "400 CURSOR_INVALID"
    good = house.cursor
    for name, query, told in (
        ("a cursor of mine", "cursor=" + good, refused),  # it was made for an administrator's list
        ("a cursor with another end", f"cursor={good[:-2]}AA", refused),
        ("a cursor of another filter", f"cursor={good}&status=failed", refused),
        ("a cursor of another database", "cursor=" + "B" * len(good), refused),
        ("a cursor of SQL", "cursor=1%27%20OR%201%3D1--", refused),
        ("a long cursor", "cursor=" + "A" * 9000, INVALID),
        ("a page of -1", "page_size=-1", INVALID),
        ("a page of 1e400", "page_size=1e400", INVALID),
        ("NUL in a search", "q=%00", INVALID),
        ("a status of SQL", "status=x%27%3BDROP%20TABLE%20runs", INVALID),
        ("an unknown filter", "ownr=local", INVALID),
        ("a token in the address", f"token={house.admin}", INVALID),
        ("a sort of SQL", "sort=1%3BSELECT", INVALID),
    ):
        yield name, ask("GET", f"/v1/runs?{query}", token=token), told
    yield "events after 2**64", ask("GET", f"/v1/events?after={2**64}", token=token), INVALID
    for last in ("-1", "9" * 40, "x", "1\u0661"):
        line = f"Last-Event-ID: {last}"
        yield (
            f"a last event {last[:5]}",
            ask("GET", "/v1/events", "Accept: text/event-stream", line, token=token),
            INVALID,
        )
    for name in (
        "g1/../../theirs",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/supervisor.db",
        "logs/%00",
        "/etc/passwd",
    ):
        path = f"/v1/runs/{house.mine}/files/{name}"
        yield f"the file {name}", ask("GET", path, token=token), "404 FILE_NOT_FOUND"


def tokens(house: House) -> Iterator[Attack]:
    good, no = house.tokens["mallory"], "401 UNAUTHORIZED"
    last = "B" if good[-1] == "A" else "A"
    for name, line in (
        ("no token", "Accept: */*"),
        ("a wrong checksum", f"Authorization: Bearer {good[:-1]}{last}"),
        ("a token cut short", f"Authorization: Bearer {good[:-1]}"),
        ("a revoked token", f"Authorization: Bearer {house.tokens['fired']}"),
        ("an expired token", f"Authorization: Bearer {house.tokens['gone']}"),
        ("a token as Basic", f"Authorization: Basic {good}"),
        ("a token in a cookie", f"Cookie: token={good}"),
        ("a token of another kind", "Authorization: Bearer whsec_" + "A" * 40),
        ("a token of bytes", "Authorization: Bearer \udcff\udcfe"),
        ("a token of 8 KB", "Authorization: Bearer sup_" + "A" * 8000),
        ("two tokens", f"Authorization: Bearer {good}, Bearer {good}"),
        ("an empty token", "Authorization: Bearer "),
    ):
        yield name, ask("GET", "/v1/runs", line), no
    yield "a token in the query", ask("GET", f"/v1/runs?access_token={house.admin}"), no
    yield "a user of the address", ask("GET", f"http://{house.admin}@127.0.0.1/v1/runs"), "404 NOT_FOUND"
    none = "403 SCOPE_MISSING"
    yield "a reader who submits", submit(house, spec(), token=house.tokens["reader"]), none
    yield "a scraper who reads", ask("GET", "/v1/runs", token=house.tokens["scraper"]), none
    yield (
        "a writer who makes tokens",
        ask("POST", "/v1/tokens", token=good, body=b'{"name":"x","scopes":["admin"]}'),
        none,
    )
    yield "a writer who revokes", ask("DELETE", f"/v1/tokens/{house.ids['reader']}", token=good), none
    yield "a writer who hears everything", ask(
        "POST", "/v1/webhooks", token=good, body=b'{"url":"https://hooks.example.com/","everything":true}'
    ), "403 FORBIDDEN"  # fmt: skip
    yield (
        "another owner's webhook",
        ask("DELETE", f"/v1/webhooks/{house.webhook}", token=good),
        "404 WEBHOOK_NOT_FOUND",
    )


def strangers(house: House) -> Iterator[Attack]:
    """Another owner's run at every address of one run."""
    app = create_app(None)
    shown = operations(app)
    for path, methods in json.loads(document(app))["paths"].items():
        if "{run_id}" not in path:
            continue
        for method, operation in methods.items():
            scope = shown[operation["operationId"]].needs
            if scope is None or method == "head":
                continue
            target = path.replace("{run_id}", house.theirs).replace("{number}", "1").replace("{path}", "x")
            token = house.tokens["reader" if scope is Scope.READ else "mallory"]
            body = b"{}" if method != "get" else b""
            yield (
                f"{method} {path} of a stranger",
                ask(method.upper(), target, token=token, body=body),
                "404 RUN_NOT_FOUND",
            )


def beats(house: House) -> Iterator[Attack]:
    path = f"/v1/runs/{house.mine}/heartbeat"
    yield "a beat of nothing", ask("POST", path, body=b"{}"), INVALID
    yield "a beat of 11 KB", ask("POST", path, body=b" " * 11_000), TOO_LARGE
    yield "a beat that is NaN", ask("POST", path, body=b'{"step":NaN}'), INVALID
    yield "a beat of depth 5,000", ask("POST", path, body=b"[" * 5000), INVALID


INSIDE = (
    "http://hooks.example.com/", "https://127.0.0.1/", "https://127.1/", "https://2130706433/", "https://0x7f.1/",
    "https://0177.0.0.1/", "https://[::1]/", "https://[::ffff:169.254.169.254]/", "https://[64:ff9b::a9fe:a9fe]/",
    "https://169.254.169.254/computeMetadata/v1/", "https://localhost/", "https://localhost./", "https://hooks/",
    "https://user:pw@hooks.example.com/", "https://hooks.example.com:22/", "https://hooks.example.com#@127.0.0.1/",
    "https://127.0.0.1%23.example.com/", "https://hooks.example.com\\@127.0.0.1/", "https://10.0.0.1/",
    "https://[fe80::1%25eth0]/", "https://0/", "https://\u24db\u24de\u24d2alhost/",
)  # fmt: skip
NO_ADDRESS = (
    "file:///etc/passwd", "gopher://127.0.0.1/", "https://", "https://a b/", "https://h.example.com/\r\nX: y",
    "https://h.example.com/\x00",
)  # fmt: skip


def addresses(house: House) -> Iterator[Attack]:
    """Receivers of messages that lie inside."""
    for urls, told in ((INSIDE, "422 URL_REFUSED"), (NO_ADDRESS, INVALID)):
        for url in urls:
            body = json.dumps({"url": url}).encode()
            yield (f"a webhook to {url!r}", ask("POST", "/v1/webhooks", token=house.tokens["mallory"], body=body), told)
