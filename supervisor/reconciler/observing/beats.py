"""Stored beats: one listing per tick, each object parsed once. And beats that are ignored: few events about them.

A listing of beats counts as fresh only when it contains the canary that was written just before it. What a machine
reports while it boots is stored beside the beats and read with them. Beats are untrusted input: an object that is no
beat is ignored, and so is a beat without the nonce of its try.
"""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from supervisor.contract import runfiles
from supervisor.contract.heartbeat import Beat, BeatRejected
from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.beat_decoding import parse_beat
from supervisor.domain.events import Event, EventKind
from supervisor.domain.observation import BEATS
from supervisor.domain.run import Run
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import (
    ObjectInfo,
    ObjectStore,
    StoreForbidden,
    StoreFull,
    StoreMissing,
    StoreUnavailable,
)
from supervisor.ports.store import Store
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics

log = logging.getLogger(__name__)

REJECTION_PAUSE_S = 600.0  # at most one event per run in this time, however many of its beats are ignored
REJECTIONS_PER_TICK = 20
REJECTIONS_KEPT = 10_000

Rejected = tuple[str, str]  # run id, why its beat is ignored
RelayedBeat = tuple[str, bytes, float]  # run id, content, monotonic time since when it is known


@dataclass(frozen=True, slots=True)
class StoredBeat:
    beat: Beat
    age_s: float


@dataclass(frozen=True, slots=True)
class BeatListing:
    """`beats`: by run id, those of a boot by run id and suffix. `problem`: why they could not be read; "" = they could.
    `fresh`: the canary proved it."""

    beats: Mapping[str, StoredBeat]
    problem: str = ""
    fresh: bool = False
    rejected: tuple[Rejected, ...] = ()
    requests: int = 1


@dataclass(frozen=True, slots=True)
class _Parsed:
    """One stored object. `name`: what it is stored under, one text for all its beats. `beat` None: it is no beat.
    `after`: monotonic time of the last good listing before the first one that contained it; None = there was none."""

    name: str
    generation: str
    beat: Beat | None
    after: float | None


class BeatReader:
    """Keeps parsed beats between ticks. `scope` distinguishes the canary of this cell from those of other cells in the
    same bucket."""

    def __init__(self, objects: ObjectStore, clock: Clock, supervisor_id: str, scope: str) -> None:
        self.objects = objects
        self.store_trouble = ""  # why the last listing could not be written and read; "" = it could
        self._clock = clock
        self._canary = runfiles.canary(supervisor_id, scope)
        self._parsed: dict[str, _Parsed] = {}
        self._read_at: float | None = None  # monotonic time of the last good listing

    def read(self) -> BeatListing:
        began = self._clock.monotonic()
        beats: dict[str, StoredBeat] = {}
        rejected: list[Rejected] = []
        doing, fresh, requests = "written", False, 1
        try:
            canary = self.objects.put(self._canary, b"")
            doing = "read"
            for page in self.objects.pages(runfiles.BEATS, is_known=self._is_parsed):
                requests += 1
                for info in page.objects:
                    if runfiles.is_canary(info.key):
                        fresh = fresh or (info.key == self._canary and info.generation == canary.generation)
                    else:
                        self._take(info, page.server_time, beats, rejected)
        except StoreUnavailable as error:
            metrics.OBSERVE_ERRORS.add(BEATS)
            log.warning("beats unreadable", extra={telemetry.ACTION: "observe", telemetry.ERROR: str(error)})
            self.store_trouble = _trouble(error, doing)
            return BeatListing({}, f"the object store cannot be read: {error}", rejected=tuple(rejected))
        self.store_trouble = ""
        if len(self._parsed) > 2 * len(beats) + 1000:
            self._parsed = {name: parsed for name, parsed in self._parsed.items() if name in beats}
        if fresh:
            self._read_at = began
        return BeatListing(beats, "", fresh, tuple(rejected), requests)

    def with_relayed(self, listing: BeatListing, relayed: Iterable[RelayedBeat]) -> BeatListing:
        """The listing with beats of hosts that cannot reach the store. They came with the listing of machines, so the
        last beat of a machine that it shows gone is among them. A copy in the store knows its age better."""
        beats, now = dict(listing.beats), self._clock.monotonic()
        for run_id, raw, since in relayed:
            with suppress(BeatRejected):
                beat, stored = parse_beat(raw), beats.get(run_id)
                if beat.run_id == run_id and (stored is None or _rank(beat) > _rank(stored.beat)):
                    beats[run_id] = StoredBeat(beat, max(0.0, now - since))
        return replace(listing, beats=beats)

    def _is_parsed(self, key: str, generation: str) -> bool:
        parsed = self._parsed.get(key[len(runfiles.BEATS) :])
        return parsed is not None and parsed.generation == generation

    def _take(
        self, info: ObjectInfo, server_time: float, beats: dict[str, StoredBeat], rejected: list[Rejected]
    ) -> None:
        name = info.key[len(runfiles.BEATS) :]
        parsed = self._parsed.get(name)
        if parsed is None or parsed.generation != info.generation:
            beat, run_id = None, name.removesuffix(runfiles.BOOT)
            try:
                beat = parse_beat(info.metadata.get("beat", "").encode("utf-8", "replace"))
            except BeatRejected as error:
                rejected.append((run_id, str(error)))
            if beat is not None and beat.run_id != run_id:
                rejected.append((run_id, "it names another run"))
                beat = None
            name = name if parsed is None else parsed.name
            parsed = self._parsed[name] = _Parsed(name, info.generation, beat, self._read_at)
        if parsed.beat is not None:
            beats[parsed.name] = StoredBeat(parsed.beat, self._age_s(parsed, server_time - info.updated))

    def _age_s(self, parsed: _Parsed, reported_s: float) -> float:
        """By the store's clocks, which a proxy's wrong Date can spoil: a beat that the last good listing did not
        contain was written after it."""
        most_s = math.inf if parsed.after is None else self._clock.monotonic() - parsed.after
        return min(max(0.0, reported_s), most_s)


def _rank(beat: Beat) -> tuple[tuple[int, int, int], int]:
    return parse_launch_id(beat.launch_id), beat.sequence


def _trouble(error: StoreUnavailable, doing: str) -> str:
    """By the kind of the error: its own text may contain paths and addresses, and every user may read this."""
    if isinstance(error, StoreFull):
        return "the object store is full"
    if isinstance(error, StoreForbidden):
        return "the object store refuses this account"
    if isinstance(error, StoreMissing):
        return "the object store is gone"
    why = {errno.EROFS: ": its folder is read-only", errno.EACCES: ": permission denied"}
    return f"the object store cannot be {doing}{why.get(getattr(error.__cause__, 'errno', None) or 0, '')}"


class RejectedBeats:
    """Writes events about ignored beats: at most one per run in ten minutes, and few per tick, because beats are
    untrusted and so is their number."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recorded_at: dict[str, float] = {}

    def record(self, rejected: Sequence[Rejected], runs: Mapping[int, Run], now: float) -> None:
        """`runs`: those of this cell, by key."""
        metrics.BEATS_IGNORED.add(by=len(rejected))
        due = [item for item in rejected if not 0 <= now - self._recorded_at.get(item[0], 0.0) < REJECTION_PAUSE_S]
        keys = {run.run_id: key for key, run in runs.items()} if due else {}
        for run_id, why in due[:REJECTIONS_PER_TICK]:
            if len(self._recorded_at) > REJECTIONS_KEPT:
                self._recorded_at.clear()
            self._recorded_at[run_id] = now
            event = Event(EventKind.BEAT_REJECTED, f"A stored beat was ignored: {why}.", data={"run_id": run_id})
            self._store.add_events(keys.get(run_id), [event], now)
