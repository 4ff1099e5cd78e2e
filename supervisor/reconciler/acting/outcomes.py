"""What finished actions have told, until the next decision has heard it. Memory only: after a crash every action that
is still needed is derived again from its row and tells the same."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from supervisor.domain.observation import NOT_READ, CreateFailed, Part, Pinned, Seen, Verification


@dataclass(frozen=True, slots=True)
class Heard:
    create: Part[CreateFailed] = NOT_READ
    pin: Part[Pinned] = NOT_READ
    verification: Part[Verification] = NOT_READ
    finalised: Part[bool] = NOT_READ
    stop: Part[str] = NOT_READ  # a marker found immediately before a launch


NOTHING = Heard()


class Outcomes:
    """Written by action threads, read by the tick."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: dict[int, Heard] = {}

    def of(self, key: int) -> Heard:
        return self._heard.get(key, NOTHING)

    def create_failed(self, key: int, failed: CreateFailed) -> None:
        self._put(key, create=Seen(failed))

    def pinned(self, key: int, answer: Pinned) -> None:
        self._put(key, pin=Seen(answer))

    def verified(self, key: int, verification: Verification) -> None:
        self._put(key, verification=Seen(verification))

    def finalised(self, key: int) -> None:
        self._put(key, finalised=Seen(True))

    def stop_found(self, key: int, generation: str) -> None:
        self._put(key, stop=Seen(generation))

    def moved(self, key: int) -> None:
        """The run has another status: what was heard belongs to the old one. Not so the end of a create call: it names
        its launch, nobody asks for that launch again, and a run that is being stopped waits for exactly this word."""
        with self._lock:
            heard = self._heard.pop(key, NOTHING)
            if heard.create is not NOT_READ:
                self._heard[key] = Heard(create=heard.create)

    def forget(self, key: int) -> None:
        """The run is not ours to decide any more."""
        with self._lock:
            self._heard.pop(key, None)

    def _put(self, key: int, **part: object) -> None:
        with self._lock:
            self._heard[key] = replace(self._heard.get(key, NOTHING), **part)  # type: ignore[arg-type]
