"""The agent's access to the object store: watched, retried, the baton changed, files verified by their sha256.

Watched: `WatchedStore` notes each response, "there is no such object" included; the push notes its responses too. An
agent that has had no response from either for `cut_off_s` costs money without a use (RULES section 4).

Retried: could not read is not absent, could not write is not done. `Retrier` repeats a call, with growing backoffs,
until the store responds or `gives_up` ends the waiting. Every call that is retried here is safe to repeat.

The baton: compare-and-set around the pure functions of contract/baton.py. A lost response is no error: the next read
finds the change already made, and the pure function returns its input. A torn or missing baton is unreadable: nothing
is decided on it. The claim is the only way to the right to write anything of a run (RULES section 1).

Files: an upload counts when the content was read back and hashed, a download when its hash is the expected one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
from typing import Any, Callable, Iterable, Iterator, Optional, Tuple, Type, TypeVar, cast

from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.baton import Baton, BatonRefused, FileEntry, decode, encode
from supervisor.contract.identifiers import parse_launch_id
from supervisor.contract.runfiles import Orders
from supervisor.contract.stores.promise import (
    MAX_PAGE,
    IsKnown,
    ObjectMissing,
    ObjectStore,
    Page,
    PreconditionFailed,
    StoreUnavailable,
)

T = TypeVar("T")
Call = TypeVar("Call", bound=Callable[..., Any])
FIRST_BACKOFF_S, MAX_BACKOFF_S, CHECK_S = 0.2, 5.0, 0.1
CLAIM_CHECK_S = 1.0
TRIES = 3  # of a transfer whose content was wrong
_ROUNDS = 20  # supervisor and agents change the baton a few times an hour; more rounds mean that something is wrong
_CHUNK_BYTES = 1 << 20
_log = logging.getLogger("agent")


class Contact:
    """How long ago anything outside this machine responded. Safe to use from every thread."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._responded_at = monotonic()

    def responded(self) -> None:
        self._responded_at = self._monotonic()

    def silent_s(self) -> float:
        return self._monotonic() - self._responded_at


class WatchedStore:
    """A store whose responses are noted in `contact`."""

    def __init__(self, store: ObjectStore, contact: Contact) -> None:
        self._store, self._contact = store, contact
        self.url = store.url
        self.put, self.put_file = self._noted(store.put), self._noted(store.put_file)
        self.get, self.stat = self._noted(store.get), self._noted(store.stat)
        self.delete = self._noted(store.delete)

    def read(self, key: str, offset: int = 0, length: Optional[int] = None) -> Iterator[bytes]:
        for chunk in self._store.read(key, offset, length):
            self._contact.responded()
            yield chunk

    def pages(self, prefix: str, page_size: int = MAX_PAGE, is_known: IsKnown = None) -> Iterator[Page]:
        for page in self._store.pages(prefix, page_size, is_known):
            self._contact.responded()
            yield page

    def _noted(self, call: Call) -> Call:
        """The same call; a clear "no" is a response too."""

        def noted(*args: Any, **options: Any) -> Any:
            try:
                result = call(*args, **options)
            except (ObjectMissing, PreconditionFailed):
                self._contact.responded()
                raise
            self._contact.responded()
            return result

        return cast(Call, noted)


class GaveUp(Exception):
    """Waiting is over; the action was not done, or its response never came."""


class Retrier:
    """`gives_up` is called before each try and ten times a second in between. `report` gets the latest problem, "" when
    it is over."""

    def __init__(
        self,
        gives_up: Callable[[], bool],
        report: Callable[[str], None] = lambda text: None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gives_up, self._report, self.monotonic, self._sleep = gives_up, report, monotonic, sleep

    def call(
        self, what: str, action: Callable[..., T], *args: Any, final: Tuple[Type[StoreUnavailable], ...] = ()
    ) -> T:
        """The result of action(*args), called until it raises no StoreUnavailable. Raises GaveUp; other errors and
        those in `final` pass. `what`: the action, for the log and for `report`."""
        backoff_s, is_failing = FIRST_BACKOFF_S, False
        while True:
            self.check(what)
            try:
                result = action(*args)
            except final:
                raise
            except StoreUnavailable as error:
                if not is_failing:
                    _log.warning("%s: %s; retrying", what, error)
                is_failing = True
                self._report("%s: %s" % (what, error))
            else:
                if is_failing:
                    _log.info("%s: the object store responds again", what)
                    self._report("")
                return result
            self.wait(what, backoff_s)
            backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)

    def wait(self, what: str, for_s: float) -> None:
        """Wait, with frequent checks. Raises GaveUp."""
        until = self.monotonic() + for_s
        while self.monotonic() < until:
            self.check(what)
            self._sleep(min(CHECK_S, for_s))

    def check(self, what: str) -> None:
        """Raises GaveUp when waiting is over. For loops that work between store calls."""
        if self._gives_up():
            raise GaveUp(what)


class BatonUnreadable(StoreUnavailable):
    """The store responds, but its baton is missing or torn; the text is for the beat."""


class BatonKeeper:
    """The baton of one run, for the agent with this launch id and machine id. Errors of every method: StoreUnavailable,
    of which BatonUnreadable is one kind."""

    def __init__(self, store: ObjectStore, run_id: str, launch_id: str, machine_id: str) -> None:
        self._store = store
        self._key = runfiles.baton(run_id)
        self.holder = (launch_id, machine_id)

    def read(self) -> Baton:
        return self._read()[0]

    def standing(self, baton: Baton, waited_s: float = 0.0) -> str:
        return rules.standing(baton, *self.holder, waited_s)

    def change(self, step: Callable[..., Baton], *args: Any) -> Baton:
        """The baton after `step(baton, launch_id, machine_id, *args)`, which is called again on each fresh baton and
        raises BatonRefused to give up."""
        for _ in range(_ROUNDS):
            before, generation = self._read()
            after = step(before, *self.holder, *args)
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

    def lost_reason(self) -> str:
        """The beat's word for a change that was refused."""
        try:
            return left_reason(self.standing(self.read()))
        except StoreUnavailable:
            return heartbeat.SUPERSEDED


class StandDown(Exception):
    """This agent must stop and write nothing. `left`: the beat's word for it."""

    def __init__(self, left: str) -> None:
        super().__init__(left)
        self.left = left


def claim(keeper: BatonKeeper, retrier: Retrier, report: Callable[[str], None]) -> Baton:
    """The baton with this agent as its holder. It waits while the old holder has neither left nor been marked gone;
    `standing` ends the wait. Raises StandDown, GaveUp."""
    waits_since: Optional[float] = None
    while True:
        baton = retrier.call("reading the baton", keeper.read)
        waited_s = 0.0 if waits_since is None else retrier.monotonic() - waits_since
        verdict = keeper.standing(baton, waited_s)
        if verdict in (rules.OVER, rules.OUTDATED):
            raise StandDown(left_reason(verdict))
        if verdict == rules.WAIT:
            waits_since = retrier.monotonic() if waits_since is None else waits_since
            report("waiting for the previous machine to leave")
            retrier.wait("waiting for the baton", CLAIM_CHECK_S)
            continue
        report("")
        try:
            return retrier.call("claiming the baton", keeper.change, rules.claim, waited_s)
        except BatonRefused:
            continue  # it changed since it was read: judge the new one


def left_reason(verdict: str) -> str:
    """The beat's word for a verdict that ends writing."""
    return heartbeat.CLOSED if verdict == rules.OVER else heartbeat.SUPERSEDED


def superseded(baton: Baton, launch_id: str) -> bool:
    """A newer try is next: the holder finishes its save and leaves."""
    return baton.next is not None and is_newer(baton.next.launch_id, launch_id)


def is_newer(launch_id: str, other: str) -> bool:
    return parse_launch_id(launch_id) > parse_launch_id(other)


def new_stop_marker(store: ObjectStore, run_id: str, *consumed: Optional[str]) -> Optional[str]:
    """The generation of the .stop marker, None when there is none or a resume has consumed it (RULES section 5).
    StoreUnavailable."""
    try:
        generation = store.stat(runfiles.stop_marker(run_id)).generation
    except ObjectMissing:
        return None
    return None if generation in consumed else generation


def read_orders(store: ObjectStore, run_id: str) -> Tuple[Orders, float]:
    """(what people want of the living run, when it was written by the store's clock); empty where they want nothing.
    StoreUnavailable."""
    try:
        raw, info = store.get(runfiles.orders(run_id))
        return runfiles.decode_orders(raw), info.updated
    except ObjectMissing:
        return Orders(), 0.0
    except ValueError as error:
        raise StoreUnavailable(str(error)) from None


class Mismatch(Exception):
    """The content is wrong or missing; the text says which file."""


class Transfer:
    """Verified uploads and downloads. `what`: the action, for the log and the beat. Every method raises GaveUp when
    waiting is over, also between two chunks, Mismatch, and OSError of the local file."""

    def __init__(self, store: ObjectStore, retrier: Retrier, what: str) -> None:
        self._store, self._retrier, self._what = store, retrier, what

    def check(self) -> None:
        """Raises GaveUp when waiting is over."""
        self._retrier.check(self._what)

    def upload(self, prefix: str, path: str, entry: FileEntry, final: Tuple[Type[StoreUnavailable], ...] = ()) -> None:
        """Write the file and read it back; up to TRIES times when the content differs. Raises also ValueError (no key
        can have this name) and the errors in `final`."""
        retry_mismatch(lambda: self._retrier.call(self._what, self._upload, prefix, path, entry, final=final))

    def _upload(self, prefix: str, path: str, entry: FileEntry) -> None:
        key = prefix + entry.name
        self.check()
        self._store.put_file(key, path)
        try:
            stored = _hash(self._store.read(key), self.check)
        except ObjectMissing:
            raise Mismatch("%s is not there after its upload" % entry.name) from None
        if stored != (entry.size, entry.sha256):
            raise Mismatch("%s differs after its upload" % entry.name)

    def upload_unhashed(self, prefix: str, path: str, name: str, if_generation: str) -> Tuple[FileEntry, str]:
        """Write the file and read it back beside the local one, byte by byte, so that one hash describes both. Returns
        the entry and the new generation. No retries.

        Raises also Mismatch when the file is written to meanwhile, PreconditionFailed, StoreUnavailable, ValueError.
        """
        key = prefix + name
        self.check()
        info = self._store.put_file(key, path, if_generation)
        with open(path, "rb") as source:

            def equal_chunks() -> Iterable[bytes]:
                for chunk in self._store.read(key):
                    if source.read(len(chunk)) != chunk:
                        raise Mismatch("%s differs after its upload" % name)
                    yield chunk
                if source.read(1):
                    raise Mismatch("%s is cut off after its upload" % name)

            try:
                size, digest = _hash(equal_chunks(), self.check)
            except ObjectMissing:
                raise Mismatch("%s is not there after its upload" % name) from None
        return FileEntry(name, size, digest), info.generation

    def download(self, prefix: str, path: str, entry: FileEntry) -> None:
        """Write the object to `path`, durably."""
        self._retrier.call(self._what, self._download, prefix + entry.name, path, entry)

    def _download(self, key: str, path: str, entry: FileEntry) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb", opener=open_no_link) as target:

            def written_chunks() -> Iterable[bytes]:
                for chunk in self._store.read(key):
                    target.write(chunk)
                    yield chunk

            try:
                received = _hash(written_chunks(), self.check)
            except ObjectMissing:
                raise Mismatch("%s is not in the store" % entry.name) from None
            except ValueError:
                raise Mismatch("%s cannot be a name in the store" % entry.name) from None
            if received != (entry.size, entry.sha256):
                raise Mismatch("%s differs from its checksum" % entry.name)
            target.flush()
            os.fsync(target.fileno())


def retry_mismatch(action: Callable[[], T]) -> T:
    """Call `action` again while it raises Mismatch, TRIES times at most. Raises the last Mismatch, and other errors."""
    for _ in range(TRIES - 1):
        try:
            return action()
        except Mismatch as error:
            _log.warning("%s; retrying", error)
    return action()


def hash_file(
    path: str, name: str, check: Callable[[], None] = lambda: None, max_bytes: int = sys.maxsize
) -> FileEntry:
    """Size and sha256 of the file at `path`, or of its first `max_bytes`, under `name`. OSError."""
    with open(path, "rb") as source:

        def chunks() -> Iterator[bytes]:
            left = max_bytes
            while left > 0:
                chunk = source.read(min(_CHUNK_BYTES, left))
                if not chunk:
                    return
                left -= len(chunk)
                yield chunk

        size, digest = _hash(chunks(), check)
    return FileEntry(name, size, digest)


def open_no_link(path: str, flags: int) -> int:
    """An opener for a file that we write: it follows no link that another process has put in its place."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _hash(chunks: Iterable[bytes], check: Callable[[], None]) -> Tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        check()
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()
