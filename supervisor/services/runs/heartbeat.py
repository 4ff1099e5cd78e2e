"""The inbox of pushed beats: in memory only, newest per run, read by the loop at each tick.

A beat is untrusted input. Its nonce is checked against the hash in the database, which is asked once per launch and
then remembered, so that two thousand beats a second touch no disk. The newest (launch, sequence) wins, whatever the
order of arrival; an older beat changes nothing. Receipt times are monotonic: a machine's clock is never believed.
After a restart the inbox is empty and every age is unknown until the next beat.
"""

from __future__ import annotations

import hmac
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from supervisor.contract.heartbeat import CHECKPOINT, EVALUATION, TRAINING, Beat, BeatRejected, parse
from supervisor.contract.identifiers import is_run_id, nonce_hash, parse_launch_id
from supervisor.domain.errors import NonceRefused, NotFound, RunEnded, Unavailable
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run
from supervisor.ports.clock import Clock, Wake
from supervisor.ports.store import Store, StoreDown
from supervisor.telemetry import metrics

NONCES_KEPT = 50_000
REJECTIONS_KEPT = 10_000
REJECTION_PAUSE_S = 600.0  # one event in this time per run, however many beats are forged
FOLLOW_S = 30.0  # how long after a reader asked for the log its agent writes it at the fast pace
RUNS_PER_BEAT_S = 100.0  # beats per second that the whole supervisor should get at most
AWAY = "The database is away; use the object store and try again later."


@dataclass(frozen=True, slots=True)
class Answer:
    """`next_s`: when the agent should push again. `stop`: save and leave. `follow_logs`: somebody is reading."""

    next_s: float
    stop: bool
    follow_logs: bool


class NonceUnknown(Exception):
    """The database has to be asked for this launch: call `learn` where blocking is allowed, then `accept` again."""


def _always() -> bool:
    return True


class BeatInbox:
    """Thread-safe. `active` is the number of active runs. `useful` tells whether beats reach a leader now: while they
    do not, they are refused, so that agents use the object store."""

    def __init__(self, store: Store, clock: Clock, wake: Wake, beat_push_s: float) -> None:
        self.active = 0
        self.useful: Callable[[], bool] = _always
        self._store, self._clock, self._wake, self._beat_push_s = store, clock, wake, beat_push_s
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[tuple[int, int, int, int], Beat, float]] = {}
        self._nonces: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._launches: dict[str, set[str]] = {}
        self._rejected_at: OrderedDict[str, float] = OrderedDict()
        self._stopping: frozenset[str] = frozenset()
        self._followed: dict[str, float] = {}

    # --- the agents' side -----------------------------------------------------------------------------------------

    def receive(self, run_id: str, raw: bytes) -> Answer:
        """Both steps; may block on the database. Raises what `accept` and `learn` raise."""
        beat = read(run_id, raw)
        try:
            return self.accept(beat)
        except NonceUnknown:
            self.learn(beat)
            return self.accept(beat)

    def accept(self, beat: Beat) -> Answer:
        """Take a beat whose launch is known. Never blocks. Raises NonceUnknown, NonceRefused, Unavailable."""
        if not self.useful():
            metrics.BEATS_PUSHED.add("away")
            raise Unavailable(AWAY)
        received = self._clock.monotonic()
        with self._lock:
            digest = self._nonces.get((beat.run_id, beat.launch_id))
            if digest is None:
                raise NonceUnknown
            if not hmac.compare_digest(digest, nonce_hash(beat.nonce)):
                raise NonceRefused(
                    f"The nonce is not the one of launch {beat.launch_id}.", {"launch_id": beat.launch_id}
                )
            urgent = self._keep(beat, received)
            followed = self._followed.get(beat.run_id)
            answer = Answer(
                next_s=max(self._beat_push_s, self.active / RUNS_PER_BEAT_S),
                stop=beat.run_id in self._stopping,
                follow_logs=followed is not None and received - followed < FOLLOW_S,
            )
        metrics.BEATS_PUSHED.add("accepted")
        if urgent:
            self._wake.set()
        return answer

    def learn(self, beat: Beat) -> None:
        """Read the hash of this launch's nonce. Raises NotFound (no such run), RunEnded (terminal: look at the baton),
        NonceRefused (no such launch), Unavailable (the database is away)."""
        try:
            run = self._store.find(beat.run_id)
            digest = None if run is None else self._store.nonce_hash(beat.run_id, beat.launch_id)
        except StoreDown as error:
            metrics.BEATS_PUSHED.add("away")
            raise Unavailable(AWAY) from error
        if run is None:
            raise NotFound(f"There is no run {beat.run_id}.", {"run_id": beat.run_id})
        if run.terminal:
            raise RunEnded(f"{beat.run_id} is {run.status}; look at its baton.", {"run_id": beat.run_id})
        if not digest:
            raise NonceRefused(f"There is no launch {beat.launch_id}.", {"launch_id": beat.launch_id})
        with self._lock:
            self._nonces[beat.run_id, beat.launch_id] = digest
            self._launches.setdefault(beat.run_id, set()).add(beat.launch_id)
            while len(self._nonces) > NONCES_KEPT:
                (run_id, launch_id), _ = self._nonces.popitem(last=False)
                self._drop_launch(run_id, launch_id)

    def reject(self, run_id: str, reason: str) -> None:
        """Tell the history of a beat that was not believed, at most once in ten minutes per run. Blocks; raises
        nothing: the sender has its answer already."""
        metrics.BEATS_PUSHED.add("refused")
        if not is_run_id(run_id):
            return
        received = self._clock.monotonic()
        with self._lock:
            last = self._rejected_at.get(run_id)
            if last is not None and received - last < REJECTION_PAUSE_S:
                return
            self._rejected_at[run_id] = received
            self._rejected_at.move_to_end(run_id)
            if len(self._rejected_at) > REJECTIONS_KEPT:
                self._rejected_at.popitem(last=False)
        try:
            run = self._store.find(run_id)
            if run is not None:
                text = f"A pushed beat was not believed: {reason} It changed nothing."
                event = Event(EventKind.BEAT_REJECTED, text, "agent", {"reason": reason})
                self._store.add_events(run.key, (event,), self._clock.now())
        except StoreDown:
            with self._lock:
                self._rejected_at.pop(run_id, None)  # told at the next one

    # --- the loop's side ------------------------------------------------------------------------------------------

    def take(self) -> dict[str, tuple[Beat, float]]:
        """The newest beat of every run and its monotonic time of receipt; a snapshot, nothing is removed."""
        with self._lock:
            return {run_id: (beat, received) for run_id, (_, beat, received) in self._newest.items()}

    def adopt(self, beats: Iterable[tuple[Beat, float]]) -> None:
        """Take (beat, age in seconds) that another replica has received and checked; older ones change nothing."""
        now = self._clock.monotonic()
        with self._lock:
            for beat, age_s in beats:
                self._keep(beat, now - age_s)

    def newest(self, run_id: str) -> tuple[Beat, float] | None:
        with self._lock:
            kept = self._newest.get(run_id)
            return None if kept is None else (kept[1], kept[2])

    def forget(self, run_id: str) -> None:
        """The run is over: its next beat is looked up again, and refused."""
        with self._lock:
            self._newest.pop(run_id, None)
            self._followed.pop(run_id, None)
            for launch_id in self._launches.pop(run_id, ()):
                self._nonces.pop((run_id, launch_id), None)

    def looked(self, runs: Iterable[Run]) -> None:
        """After each look of the loop: the runs that are active."""
        all_runs = list(runs)
        self.active = len(all_runs)
        self.set_stopping(run.run_id for run in all_runs if run.stop is not None)

    def set_stopping(self, run_ids: Iterable[str]) -> None:
        stopping = frozenset(run_ids)
        with self._lock:
            self._stopping = stopping

    # --- readers of logs ------------------------------------------------------------------------------------------

    def follow(self, run_id: str) -> None:
        """Somebody asked for this run's log."""
        received = self._clock.monotonic()
        with self._lock:
            self._followed[run_id] = received
            if len(self._followed) > 1000:
                old = [name for name, at in self._followed.items() if received - at >= FOLLOW_S]
                for name in old:
                    del self._followed[name]

    # --- under the lock -------------------------------------------------------------------------------------------

    def _keep(self, beat: Beat, received: float) -> bool:
        """True when the loop should look at once: something changed that is more than a step."""
        rank = (*parse_launch_id(beat.launch_id), beat.sequence)
        kept = self._newest.get(beat.run_id)
        if kept is not None and rank <= kept[0]:
            return False
        self._newest[beat.run_id] = (rank, beat, received)
        before = kept[1] if kept is not None and kept[1].launch_id == beat.launch_id else None
        # After a restart everybody's first beat is new here; those that simply train can wait for the next poll.
        return _word(beat) != (_TRAINS if before is None else _word(before))

    def _drop_launch(self, run_id: str, launch_id: str) -> None:
        launches = self._launches.get(run_id)
        if launches is not None:
            launches.discard(launch_id)
            if not launches:
                del self._launches[run_id]


def read(run_id: str, raw: bytes) -> Beat:
    """The beat in `raw`, which must be of the run it was sent for. Raises BeatRejected."""
    beat = parse(raw)
    if beat.run_id != run_id:
        raise BeatRejected("run_id is not the one in the address")
    return beat


def _word(beat: Beat) -> tuple[object, ...]:
    """What makes the loop look at once when it changes. Checkpoints and evaluations come and go within a training."""
    phase = TRAINING if beat.phase in (CHECKPOINT, EVALUATION) else beat.phase
    return (phase, beat.exit is not None, beat.notice_s is not None, beat.left)


_TRAINS = (TRAINING, False, False, None)
