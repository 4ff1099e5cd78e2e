"""The object store: durable objects with generations, in a folder or in a bucket.

The port itself is in contract/stores/promise.py, because the agent uses it too. Machines that cannot reach the
supervisor's store have object stores on their own hosts, which a provider offers as a `Relay`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from supervisor.contract.parcel import Index
from supervisor.contract.stores.promise import (
    ABSENT,
    MAX_KEY_BYTES,
    MAX_METADATA_BYTES,
    MAX_PAGE,
    IsKnown,
    ObjectInfo,
    ObjectMissing,
    ObjectReader,
    ObjectStore,
    Page,
    PreconditionFailed,
    StoreForbidden,
    StoreFull,
    StoreMissing,
    StoreUnavailable,
)
from supervisor.domain.machines import Placement

__all__ = [
    "ABSENT",
    "MAX_KEY_BYTES",
    "MAX_METADATA_BYTES",
    "MAX_PAGE",
    "Homes",
    "IsKnown",
    "LeftBy",
    "LeftOutput",
    "NotWaitedFor",
    "ObjectInfo",
    "ObjectMissing",
    "ObjectReader",
    "ObjectStore",
    "OutputLost",
    "Page",
    "PreconditionFailed",
    "ReachableStore",
    "Relay",
    "Stay",
    "StayBeat",
    "StayStore",
    "StoreForbidden",
    "StoreFull",
    "StoreMissing",
    "StoreUnavailable",
]


class OutputLost(Exception):
    """A session has left nothing that can be used; the text says why."""


class NotWaitedFor(Exception):
    """The run does not wait for this launch: nothing of it is written."""


@dataclass(frozen=True, slots=True)
class LeftBy:
    """The session that has left an output."""

    supervisor_id: str
    run_id: str
    launch_id: str
    machine_id: str


class LeftOutput(ObjectReader, Protocol):
    """What a session without a network has left: objects of one run, by their index."""

    @property
    def index(self) -> Index: ...


@dataclass(frozen=True, slots=True)
class Stay:
    """The time of one run in one place, and its folder there. `busy`: a machine of the run is there, alive or not."""

    name: str
    run_id: str
    busy: bool


@dataclass(frozen=True, slots=True)
class StayBeat:
    """A beat as its agent stored it on the host."""

    stay: str
    run_id: str
    data: bytes
    info: ObjectInfo


class StayStore(ObjectStore, Protocol):
    def noting(self, note: Callable[[], None]) -> StayStore:
        """The same store, which calls `note()` after each piece of a content that it has sent or received."""
        ...

    def look(
        self, keys: Sequence[str], prefixes: Sequence[str], since: int
    ) -> tuple[Mapping[str, tuple[bytes, ObjectInfo]], tuple[ObjectInfo, ...]]:
        """In one request: (those of `keys` that exist, the objects below `prefixes` whose generation is `since` or
        later)."""
        ...


@runtime_checkable
class ReachableStore(Protocol):
    """A store that others reach too: with an address that is good for one object and a while, they need no key of their
    own. Whoever has such an address may use it, so it belongs into no log."""

    def begin_upload(self, key: str, size: int, if_generation: str | None, metadata: Mapping[str, str]) -> str:
        """The address to which `size` bytes are PUT, whole or in pieces; the condition counts there when they are all
        there. PreconditionFailed where it fails already, StoreUnavailable."""
        ...

    def address_to_read(self, info: ObjectInfo, for_s: float) -> str | None:
        """The address of exactly this generation. None: our account signs nothing."""
        ...


class Relay(Protocol):
    """Object stores on the hosts of one provider, for runs of this supervisor. Every method raises StoreUnavailable,
    also where there is no such store any more."""

    def places(self) -> Sequence[str]:
        """Each has its own stores: a host, or a cluster whose machines share a file system."""
        ...

    def place_of(self, zone: str) -> str:
        """Where the stores of this zone's machines are."""
        ...

    def follow(self, note: Callable[[str, Sequence[StayBeat]], None]) -> None:
        """Call `note(place, beats)` with the newest beats there, before each listing of its machines returns.
        They were read after the machines."""
        ...

    def stays(self, place: str) -> Sequence[Stay]: ...

    def make(self, place: str, stay: str, run_id: str) -> StayStore:
        """Its `url` is the one for agents there. Safe to repeat."""
        ...

    def store(self, place: str, stay: str) -> StayStore:
        """Sends no request; its `url` is for people."""
        ...

    def forget(self, place: str, stay: str) -> None:
        """Delete the store and everything in it."""
        ...

    def end(self) -> None:
        """The supervisor stops: calls that run end at once, and further ones are refused, both as StoreUnavailable."""
        ...


class Homes(Protocol):
    def settle(
        self,
        run_id: str,
        launch_id: str,
        placement: Placement,
        *,
        holder_gone: bool,
        needs: Iterable[str] = (),
        note: Callable[[], None] = lambda: None,
    ) -> str | None:
        """Bring the run's baton to where machines of this placement work: the URL of the store there, None = our own.
        The baton's `next` is this launch already. `needs`: keys of further objects for its agent. `note()` is called
        after each piece of its files. Raises StoreUnavailable: nothing was started, repeat it; BatonRefused."""
        ...

    def write_off(self, run_id: str, launch_id: str, busy: Placement | None) -> None:
        """The run is at home here again, if its home is of this launch or an earlier one and cannot be read. `busy`:
        where a later try may have a machine; a home there stays. Raises StoreUnavailable."""
        ...
