"""The promise of every object store, whatever its implementation.

An implementation's test file subclasses a suite, provides the `store` fixture and makes one of its prefixes unreadable.
`AgentStoreSuite` is for the stores beside the training; `ObjectStoreSuite` adds the supervisor's own needs: bulk
listings with metadata and the store's time. Every test takes the store alone, so that tests of the suite itself can
call it with a broken one.
"""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.contracts.objectstore_listing import ListingSuite
from tests.contracts.objectstore_objects import ObjectsSuite


class AgentStoreSuite(ObjectsSuite, ListingSuite):
    rounds = 20  # of each writer, listings and reads beside writers; fewer where each is a request over HTTP

    def test_of_16_that_create_one_object_one_wins(self, store: Any) -> None:
        start = threading.Barrier(16)

        def create(n: int) -> str | None:
            start.wait()
            try:
                store.put("runs/a/baton.json", str(n).encode(), self.words.ABSENT, {"n": str(n)})
            except self.words.PreconditionFailed:
                return None
            return str(n)

        with ThreadPoolExecutor(16) as pool:
            winners = [n for n in pool.map(create, range(16)) if n is not None]
        assert len(winners) == 1
        data, info = store.get("runs/a/baton.json")
        assert (data.decode(), info.metadata["n"]) == (winners[0], winners[0])

    def test_compare_and_set_loses_no_count(self, store: Any) -> None:
        store.put("counter", b"0")

        def count(_: int) -> None:
            for _ in range(self.rounds):
                for _ in itertools.count():
                    data, info = store.get("counter")
                    try:
                        store.put("counter", str(int(data) + 1).encode(), if_generation=info.generation)
                    except self.words.PreconditionFailed:
                        continue
                    break

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(count, range(6)))
        assert store.get("counter")[0] == b"%d" % (6 * self.rounds)


class ObjectStoreSuite(AgentStoreSuite):
    def test_ages_come_from_one_clock(self, store: Any) -> None:
        first = store.put("canary/a", b"1")
        (page,) = store.pages("canary/")
        assert 0 <= page.server_time - first.updated < 60
        second = store.put("canary/a", b"2")
        assert second.updated >= first.updated
        (later,) = store.pages("canary/")
        assert later.server_time >= max(page.server_time, second.updated)
        assert [info.updated for info in later.objects] == [second.updated]

    def test_every_page_shows_the_time(self, store: Any) -> None:
        for n in range(5):
            store.put(f"beats/{n}", b"")
        times = [page.server_time for page in store.pages("beats/", 2)]
        assert times == sorted(times)
        assert len(times) == 3

    def test_a_listing_beside_writers_is_complete_and_every_entry_is_of_one_generation(self, store: Any) -> None:
        keys = [f"beats/run-{n:03d}" for n in range(200)]
        written: dict[tuple[str, str], str] = {}
        kept: dict[tuple[str, str], Any] = {}
        for key in keys:
            written[key, store.put(key, b"0", metadata={"n": "0"}).generation] = "0"
        stop = threading.Event()

        def rewrite(mine: list[str]) -> dict[tuple[str, str], str]:
            done = {}
            for n in itertools.count(1):
                for key in mine:
                    if stop.is_set():
                        return done
                    info = store.put(key, str(n).encode(), metadata={"n": str(n)})
                    done[key, info.generation] = str(n)
            return done

        with ThreadPoolExecutor(2) as pool:
            writers = [pool.submit(rewrite, keys[part::2]) for part in range(2)]
            try:
                listings = [_listing(store, kept if number % 2 else None) for number in range(self.rounds)]
                reads = [store.get(key) for key in keys * (self.rounds // 10)]
            finally:
                stop.set()
            for writer in writers:
                written.update(writer.result())
        for listing in listings:
            assert [info.key for info in listing] == keys
            for info in listing:
                assert info.metadata["n"] == written[info.key, info.generation]
        for data, info in reads:
            assert data.decode() == info.metadata["n"] == written[info.key, info.generation]


def _listing(store: Any, kept: dict[tuple[str, str], Any] | None) -> list[Any]:
    """Of the beats. `kept`: the metadata that its caller has, by key and generation, and keeps from now on; None = it
    keeps none."""
    if kept is None:
        return [info for page in store.pages("beats/", 50) for info in page.objects]
    infos = [info for page in store.pages("beats/", 50, lambda *which: which in kept) for info in page.objects]
    for info in infos:
        kept.setdefault((info.key, info.generation), info.metadata)
    return [info._replace(metadata=kept[info.key, info.generation]) for info in infos]
