"""A store in memory that corrupts, loses and forgets objects, and in any of whose calls the agent may be killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervisor.contract.stores.promise import (
    ABSENT,
    ObjectInfo,
    ObjectMissing,
    Page,
    PreconditionFailed,
    StoreUnavailable,
)


class Crash(BaseException):
    """The agent is killed here."""


@dataclass
class CrashingStore:
    """A store in memory. `crash_in`: the agent is killed in this call counted from now, before the change or after
    it."""

    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    count: int = 0
    crash_in: int = 0
    crash_after: bool = False
    spoil: int = 0  # so many uploads are corrupted
    keep_all: int = 0  # so many deletions fail
    lose: int = 0  # so many responses to writes are lost

    def put(self, key: str, data: bytes, if_generation: str | None = None, metadata: Any = None) -> ObjectInfo:
        return self._changing(lambda: self._put(key, data, if_generation))

    def put_file(self, key: str, path: str, if_generation: str | None = None) -> ObjectInfo:
        data = Path(path).read_bytes()
        if self.spoil:
            self.spoil, data = self.spoil - 1, b"spoiled"
        return self._changing(lambda: self._put(key, data, if_generation))

    def _put(self, key: str, data: bytes, if_generation: str | None) -> ObjectInfo:
        present = str(self.objects[key][1]) if key in self.objects else ABSENT
        if if_generation not in (None, present):
            raise PreconditionFailed(key)
        self.count += 1
        self.objects[key] = (data, self.count)
        return self._info(key)

    def delete(self, key: str, if_generation: str | None = None) -> bool:
        if self.keep_all:
            self.keep_all -= 1
            raise StoreUnavailable("away")
        return self._changing(lambda: self.objects.pop(key, None) is not None)

    def get(self, key: str) -> tuple[bytes, ObjectInfo]:
        if key not in self.objects:
            raise ObjectMissing(key)
        return self.objects[key][0], self._info(key)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        yield self.get(key)[0]

    def stat(self, key: str) -> ObjectInfo:
        return self.get(key)[1]

    def pages(self, prefix: str, page_size: int = 1000, is_known: Any = None) -> Iterator[Page]:
        yield Page(tuple(self._info(key) for key in sorted(self.objects) if key.startswith(prefix)), 0.0)

    def _info(self, key: str) -> ObjectInfo:
        data, generation = self.objects[key]
        return ObjectInfo(key, len(data), str(generation), 0.0)

    def _changing(self, deed: Callable[[], Any]) -> Any:
        self.crash_in -= 1
        if self.crash_in == 0 and not self.crash_after:
            raise Crash
        done = deed()
        if self.crash_in == 0:
            raise Crash
        if self.lose:
            self.lose -= 1
            raise StoreUnavailable("the answer was lost")
        return done
