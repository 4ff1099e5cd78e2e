"""What finished actions reported, kept until the next decision has used it.

In memory only: after a crash every action that is still needed is derived again from its row, and reports the same.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from supervisor.domain.observation import NOT_READ, CreateFailed, MeterReport, Part, Pinned, Seen, Sent, Verification


@dataclass(frozen=True, slots=True)
class Reported:
    create: Part[CreateFailed] = NOT_READ
    create_before: Part[CreateFailed] = NOT_READ  # of the other launch of a race
    sent: Part[Sent] = NOT_READ
    pin: Part[Pinned] = NOT_READ
    verification: Part[Verification] = NOT_READ
    finalised: Part[bool] = NOT_READ
    verb: Part[MeterReport] = NOT_READ
    meter: Part[MeterReport] = NOT_READ
    stop: Part[str] = NOT_READ  # a marker found immediately before a launch

    def create_of(self, launch_id: str) -> Part[CreateFailed]:
        """The end of this create call; the last one, of whichever launch, where there is none."""
        before = self.create_before
        return before if isinstance(before, Seen) and before.value.launch_id == launch_id else self.create


NOTHING = Reported()


class Outcomes:
    """Action threads write; the tick reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported: dict[int, Reported] = {}
        self._new: set[int] = set()

    def of(self, key: int) -> Reported:
        return self._reported.get(key, NOTHING)

    def take_new(self) -> set[int]:
        """Keys of the runs for which something was reported since the last call."""
        with self._lock:
            new, self._new = self._new, set()
        return new

    def create_failed(self, key: int, failed: CreateFailed) -> None:
        last = self.of(key).create
        other = isinstance(last, Seen) and last.value.launch_id != failed.launch_id
        self._put(key, create=Seen(failed), **({"create_before": last} if other else {}))

    def sent(self, key: int, report: Sent) -> None:
        """No reason to decide: it only lengthens a limit."""
        with self._lock:
            self._reported[key] = replace(self._reported.get(key, NOTHING), sent=Seen(report))

    def pinned(self, key: int, report: Pinned) -> None:
        self._put(key, pin=Seen(report))

    def verified(self, key: int, verification: Verification) -> None:
        self._put(key, verification=Seen(verification))

    def finalised(self, key: int) -> None:
        self._put(key, finalised=Seen(True))

    def verb_tried(self, key: int, report: MeterReport) -> None:
        self._put(key, verb=Seen(report))

    def meter_read(self, key: int, report: MeterReport) -> None:
        self._put(key, meter=Seen(report))

    def stop_found(self, key: int, generation: str) -> None:
        self._put(key, stop=Seen(generation))

    def moved(self, key: int) -> None:
        """The run has another status: the reports belong to the old one. The end of a create call stays: it names its
        launch, no other call for that launch follows, and a run that is being stopped waits for exactly this report."""
        with self._lock:
            reported = self._reported.pop(key, NOTHING)
            if reported.create is not NOT_READ:
                self._reported[key] = Reported(create=reported.create, create_before=reported.create_before)

    def forget(self, key: int) -> None:
        """The run does not belong to this cell any more."""
        with self._lock:
            self._reported.pop(key, None)
            self._new.discard(key)

    def _put(self, key: int, **part: object) -> None:
        with self._lock:
            self._reported[key] = replace(self._reported.get(key, NOTHING), **part)  # type: ignore[arg-type]
            self._new.add(key)
