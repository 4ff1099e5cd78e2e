"""The suite itself: stores that break one promise each, as real stores do, and the test that catches them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.ports.objectstore import ABSENT, IsKnown, ObjectInfo, ObjectMissing, Page, StoreUnavailable
from tests.contracts.objectstore_suite import ObjectStoreSuite
from tests.contracts.test_filesystem_store import TestFilesystemStore as FilesystemSuite
from tests.fakes.objectstore import MemoryStore

Metadata = Mapping[str, str] | None


class IgnoresConditions(MemoryStore):
    def put(self, key: str, data: bytes, if_generation: str | None = None, metadata: Metadata = None) -> ObjectInfo:
        return super().put(key, data, None, metadata)


class ChecksThenWrites(MemoryStore):
    """Compares without a lock: two writers can both find the generation that they have read."""

    def put(self, key: str, data: bytes, if_generation: str | None = None, metadata: Metadata = None) -> ObjectInfo:
        self._require(key, if_generation)
        time.sleep(0.02)  # long enough for another to pass, on a busy machine too
        return super().put(key, data, None, metadata)


class DeletesAnyGeneration(MemoryStore):
    def delete(self, key: str, if_generation: str | None = None) -> bool:
        return super().delete(key)


class NamesGenerationsByContent(MemoryStore):
    def put(self, key: str, data: bytes, if_generation: str | None = None, metadata: Metadata = None) -> ObjectInfo:
        info = super().put(key, data, if_generation, metadata)._replace(generation=hashlib.sha256(data).hexdigest())
        self._objects[key] = (data, info)
        return info


class WritesMetadataAfterwards(MemoryStore):
    def put(self, key: str, data: bytes, if_generation: str | None = None, metadata: Metadata = None) -> ObjectInfo:
        before = self._objects[key][1].metadata if key in self._objects else None
        info = super().put(key, data, if_generation, before)
        time.sleep(0.0005)
        info = info._replace(metadata=dict(metadata or {}))
        self._objects[key] = (data, info)
        return info


class RemembersMetadataByKey(MemoryStore):
    """A cache without the generation in its key."""

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[str, Mapping[str, str]] = {}

    def pages(self, prefix: str, page_size: int = 1000) -> Iterator[Page]:
        for page in super().pages(prefix, page_size):
            found = (o._replace(metadata=self._first.setdefault(o.key, o.metadata)) for o in page.objects)
            yield Page(tuple(found), page.server_time)


class TellsEachKeyOnce(MemoryStore):
    """Compares the key alone: new content of a known key has no metadata."""

    def __init__(self) -> None:
        super().__init__()
        self._told = set[str]()

    def pages(self, prefix: str, page_size: int = 1000, is_known: IsKnown = None) -> Iterator[Page]:
        for page in super().pages(prefix, page_size):
            told = set() if is_known is None else self._told
            found = (info._replace(metadata={}) if info.key in told else info for info in page.objects)
            yield Page(tuple(found), page.server_time)
            self._told |= {info.key for info in page.objects}


class ListsOnlyNews(MemoryStore):
    def pages(self, prefix: str, page_size: int = 1000, is_known: IsKnown = None) -> Iterator[Page]:
        for page in super().pages(prefix, page_size):
            news = [info for info in page.objects if is_known is None or not is_known(info.key, info.generation)]
            yield Page(tuple(news), page.server_time)


class SortsByParts(MemoryStore):
    """The order of a walk through folders."""

    def pages(self, prefix: str, page_size: int = 1000) -> Iterator[Page]:
        found = [info for page in super().pages(prefix) for info in page.objects]
        found.sort(key=lambda info: info.key.split("/"))
        for start in range(0, max(len(found), 1), page_size):
            yield Page(tuple(found[start : start + page_size]), time.time())


class KnowsFoldersOnly(MemoryStore):
    def pages(self, prefix: str, page_size: int = 1000) -> Iterator[Page]:
        return super().pages(prefix[: prefix.rfind("/") + 1], page_size)


class SaysNothingOfNothing(MemoryStore):
    def pages(self, prefix: str, page_size: int = 1000) -> Iterator[Page]:
        return (page for page in super().pages(prefix, page_size) if page.objects)


class TellsItsOwnTime(MemoryStore):
    """The time of the reader's machine with times of the store."""

    def pages(self, prefix: str, page_size: int = 1000) -> Iterator[Page]:
        return (Page(page.objects, page.server_time - 3600) for page in super().pages(prefix, page_size))


class OpensForEachPiece(MemoryStore):
    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        end = self.stat(key).size if length is None else offset + length
        while piece := self.get(key)[0][offset : min(offset + 65536, end)]:
            yield piece
            offset += len(piece)


class TakesAnyKey(MemoryStore):
    """Would write outside its folder."""

    def delete(self, key: str, if_generation: str | None = None) -> bool:
        return super().delete(key.replace("..", "_").strip("/") or "_", if_generation)


class UnreadableIsEmpty(FilesystemStore):
    def pages(self, prefix: str, page_size: int = 1000) -> Iterator[Page]:
        try:
            yield from super().pages(prefix, page_size)
        except StoreUnavailable:
            yield Page((), time.time())


class UnreadableIsAbsent(FilesystemStore):
    def get(self, key: str) -> tuple[bytes, ObjectInfo]:
        try:
            return super().get(key)
        except StoreUnavailable:
            raise ObjectMissing(key) from None


class WritesInPlace(FilesystemStore):
    """No temporary file, no rename: readers see a partial or an empty file."""

    def put(self, key: str, data: bytes, if_generation: str | None = None, metadata: Metadata = None) -> ObjectInfo:
        if metadata or if_generation is not None:
            return super().put(key, data, if_generation, metadata)
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return self.stat(key)


SUITE = ObjectStoreSuite
ON_MEMORY = [
    (IgnoresConditions, SUITE.test_if_absent),
    (IgnoresConditions, SUITE.test_if_generation),
    (IgnoresConditions, SUITE.test_of_16_that_create_one_object_one_wins),
    (ChecksThenWrites, SUITE.test_of_16_that_create_one_object_one_wins),
    (ChecksThenWrites, SUITE.test_compare_and_set_loses_no_count),
    (DeletesAnyGeneration, SUITE.test_delete),
    (NamesGenerationsByContent, SUITE.test_a_generation_is_never_used_again),
    (WritesMetadataAfterwards, SUITE.test_a_listing_beside_writers_is_complete_and_every_entry_is_of_one_generation),
    (RemembersMetadataByKey, SUITE.test_new_content_has_a_new_generation_and_its_own_metadata),
    (TellsEachKeyOnce, SUITE.test_a_caller_that_keeps_metadata_is_not_told_what_it_knows_and_is_told_all_else),
    (ListsOnlyNews, SUITE.test_a_caller_that_keeps_metadata_is_not_told_what_it_knows_and_is_told_all_else),
    (ListsOnlyNews, SUITE.test_a_listing_beside_writers_is_complete_and_every_entry_is_of_one_generation),
    (SortsByParts, SUITE.test_keys_come_in_byte_order_whatever_the_page),
    (KnowsFoldersOnly, SUITE.test_a_prefix_may_end_anywhere),
    (SaysNothingOfNothing, SUITE.test_a_listing_of_nothing_is_one_empty_page),
    (TellsItsOwnTime, SUITE.test_ages_come_from_one_clock),
    (OpensForEachPiece, SUITE.test_a_stream_stays_in_its_first_generation),
]
CAUGHT = (AssertionError, pytest.fail.Exception, ObjectMissing, StopIteration)


@pytest.mark.parametrize(("broken", "test"), ON_MEMORY, ids=lambda value: value.__name__)
def test_a_broken_promise_is_caught(broken: type[MemoryStore], test: Any) -> None:
    test(SUITE(), MemoryStore())
    with pytest.raises(CAUGHT):
        test(SUITE(), broken())


@pytest.mark.parametrize("broken", [UnreadableIsEmpty, UnreadableIsAbsent])
def test_a_store_that_reports_unreadable_as_absent_is_caught(broken: type[FilesystemStore], tmp_path: Path) -> None:
    FilesystemSuite().test_could_not_read_is_not_absent(FilesystemStore.create(tmp_path / "whole"))
    with pytest.raises(CAUGHT):
        FilesystemSuite().test_could_not_read_is_not_absent(broken.create(tmp_path / "broken"))


def test_a_store_that_writes_in_place_is_caught(tmp_path: Path) -> None:
    with pytest.raises(CAUGHT):
        SUITE().test_a_stream_stays_in_its_first_generation(WritesInPlace.create(tmp_path))


def test_a_store_that_accepts_any_key_is_caught(tmp_path: Path) -> None:
    with pytest.raises(CAUGHT):
        SUITE().test_a_bad_key_is_refused_everywhere(TakesAnyKey(), tmp_path, "../outside")


def test_absent_is_no_generation() -> None:
    assert MemoryStore().put("a", b"").generation != ABSENT
