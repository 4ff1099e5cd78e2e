"""A slow object store: readers of logs wait together, and all other requests are served."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest

from supervisor.api.wire import deps
from supervisor.contract import runfiles
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.services.logs.chunks import Chunks
from tests.api.listening import serving
from tests.services.bed import Bed
from tests.waiting import wait_for

RUN, READERS = "digits-7", 60
PREFIX = runfiles.logs(RUN, 1)


class Gate:
    """Calls of the store that are held until it is opened."""

    def __init__(self) -> None:
        self.asked, self.held, self.opened = 0, 0, threading.Event()
        self.why: Exception | None = None

    def hold(self, real: Any) -> Any:
        def held(*args: Any) -> Any:
            self.asked += 1
            self.held += 1
            assert self.opened.wait(30)
            if self.why is not None:
                raise self.why
            return real(*args)

        return held


@pytest.fixture
def gate(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    bed.submit(RUN)
    bed.train(RUN)
    bed.objects.put(f"{PREFIX}00000001.log", b"step 1\n")
    made = Gate()
    monkeypatch.setattr(bed.objects, "pages", made.hold(bed.objects.pages))
    yield made
    made.opened.set()


class Door:
    """A lock that counts who has come to it."""

    def __init__(self) -> None:
        self.came, self._lock = 0, threading.Lock()

    def __enter__(self) -> None:
        self.came += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def looked(bed: Bed, gate: Gate, pool: ThreadPoolExecutor) -> list[Any]:
    """The answers of many who come while the first one's look is held, the first one's last."""
    chunks, door = Chunks(), Door()
    chunks._lock = door  # type: ignore[assignment]

    def look(at: float = 0.0) -> Any:
        try:
            return chunks.open(bed.objects, PREFIX, at).size
        except StoreUnavailable as error:
            return str(error)

    first = pool.submit(look)
    wait_for(lambda: gate.held, 20, "the first look")
    others = [pool.submit(look) for _ in range(20)]
    wait_for(lambda: door.came == 21, 20, "all others at the lock")
    gate.opened.set()
    return [one.result(20) for one in (*others, first)]


def test_waiting_readers_share_one_read(bed: Bed, gate: Gate) -> None:
    stats, real = [], bed.objects.stat
    bed.objects.stat = lambda key: (stats.append(key), real(key))[1]  # type: ignore[method-assign]
    with ThreadPoolExecutor(21) as pool:
        assert looked(bed, gate, pool) == [7] * 21
    assert gate.asked == 1
    assert len(stats) == 2, "one look for all twenty: at the last chunk, and for a next one"


def test_an_unavailable_store_is_read_once_for_all_that_wait(bed: Bed, gate: Gate) -> None:
    gate.why = StoreUnavailable("away")
    with ThreadPoolExecutor(21) as pool:
        assert looked(bed, gate, pool) == ["away"] * 21
    assert gate.asked == 2
    gate.why = None
    assert Chunks().open(bed.objects, PREFIX, 0.0).size == 7, "and it comes back"


def test_a_failed_read_is_not_kept(bed: Bed, gate: Gate) -> None:
    chunks = Chunks()
    gate.opened.set()
    gate.why = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        chunks.open(bed.objects, PREFIX, 0.0)
    gate.why = None
    assert chunks.open(bed.objects, PREFIX, 0.0).size == 7


@pytest.mark.parametrize("slow", ["logs", "cost"])
def test_the_server_responds_while_all_slow_threads_wait_for_the_store(bed: Bed, gate: Gate, slow: str) -> None:
    with serving(bed.services) as served, ThreadPoolExecutor(READERS) as pool:

        def ask(path: str, within_s: float) -> int:
            with closing(HTTPConnection("127.0.0.1", served.port, timeout=within_s)) as connection:
                connection.request("GET", path)
                answer = connection.getresponse()
                answer.read()
                return answer.status

        waiting = [pool.submit(ask, f"/v1/runs/{RUN}/{slow}", 60) for _ in range(READERS)]
        wait_for(lambda: gate.held, 20, "the store to be asked")
        wait_for(lambda: working() >= deps.SLOW_THREADS, 20, "no thread for them to be free")
        assert [ask(path, 10) for path in ("/v1/runs", f"/v1/runs/{RUN}", "/readyz")] == [200] * 3
        gate.opened.set()
        assert {one.result(60) for one in waiting} == {200}


def working() -> int:
    return sum(thread.name.startswith("AnyIO worker") for thread in threading.enumerate())
