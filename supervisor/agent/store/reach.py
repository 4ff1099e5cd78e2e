"""The object store as the agent sees it: watched, waited for, its baton changed, its files believed by their sha256.

Watched: `WatchedStore` notes each answer, "there is no such object" included; the push notes its answers too. An agent
that has heard from neither for `cut_off_s` costs money for nobody (RULES section 4). The .stop marker's existence is
the message; its generation says which stop it was, and one that a resume has used up is ignored (RULES section 5).

Waited for: could not read is not absent, could not write is not done. `Patience` repeats a call, with growing pauses,
until the store answers or `gives_up` says that waiting is over. Everything repeated here is safe to repeat.

The baton: compare-and-set around the pure functions of contract/baton.py. A lost answer is no error: the next look
finds the change already made, and the pure function gives back what it was given. A baton that is torn or missing is
unreadable: nobody decides anything on it.

Files: an upload counts when the content was read back and hashed, a download when its hash is the promised one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from typing import Any, Callable, Iterable, Iterator, Optional, Tuple, TypeVar, cast

from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.baton import Baton, FileEntry, decode, encode
from supervisor.contract.identifiers import parse_launch_id
from supervisor.contract.stores.promise import (
    MAX_PAGE,
    ObjectMissing,
    ObjectStore,
    Page,
    PreconditionFailed,
    StoreUnavailable,
)

T = TypeVar("T")
Call = TypeVar("Call", bound=Callable[..., Any])
FIRST_PAUSE_S, LAST_PAUSE_S, LOOK_S = 0.2, 5.0, 0.1
_log = logging.getLogger("agent")
_ROUNDS = 20  # supervisor and agents change it a few times an hour; more rounds than this mean something is wrong
_CHUNK_BYTES = 1 << 20
TRIES = 3


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

    def __init__(self, store: ObjectStore, reach: Reach) -> None:
        self._store, self._reach = store, reach
        self.url = store.url
        self.put, self.put_file = self._noted(store.put), self._noted(store.put_file)
        self.get, self.stat = self._noted(store.get), self._noted(store.stat)
        self.delete = self._noted(store.delete)

    def read(self, key: str, offset: int = 0, length: Optional[int] = None) -> Iterator[bytes]:
        for chunk in self._store.read(key, offset, length):
            self._reach.answered()
            yield chunk

    def pages(self, prefix: str, page_size: int = MAX_PAGE) -> Iterator[Page]:
        for page in self._store.pages(prefix, page_size):
            self._reach.answered()
            yield page

    def _noted(self, call: Call) -> Call:
        """The same call; a clear "no" is an answer too."""

        def noted(*given: Any, **named: Any) -> Any:
            try:
                result = call(*given, **named)
            except (ObjectMissing, PreconditionFailed):
                self._reach.answered()
                raise
            self._reach.answered()
            return result

        return cast(Call, noted)


def fresh_marker(store: ObjectStore, run_id: str, *consumed: Optional[str]) -> Optional[str]:
    """The marker's generation, None when there is none or it is one of `consumed`. StoreUnavailable."""
    try:
        generation = store.stat(runfiles.stop_marker(run_id)).generation
    except ObjectMissing:
        return None
    return None if generation in consumed else generation


class GaveUp(Exception):
    """Waiting is over; what was to be done was not done, or its answer never came."""


class Patience:
    """`gives_up` is asked before each call and ten times a second in between; `tell` gets the latest trouble, "" when
    it is over."""

    def __init__(
        self,
        gives_up: Callable[[], bool],
        tell: Callable[[str], None] = lambda text: None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gives_up, self._tell, self._monotonic, self._sleep = gives_up, tell, monotonic, sleep

    def insist(self, what: str, deed: Callable[[], T]) -> T:
        """The result of `deed`, called until it raises no StoreUnavailable. Raises GaveUp; other errors pass."""
        pause_s, troubled = FIRST_PAUSE_S, False
        while True:
            self.check(what)
            try:
                result = deed()
            except StoreUnavailable as error:
                if not troubled:
                    _log.warning("%s: %s; trying again", what, error)
                troubled = True
                self._tell("%s: %s" % (what, error))
            else:
                if troubled:
                    _log.info("%s: the object store answers again", what)
                    self._tell("")
                return result
            self.pause(what, pause_s)
            pause_s = min(pause_s * 2, LAST_PAUSE_S)

    def pause(self, what: str, for_s: float) -> None:
        """Wait, looking up often. Raises GaveUp."""
        until = self._monotonic() + for_s
        while self._monotonic() < until:
            self.check(what)
            self._sleep(min(LOOK_S, for_s))

    def check(self, what: str) -> None:
        """Raises GaveUp when waiting is over. For loops that work between store calls."""
        if self._gives_up():
            raise GaveUp(what)


class BatonUnreadable(StoreUnavailable):
    """The store answers, but its baton is missing or torn; the text is for the beat."""


class BatonKeeper:
    """The baton of one run. Errors of every method: StoreUnavailable, of which BatonUnreadable is one."""

    def __init__(self, store: ObjectStore, run_id: str) -> None:
        self._store = store
        self._key = runfiles.baton(run_id)

    def read(self) -> Baton:
        return self._read()[0]

    def change(self, step: Callable[[Baton], Baton]) -> Baton:
        """The baton after `step`, which is called anew on each fresh look and raises BatonRefused to give up."""
        for _ in range(_ROUNDS):
            before, generation = self._read()
            after = step(before)
            if after == before:
                return before
            try:
                self._store.put(self._key, encode(after), if_generation=generation)
            except PreconditionFailed:
                continue
            return after
        raise StoreUnavailable("%s changes faster than it can be changed" % self._key)

    def _read(self) -> Tuple[Baton, str]:
        try:
            raw, info = self._store.get(self._key)
            return decode(raw), info.generation
        except ObjectMissing:
            raise BatonUnreadable("%s is not there" % self._key) from None
        except ValueError as error:
            raise BatonUnreadable("%s cannot be understood: %s" % (self._key, error)) from None


def left_word(verdict: str) -> str:
    """The beat's word for a verdict that ends writing."""
    return heartbeat.CLOSED if verdict == rules.OVER else heartbeat.SUPERSEDED


def why_lost(keeper: BatonKeeper, launch_id: str, machine_id: str) -> str:
    """The beat's word for a change that was refused."""
    try:
        return left_word(rules.standing(keeper.read(), launch_id, machine_id, 0.0))
    except StoreUnavailable:
        return heartbeat.SUPERSEDED


def superseded(baton: Baton, launch_id: str) -> bool:
    """A newer try is next: the holder finishes its save in flight and leaves."""
    if baton.next is None:
        return False
    return superseding(baton.next.launch_id, launch_id)


def superseding(newer: str, other: str) -> bool:
    """One launch is newer than the other."""
    return parse_launch_id(newer) > parse_launch_id(other)


class Mismatch(Exception):
    """The content is not what it should be, or is not there; the text says which file."""


def nothing() -> None:
    """The `between` of a transfer that nobody interrupts."""


def hash_file(path: str, name: str, between: Callable[[], None] = nothing) -> FileEntry:
    """Size and sha256 of the file at `path`, under `name`. OSError."""
    with open(path, "rb") as source:
        size, digest = _hash(iter(lambda: source.read(_CHUNK_BYTES), b""), between)
    return FileEntry(name, size, digest)


def hash_start(path: str, size: int) -> str:
    """The sha256 of the first `size` bytes of the file at `path`, or of all where it is shorter. OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as source:
        while size > 0:
            data = source.read(min(_CHUNK_BYTES, size))
            if not data:
                break
            digest.update(data)
            size -= len(data)
    return digest.hexdigest()


def upload(store: ObjectStore, prefix: str, path: str, entry: FileEntry, between: Callable[[], None] = nothing) -> None:
    """Write the file and read it back. `between` is called between chunks and may raise to give up.

    Raises Mismatch, StoreUnavailable, OSError (the local file), ValueError (a name that no key can have).
    """
    key = prefix + entry.name
    between()
    store.put_file(key, path)
    try:
        arrived = _hash(store.read(key), between)
    except ObjectMissing:
        raise Mismatch("%s is not there after its upload" % entry.name) from None
    if arrived != (entry.size, entry.sha256):
        raise Mismatch("%s differs after its upload" % entry.name)


def upload_file(
    store: ObjectStore, prefix: str, path: str, *, name: str, between: Callable[[], None], if_generation: str
) -> Tuple[FileEntry, str]:
    """Write the file and read it back beside the local one, byte by byte: one hash tells of both. With the generation
    that it now has.

    Raises Mismatch (also when the file is written to meanwhile), PreconditionFailed, StoreUnavailable, OSError,
    ValueError.
    """
    key = prefix + name
    between()
    info = store.put_file(key, path, if_generation)
    with open(path, "rb") as source:

        def same() -> Iterable[bytes]:
            for chunk in store.read(key):
                if source.read(len(chunk)) != chunk:
                    raise Mismatch("%s differs after its upload" % name)
                yield chunk
            if source.read(1):
                raise Mismatch("%s is cut off after its upload" % name)

        try:
            size, digest = _hash(same(), between)
        except ObjectMissing:
            raise Mismatch("%s is not there after its upload" % name) from None
    return FileEntry(name, size, digest), info.generation


def no_link(path: str, flags: int) -> int:
    """An opener for a file that we write: through no link that somebody laid in its place."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def download(
    store: ObjectStore, prefix: str, path: str, entry: FileEntry, between: Callable[[], None] = nothing
) -> None:
    """Write the object to `path`, durably. Raises Mismatch, StoreUnavailable, OSError."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb", opener=no_link) as target:

        def chunks() -> Iterable[bytes]:
            for chunk in store.read(prefix + entry.name):
                target.write(chunk)
                yield chunk

        try:
            arrived = _hash(chunks(), between)
        except ObjectMissing:
            raise Mismatch("%s is not in the store" % entry.name) from None
        except ValueError:
            raise Mismatch("%s cannot be a name in the store" % entry.name) from None
        if arrived != (entry.size, entry.sha256):
            raise Mismatch("%s differs from its checksum" % entry.name)
        target.flush()
        os.fsync(target.fileno())


def _hash(chunks: Iterable[bytes], between: Callable[[], None]) -> Tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        between()
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()
