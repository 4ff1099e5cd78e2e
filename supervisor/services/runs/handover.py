"""Beats between replicas: agents push to any replica, and only the leader of a run's cell decides on a beat.

A replica writes the beats of runs that it does not lead to the database, in batches about once a second, and at once if
a beat is urgent. The leader reads them at each tick. Written beats stay in the replica's inbox: if the leader changes
before it has read them, the next leader still gets them, and the newest beat wins wherever it is. If beats cannot be
written for a few seconds, the replica refuses them (`useful`), so that agents use the object store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.clock import Clock, Wake
from supervisor.ports.store import Lease, PushedBeat, Store, StoreDown
from supervisor.services.runs.heartbeat import BeatInbox, Granted, stopping_generations
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry.worker import Worker

INTERVAL_S = 1.0
BATCH = 500
USEFUL_S = 5.0  # beats are accepted for so long after the last complete write
FORGET_S = 600.0  # a run of another leader is dropped after so much silence
CLOSE_S = 10.0

Received = tuple[str, Beat, float]  # run_id, beat, monotonic time of its receipt


@dataclass
class Handover:
    """`wake`: wakes the leader's loop. `lease()`: of the cell that this replica may lead; None = it does not lead it
    now. An urgent beat starts a write at once, and the leader is woken after the beat is in the database."""

    store: Store
    inbox: BeatInbox
    clock: Clock
    wake: Wake
    lease: Callable[[], Lease | None]
    interval_s: float = INTERVAL_S
    _ours: frozenset[str] = frozenset()  # runs of our cell, while we lead it
    _ours_stopping: Mapping[str, int | str] = field(default_factory=dict)
    _granted: Granted = field(default_factory=Granted)  # while we lead our cell
    _stopping: dict[str, int] = field(default_factory=dict)  # runs of other leaders
    _written: dict[str, tuple[str, int]] = field(default_factory=dict)  # run_id -> launch, sequence of the last write
    _complete_at: float = field(init=False)
    _urgent: bool = False
    _failing: bool = False
    _worker: Worker = field(init=False)

    def __post_init__(self) -> None:
        self._complete_at = self.clock.monotonic()
        self.inbox.useful, self.inbox.wake = self.useful, self._write_soon
        self._worker = Worker(
            "handover",
            self._turn,
            self.interval_s,
            failed="beats not written",
            fields={telemetry.ACTION: "handover"},
            expected=StoreDown,
        )

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        self._worker.stop(CLOSE_S)

    # --- the leader's side ----------------------------------------------------------------------------------------

    def take(self) -> dict[str, tuple[Beat, float]]:
        """The newest beat of every run, including beats that other replicas have received. Raises StoreDown."""
        lease = self.lease()
        if lease is not None:
            self.inbox.adopt((pushed.beat, pushed.age_s) for pushed in self.store.take_beats(lease))
        return self.inbox.take()

    def set_active(self, runs: Iterable[Run]) -> None:
        """After each tick: the runs of our cell, whose beats are not written."""
        all_runs = list(runs)
        self._ours = frozenset(run.run_id for run in all_runs)
        self._ours_stopping = stopping_generations(all_runs)
        self.inbox.drop_superseded(all_runs)
        self._update_inbox()

    def grant(self, granted: Granted) -> None:
        """After each tick: of our cell. A replica that does not lead it any more grants nothing."""
        self._granted = granted
        self._update_inbox()

    # --- the other replicas' side ---------------------------------------------------------------------------------

    def useful(self) -> bool:
        """Whether a beat that is received now reaches a leader."""
        return self.lease() is not None or self.clock.monotonic() - self._complete_at < USEFUL_S

    def write(self) -> None:
        """Write every new beat of a run of another leader to the database. Raises StoreDown."""
        now, beats = self.clock.monotonic(), self.inbox.take()
        ours, new = self._leading(), list[Received]()
        for run_id, (beat, received) in beats.items():
            if run_id in ours:
                continue
            if now - received > FORGET_S:
                self._forget(run_id)
            elif self._written.get(run_id) != _name(beat):
                new.append((run_id, beat, received))
        for start in range(0, len(new), BATCH):
            self._write(new[start : start + BATCH])
        self._written = {run_id: name for run_id, name in self._written.items() if run_id in beats}
        self._stopping = {run_id: number for run_id, number in self._stopping.items() if run_id in beats}
        self._update_inbox()
        self._complete_at = now

    def _write(self, batch: list[Received]) -> None:
        now = self.clock.monotonic()
        statuses = self.store.put_beats(
            [PushedBeat(beat._replace(nonce=""), max(0.0, now - received)) for _, beat, received in batch]
        )
        for run_id, beat, _ in batch:
            status = statuses.get(run_id)
            self._stopping.pop(run_id, None)
            if status is None:
                self._forget(run_id)
                continue
            self._written[run_id] = _name(beat)
            if status == Status.STOPPING:
                self._stopping[run_id] = parse_launch_id(beat.launch_id)[0]

    def _forget(self, run_id: str) -> None:
        """The run has ended or is silent: its next beat reads the database again."""
        self._written.pop(run_id, None)
        self.inbox.forget(run_id)

    def _leading(self) -> frozenset[str]:
        return self._ours if self.lease() is not None else frozenset()

    def _update_inbox(self) -> None:
        ours = self._leading()
        self.inbox.active = max(len(ours), len(self._written))
        self.inbox.set_stopping({**(self._ours_stopping if ours else {}), **self._stopping})
        self.inbox.grant(self._granted if ours else Granted())

    # --- the thread -----------------------------------------------------------------------------------------------

    def _write_soon(self) -> None:
        self._urgent = True
        if not self._failing:  # else the next turn after the interval is soon enough
            self._worker.wake()

    def _turn(self) -> None:
        """Raises StoreDown once per outage, so that the log holds one line about it."""
        urgent, self._urgent = self._urgent, False  # before the read of the inbox: a later urgent beat is not lost
        try:
            self.write()
        except Exception as error:
            self._urgent = self._urgent or urgent
            logged, self._failing = self._failing, True
            if not (logged and isinstance(error, StoreDown)):
                raise
            return
        self._failing = False
        if urgent:
            self.wake.set()


def _name(beat: Beat) -> tuple[str, int]:
    return beat.launch_id, beat.sequence
