"""Runs on hosts that cannot reach our object store: their baton lies in a folder on the host, their `home`.

Our own baton object alone says where a run is at home. While it is at home on a host, the baton there counts: it is
read, compared and set there, by one call. A host that does not respond leaves the baton unknown, so nothing is decided
and nothing starts elsewhere. Our own object then holds the last state whose files are all here and verified
(mirror.py), which is what counts when a person writes the host off.

A launch on another placement moves the run first (`Homes.settle`). Each step is safe to repeat after a crash at any
point, and the old place is fenced before the new one begins:

    in   our baton: home, not ready; the holder counts as left. Files and baton are sent. Our baton: home, ready.
    out  the baton there: closed as moved, its holder counts as left. Its files are fetched. Our baton: that content.

An agent of an old stay can write into its own folder only, whose baton is closed and counts nowhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import CLAIM_WAIT_S, Baton, BatonRefused, FileEntry, Home
from supervisor.contract.identifiers import parse_launch_id
from supervisor.contract.stores.promise import Generation, Metadata
from supervisor.domain.machines import Placement
from supervisor.objectstores.copying import Copier, Damaged, fetch, held
from supervisor.ports.objectstore import (
    ABSENT,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    PreconditionFailed,
    Relay,
    StayStore,
    StoreUnavailable,
)

THERE = "there "  # begins a generation of a baton that lies on a host

Relays = Mapping[str, Relay]  # by provider


class RelayedStore:
    """ObjectStore of ports/objectstore.py: our own store, except for the batons of runs that are at home on a host."""

    def __init__(self, own: ObjectStore, relays: Relays) -> None:
        self._own, self._relays = own, relays
        self.url = own.url
        self.put_file, self.read, self.stat = own.put_file, own.read, own.stat
        self.pages, self.delete = own.pages, own.delete

    def get(self, key: str) -> tuple[bytes, ObjectInfo]:
        raw, info = self._own.get(key)
        run_id, home = _home(key, raw)
        if home is None:
            return raw, info
        content, there = _read_there(store_of(self._relays, home), run_id)
        baton = batons.decode(content)
        if batons.is_moved(baton):
            raise StoreUnavailable(f"{run_id} is moving away from {home.zone}")
        if baton.done is not None and batons.decode(raw).done != baton.done:
            raise StoreUnavailable(f"the results of {run_id} are on {home.zone} only; they are being fetched")
        return content, there._replace(generation=f"{THERE}{home.stay} {there.generation}")

    def put(self, key: str, data: bytes, if_generation: Generation = None, metadata: Metadata = None) -> ObjectInfo:
        if not (if_generation or "").startswith(THERE):
            return self._own.put(key, data, if_generation, metadata)
        run_id, home = _home(key, self._own.get(key)[0])
        _, stay, generation = (if_generation or "").split(" ")
        if home is None or home.stay != stay:
            raise PreconditionFailed(f"{key} lies elsewhere now")
        # A move closes the baton there before it counts elsewhere, so this fails where one came in between.
        return store_of(self._relays, home).put(runfiles.baton(run_id), data, generation)


def _home(key: str, raw: bytes) -> tuple[str, Home | None]:
    """(run id, its home where the baton lies there) for the key of a baton; else no home. A torn one is passed on."""
    run_id = key.removeprefix(runfiles.RUNS).removesuffix("/baton.json")
    if key != runfiles.baton(run_id):
        return "", None
    try:
        home = batons.decode(raw).home
    except ValueError:
        return run_id, None
    return run_id, home if home is not None and home.ready else None


def store_of(relays: Relays, home: Home) -> StayStore:
    relay = relays.get(home.provider)
    if relay is None:
        raise StoreUnavailable(
            f"the files of the run are on {home.zone}, and provider {home.provider} relays none with these settings"
        )
    return relay.store(home.zone, home.stay)


def _read_there(there: StayStore, run_id: str) -> tuple[bytes, ObjectInfo]:
    try:
        return there.get(runfiles.baton(run_id))
    except ObjectMissing:
        raise StoreUnavailable(f"the baton of {run_id} is missing in {there.url}") from None


@dataclass
class Homes:
    """Homes of ports/objectstore.py. `parts`: a folder for transfers that were cut off."""

    own: ObjectStore
    relays: Relays
    parts: Path
    monotonic: Callable[[], float] = time.monotonic
    _waits: dict[str, tuple[str, float]] = field(default_factory=dict)  # run id -> (launch id, since when it waits)

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
        relay = self.relays.get(placement.provider)
        while True:
            raw, info = self.own.get(runfiles.baton(run_id))
            baton, home = batons.decode(raw), batons.decode(raw).home
            is_here = home is not None and self._is_at(home, placement)
            if home is None and relay is None:
                return None
            if home is not None and home.ready and is_here and relay is not None:
                there = relay.make(home.zone, home.stay, run_id)
                sync_stop(self.own, there, run_id, batons.decode(_read_there(there, run_id)[0]))
                return there.url
            if home is not None and home.ready:
                self._move_out(run_id, launch_id, baton, info, holder_gone=holder_gone, note=note)
            elif home is not None and (relay is None or not is_here):
                self._set(run_id, baton._replace(home=None), info)  # nothing was started there
            elif relay is not None:
                self._wait_for_holder(run_id, launch_id, baton, holder_gone)
                home = home or self._new_home(placement, run_id, launch_id)
                make = partial(_made, relay, home, run_id, note)
                self._move_in(run_id, baton, info, home=home, make=make, needs=needs)

    def write_off(self, run_id: str, launch_id: str, busy: Placement | None) -> None:
        try:
            raw, info = self.own.get(runfiles.baton(run_id))
        except ObjectMissing:
            return
        baton = batons.decode(raw)
        home = baton.home
        if home is None or (busy is not None and self._is_at(home, busy)):
            return
        if parse_launch_id(home.stay.removeprefix(f"{run_id}-")) > parse_launch_id(launch_id):
            return
        try:
            _read_there(store_of(self.relays, home), run_id)
        except StoreUnavailable:
            self._set(run_id, batons.write_off(baton), info)

    def _is_at(self, home: Home, placement: Placement) -> bool:
        return (home.provider, home.zone) == (placement.provider, self._place_of(placement))

    def _place_of(self, placement: Placement) -> str:
        """All zones of a cluster may be one place: a run that goes on in another one finds its files there."""
        relay = self.relays.get(placement.provider)
        return placement.zone if relay is None else relay.place_of(placement.zone)

    def _new_home(self, placement: Placement, run_id: str, launch_id: str) -> Home:
        """The name of the folder is new: a launch id is used once, and a run id once by each supervisor."""
        return Home(placement.provider, self._place_of(placement), f"{run_id}-{launch_id}")

    def _wait_for_holder(self, run_id: str, launch_id: str, baton: Baton, holder_gone: bool) -> None:
        """The old agent sees the newer `next`, finishes its save and leaves; a move would refuse that save."""
        holder, before = baton.holder, self._waits.pop(run_id, ("", 0.0))
        if holder is None or holder.left or holder.launch_id == launch_id or holder_gone:
            return
        since = before[1] if before[0] == launch_id else self.monotonic()
        if self.monotonic() - since < CLAIM_WAIT_S:
            self._waits[run_id] = launch_id, since
            raise StoreUnavailable(f"the previous machine of {run_id} has not left yet")

    def _move_out(
        self, run_id: str, launch_id: str, own: Baton, info: ObjectInfo, *, holder_gone: bool, note: Callable[[], None]
    ) -> None:
        assert own.home is not None
        there = store_of(self.relays, own.home).noting(note)
        raw, there_info = _read_there(there, run_id)
        baton = batons.decode(raw)
        if not batons.is_moved(baton):
            if baton.closed is not None:
                raise BatonRefused(f"closed: {baton.closed}")
            self._wait_for_holder(run_id, launch_id, baton, holder_gone)
        move_out(self.own, there, run_id, info, read=(baton, there_info), parts=self.parts)

    def _move_in(
        self,
        run_id: str,
        baton: Baton,
        info: ObjectInfo,
        *,
        home: Home,
        make: Callable[[], StayStore],
        needs: Iterable[str],
    ) -> None:
        fenced = batons.move_in(baton, home)
        if fenced != baton:
            info = self._set(run_id, fenced, info)
        there = make()
        needs, content = tuple(needs), fenced._replace(home=None)
        copier = Copier(self.own, there, run_id, self.parts / run_id, None, needs)
        for key in needs:
            with suppress(Damaged, ObjectMissing):  # its agent says so
                copier.carry((FileEntry(key, self.own.stat(key).size, ""),))
        fetch(copier, to_begin(content))
        _place(there, run_id, content)
        sync_stop(self.own, there, run_id, content)
        self._set(run_id, fenced._replace(home=home._replace(ready=True)), info)

    def _set(self, run_id: str, baton: Baton, info: ObjectInfo) -> ObjectInfo:
        return _compare_and_set(self.own, run_id, baton, info)


def move_out(
    own: ObjectStore, there: StayStore, run_id: str, info: ObjectInfo, *, read: tuple[Baton, ObjectInfo], parts: Path
) -> None:
    """The baton that was `read` there becomes our own. A repeat finishes what was cut off. `info`: of our own one, in
    which the home is ready. StoreUnavailable when one of the two has changed. Where no checkpoint there is whole, those
    that are here already go on."""
    baton, there_info = read
    if not batons.is_moved(baton):
        baton = batons.move_out(baton)
        _compare_and_set(there, run_id, baton, there_info)
    copier = Copier(there, own, run_id, parts / run_id, there.look)
    fetch(copier, baton)
    content = held(copier, batons.moved_content(baton))
    if baton.checkpoint is not None and content.checkpoint is None:
        earlier = batons.decode(own.get(runfiles.baton(run_id))[0])
        content = content._replace(checkpoint=earlier.checkpoint, previous=earlier.previous)
    _compare_and_set(own, run_id, content, info)


def _made(relay: Relay, home: Home, run_id: str, note: Callable[[], None]) -> StayStore:
    return relay.make(home.zone, home.stay, run_id).noting(note)


def _compare_and_set(store: ObjectStore, run_id: str, baton: Baton, before: ObjectInfo) -> ObjectInfo:
    try:
        return store.put(runfiles.baton(run_id), batons.encode(baton), before.generation)
    except PreconditionFailed:
        raise StoreUnavailable(f"the baton of {run_id} changed while the run was moved") from None


def _place(there: StayStore, run_id: str, content: Baton) -> None:
    """The baton in a home that is not ready: no agent was started with it. An older one is of an earlier try, and a
    newer one of a supervisor that has overtaken this one."""
    try:
        raw, info = there.get(runfiles.baton(run_id))
    except ObjectMissing:
        generation = ABSENT
    else:
        before, generation = batons.decode(raw), info.generation
        if before == content:
            return
        if _next(before) > _next(content):
            raise StoreUnavailable(f"a newer try of {run_id} is on its way to {there.url}")
    try:
        there.put(runfiles.baton(run_id), batons.encode(content), generation)
    except PreconditionFailed:
        raise StoreUnavailable(f"the baton of {run_id} changed while it was sent") from None


def _next(baton: Baton) -> tuple[int, int, int]:
    return (0, 0, 0) if baton.next is None else parse_launch_id(baton.next.launch_id)


def to_begin(baton: Baton) -> Baton:
    """As far as an agent may restore it."""
    before = baton.previous or baton.kept[:1]
    return baton._replace(previous=before, kept=(), best=(), last=None, done=None)


def sync_stop(own: ObjectStore, there: StayStore, run_id: str, baton: Baton, is_there: bool = True) -> None:
    """The agent reads the stop marker there. One that a resume has used up does not count. `is_there`: it may be."""
    key = runfiles.stop_marker(run_id)
    try:
        data, info = own.get(key)
        counts = info.generation != baton.stop_consumed
    except ObjectMissing:
        counts = False
    if counts:
        with suppress(PreconditionFailed):
            there.put(key, data, ABSENT)
    elif is_there:
        there.delete(key)
