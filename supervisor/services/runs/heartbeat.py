"""The inbox of pushed beats: in memory, the newest beat of each run, read by the loop at each tick.

A beat is untrusted input. Its nonce is checked against the hash in the database, which is read once per launch and then
cached, so that 2,000 beats a second need no disk. The beat with the highest (launch, sequence) wins, in whatever order
beats arrive; an older beat changes nothing. Times of receipt are monotonic: a machine's clock is never trusted. After a
restart the inbox is empty, and every age is unknown until the next beat.
"""

from __future__ import annotations

import hmac
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from supervisor.contract.heartbeat import CHECKPOINT, EVALUATION, TRAINING, Beat, BeatRejected
from supervisor.contract.identifiers import is_run_id, nonce_hash, parse_launch_id
from supervisor.domain.beat_decoding import parse_beat
from supervisor.domain.errors import NonceRefused, NotFound, RunEnded, Unavailable
from supervisor.domain.events import Event, EventKind
from supervisor.domain.observation import gap_s
from supervisor.domain.policies import PUSHES_PER_BEAT, Knobs, rest_s
from supervisor.domain.run import Run
from supervisor.ports.clock import Clock, Wake
from supervisor.ports.store import Store, StoreDown
from supervisor.telemetry import metrics

NONCES_MIN, NONCES_PER_RUN = 50_000, 4  # hashes in memory; of each active run a few launches still send beats
REJECTIONS_KEPT = 10_000
REJECTION_EVENT_S = 600.0  # at most one event per run in this time, however many beats are forged
FOLLOW_S = 30.0  # for so long after a request for its log, an agent writes the log at the fast pace
BEATS_PER_S = 100.0  # the supervisor should receive at most so many
FOLLOWED_MAX = 1000
# For so long after a person has ordered something of a run, its beats come fast: so many a second of all such runs.
ATTENDED_S, ATTENDED_PUSH_S, ATTENDED_PER_S = 120.0, 1.0, 20.0
AWAY = "The database is unavailable; use the object store and retry later."


@dataclass(frozen=True, slots=True)
class BeatResponse:
    """`next_s`: when the agent pushes its next beat. `stop`: save and leave. `follow_logs`: a client reads the log.
    `orders`: the number of the run's newest orders; None = not known here. `store_s`: how long a stored beat may stay
    the newest one, because the loop reads the pushed ones; None: the agent stores beats at its usual pace."""

    next_s: float
    stop: bool
    follow_logs: bool
    orders: int | None = None
    store_s: float | None = None


@dataclass(frozen=True, slots=True)
class Granted:
    """What the last tick of a leader grants. `launches`: run id -> launch whose stored beats may rest for `store_s`.
    `until`: monotonic time; a loop that hangs grants nothing. `push_s`: the slowest pace of pushes that it is for."""

    launches: Mapping[str, str] = field(default_factory=dict)
    store_s: float = 0.0
    until: float = 0.0
    push_s: float = 0.0


def granted(launches: Mapping[str, str], at: float, knobs: Knobs) -> Granted:
    """`at`: monotonic time of the tick that grants it. Ticks that fail after it do not prolong it."""
    store_s, until = knobs.beat_store_s, at + gap_s(knobs.poll_interval_s)
    return Granted(launches, rest_s(store_s), until, store_s / PUSHES_PER_BEAT)


class NonceUnknown(Exception):
    """The launch is not cached: call `learn` where blocking is allowed, then `accept` again."""


class BeatInbox:
    """Thread-safe. `active`: number of active runs. `useful()`: whether beats reach a leader now; if not, they are
    refused, so that agents use the object store. `wake()` is called after an urgent beat."""

    def __init__(self, store: Store, clock: Clock, wake: Wake, beat_push_s: float) -> None:
        self.active = 0
        self.useful: Callable[[], bool] = lambda: True
        self.wake = wake.set
        self._store, self._clock, self._beat_push_s = store, clock, beat_push_s
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[Beat, float]] = {}
        self._nonces: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._launches: dict[str, tuple[str, ...]] = {}  # those in `_nonces`, by run id
        self._rejected_at: OrderedDict[str, float] = OrderedDict()
        self._stopping: Mapping[str, int | str] = {}
        self._granted = Granted()
        self._followed: dict[str, float] = {}
        self._ordered: OrderedDict[str, tuple[int, float]] = OrderedDict()  # number of the orders, since when

    # --- the agents' side -----------------------------------------------------------------------------------------

    def receive(self, run_id: str, raw: bytes) -> BeatResponse:
        """Accept a beat; may block on the database. Raises what `accept` and `learn` raise."""
        beat = read(run_id, raw)
        try:
            return self.accept(beat)
        except NonceUnknown:
            self.learn(beat)
            return self.accept(beat)

    def accept(self, beat: Beat) -> BeatResponse:
        """Accept a beat of a cached launch. Never blocks. Raises NonceUnknown, NonceRefused, Unavailable."""
        if not self.useful():
            metrics.BEATS_PUSHED.add("away")
            raise Unavailable(AWAY)
        received = self._clock.monotonic()
        with self._lock:
            digest = self._nonces.get((beat.run_id, beat.launch_id))
            if digest is None:
                raise NonceUnknown
            if not hmac.compare_digest(digest, nonce_hash(beat.nonce)):
                text = f"The nonce is not the one of launch {beat.launch_id}."
                raise NonceRefused(text, {"launch_id": beat.launch_id})
            urgent = self._keep(beat, received)
            followed = self._followed.get(beat.run_id)
            orders, ordered = self._ordered.get(beat.run_id, (None, None))
            next_s = max(self._push_s(received, ordered), self.active / BEATS_PER_S)
            answer = BeatResponse(
                next_s=next_s,
                stop=self._must_stop(beat),
                follow_logs=followed is not None and received - followed < FOLLOW_S,
                orders=orders,
                store_s=self._store_s(beat, received, next_s),
            )
        metrics.BEATS_PUSHED.add("accepted")
        if urgent:
            self.wake()
        return answer

    def learn(self, beat: Beat) -> None:
        """Cache the hash of this launch's nonce. Raises NotFound (no such run), RunEnded (terminal: read the baton),
        NonceRefused (no such launch), Unavailable (no database)."""
        try:
            run = self._store.find(beat.run_id)
            digest = None if run is None else self._store.nonce_hash(beat.run_id, beat.launch_id)
        except StoreDown as error:
            metrics.BEATS_PUSHED.add("away")
            raise Unavailable(AWAY) from error
        if run is None:
            raise NotFound(f"There is no run {beat.run_id}.", {"run_id": beat.run_id})
        if run.terminal:
            raise RunEnded(f"{beat.run_id} is {run.status}; read its baton.", {"run_id": beat.run_id})
        if not digest:
            raise NonceRefused(f"There is no launch {beat.launch_id}.", {"launch_id": beat.launch_id})
        with self._lock:
            if (beat.run_id, beat.launch_id) not in self._nonces:
                self._launches[beat.run_id] = (*self._launches.get(beat.run_id, ()), beat.launch_id)
            self._nonces[beat.run_id, beat.launch_id] = digest
            most = max(NONCES_MIN, NONCES_PER_RUN * max(self.active, len(self._newest)))
            while len(self._nonces) > most:
                (run_id, launch_id), _ = self._nonces.popitem(last=False)
                self._drop_launch(run_id, launch_id)

    def reject(self, run_id: str, reason: str) -> None:
        """Record a refused beat in the history, at most once per run in REJECTION_EVENT_S. Blocks. Raises nothing: the
        sender has its response already."""
        metrics.BEATS_PUSHED.add("refused")
        if not is_run_id(run_id):
            return
        received = self._clock.monotonic()
        with self._lock:
            last = self._rejected_at.get(run_id)
            if last is not None and received - last < REJECTION_EVENT_S:
                return
            self._rejected_at[run_id] = received
            self._rejected_at.move_to_end(run_id)
            if len(self._rejected_at) > REJECTIONS_KEPT:
                self._rejected_at.popitem(last=False)
        try:
            run = self._store.find(run_id)
            if run is not None:
                text = f"A pushed beat was refused: {reason} It changed nothing."
                event = Event(EventKind.BEAT_REJECTED, text, "agent", {"reason": reason})
                self._store.add_events(run.key, (event,), self._clock.now())
        except StoreDown:
            with self._lock:
                self._rejected_at.pop(run_id, None)  # the next refused beat is recorded

    # --- the loop's side ------------------------------------------------------------------------------------------

    def take(self) -> dict[str, tuple[Beat, float]]:
        """A snapshot: the newest beat of every run and its monotonic time of receipt."""
        with self._lock:
            return dict(self._newest)

    def adopt(self, beats: Iterable[tuple[Beat, float]]) -> None:
        """Add (beat, age in seconds) pairs that another replica has checked. Older beats change nothing."""
        now = self._clock.monotonic()
        with self._lock:
            for beat, age_s in beats:
                self._keep(beat, now - age_s)

    def newest(self, run_id: str) -> tuple[Beat, float] | None:
        with self._lock:
            return self._newest.get(run_id)

    def forget(self, run_id: str) -> None:
        """The run has ended: its next beat reads the database again and is refused."""
        with self._lock:
            self._newest.pop(run_id, None)
            self._followed.pop(run_id, None)
            self._ordered.pop(run_id, None)
            for launch_id in self._launches.pop(run_id, ()):
                self._nonces.pop((run_id, launch_id), None)

    def set_active(self, runs: Iterable[Run]) -> None:
        """After each tick: the active runs."""
        all_runs = list(runs)
        self.active = len(all_runs)
        self.set_stopping(stopping_generations(all_runs))
        self.drop_superseded(all_runs)

    def drop_superseded(self, runs: Iterable[Run]) -> None:
        """After each tick: drop beats where the run knows a newer one of the same launch, from the object store. A
        tick would pass them over, and agents that store more often than they push would fill the memory twice."""
        entries = ((run, self._newest.get(run.run_id)) for run in runs)
        old = [(run.run_id, entry) for run, entry in entries if entry is not None and _is_superseded(entry[0], run)]
        with self._lock:
            for run_id, entry in old:
                if self._newest.get(run_id) is entry:  # else a newer beat has arrived meanwhile
                    del self._newest[run_id]

    def set_stopping(self, stopping: Mapping[str, int | str]) -> None:
        """Run id -> the generation, or the one launch, that must stop. A resume may come before the next tick: the
        generation that it starts is not meant."""
        with self._lock:
            self._stopping = dict(stopping)

    def grant(self, granted: Granted) -> None:
        """After each tick of a leader."""
        with self._lock:
            self._granted = granted

    def _must_stop(self, beat: Beat) -> bool:
        stopping = self._stopping.get(beat.run_id)
        return stopping is not None and stopping in (beat.launch_id, parse_launch_id(beat.launch_id)[0])

    # --- readers of logs ------------------------------------------------------------------------------------------

    def follow(self, run_id: str) -> None:
        """A client reads this run's log."""
        now = self._clock.monotonic()
        with self._lock:
            self._followed[run_id] = now
            if len(self._followed) > FOLLOWED_MAX:
                self._followed = {name: at for name, at in self._followed.items() if now - at < FOLLOW_S}

    # --- people's orders ------------------------------------------------------------------------------------------

    def order(self, run_id: str, number: int) -> None:
        """The run has orders of this number; 0: they are as before. Repeat it while a person works with the run: its
        beats come faster."""
        now = self._clock.monotonic()
        with self._lock:
            newest = self._ordered.pop(run_id, (0, 0.0))[0]
            self._ordered[run_id] = max(newest, number), now
            if len(self._ordered) > FOLLOWED_MAX:
                self._ordered.popitem(last=False)

    # --- under the lock -------------------------------------------------------------------------------------------

    def _keep(self, beat: Beat, received: float) -> bool:
        """True: wake the loop, because more than the step has changed."""
        newest = self._newest.get(beat.run_id)
        kept = newest[0] if newest is not None else None
        if kept is not None and not _is_newer(beat, kept):
            return False
        self._newest[beat.run_id] = (beat, received)
        before = kept if kept is not None and kept.launch_id == beat.launch_id else None
        # After a restart the first beat of every run is new. A run that simply trains can wait for the next tick.
        return _alert(beat) != (_TRAINING if before is None else _alert(before))

    def _push_s(self, now: float, ordered: float | None) -> float:
        if ordered is None or now - ordered >= ATTENDED_S:
            return self._beat_push_s
        attended = sum(now - at < ATTENDED_S for _, at in self._ordered.values())
        return min(self._beat_push_s, max(ATTENDED_PUSH_S, attended / ATTENDED_PER_S))

    def _store_s(self, beat: Beat, received: float, next_s: float) -> float | None:
        granted = self._granted
        if granted.launches.get(beat.run_id) != beat.launch_id or self._must_stop(beat):
            return None
        return granted.store_s if received < granted.until and next_s <= granted.push_s else None

    def _drop_launch(self, run_id: str, launch_id: str) -> None:
        left = tuple(launch for launch in self._launches.pop(run_id, ()) if launch != launch_id)
        if left:
            self._launches[run_id] = left


def read(run_id: str, raw: bytes) -> Beat:
    """The beat in `raw`, which must belong to this run. Raises BeatRejected."""
    beat = parse_beat(raw)
    if beat.run_id != run_id:
        raise BeatRejected("run_id is not the one in the URL")
    return beat


def stopping_generations(runs: Iterable[Run]) -> dict[str, int | str]:
    """Run id -> generation of each of these runs that must stop, or the launch that yields its machine."""
    stopping: dict[str, int | str] = {}
    for run in runs:
        if run.stop is not None:
            stopping[run.run_id] = run.generation
        elif run.yielding.launch_id and run.yields:
            stopping[run.run_id] = run.yielding.launch_id
    return stopping


def _is_newer(beat: Beat, kept: Beat) -> bool:
    if beat.launch_id == kept.launch_id:
        return beat.sequence > kept.sequence
    return parse_launch_id(beat.launch_id) > parse_launch_id(kept.launch_id)


def _is_superseded(beat: Beat, run: Run) -> bool:
    pulse = run.pulse
    return pulse is not None and pulse.launch_id == beat.launch_id and pulse.sequence > beat.sequence


def _alert(beat: Beat) -> tuple[object, ...]:
    """A change of these values wakes the loop. Checkpoints and evaluations are part of a training."""
    phase = TRAINING if beat.phase in (CHECKPOINT, EVALUATION) else beat.phase
    return (phase, beat.exit is not None, beat.notice_s is not None, beat.left)


_TRAINING = (TRAINING, False, False, None)
