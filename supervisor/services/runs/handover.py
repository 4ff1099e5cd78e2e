"""Beats between replicas: agents push to any of them, and only the leader of a run's cell decides on it.

A replica leaves the beats of runs that it does not lead in the database, in batches about once a second and at once
when one of them is urgent; the leader takes them at each look. A beat that was left is not deleted from the inbox: if
leadership changes before it was taken, it is the next leader's all the same, and the newest wins wherever it lies.
Beats that cannot be left are refused after a few seconds (`useful`), so that agents use the object store.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from supervisor.contract.heartbeat import Beat
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.clock import Clock, Wake
from supervisor.ports.store import Lease, PushedBeat, Store, StoreDown
from supervisor.services.runs.heartbeat import BeatInbox
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

PAUSE_S = 1.0
BATCH = 500
USEFUL_S = 5.0  # how long beats are accepted after the last time that all of them had been left
FORGET_S = 600.0  # a run that is not ours and silent for so long needs no room here

Received = tuple[str, Beat, float]  # run_id, beat, monotonic time of its receipt


@dataclass
class Handover:
    """`lease`: of the cell that this replica may lead, None while it does not. `urgent` is the inbox's wake: it ends
    this thread's pause, and what it tells of is in the database before `wake` tells the leader."""

    store: Store
    inbox: BeatInbox
    clock: Clock
    wake: Wake
    urgent: Wake
    lease: Callable[[], Lease | None]
    _ours: frozenset[str] = frozenset()  # runs of our cell, while we lead it
    _ours_stopping: frozenset[str] = frozenset()
    _stopping: set[str] = field(default_factory=set)  # runs of other leaders
    _left: dict[str, tuple[str, int]] = field(default_factory=dict)  # run_id -> launch, sequence that was left last
    _well_at: float = field(init=False)
    _failing: bool = False
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._well_at = self.clock.monotonic()
        self.inbox.useful = self.useful

    def start(self) -> None:
        self._thread = threading.Thread(target=self._keep, name="handover", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._closing.set()
        self.urgent.set()
        if self._thread is not None:
            self._thread.join(timeout=10 * PAUSE_S)

    # --- the leader's side ----------------------------------------------------------------------------------------

    def take(self) -> dict[str, tuple[Beat, float]]:
        """The newest beat of every run, those included that other replicas have left for us. Raises StoreDown."""
        lease = self.lease()
        if lease is not None:
            self.inbox.adopt((taken.beat, taken.age_s) for taken in self.store.take_beats(lease))
        return self.inbox.take()

    def looked(self, runs: Iterable[Run]) -> None:
        """After each look: the runs of our cell, whose beats need no handing over."""
        all_runs = list(runs)
        self._ours = frozenset(run.run_id for run in all_runs)
        self._ours_stopping = frozenset(run.run_id for run in all_runs if run.stop is not None)
        self._tell_inbox()

    # --- the others' side -----------------------------------------------------------------------------------------

    def useful(self) -> bool:
        """Whether a beat that is accepted now will reach a leader."""
        return self.lease() is not None or self.clock.monotonic() - self._well_at < USEFUL_S

    def leave(self) -> None:
        """Put every beat into the database that is new since the last time and not for us. Raises StoreDown."""
        now, taken = self.clock.monotonic(), self.inbox.take()
        ours = self._leading()
        others = [(run_id, beat, received) for run_id, (beat, received) in taken.items() if run_id not in ours]
        for run_id, _, received in others:
            if now - received > FORGET_S:
                self._forget(run_id)
        new = [pulse for pulse in others if now - pulse[2] <= FORGET_S and self._left.get(pulse[0]) != _name(pulse[1])]
        for start in range(0, len(new), BATCH):
            self._leave(new[start : start + BATCH])
        self._left = {run_id: name for run_id, name in self._left.items() if run_id in taken}
        self._stopping &= taken.keys()
        self._tell_inbox()
        self._well_at = now

    def _leave(self, batch: list[Received]) -> None:
        now = self.clock.monotonic()
        statuses = self.store.put_beats(
            [PushedBeat(replace(beat, nonce=""), max(0.0, now - received)) for _, beat, received in batch]
        )
        for run_id, beat, _ in batch:
            status = statuses.get(run_id)
            self._stopping.discard(run_id)
            if status is None:
                self._forget(run_id)
                continue
            self._left[run_id] = _name(beat)
            if status == Status.STOPPING:
                self._stopping.add(run_id)

    def _forget(self, run_id: str) -> None:
        """The run is over, or silent: its next beat is looked up again."""
        self._left.pop(run_id, None)
        self.inbox.forget(run_id)

    def _leading(self) -> frozenset[str]:
        return self._ours if self.lease() is not None else frozenset()

    def _tell_inbox(self) -> None:
        ours = self._leading()
        self.inbox.active = max(len(ours), len(self._left))
        self.inbox.set_stopping((self._ours_stopping if ours else frozenset()) | self._stopping)

    # --- the thread -----------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        woken = False
        while not self._closing.is_set():
            woken = self.urgent.wait(PAUSE_S) or woken
            try:
                self.leave()
                self._failing = False
            except StoreDown as error:
                self._complain(error)
                self._closing.wait(PAUSE_S)
                continue
            except Exception:
                log.exception("beats not handed over", extra={telemetry.ACTION: "handover"})
                self._closing.wait(PAUSE_S)
                continue
            if woken:
                self.wake.set()
                woken = False

    def _complain(self, error: StoreDown) -> None:
        if not self._failing:
            log.warning("beats not handed over", extra={telemetry.ACTION: "handover", telemetry.ERROR: str(error)})
        self._failing = True


def _name(beat: Beat) -> tuple[str, int]:
    return beat.launch_id, beat.sequence
