"""A real folder store with failures: unavailable, full, responses lost after the change, content corrupted."""

from collections.abc import Callable, Iterator
from typing import Any

from supervisor.contract.stores.folder import FolderStore
from supervisor.contract.stores.promise import StoreFull, StoreUnavailable


class FailingStore:
    """`away`, `full`: until switched off. `lose_answers`, `corrupt_uploads`: for so many calls. `calls` in order."""

    def __init__(self, inner: FolderStore) -> None:
        self.inner, self.url = inner, inner.url
        self.away = False
        self.full = False
        self.lose_answers = 0
        self.corrupt_uploads = 0
        self.calls: list[tuple[str, str]] = []
        self.before_put: Callable[[str], None] = lambda key: None

    def put(self, key: str, data: bytes, if_generation: "str | None" = None, metadata: Any = None) -> Any:
        self._write("put", key)
        self.before_put(key)
        return self._answer(self.inner.put(key, data, if_generation, metadata))

    def put_file(self, key: str, path: Any, if_generation: "str | None" = None) -> Any:
        self._write("put_file", key)
        info = self.inner.put_file(key, path, if_generation)
        if self.corrupt_uploads:
            self.corrupt_uploads -= 1
            self.inner.put(key, b"something else")
        return self._answer(info)

    def get(self, key: str) -> Any:
        self._call("get", key)
        return self.inner.get(key)

    def read(self, key: str, offset: int = 0, length: "int | None" = None) -> Iterator[bytes]:
        self._call("read", key)
        return self.inner.read(key, offset, length)

    def stat(self, key: str) -> Any:
        self._call("stat", key)
        return self.inner.stat(key)

    def pages(self, prefix: str, page_size: int = 1000, is_known: Any = None) -> Any:
        self._call("pages", prefix)
        return self.inner.pages(prefix, page_size, is_known)

    def delete(self, key: str, if_generation: "str | None" = None) -> bool:
        self._call("delete", key)
        return self.inner.delete(key, if_generation)

    def keys(self, prefix: str = "") -> list[str]:
        return [info.key for page in self.inner.pages(prefix) for info in page.objects]

    def _call(self, method: str, key: str) -> None:
        self.calls.append((method, key))
        if self.away:
            raise StoreUnavailable("away")

    def _write(self, method: str, key: str) -> None:
        self._call(method, key)
        if self.full:
            raise StoreFull("no space left")

    def _answer(self, result: Any) -> Any:
        if self.lose_answers:
            self.lose_answers -= 1
            raise StoreUnavailable("the answer was lost")
        return result
