"""The promise of every object store for one object: content, generations, conditions, keys."""

from __future__ import annotations

import hashlib
from types import ModuleType
from typing import Any

import pytest

from supervisor.ports import objectstore as port

LARGE = bytes(range(256)) * 12_345  # 3 MB, no two pieces of a store's chunk size alike in place
HOSTILE_KEYS = [
    "", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/..", "a/../../b", "a/./b", "a\x00b", "a\ud800",
    "k" * 513, "é" * 257, "x/" * 256 + "y", "a/" + "p" * 256,
]  # fmt: skip
ODD_KEYS = [
    ".stop", "runs/x/.stop", "...", "a..b", "-rf", "~", "*?[x]", "a b", "it's", 'a"b', "50%2F", "#x?y=1",
    "ü/日本", "🦊", "a\\b", "con", "p" * 255, "/".join(["q" * 63] * 8),
]  # fmt: skip


def listed(store: Any, prefix: str = "", page_size: int = port.MAX_PAGE) -> list[str]:
    return [info.key for page in store.pages(prefix, page_size) for info in page.objects]


def everything(store: Any) -> list[Any]:
    return [info for page in store.pages("") for info in page.objects]


class StoreSuite:
    words: ModuleType = port  # the module with the store's errors and ABSENT

    @pytest.fixture
    def store(self) -> Any:
        raise NotImplementedError

    def make_unreadable(self, store: Any, prefix: str) -> None:
        """From now on the store cannot read the objects under `prefix`, which ends in a slash."""
        raise NotImplementedError


class ObjectsSuite(StoreSuite):
    # --- one object ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("data", [b"", b"one", b"\x00\xff\r\n", LARGE], ids=["empty", "text", "binary", "large"])
    def test_a_written_object_is_read_unchanged(self, store: Any, data: bytes) -> None:
        put = store.put("runs/a/x.bin", data, metadata={"beat": '{"step": 1}', "é": "\n"})
        read, info = store.get("runs/a/x.bin")
        assert read == data
        assert info == put == store.stat("runs/a/x.bin")
        assert (info.key, info.size) == ("runs/a/x.bin", len(data))
        assert dict(info.metadata) == {"beat": '{"step": 1}', "é": "\n"}
        assert b"".join(store.read("runs/a/x.bin")) == data

    def test_an_absent_object_is_missing_and_nothing_else(self, store: Any) -> None:
        store.put("runs/a/b", b"x")
        for key in ("runs/a/c", "runs/a", "runs", "elsewhere/x"):
            for look in (store.get, store.stat, lambda key: list(store.read(key))):
                with pytest.raises(self.words.ObjectMissing):
                    look(key)
            assert store.delete(key) is False

    def test_new_content_has_a_new_generation_and_its_own_metadata(self, store: Any) -> None:
        first = store.put("beats/a", b"1", metadata={"n": "1"})
        assert [dict(info.metadata) for info in everything(store)] == [{"n": "1"}]
        second = store.put("beats/a", b"2", metadata={"n": "2"})
        assert second.generation != first.generation
        assert [dict(info.metadata) for info in everything(store)] == [{"n": "2"}]
        third = store.put("beats/a", b"3")
        assert third.generation not in {first.generation, second.generation}
        assert store.get("beats/a")[1] == third
        assert [dict(info.metadata) for info in everything(store)] == [{}]

    def test_metadata_has_a_limit_that_every_store_keeps(self, store: Any) -> None:
        for metadata in ({"beat": "x" * 8188}, {"é": "日" * 2730}, {"a": "b" * 4000, "c": "d" * 4190}):
            info = store.put("beats/a", b"", metadata=metadata)
            assert dict(store.stat("beats/a").metadata) == dict(info.metadata) == metadata
            key = next(iter(metadata))
            with pytest.raises(ValueError, match="8192"):
                store.put("beats/a", b"more", metadata={**metadata, key: metadata[key] + "x"})
            assert store.stat("beats/a") == info

    def test_a_generation_is_never_used_again(self, store: Any) -> None:
        seen = set()
        for n in range(60):
            seen.add(store.put("beats/a", b"same").generation)
            if n % 3 == 0:
                store.delete("beats/a")
        assert len(seen) == 60
        assert self.words.ABSENT not in seen

    def test_if_absent(self, store: Any) -> None:
        first = store.put("a/b", b"first", if_generation=self.words.ABSENT)
        with pytest.raises(self.words.PreconditionFailed):
            store.put("a/b", b"second", if_generation=self.words.ABSENT, metadata={"n": "2"})
        assert store.get("a/b") == (b"first", first)
        store.delete("a/b")
        store.put("a/b", b"third", if_generation=self.words.ABSENT)
        assert store.get("a/b")[0] == b"third"

    def test_if_generation(self, store: Any) -> None:
        with pytest.raises(self.words.PreconditionFailed):
            store.put("a/b", b"nothing there", if_generation="12345")
        assert listed(store) == []
        first = store.put("a/b", b"first")
        second = store.put("a/b", b"second", if_generation=first.generation)
        for stale in (first.generation, "1", "not a generation"):
            with pytest.raises(self.words.PreconditionFailed):
                store.put("a/b", b"stale", if_generation=stale)
        assert store.get("a/b") == (b"second", second)

    def test_delete(self, store: Any) -> None:
        old = store.put("runs/a/.stop", b"")
        new = store.put("runs/a/.stop", b"")
        with pytest.raises(self.words.PreconditionFailed):
            store.delete("runs/a/.stop", if_generation=old.generation)
        assert store.stat("runs/a/.stop") == new
        assert store.delete("runs/a/.stop", if_generation=new.generation) is True
        with pytest.raises(self.words.ObjectMissing):
            store.stat("runs/a/.stop")
        assert store.delete("runs/a/.stop", if_generation=new.generation) is False
        assert store.delete("runs/a/.stop") is False

    def test_a_file_is_written_like_bytes(self, store: Any, tmp_path: Any) -> None:
        source = tmp_path / "model.bin"
        source.write_bytes(LARGE)
        info = store.put_file("runs/a/checkpoints/100-a1/model.bin", source, if_generation=self.words.ABSENT)
        assert store.get(info.key) == (LARGE, info)
        assert source.read_bytes() == LARGE
        source.write_bytes(b"changed later")
        assert hashlib.sha256(b"".join(store.read(info.key))).digest() == hashlib.sha256(LARGE).digest()
        with pytest.raises(self.words.PreconditionFailed):
            store.put_file(info.key, source, if_generation=self.words.ABSENT)
        with pytest.raises(FileNotFoundError):
            store.put_file(info.key, tmp_path / "no such file")
        assert store.stat(info.key) == info

    def test_reading_a_part(self, store: Any) -> None:
        store.put("log", LARGE)
        size = len(LARGE)
        for offset, length in [(0, 0), (0, 1), (5, 10), (1_000_000, 1_500_000), (size - 3, 100), (size, 5)]:
            assert b"".join(store.read("log", offset, length)) == LARGE[offset : offset + length]
        assert b"".join(store.read("log", size - 4)) == LARGE[-4:]
        assert b"".join(store.read("log", size + 10)) == b""
        for offset, length in [(-1, None), (0, -1)]:
            with pytest.raises(ValueError, match="negative"):
                list(store.read("log", offset, length))

    def test_a_stream_stays_in_its_first_generation(self, store: Any) -> None:
        store.put("log", LARGE)
        stream = store.read("log")
        read = next(stream)
        store.put("log", b"replaced")
        store.delete("log")
        assert read + b"".join(stream) == LARGE

    # --- keys ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("key", HOSTILE_KEYS, ids=lambda key: ascii(key)[:24])
    def test_a_bad_key_is_refused_everywhere(self, store: Any, tmp_path: Any, key: str) -> None:
        source = tmp_path / "source"
        source.write_bytes(b"x")
        calls = [
            lambda: store.put(key, b"x"),
            lambda: store.put_file(key, source),
            lambda: store.get(key),
            lambda: list(store.read(key)),
            lambda: store.stat(key),
            lambda: store.delete(key),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="key"):
                call()
        assert listed(store) == []

    @pytest.mark.parametrize("key", ODD_KEYS, ids=lambda key: ascii(key)[:24])
    def test_an_odd_key_is_a_key(self, store: Any, key: str) -> None:
        info = store.put(key, b"odd", metadata={"k": "v"})
        assert store.get(key) == (b"odd", info)
        assert listed(store) == listed(store, key) == [key]
        assert store.delete(key) is True
        assert listed(store) == []

    @pytest.mark.parametrize("keys", [("a", "a/b"), ("a/b", "a"), ("a/b/c/d", "a/b")])
    def test_a_key_that_is_the_folder_of_another_is_separate_or_refused(
        self, store: Any, keys: tuple[str, str]
    ) -> None:
        first = store.put(keys[0], b"first", metadata={"n": "1"})
        try:
            store.put(keys[1], b"second")
        except (ValueError, self.words.StoreUnavailable):
            assert listed(store) == [keys[0]]
        else:
            assert store.get(keys[1])[0] == b"second"
        assert store.get(keys[0]) == (b"first", first)
