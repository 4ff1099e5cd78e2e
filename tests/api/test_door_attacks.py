"""A pass opens the objects of its run and nothing else: tried against two hundred others, in every spelling."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from supervisor.api.routes import door as routes
from supervisor.api.server import create_app
from supervisor.api.wire.exposition import render
from supervisor.contract import runfiles
from supervisor.contract.stores.durable import RESERVED
from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.ports.provider import ProviderUnavailable
from tests.api.listening import serving
from tests.services.bed import Bed
from tests.services.door_bed import ME, OTHER, RUN_ID, SECRETS, DoorBed, make_door

OWN = runfiles.folder(RUN_ID)
BUNDLE, BUNDLES = "c0" * 32, [f"{number:064x}" for number in range(20)]
NEIGHBORS = (
    "digits-70",
    "digits-7-b",
    "digits-77",
    "digits-8",
    "digits",
    "other-run",
    "a-digits-7",
    "dig",
    "digits-07",
)
MARK = "content of another"


def others(supervisor_id: str) -> list[str]:
    """Keys of objects that the pass of RUN_ID must not open; two hundred at least."""
    keys = [runfiles.code(name) for name in BUNDLES] + [runfiles.code_index(name) for name in (*BUNDLES, BUNDLE)]
    keys += [runfiles.agent(name) for name in BUNDLES[:5]]
    keys += [runfiles.canary(supervisor_id), runfiles.canary("another"), "beats/.x", "runs/.x", "x", "claims.json"]
    for run_id in NEIGHBORS:
        keys += [runfiles.beat(run_id), runfiles.boot_beat(run_id), runfiles.baton(run_id), runfiles.orders(run_id)]
        keys += [runfiles.stop_marker(run_id), runfiles.manifest(run_id), runfiles.exit_record(run_id, 1)]
        keys += [runfiles.checkpoint(run_id, step, 1) + "model.pt" for step in (10, 20)]
        keys += [runfiles.saved_result(run_id, "1.1.1", 1, "manifest.json"), runfiles.results(run_id, 1) + "out.npz"]
        keys += [runfiles.log_chunk(run_id, 1, 1), runfiles.metrics(run_id, 1), runfiles.facts(run_id, 1)]
        keys += [runfiles.claim(supervisor_id, run_id, "1.1.1"), runfiles.command_result(run_id, "ab" * 8)]
        keys += [runfiles.evidence(run_id, 1), runfiles.applied(run_id, 1)]
    return [*keys, runfiles.claim(supervisor_id, RUN_ID, "1.1.1"), runfiles.claim("another", RUN_ID, "1.1.1")]


# Spellings of a key in an address. The server decodes an address once.
SPELLINGS = (
    quote,
    lambda key: quote(key, safe=""),
    lambda key: "".join(f"%{byte:02x}" for byte in key.encode()),
    lambda key: quote(quote(key, safe=""), safe=""),
    lambda key: f"{OWN}../../{quote(key)}",
    lambda key: f"{OWN}%2e%2e/%2e%2e/{quote(key)}",
    lambda key: f"{OWN}..%2f..%2f{quote(key, safe='')}",
    lambda key: f"{OWN}%252e%252e/%252e%252e/{quote(key)}",
    lambda key: f"./{quote(key)}",
    lambda key: f"/{quote(key)}",
    lambda key: f"//{quote(key)}",
    lambda key: f"%2f{quote(key, safe='')}",
    lambda key: f"{quote(key)}/",
    lambda key: f"{quote(key)}%00",
    lambda key: f"{quote(key)}%0a",
    lambda key: f"{quote(key)};x",
    lambda key: f"{OWN}..%5c..%5c{quote(key)}",
    lambda key: f"{OWN}%EF%BC%8E%EF%BC%8E/%EF%BC%8E%EF%BC%8E/{quote(key)}",
    lambda key: f"{OWN}%c0%ae%c0%ae/%c0%ae%c0%ae/{quote(key)}",
    lambda key: quote(key).upper(),
)
METHODS = ("GET", "HEAD", "PUT", "DELETE")


@dataclass
class House:
    """A folder with everything in it, and what an intruder with a pass can say to its door."""

    door: DoorBed
    store: FilesystemStore
    keys: list[str]

    def inside(self) -> dict[str, tuple[bytes, str]]:
        """Key -> content and generation of every object that is not of the run."""
        infos = [info for page in self.store.pages("") for info in page.objects]
        opened = (OWN, runfiles.beat(RUN_ID))
        keys = [info.key for info in infos if not info.key.startswith(opened[0]) and info.key != opened[1]]
        return {key: (self.store.get(key)[0], self.store.stat(key).generation) for key in keys}

    def attack(self, requests: list[tuple[str, str, bytes]]) -> list[tuple[int, bytes]]:
        """(status, body) for each (method, address as it is sent, body). In one event loop, without a client that would
        tidy up the address."""
        app, pass_text = create_app(self.door.services), self.door.pass_of()

        async def one(method: str, target: str, body: bytes) -> tuple[int, bytes]:
            raw, _, query = target.partition("?")
            headers = {"host": "localhost", "authorization": f"Bearer {pass_text}", "content-length": str(len(body))}
            headers |= {"content-type": "application/json"} if method == "POST" else {}
            scope = {
                "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
                "path": unquote(raw), "raw_path": raw.encode(), "query_string": query.encode(), "root_path": "",
                "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
                "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 80),
            }  # fmt: skip
            answers: list[Any] = []

            sent = iter([{"type": "http.request", "body": body, "more_body": False}])

            async def receive() -> Any:
                return next(sent, None) or await asyncio.Event().wait()

            async def send(message: Any) -> None:
                answers.append(message)

            await app(scope, receive, send)
            return answers[0]["status"], b"".join(message.get("body", b"") for message in answers[1:])

        async def all_of_them() -> list[tuple[int, bytes]]:
            return [await one(*request) for request in requests]

        return asyncio.run(all_of_them())


@pytest.fixture
def house(bed: Bed, tmp_path: Path) -> House:
    store = FilesystemStore.create(tmp_path / "objects")
    door = make_door(bed, tmp_path, store)
    run = door.launching()
    bed.change(RUN_ID, policy=replace(run.policy, code=BUNDLE))
    keys = others(bed.store.supervisor_id)
    for number, key in enumerate((*keys, runfiles.code(BUNDLE))):
        store.put(key, f"{MARK} {number}".encode())
    (tmp_path / "outside.txt").write_text(MARK)
    return House(door, store, keys)


def object_requests(house: House) -> list[tuple[str, str, bytes]]:
    """Each object by each method, plainly and in one more spelling; all spellings come about equally often."""
    base, requests = f"/v1/door/{RUN_ID}/objects/", []
    for number, key in enumerate(house.keys):
        for method_number, method in enumerate(METHODS):
            spelling = SPELLINGS[(number + 5 * method_number) % len(SPELLINGS)]
            requests += [(method, base + quote(key), b"overwritten"), (method, base + spelling(key), b"overwritten")]
        body = {"key": key, "size": 5, "if_generation": None, "metadata": {}}
        requests.append(("POST", f"/v1/door/{RUN_ID}/uploads", json.dumps(body).encode()))
    for path in ("../outside.txt", "../supervisor.db", "../../outside.txt", *sorted(RESERVED), ".", "..", ""):
        for spelling in SPELLINGS:
            requests += [(method, base + spelling(path), b"overwritten") for method in METHODS]
    return requests


def listing_requests(house: House) -> list[tuple[str, str, bytes]]:
    base = f"/v1/door/{RUN_ID}/objects"
    prefixes = {key[:cut] for key in house.keys for cut in (0, 1, 5, 8, 13, 20, len(key))}
    prefixes = {prefix for prefix in prefixes if not prefix.startswith(OWN)}
    prefixes |= {"runs/digits-7", "runs/", "", ".", "..", "/", "runs/digits-7/../", "runs/digits-7/../digits-8/"}
    prefixes |= {
        "runs/digits-7//",
        "runs/digits-7/./",
        "runs/digits-7/..",
        "beats/digits-7",
        "claims/",
        "RUNS/DIGITS-7/",
    }
    return [("GET", f"{base}?prefix={quote(prefix, safe='')}", b"") for prefix in sorted(prefixes)]


def let_through(house: House, requests: list[tuple[str, str, bytes]]) -> list[str]:
    """What an attack has reached: the objects that it read, and what it changed."""
    before, reached = house.inside(), []
    for (method, target, _), (status, body) in zip(requests, house.attack(requests), strict=True):
        if MARK.encode() in body or status >= 500:
            reached.append(f"{method} {target}: {status}")
        if method == "GET" and "?prefix=" in target and status == 200 and json.loads(body)["objects"]:
            keys = [row["key"] for row in json.loads(body)["objects"]]
            reached += [f"{target} lists {key}" for key in keys if not key.startswith(OWN)]
    after = house.inside()
    reached += [f"changed: {key}" for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
    return reached


def test_there_are_two_hundred_others(house: House) -> None:
    assert len(set(house.keys)) >= 200
    assert set(house.keys) < house.inside().keys()


def test_a_pass_opens_this_runs_objects_and_nothing_else(house: House, tmp_path: Path) -> None:
    requests = object_requests(house)
    assert len(requests) > 2000
    assert let_through(house, requests) == []
    assert let_through(house, listing_requests(house)) == []
    assert (tmp_path / "outside.txt").read_text() == MARK


def test_the_attack_finds_a_door_that_is_open(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variants."""
    monkeypatch.setattr(routes, "opens_prefix", lambda run_id, prefix: prefix.startswith(OWN[:-1]))
    assert let_through(house, listing_requests(house))
    monkeypatch.setattr(routes, "opens", lambda run_id, verb, key, code: key.startswith(OWN[:-1]))
    assert any("digits-70" in line for line in let_through(house, object_requests(house)))


def test_the_pass_opens_no_other_door(house: House) -> None:
    requests = [
        (method, f"/v1/door/{run_id}/objects/{quote(runfiles.baton(run_id))}", b"x")
        for run_id in (*NEIGHBORS, "digits-7%2f", "DIGITS-7", "digits-7%20", "..")
        for method in METHODS
    ]
    for status, _ in house.attack(requests):
        assert status in (403, 404)
    assert let_through(house, requests) == []


def test_a_pass_keeps_the_supervisor_from_writing_nothing(house: House) -> None:
    """In a folder a file in the place of a folder, or the other way round, would be in the way."""
    ours = [runfiles.stop_marker(RUN_ID), runfiles.orders(RUN_ID), runfiles.manifest(RUN_ID), runfiles.baton(RUN_ID)]
    ours += [runfiles.evidence(RUN_ID, 1), runfiles.instance(RUN_ID, 1), runfiles.console(RUN_ID, 1)]
    ours += [runfiles.delta(RUN_ID, 1, BUNDLE), runfiles.command_result(RUN_ID, "ab" * 8)]
    base = f"/v1/door/{RUN_ID}/objects/"
    requests = [("DELETE", base + runfiles.baton(RUN_ID), b"")]
    for key in ours:
        folder = key.rpartition("/")[0]
        requests += [("PUT", base + quote(other), b"in the way") for other in (f"{key}/x", f"{key}/x/y", folder)]
    assert 200 not in [status for status, _ in house.attack(requests)]
    for key in ours:
        assert house.store.put(key, b"written").size == 7


def test_a_pass_is_no_token_and_a_token_no_pass(house: House) -> None:
    from supervisor.api.wire.deps import with_tokens

    guarded = replace(house, door=replace(house.door, services=with_tokens(house.door.services)))
    paths = ("/v1/runs", f"/v1/runs/{RUN_ID}", f"/v1/runs/{RUN_ID}/spec", "/v1/tokens", "/v1/events", "/metrics")
    for status, _ in guarded.attack([("GET", path, b"") for path in paths]):
        assert status == 401
    answer = house.door.ask("HEAD", f"objects/{runfiles.baton(RUN_ID)}", "sup_" + "x" * 49)
    assert answer.status_code == 403


def test_over_a_socket_too(house: House) -> None:
    """The addresses as a real server reads them."""
    before = house.inside()
    with serving(house.door.services) as served, ExitStack() as opened:
        connection = opened.enter_context(closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)))
        for spelling in SPELLINGS:
            for key in (runfiles.baton("digits-70"), "../outside.txt"):
                for method in METHODS:
                    target = f"/v1/door/{RUN_ID}/objects/{spelling(key)}"
                    headers = {"Authorization": f"Bearer {house.door.pass_of()}"}
                    connection.request(method, target, body=b"overwritten", headers=headers)
                    answer = connection.getresponse()
                    body = answer.read()
                    own = unquote(spelling(key)).startswith(OWN) and answer.status in (200, 204)
                    assert own or answer.status in (403, 404, 422), (method, target, answer.status)
                    assert MARK.encode() not in body
    assert house.inside() == before


# --- nothing leaks ----------------------------------------------------------------------------------------------------


@pytest.fixture
def everything(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog


def test_no_ticket_pass_or_secret_is_in_a_log_a_metric_or_a_refusal(
    bed: Bed, tmp_path: Path, everything: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = make_door(bed, tmp_path)
    ticket = door.ticket(door.launching())
    claimed = door.claim(ticket).json()
    texts = {ticket, claimed["pass"]["text"], claimed["job"]["nonce"], *SECRETS.values()}
    renewed = door.push(claimed["job"]["nonce"], "?pass=1").json()
    texts.add(renewed["pass"]["text"])
    secret = [text.rpartition("_")[2] for text in texts]
    key, own = runfiles.baton(RUN_ID), claimed["pass"]["text"]
    refusals = [
        door.claim(ticket, OTHER),
        door.claim(ticket[:-1]),
        door.client.post("/v1/claims", json={"ticket": ticket, "claimant": "no"}),
        door.client.post("/v1/claims", json={"ticket": ticket * 3, "claimant": ME}),
        door.client.post("/v1/claims", json={"ticket": ticket, "claimant": ME, ticket: 1}),
        door.client.post("/v1/claims", content=ticket),
        door.ask("GET", f"objects/{runfiles.baton('digits-8')}", own),
        door.ask("GET", f"objects/{key}", own, run_id="digits-8"),
        door.ask("GET", f"objects/{key}", own + "0"),
        door.ask("GET", f"objects/{OWN}missing", own),
    ]
    bed.objects.fail_reads = True
    refusals += [door.ask("GET", f"objects/{key}", own), door.claim(ticket)]
    bed.objects.fail_reads = False
    door.provider.refusal = ProviderUnavailable("away")
    refusals.append(door.claim(ticket))
    monkeypatch.setattr(bed.objects, "stat", lambda _: 1 // 0)  # a bug: its traceback is in the log
    refusals.append(door.ask("GET", f"objects/{key}", own))
    bed.clock.advance(4000.0)
    refusals += [door.claim(ticket), door.ask("GET", f"objects/{key}", own)]
    assert refusals[-3].status_code == 500
    assert all(answer.status_code >= 400 for answer in refusals)
    said = [json.dumps(record.__dict__, default=str) for record in everything.records]
    said += [answer.text + str(answer.headers) for answer in refusals]
    said.append(render("text/plain", ())[0].decode())
    assert len(said) > 20
    assert [line for line in said if any(text in line for text in secret)] == []
