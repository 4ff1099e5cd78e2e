"""Copies of what agents write on hosts that cannot reach our object store (relay.py).

Beats come with each listing of the machines, and the tick that made it uses them at once. After each tick one thread
for each host copies them, and looks at the stays of our runs there: first logs and records, then what the baton names,
the newest checkpoint first. When everything that a baton names is here and verified, it becomes the content of our own
baton object, by compare-and-set; checkpoints and results that it no longer names are deleted. So our own object always
names files that are here.

A stay ends when its baton is closed, everything is here and no machine of the run is on the host; or when the run has
moved elsewhere. Only then is its folder deleted. The folder on a host that was written off stays as it is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import PURGED, Baton, Home
from supervisor.objectstores.copying import Copier, alone, fetch, held
from supervisor.objectstores.relay import Relays, move_out, sync_stop
from supervisor.ports.objectstore import (
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    PreconditionFailed,
    Relay,
    Stay,
    StayBeat,
    StayStore,
    StoreUnavailable,
)
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry.worker import Worker

log = logging.getLogger(__name__)

STOP_WAIT_S = 0.5
KEPT_PASSES = 100
BEAT_BYTES = 32 << 10  # an agent's beat is smaller
OVERLAP_NS = 600 * 10**9  # generations are times, and a clock may be set back a little
KEPT = ("checkpoints/", "results/saved/")  # below a run's folder: what the baton names, and nothing else


RelayedBeat = tuple[str, bytes, float]  # run id, content, monotonic time since when it is known


@dataclass
class _Progress:
    """Of one stay: what is here already, so that it is not copied again. `baton`: its generation. `copied`: key ->
    generation of logs and records. `last`: the newest generation seen of these."""

    baton: str = ""
    copied: dict[str, str] = field(default_factory=dict)
    last: int = 0
    copier: Copier | None = None
    rests: int = 0  # passes until a stay that is only kept is looked at again


@dataclass
class Mirror:
    """One pass is `copy`: everything of one host, in one thread at a time. `zone`: of its homes; the host, or the
    cluster whose machines share one."""

    own: ObjectStore
    provider: str
    zone: str
    relay: Relay
    parts: Path
    monotonic: Callable[[], float] = time.monotonic
    _progress: dict[str, _Progress] = field(default_factory=dict)  # by stay
    _trouble: dict[str, str] = field(default_factory=dict)  # run id -> what was logged last; "" = of the host
    _noted: dict[str, tuple[StayBeat, float]] = field(default_factory=dict)  # by stay: the newest beat, since when
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _copied_beats: dict[str, str] = field(default_factory=dict)  # stay -> generation of the beat that is here
    _left: frozenset[str] = frozenset()  # stays whose run is at home elsewhere

    def copy(self) -> None:
        """What could not be copied is logged, and tried again by the next pass."""
        self.copy_beats()
        try:
            stays = self.relay.stays(self.zone)
        except StoreUnavailable as error:
            self._log("", error)
            return
        self._progress = {stay.name: self._progress.get(stay.name, _Progress()) for stay in stays}
        self._left &= frozenset(stay.name for stay in stays)
        self._trouble.pop("", None)
        # A checkpoint of one run may take long: logs, records and markers of all runs come first.
        waiting = [stay for stay in stays if self._has_more(stay, self._copy_small)]
        for stay in waiting:
            self._has_more(stay, self._copy_large)

    def _has_more(self, stay: Stay, work: Callable[[Stay], bool]) -> bool:
        try:
            has_more = work(stay)
            if not has_more:
                self._trouble.pop(stay.run_id, None)
            return has_more
        except PreconditionFailed:
            pass  # the run was moved, or another supervisor leads: the next pass looks again
        except (StoreUnavailable, ObjectMissing, ValueError) as error:
            self._log(stay.run_id, error)
        return False

    def _copy_small(self, stay: Stay) -> bool:
        """Whether there may be more than that."""
        progress = self._progress[stay.name]
        if progress.rests:
            progress.rests -= 1
            return False
        raw, _ = self.own.get(runfiles.baton(stay.run_id))
        own, home = batons.decode(raw), Home(self.provider, self.zone, stay.name, ready=True)
        there = self.relay.store(self.zone, stay.name)
        is_left = own.home is None or own.home.stay != stay.name
        self._left = self._left | {stay.name} if is_left else self._left - {stay.name}
        if is_left:
            if not stay.busy:
                self._forget_left(stay, there, own)
            return False
        if own.home != home:
            return False  # it is being sent
        baton, there_info, has_marker = self._look(stay, there)
        if self._is_over(stay, baton):
            return True
        sync_stop(self.own, there, stay.run_id, baton, has_marker)
        return progress.baton != there_info.generation

    def _is_over(self, stay: Stay, baton: Baton) -> bool:
        return batons.is_moved(baton) or (baton.closed is not None and not stay.busy)

    def _copy_large(self, stay: Stay) -> bool:
        """Everything is read again: the copies for another run may have taken long."""
        raw, info = self.own.get(runfiles.baton(stay.run_id))
        own, home = batons.decode(raw), Home(self.provider, self.zone, stay.name, ready=True)
        there, progress = self.relay.store(self.zone, stay.name), self._progress[stay.name]
        if own.home != home:
            return False
        baton, there_info, _ = self._look(stay, there)
        if self._is_over(stay, baton):
            move_out(self.own, there, stay.run_id, info, read=(baton, there_info), parts=self.parts)
            if batons.moved_content(batons.move_out(baton)).closed is not None:
                self.own.delete(runfiles.beat(stay.run_id))  # it may have been copied after the run's end
            return False
        progress.copier = progress.copier or self._copier(stay, there)
        self._fetch(stay.run_id, baton._replace(home=home), progress.copier, own, info)
        progress.copier.keep(self._named(baton, progress.copier))
        progress.baton = there_info.generation
        return False

    def _look(self, stay: Stay, there: StayStore) -> tuple[Baton, ObjectInfo, bool]:
        """The baton there, after the small objects are here; and whether there is a stop marker."""
        run_id, progress = stay.run_id, self._progress[stay.name]
        folder, since = runfiles.folder(run_id), max(0, progress.last - OVERLAP_NS)
        keys = baton_key, stop_key = runfiles.baton(run_id), runfiles.stop_marker(run_id)
        objects, changed = there.look(keys, (f"{folder}logs/", f"{folder}instances/"), since)
        if baton_key not in objects:
            raise StoreUnavailable(f"the baton of {run_id} is missing in {there.url}")
        raw, info = objects[baton_key]
        baton, copier = batons.decode(raw), self._copier(stay, there)
        for listed in changed:
            if progress.copied.get(listed.key) != listed.generation and not self._is_here(listed):
                copier.carry_listed(listed)
            progress.copied[listed.key] = listed.generation
            progress.last = max(progress.last, int(listed.generation))
        recent = progress.last - OVERLAP_NS
        progress.copied = {key: each for key, each in progress.copied.items() if int(each) >= recent}
        return baton, info, stop_key in objects

    def _copier(self, stay: Stay, there: StayStore) -> Copier:
        return Copier(there, self.own, stay.run_id, self.parts / stay.run_id, there.look)

    def _is_here(self, info: ObjectInfo) -> bool:
        """After a restart: a log chunk never changes; a record is copied again."""
        if not info.key.endswith(".log"):
            return False
        with suppress(ObjectMissing):
            return self.own.stat(info.key).size == info.size
        return False

    def _fetch(self, run_id: str, baton: Baton, copier: Copier, own: Baton, info: ObjectInfo) -> None:
        """First what counts most, alone: while older checkpoints come, the training may save newer ones and delete the
        others."""
        fetch(copier, baton._replace(previous=(), kept=(), best=(), last=None))
        newest = held(copier, baton)
        if newest.checkpoint != baton.checkpoint:
            raise StoreUnavailable(f"the newest checkpoint of {run_id} was deleted while it was copied, or is damaged")
        info = self._follow(run_id, newest, own, info, copier)
        fetch(copier, baton)
        self._follow(run_id, held(copier, baton), newest, info, copier)

    def _follow(self, run_id: str, baton: Baton, own: Baton, info: ObjectInfo, copier: Copier) -> ObjectInfo:
        """Our baton becomes `baton`. What is deleted was listed before: a later home may be ours already."""
        if baton == own:
            return info
        named = set(self._named(baton, copier))
        unnamed = [
            listed
            for prefix in KEPT
            for page in self.own.pages(runfiles.folder(run_id) + prefix)
            for listed in page.objects
            if listed.key not in named
        ]
        written = self.own.put(runfiles.baton(run_id), batons.encode(baton), info.generation)
        for listed in unnamed:
            with suppress(PreconditionFailed):
                self.own.delete(listed.key, listed.generation)
        return written

    def _named(self, baton: Baton, copier: Copier) -> Iterator[str]:
        for pointer in batons.pointers(baton):
            yield from (pointer.prefix + entry.name for entry in pointer.files)
        for manifest in batons.saved_results(baton):
            yield manifest.name
            yield from (entry.name for entry in copier.contents(manifest))

    def _forget_left(self, stay: Stay, there: StayStore, own: Baton) -> None:
        """The run is at home elsewhere. A folder with anything that may not be here stays."""
        try:
            baton = batons.decode(there.get(runfiles.baton(stay.run_id))[0])
        except ObjectMissing:
            self.relay.forget(self.zone, stay.name)  # it was never ready
            return
        if batons.is_moved(baton) and own.closed != PURGED:
            self._look(stay, there)  # logs and records of its last minutes
        elif own.closed != PURGED:  # it was written off
            self._progress[stay.name].rests = KEPT_PASSES
            return
        self.relay.forget(self.zone, stay.name)

    def note_beats(self, beats: Sequence[StayBeat]) -> None:
        """Called by each listing of the machines, in any thread: sends no request. Of two listings at once the older
        one may come last."""
        now = self.monotonic()
        with self._lock:
            before, self._noted = self._noted, {}
            for beat in beats:
                if len(beat.data) > BEAT_BYTES or beat.info.key != runfiles.beat(beat.run_id):
                    continue
                earlier = before.get(beat.stay)
                newer = earlier is None or int(beat.info.generation) > int(earlier[0].info.generation)
                self._noted[beat.stay] = (beat, now) if earlier is None or newer else earlier

    def beats(self) -> list[RelayedBeat]:
        """Those of stays that are not known to be left."""
        with self._lock:
            noted = list(self._noted.values())
        return [(beat.run_id, beat.data, at) for beat, at in noted if beat.stay not in self._left]

    def copy_beats(self) -> None:
        """Each beat is copied once: a copy of an old one would look like a new one, because the store's time is its
        age."""
        with self._lock:
            noted = [beat for beat, _ in self._noted.values()]
        for beat in noted:
            if self._copied_beats.get(beat.stay) != beat.info.generation:
                try:
                    self._copy_beat(beat)
                except (StoreUnavailable, ObjectMissing, ValueError) as error:
                    self._log(beat.run_id, error)
        self._copied_beats = {beat.stay: self._copied_beats.get(beat.stay, "") for beat in noted}

    def _copy_beat(self, beat: StayBeat) -> None:
        home = batons.decode(self.own.get(runfiles.baton(beat.run_id))[0]).home
        if home != Home(self.provider, self.zone, beat.stay, ready=True):
            return
        before = b""
        with suppress(ObjectMissing):  # after a restart it may be here
            before, _ = self.own.get(beat.info.key)
        if before != beat.data:
            self.own.put(beat.info.key, beat.data, metadata=beat.info.metadata)
        self._copied_beats[beat.stay] = beat.info.generation

    def _log(self, run_id: str, error: Exception) -> None:
        """Once until something else goes wrong, or nothing."""
        if self._trouble.get(run_id) == str(error):
            return
        self._trouble[run_id] = str(error)
        named = {telemetry.ACTION: "mirror", telemetry.RUN_ID: run_id, telemetry.ERROR: str(error)}
        log.warning("files on %s not copied", self.zone, extra=named)


class Mirrors:
    """A thread for each host. It runs a pass when it is woken."""

    def __init__(self, own: ObjectStore, relays: Relays, parts: Path, monotonic: Callable[[], float]) -> None:
        self._workers: list[Worker] = []
        self._relays, self._own, self._parts = tuple(relays.values()), own, parts
        self._mirrors: list[Mirror] = []
        for name, relay in relays.items():
            mirrors = {zone: Mirror(own, name, zone, relay, parts, monotonic) for zone in relay.places()}
            relay.follow(partial(_note_beats, mirrors))
            self._mirrors += mirrors.values()
            self._workers += [_worker(f"mirror {zone}", mirror) for zone, mirror in mirrors.items()]

    def beats(self) -> list[RelayedBeat]:
        """The newest ones that the listings until now have brought."""
        return [beat for mirror in self._mirrors for beat in mirror.beats()]

    def start(self) -> None:
        if self._relays:
            threading.Thread(target=forget_parts, args=(self._own, self._parts), name="parts", daemon=True).start()
        for worker in self._workers:
            worker.start()

    def wake(self) -> None:
        for worker in self._workers:
            worker.wake()

    def stop(self) -> None:
        """Ends every transfer, those of launches too: the next start goes on at the byte where it stood."""
        for relay in self._relays:
            relay.end()
        for worker in self._workers:
            worker.stop(STOP_WAIT_S)


def forget_parts(own: ObjectStore, parts: Path) -> None:
    """Parts of transfers that nothing continues: their runs have no home any more."""
    for folder in sorted(parts.glob("*")):
        with suppress(StoreUnavailable, ValueError, OSError), alone(folder):
            home = None
            with suppress(ObjectMissing):
                home = batons.decode(own.get(runfiles.baton(folder.name))[0]).home
            for part in folder.iterdir() if home is None else ():
                part.unlink()


def _note_beats(mirrors: Mapping[str, Mirror], zone: str, beats: Sequence[StayBeat]) -> None:
    mirrors[zone].note_beats(beats)


def _worker(name: str, mirror: Mirror) -> Worker:
    fields = {telemetry.ACTION: "mirror"}
    return Worker(
        name, mirror.copy, threading.TIMEOUT_MAX, failed="mirror failed", fields=fields, expected=StoreUnavailable
    )
