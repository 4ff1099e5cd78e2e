"""What may happen to a machine of the fake provider, and the hand of the test that makes it happen."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineRecord, MachineRef, MachineState, Offer
from supervisor.ports.provider import LaunchRequest, MachineMissing
from tests.fakes.clock import FakeClock

LASTING = (MachineState.UP, MachineState.ENDED)


@dataclass
class FakeMachine:
    """What the fake knows of a machine, beyond what a listing tells of it."""

    machine: Machine
    up_at: float = 0.0
    room_at: float = 0.0  # until then the platform looks for room
    request: LaunchRequest | None = None
    taken_at: float | None = None  # a notice runs: the machine ends at this time
    gone_at: float | None = None  # a release was accepted: gone from this time on
    frozen: bool = False
    asked_to_stop: bool = False
    console: bytes = b""
    job: Mapping[str, object] = field(default_factory=dict)

    @property
    def lasts(self) -> bool:
        """It changes when somebody does something, and not by time."""
        return self.gone_at is None and self.taken_at is None and self.machine.state in LASTING


class Misfortunes:
    """Of a provider that keeps these and knows how a machine is at this instant."""

    offered: tuple[Offer, ...]
    _clock: FakeClock
    _lock: threading.RLock
    _machines: dict[str, FakeMachine]
    _stockouts: dict[str, float | None]
    _next_launches: list[tuple[Exception, bool]]
    _removed: dict[str, Machine]

    def _now(self, name: str) -> Machine | None:
        raise NotImplementedError

    # --- disasters ----------------------------------------------------------------------------------------------------

    def preempt(self, ref: MachineRef, notice_s: float) -> None:
        with self._lock:
            own = self._demand(ref)
            detail = f"preempted with {notice_s:g} s notice"
            record = MachineRecord(Cause.PREEMPTED, detail, self._clock.now(), notice_s)
            own.machine = replace(own.machine, state=MachineState.ENDING, record=record)
            own.taken_at = self._clock.now() + notice_s

    def kill(self, ref: MachineRef) -> None:
        with self._lock:
            self._demand(ref)
            self.lose(ref.name)

    def freeze(self, ref: MachineRef) -> None:
        with self._lock:
            self._demand(ref).frozen = True

    def stockout(self, zones: Sequence[str], for_s: float | None) -> None:
        with self._lock:
            unknown = set(zones) - {offer.placement.zone for offer in self.offered}
            if unknown:
                raise ValueError(f"no such zone: {sorted(unknown)}")
            for zone in zones:
                self._stockouts[zone] = None if for_s is None else self._clock.now() + for_s

    # --- the test's hand ----------------------------------------------------------------------------------------------

    def next_launch(self, answer: Exception, comes_up: bool = False, times: int = 1) -> None:
        """Let the next launches raise `answer`; with `comes_up` the machine is there in spite of it."""
        self._next_launches += [(answer, comes_up)] * times

    def lose(self, name: str) -> None:
        """The machine is gone, and nobody says why."""
        with self._lock:
            self._machines.pop(name, None)

    def end(self, name: str, cause: Cause | None = None, detail: str = "") -> None:
        """The machine stopped but is still there, with a record when a cause is given."""
        with self._lock:
            own = self._machines[name]
            record = None if cause is None else MachineRecord(cause, detail or str(cause), self._clock.now())
            own.machine = replace(own.machine, state=MachineState.ENDED, record=record)

    def remove(self, name: str, cause: Cause, detail: str) -> None:
        """The machine is gone. Whoever asks for its id is told how it ended; its labels are not known any more."""
        with self._lock:
            gone = self._machines.pop(name).machine
            record = MachineRecord(cause, detail, self._clock.now())
            self._removed[gone.machine_id] = replace(
                gone, state=MachineState.ENDED, record=record, run_id="", launch_id="", labels={}
            )

    def keeps(self, name: str) -> bool:
        """It was launched to be kept: switched off, it stays."""
        own = self._machines.get(name)
        return own is not None and own.request is not None and own.request.keep

    def add(self, machine: Machine) -> Machine:
        """A machine that this supervisor did not ask for: another's, or a leftover."""
        with self._lock:
            self._machines[machine.name] = FakeMachine(machine)
            return machine

    def write_console(self, name: str, data: bytes) -> None:
        self._machines[name].console += data

    def inside(self, name: str) -> FakeMachine:
        """Everything the fake knows of this machine; KeyError when it never was or is lost."""
        return self._machines[name]

    def _match(self, ref: MachineRef) -> Machine | None:
        machine = self._now(ref.name)
        if machine is None or (ref.machine_id and ref.machine_id != machine.machine_id):
            return None
        return machine

    def _demand(self, ref: MachineRef) -> FakeMachine:
        machine = self._match(ref)
        if machine is None or machine.state is MachineState.ENDED:
            raise MachineMissing(f"there is no machine {ref.name}")
        return self._machines[ref.name]
