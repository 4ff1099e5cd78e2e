"""A store that counts its calls: the same promises, kept by the store behind it.

A listing is counted page by page, as the platform bills it; a stream once, when it begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from supervisor.ports.objectstore import (
    MAX_PAGE,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    Page,
    PreconditionFailed,
)
from supervisor.telemetry import metrics

T = TypeVar("T")


class CountedStore(ObjectStore):
    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.url = inner.url

    def put(
        self,
        key: str,
        data: bytes,
        if_generation: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        return _counted("put", lambda: self.inner.put(key, data, if_generation, metadata))

    def put_file(self, key: str, path: Path, if_generation: str | None = None) -> ObjectInfo:
        return _counted("put_file", lambda: self.inner.put_file(key, path, if_generation))

    def get(self, key: str) -> tuple[bytes, ObjectInfo]:
        return _counted("get", lambda: self.inner.get(key))

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        found = self.inner.read(key, offset, length)
        first = _counted("read", lambda: next(found, None))
        if first is not None:
            yield first
            yield from found

    def stat(self, key: str) -> ObjectInfo:
        return _counted("stat", lambda: self.inner.stat(key))

    def pages(self, prefix: str, page_size: int = MAX_PAGE) -> Iterator[Page]:
        found = self.inner.pages(prefix, page_size)
        while True:
            try:
                page = _counted("list", lambda: next(found))
            except StopIteration:
                return
            yield page

    def delete(self, key: str, if_generation: str | None = None) -> bool:
        return _counted("delete", lambda: self.inner.delete(key, if_generation))


def _counted(method: str, call: Callable[[], T]) -> T:
    outcome, began = "unavailable", time.perf_counter()
    try:
        found = call()
        outcome = "ok"
        return found
    except (ObjectMissing, PreconditionFailed, ValueError):
        outcome = "answered"  # a clear word of the store
        raise
    except StopIteration:
        outcome = ""  # the page before was the last one: nobody was called
        raise
    finally:
        if outcome:
            metrics.STORE_CALLS.add(method, outcome)
            metrics.STORE_S.observe(time.perf_counter() - began, method)
