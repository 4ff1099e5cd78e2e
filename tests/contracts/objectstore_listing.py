"""The promise of every object store for listings: order, prefixes, pages, and no listing that is silently
incomplete."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.objectstore_objects import StoreSuite, everything, listed


class ListingSuite(StoreSuite):
    KEYS = ("a-", "a.txt", "a/", "a0", "b/.x", "b/c/d", "b/c.d", "b/c0", "b/é", "b/z", "ba", "é", "日", "🦊")

    def test_keys_come_in_byte_order_whatever_the_page(self, store: Any) -> None:
        keys = [key + "1" for key in self.KEYS]
        for key in reversed(keys):
            store.put(key, b"")
        expected = sorted(keys, key=str.encode)
        for page_size in (1, 2, 3, len(keys), 1000):
            pages = list(store.pages("", page_size))
            assert [info.key for page in pages for info in page.objects] == expected
            assert all(len(page.objects) <= page_size for page in pages)

    def test_a_prefix_may_end_anywhere(self, store: Any) -> None:
        keys = [f"runs/{run}/logs/a{n}/{part:08d}.log" for run in ("x", "xy") for n in (1, 2) for part in (1, 20)]
        keys += ["runs/x/.stop", "beats/x", "beats/xy", "runs.txt"]
        for key in keys:
            store.put(key, b"")
        prefixes = {key[:length] for key in keys for length in range(len(key) + 1)}
        for prefix in [*prefixes, "runs/x/logs/a1/0000", "nothing/here", "runs/zz/"]:
            assert listed(store, prefix) == sorted(key for key in keys if key.startswith(prefix)), prefix

    def test_a_listing_of_nothing_is_one_empty_page(self, store: Any) -> None:
        pages = list(store.pages("beats/"))
        assert [page.objects for page in pages] == [()]

    def test_a_folder_that_was_emptied_lists_nothing(self, store: Any) -> None:
        store.put("runs/a/x/y", b"")
        store.delete("runs/a/x/y")
        assert listed(store, "runs/a/") == listed(store) == []

    @pytest.mark.parametrize("page_size", [0, -1, 1001])
    def test_a_bad_page_size_is_refused(self, store: Any, page_size: int) -> None:
        with pytest.raises(ValueError, match="page_size"):
            list(store.pages("", page_size))

    @pytest.mark.parametrize("prefix", ["/", "../", "a//", "a\x00", "\ud800", "a/../"])
    def test_a_bad_prefix_is_refused(self, store: Any, prefix: str) -> None:
        with pytest.raises(ValueError, match=r"key|prefix"):
            list(store.pages(prefix))

    def test_a_listing_shows_the_info_of_each_object(self, store: Any) -> None:
        for n in range(7):
            store.put(f"beats/r{n}", b"x" * n, metadata={"n": str(n)} if n % 2 else None)
        for _ in range(2):
            assert everything(store) == [store.stat(f"beats/r{n}") for n in range(7)]

    def test_a_caller_that_keeps_metadata_is_not_told_what_it_knows_and_is_told_all_else(self, store: Any) -> None:
        for n in range(7):
            store.put(f"beats/r{n}", b"x" * n, metadata={"n": str(n)} if n % 3 else None)
        kept = {(info.key, info.generation) for info in everything(store)}
        store.put("beats/r2", b"new", metadata={"n": "new"})
        store.put("beats/r3", b"new", metadata={"n": "the first"})
        store.put("beats/r7", b"", metadata={"n": "7"})
        store.delete("beats/r4")
        store.delete("beats/r5")
        again = store.put("beats/r5", b"xxxxx", metadata={"n": "again"})
        for page_size in (3, 1000):
            pages = list(store.pages("beats/", page_size, lambda key, generation: (key, generation) in kept))
            infos = [info for page in pages for info in page.objects]
            whole = [store.stat(f"beats/r{n}") for n in (0, 1, 2, 3, 5, 6, 7)]
            assert [info._replace(metadata={}) for info in infos] == [info._replace(metadata={}) for info in whole]
            for info, complete in zip(infos, whole, strict=True):
                is_known = (info.key, info.generation) in kept
                assert info == complete or (is_known and info.metadata == {})
        assert again in everything(store)
        assert everything(store) == whole
        pages = list(store.pages("beats/", 1000, lambda key, generation: True))
        assert [info.key for page in pages for info in page.objects] == [info.key for info in whole]

    def test_could_not_read_is_not_absent(self, store: Any) -> None:
        store.put("beats/a", b"1")
        store.put("canary/a", b"1")
        self.make_unreadable(store, "beats/")
        for prefix in ("beats/", "beats/a"):
            with pytest.raises(self.words.StoreUnavailable):
                listed(store, prefix)
            with pytest.raises(self.words.StoreUnavailable):
                list(store.pages(prefix, is_known=lambda key, generation: True))
        for look in (store.get, store.stat, lambda key: list(store.read(key))):
            with pytest.raises(self.words.StoreUnavailable):
                look("beats/a")
        with pytest.raises(self.words.StoreUnavailable):
            store.put("beats/a", b"2", if_generation=self.words.ABSENT)
        assert listed(store, "canary/") == ["canary/a"]
