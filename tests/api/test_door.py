"""The door: the objects of one run over HTTP, with the conditions, ranges and errors of a store."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from supervisor.api import server
from supervisor.api.routes import access
from supervisor.api.routes import door as routes
from supervisor.api.wire.connection import Patience, protocol
from supervisor.api.wire.deps import DOOR_THREADS, Transfers
from supervisor.contract import runfiles
from supervisor.domain.errors import ObjectsAway
from supervisor.services.access import passes
from tests.api.listening import serving
from tests.fakes.objectstore import MemoryStore
from tests.services.bed import Bed
from tests.services.door_bed import RUN_ID, DoorBed, make_door
from tests.waiting import wait_for

FOLDER = runfiles.folder(RUN_ID)
KEY = FOLDER + "checkpoints/100-a1/model.pt"


@pytest.fixture
def door(bed: Bed, tmp_path: Path) -> DoorBed:
    door = make_door(bed, tmp_path)
    door.launching()
    return door


def ask(door: DoorBed, method: str, key: str, **more: Any) -> httpx.Response:
    return door.ask(method, f"objects/{quote(key)}", door.pass_of(), **more)


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


# --- reading and writing ----------------------------------------------------------------------------------------------


def test_an_object_is_written_looked_at_read_and_deleted(door: DoorBed) -> None:
    metadata = {"beat": "wörd"}
    told = ask(door, "PUT", KEY, content=b"weights", headers={"X-Spot-Metadata": json.dumps(metadata)})
    info = door.bed.objects.stat(KEY)
    assert told.json() == {
        "key": KEY, "size": 7, "generation": info.generation, "updated": info.updated, "metadata": metadata
    }  # fmt: skip
    for method in ("HEAD", "GET"):
        answer = ask(door, method, KEY)
        assert answer.status_code == 200
        assert answer.headers["X-Spot-Generation"] == info.generation
        assert float(answer.headers["X-Spot-Updated"]) == info.updated
        assert json.loads(answer.headers["X-Spot-Metadata"]) == metadata
        assert answer.headers["Content-Length"] == "7"
        assert answer.headers["Cache-Control"] == "no-store"
    assert ask(door, "GET", KEY).content == b"weights"
    assert ask(door, "DELETE", KEY).status_code == 204
    for method in ("GET", "DELETE"):
        assert code(ask(door, method, KEY)) == (404, "OBJECT_MISSING")
    assert ask(door, "HEAD", KEY).status_code == 404


def test_conditions(door: DoorBed) -> None:
    def put(generation: str) -> httpx.Response:
        return ask(door, "PUT", KEY, content=b"x", headers={"X-Spot-If-Generation": generation})

    first = put("0").json()["generation"]
    assert code(put("0")) == (412, "PRECONDITION_FAILED")
    second = put(first).json()["generation"]
    assert code(put(first)) == (412, "PRECONDITION_FAILED")
    refused = ask(door, "DELETE", KEY, headers={"X-Spot-If-Generation": first})
    assert code(refused) == (412, "PRECONDITION_FAILED")
    assert door.bed.objects.stat(KEY).generation == second
    assert ask(door, "DELETE", KEY, headers={"X-Spot-If-Generation": second}).status_code == 204
    for text in ("no number", "x" * 101, ""):
        assert code(put(text)) == (412, "PRECONDITION_FAILED"), "such a text is no generation"


@pytest.mark.parametrize(
    ("asked", "status", "content", "place"),
    [
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=0-0", 206, b"0", "bytes 0-0/10"),
        ("bytes=5-99", 206, b"56789", "bytes 5-9/10"),
        ("lines=1-2", 200, b"0123456789", None),
    ],
)
def test_ranges(door: DoorBed, asked: str, status: int, content: bytes, place: str | None) -> None:
    door.bed.objects.put(KEY, b"0123456789")
    answer = ask(door, "GET", KEY, headers={"Range": asked})
    assert (answer.status_code, answer.content, answer.headers.get("Content-Range")) == (status, content, place)
    assert answer.headers["Content-Length"] == str(len(content))


def test_a_range_behind_the_end(door: DoorBed) -> None:
    door.bed.objects.put(KEY, b"0123456789")
    answer = ask(door, "GET", KEY, headers={"Range": "bytes=10-"})
    assert code(answer) == (416, "RANGE_NOT_SATISFIABLE")
    assert answer.headers["Content-Range"] == "bytes */10"


def test_an_empty_object(door: DoorBed) -> None:
    assert ask(door, "PUT", KEY, content=b"").json()["size"] == 0
    assert ask(door, "GET", KEY).content == b""


def test_long_objects_pass_in_pieces_and_leave_no_file(door: DoorBed, tmp_path: Path) -> None:
    data, before = bytes(range(256)) * 16_000, set(tmp_path.iterdir())

    async def pieces() -> Any:
        for start in range(0, len(data), 100_000):
            yield data[start : start + 100_000]

    assert ask(door, "PUT", KEY, content=pieces()).json()["size"] == len(data)
    assert ask(door, "GET", KEY).content == data
    assert set(tmp_path.iterdir()) == before


def test_a_long_object_with_metadata(door: DoorBed, monkeypatch: pytest.MonkeyPatch) -> None:
    data, headers = b"x" * (routes.MEMORY_BYTES + 1), {"X-Spot-Metadata": '{"a": "b"}'}
    assert ask(door, "PUT", KEY, content=data, headers=headers).json()["metadata"] == {"a": "b"}
    assert door.bed.objects.get(KEY)[0] == data
    monkeypatch.setattr(routes, "SMALL_BYTES", len(data) - 1)
    assert code(ask(door, "PUT", KEY, content=data, headers=headers)) == (422, "INVALID_REQUEST")


def test_listings_are_pages_in_order_of_the_keys(door: DoorBed) -> None:
    keys = sorted(FOLDER + f"logs/a1/{number:08}.log" for number in range(25))
    for key in keys:
        door.bed.objects.put(key, b"x", metadata={"n": key[-6:]})
    after, seen = "", []
    while True:
        query = {"prefix": FOLDER + "logs/", "after": after, "limit": "10"}
        page = door.ask("GET", "objects", door.pass_of(), params=query).json()
        assert page["server_time"] == door.bed.clock.now()
        seen += [row["key"] for row in page["objects"]]
        if len(page["objects"]) < 10:
            break
        after = seen[-1]
    assert seen == keys
    whole = door.ask("GET", "objects", door.pass_of(), params={"prefix": FOLDER + "logs/"}).json()
    assert [row["metadata"]["n"] for row in whole["objects"]] == [key[-6:] for key in keys]


def test_the_beat_and_the_code_of_the_run(door: DoorBed, bed: Bed) -> None:
    run = bed.run(RUN_ID)
    bundle = "c0" * 32
    bed.change(RUN_ID, policy=replace(run.policy, code=bundle))
    for name in (bundle, "c1" * 32):
        bed.objects.put(runfiles.code(name), b"tar")
    assert ask(door, "GET", runfiles.code(bundle)).content == b"tar"
    assert code(ask(door, "PUT", runfiles.code(bundle), content=b"x")) == (403, "PASS_REFUSED")
    assert code(ask(door, "GET", runfiles.code("c1" * 32))) == (403, "PASS_REFUSED")
    assert ask(door, "PUT", runfiles.beat(RUN_ID), content=b"beat").status_code == 200
    assert ask(door, "GET", runfiles.beat(RUN_ID)).content == b"beat"


def test_the_agent_needs_no_pass(door: DoorBed) -> None:
    answer = door.client.get("/v1/door/agent.pyz")
    assert (answer.status_code, answer.content) == (200, b"PK an archive")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-length"] == str(len(answer.content))


def test_a_stranger_who_takes_the_agent_slowly_holds_one_piece_of_it(tmp_path: Path) -> None:
    archive = tmp_path / "agent.pyz"
    archive.write_bytes(bytes(range(256)) * 1000)

    async def pieces() -> list[bytes]:
        return [piece async for piece in access.archive_pieces(archive)]

    taken = asyncio.run(pieces())
    assert b"".join(taken) == archive.read_bytes()
    assert max(map(len, taken)) <= access.PIECE_BYTES < len(archive.read_bytes())


def test_a_folder_takes_uploads_of_any_size_itself(door: DoorBed) -> None:
    body = {"key": KEY, "size": 10**10, "if_generation": None, "metadata": {}}
    assert door.ask("POST", "uploads", door.pass_of(), json=body).json() == {"url": None}
    body["key"] = runfiles.baton("digits-8")
    assert code(door.ask("POST", "uploads", door.pass_of(), json=body)) == (403, "PASS_REFUSED")


# --- a store in trouble -----------------------------------------------------------------------------------------------


def test_a_store_that_is_away_is_not_a_missing_object(door: DoorBed) -> None:
    door.bed.objects.put(KEY, b"x")
    door.bed.objects.fail_reads = door.bed.objects.fail_writes = True
    answers = [ask(door, method, KEY) for method in ("GET", "PUT", "DELETE")]
    answers.append(door.ask("GET", "objects", door.pass_of(), params={"prefix": FOLDER}))
    for answer in answers:
        assert code(answer) == (503, "STORE_UNAVAILABLE")
        assert answer.headers["Retry-After"]
    assert ask(door, "HEAD", KEY).status_code == 503


def test_a_full_store(door: DoorBed) -> None:
    door.bed.objects.full = True
    assert code(ask(door, "PUT", KEY, content=b"x")) == (507, "STORE_FULL")


def test_a_full_disk_of_the_supervisor(door: DoorBed, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**where: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(routes.tempfile, "TemporaryFile", full)
    answer = ask(door, "PUT", KEY, content=b"x" * (routes.MEMORY_BYTES + 1))
    assert code(answer) == (507, "STORE_FULL")
    assert ask(door, "PUT", KEY, content=b"x").status_code == 200


def test_no_body_takes_the_room_of_the_database(door: DoorBed, monkeypatch: pytest.MonkeyPatch) -> None:
    free = os.statvfs(door.services.around.data_dir)
    monkeypatch.setattr(routes, "RESERVE_BYTES", free.f_blocks * free.f_frsize)
    answer = ask(door, "PUT", KEY, content=b"x" * (routes.MEMORY_BYTES + 1))
    assert code(answer) == (507, "STORE_FULL")
    assert ask(door, "HEAD", KEY).status_code == 404


def test_a_run_cannot_fill_the_memory_of_the_supervisor(door: DoorBed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "READ_WHOLE_BYTES", 1000)
    baton = runfiles.baton(RUN_ID)
    before = ask(door, "GET", baton).content
    assert code(ask(door, "PUT", baton, content=b"x" * 1001)) == (413, "BODY_TOO_LARGE")
    body = {"key": baton, "size": 1001, "if_generation": None, "metadata": {}}
    assert code(door.ask("POST", "uploads", door.pass_of(), json=body)) == (413, "BODY_TOO_LARGE")
    assert ask(door, "GET", baton).content == before
    assert ask(door, "PUT", KEY, content=b"x" * 1001).status_code == 200


@pytest.mark.parametrize("given", ["{", "[]", '{"a": 1}', '"x"', "[" * 5000])
def test_metadata_that_is_none(door: DoorBed, given: str) -> None:
    answer = ask(door, "PUT", KEY, content=b"x", headers={"X-Spot-Metadata": given})
    assert code(answer) == (422, "INVALID_REQUEST")


def test_metadata_that_is_too_long(door: DoorBed) -> None:
    given = json.dumps({"a": "b" * 8200})
    answer = ask(door, "PUT", KEY, content=b"x", headers={"X-Spot-Metadata": given})
    assert code(answer) == (422, "INVALID_REQUEST")


# --- many transfers, slow ones, and clients that go ---------------------------------------------------------------


def test_so_many_transfers_at_once() -> None:
    transfers = Transfers(most=3, of_one_run=2)
    with transfers.transfer("a"), transfers.transfer("a"):
        with pytest.raises(ObjectsAway), transfers.transfer("a"):
            pass
        with transfers.transfer("b"), pytest.raises(ObjectsAway), transfers.transfer("c"):
            pass
        with transfers.transfer("c"):
            pass
    assert transfers == Transfers(most=3, of_one_run=2), "nothing is left of those that are over"


class SlowStore(MemoryStore):
    """Reads wait until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.waiting = threading.Event(), 0

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        self.waiting += 1
        assert self.go.wait(60)
        yield from super().read(key, offset, length)


@dataclass
class Crowd:
    """Machines at a real server."""

    door: DoorBed
    port: int
    opened: ExitStack

    def start(self, method: str, key: str, run_id: str = RUN_ID, length: int = 0) -> socket.socket:
        """A request without its body; the connection is closed at the end."""
        connection = self.opened.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=60))
        connection.sendall(
            f"{method} /v1/door/{run_id}/objects/{quote(key)} HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {self.door.pass_of(run_id)}\r\nContent-Length: {length}\r\n\r\n".encode()
        )
        return connection

    def status(self, path: str, run_id: str = RUN_ID) -> tuple[int, str | None]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with closing(connection):
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.door.pass_of(run_id)}"})
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.headers["Retry-After"]


@contextmanager
def crowd(bed: Bed, folder: Path, store: MemoryStore, **limits: int) -> Iterator[Crowd]:
    door = make_door(bed, folder, store)
    services = replace(door.services, transfers=Transfers(**limits))
    with serving(services) as served, ExitStack() as opened:
        yield Crowd(replace(door, services=services), served.port, opened)


def test_a_store_that_hangs_takes_the_doors_threads_and_no_others(bed: Bed, tmp_path: Path) -> None:
    store = SlowStore()
    with crowd(bed, tmp_path, store, most=DOOR_THREADS, of_one_run=DOOR_THREADS - 1) as machines:
        for run_id in (RUN_ID, "digits-8"):
            store.put(runfiles.baton(run_id), b"x" * 100)
        try:
            begun = [machines.start("GET", runfiles.baton(RUN_ID)) for _ in range(DOOR_THREADS - 1)]
            wait_for(lambda: store.waiting == len(begun), 30, "every transfer to wait for the store")
            mine, other = (f"/v1/door/{name}/objects/{runfiles.baton(name)}" for name in (RUN_ID, "digits-8"))
            assert machines.status(mine) == (503, "2")
            assert machines.status(f"/v1/door/{RUN_ID}/objects?prefix={FOLDER}") == (503, "2")
            begun.append(machines.start("GET", runfiles.baton("digits-8"), "digits-8"))
            wait_for(lambda: store.waiting == len(begun), 30, "the last free thread to wait")
            assert machines.status(other, "digits-8") == (503, "2")
            for path in ("/livez", "/v1/runs", f"/v1/runs/{RUN_ID}"):
                assert machines.status(path)[0] in (200, 404)
        finally:
            store.go.set()
        for connection in begun:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        wait_for(lambda: machines.status(mine)[0] == 200, 30, "a free transfer")


def test_a_machine_that_goes_leaves_no_transfer_open(bed: Bed, tmp_path: Path) -> None:
    store, long = MemoryStore(), b"x" * 30_000_000
    store.put(KEY, long)
    with crowd(bed, tmp_path, store, most=2, of_one_run=2) as machines:
        for method, key, length in (("GET", KEY, 0), ("PUT", FOLDER + "cut", 10**9)):
            connection = machines.start(method, key, length=length)
            wait_for(lambda: machines.door.services.transfers != Transfers(2, 2), 30, "the transfer to begin")
            connection.send(b"part")
            connection.close()
            wait_for(lambda: machines.door.services.transfers == Transfers(2, 2), 30, "its end")
        assert [info.key for page in store.pages(FOLDER) for info in page.objects] == [KEY]


def test_a_machine_that_falls_silent_leaves_no_transfer_open(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection stays: the machine was taken away, and nobody has said so."""
    patience = Patience(body_s=0.2, taking_s=0.2)
    monkeypatch.setattr(server, "protocol", lambda _: protocol(patience))
    store = MemoryStore()
    store.put(KEY, b"x" * 30_000_000)
    with crowd(bed, tmp_path, store, most=2, of_one_run=2) as machines:
        for method, key, length in (("GET", KEY, 0), ("PUT", FOLDER + "cut", 10**9)):
            machines.start(method, key, length=length)
            wait_for(lambda: machines.door.services.transfers != Transfers(2, 2), 30, "the transfer to begin")
            wait_for(lambda: machines.door.services.transfers == Transfers(2, 2), 30, "its end")
