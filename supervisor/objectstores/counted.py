"""A store that counts its calls and passes them to another store.

Each page of a listing counts, as the platform bills it; a stream counts once, when it begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from supervisor.ports.objectstore import MAX_PAGE, IsKnown, ObjectMissing, ObjectStore, Page, PreconditionFailed
from supervisor.telemetry import metrics

P = ParamSpec("P")
T = TypeVar("T")


class CountedStore:
    """ObjectStore of ports/objectstore.py."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.url = inner.url
        self.put, self.put_file = _counted("put", inner.put), _counted("put_file", inner.put_file)
        self.get, self.stat = _counted("get", inner.get), _counted("stat", inner.stat)
        self.delete = _counted("delete", inner.delete)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        stream = self.inner.read(key, offset, length)
        first = _counted("read", lambda: next(stream, None))()
        if first is not None:
            yield first
            yield from stream

    def pages(self, prefix: str, page_size: int = MAX_PAGE, is_known: IsKnown = None) -> Iterator[Page]:
        listing = self.inner.pages(prefix, page_size, is_known)
        while True:
            try:
                page = _counted("list", lambda: next(listing))()
            except StopIteration:
                return
            yield page


def _counted(method: str, call: Callable[P, T]) -> Callable[P, T]:
    """The same call, counted with its outcome and its time."""

    def counted(*given: P.args, **named: P.kwargs) -> T:
        outcome, began = "unavailable", time.perf_counter()
        try:
            result = call(*given, **named)
            outcome = "ok"
            return result
        except (ObjectMissing, PreconditionFailed, ValueError):
            outcome = "answered"  # a clear response of the store
            raise
        except StopIteration:
            outcome = ""  # the page before was the last one: there was no call
            raise
        finally:
            if outcome:
                metrics.STORE_CALLS.add(method, outcome)
                metrics.STORE_S.observe(time.perf_counter() - began, method)

    return counted
