"""The object store as the agent sees it, and since when nobody outside has answered.

`WatchedStore` passes every call on and notes each answer, "there is no such object" included; the push notes its
answers too. An agent that has heard from neither for `cut_off_s` costs money for nobody (RULES section 4).

The .stop marker: its existence is the message, its object generation says which stop it was.

A marker whose generation a resume has used up is ignored everywhere (RULES section 5).
"""

from __future__ import annotations

import os
import time
from typing import Callable, Iterator, Mapping, Optional, Protocol, Tuple, TypeVar, Union

from supervisor.contract import runfiles
from supervisor.contract.stores.errors import ObjectInfo, ObjectMissing, Page, PreconditionFailed

T = TypeVar("T")
StrPath = Union[str, "os.PathLike[str]"]


class Store(Protocol):
    """What the agent needs of an object store; the promises are those of ports/objectstore.py."""

    def put(
        self,
        key: str,
        data: bytes,
        if_generation: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
    ) -> ObjectInfo: ...

    def put_file(self, key: str, path: StrPath, if_generation: Optional[str] = None) -> ObjectInfo: ...

    def get(self, key: str) -> Tuple[bytes, ObjectInfo]: ...

    def read(self, key: str, offset: int = 0, length: Optional[int] = None) -> Iterator[bytes]: ...

    def stat(self, key: str) -> ObjectInfo: ...

    def pages(self, prefix: str, page_size: int = 1000) -> Iterator[Page]: ...

    def delete(self, key: str, if_generation: Optional[str] = None) -> bool: ...


class Reach:
    """How long ago anybody outside this machine answered. Safe to use from every thread."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._answered_at = monotonic()

    def answered(self) -> None:
        self._answered_at = self._monotonic()

    def silent_s(self) -> float:
        return self._monotonic() - self._answered_at


class WatchedStore:
    """A store whose answers are noted in `reach`."""

    def __init__(self, store: Store, reach: Reach) -> None:
        self._store = store
        self._reach = reach

    def put(
        self,
        key: str,
        data: bytes,
        if_generation: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
    ) -> ObjectInfo:
        return self._noted(lambda: self._store.put(key, data, if_generation, metadata))

    def put_file(self, key: str, path: StrPath, if_generation: Optional[str] = None) -> ObjectInfo:
        return self._noted(lambda: self._store.put_file(key, path, if_generation))

    def get(self, key: str) -> Tuple[bytes, ObjectInfo]:
        return self._noted(lambda: self._store.get(key))

    def read(self, key: str, offset: int = 0, length: Optional[int] = None) -> Iterator[bytes]:
        for chunk in self._store.read(key, offset, length):
            self._reach.answered()
            yield chunk

    def stat(self, key: str) -> ObjectInfo:
        return self._noted(lambda: self._store.stat(key))

    def pages(self, prefix: str, page_size: int = 1000) -> Iterator[Page]:
        for page in self._store.pages(prefix, page_size):
            self._reach.answered()
            yield page

    def delete(self, key: str, if_generation: Optional[str] = None) -> bool:
        return self._noted(lambda: self._store.delete(key, if_generation))

    def _noted(self, call: Callable[[], T]) -> T:
        try:
            result = call()
        except (ObjectMissing, PreconditionFailed):
            self._reach.answered()
            raise
        self._reach.answered()
        return result


def fresh_marker(store: Store, run_id: str, *consumed: Optional[str]) -> Optional[str]:
    """The marker's generation, None when there is none or it is one of `consumed`. StoreUnavailable."""
    try:
        generation = store.stat(runfiles.stop_marker(run_id)).generation
    except ObjectMissing:
        return None
    return None if generation in consumed else generation
