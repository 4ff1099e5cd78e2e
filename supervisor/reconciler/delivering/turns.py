"""Whose message is sent next: what waits for each endpoint, and how much of the crew each may take.

An endpoint gets more than one message at a time only after it has taken one, a chat never, and those that fail share
half of the crew: however many receivers hang, the others go on. Nothing here sends, reads or writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from supervisor.domain.events import KINDS
from supervisor.lifecycle.events.delivering import Waiting, next_message
from supervisor.ports.notifier import Delivery, Endpoint

EACH = 4  # messages at once to an endpoint that takes them
CHAT_MEMORY_S = 120.0
REMEMBERED_S = 600.0  # what is known of an endpoint for which nothing waits

Batch = tuple[Delivery, ...]


@dataclass
class Line:
    """What waits for one endpoint. `taking`: its last message was taken; None = none was sent yet by this process.
    `more`: there is more in the database. `sent_at`: of a chat, when its last messages were sent."""

    endpoint: Endpoint
    waiting: deque[Delivery] = field(default_factory=deque)
    more: bool = False
    flying: int = 0
    taking: bool | None = None
    sent_at: list[float] = field(default_factory=list)
    used_at: float = 0.0

    @property
    def has_room(self) -> bool:
        return self.flying < (1 if self.endpoint.form.chat or not self.taking else EACH)


@dataclass
class Turns:
    """`crew`: messages at once."""

    crew: int
    lines: dict[str, Line] = field(default_factory=dict)
    busy: int = 0
    busy_failing: int = 0

    @property
    def run_dry(self) -> bool:
        """Some endpoint has more in the database, and none of it here."""
        return any(line.more and not line.waiting for line in self.lines.values())

    def refill(
        self, found: Sequence[tuple[Endpoint, Sequence[Delivery]]], flying: Collection[int], full: int, now: float
    ) -> None:
        """`found`: everything that is due now, of each endpoint the first `full` ones. `flying`: what is being sent."""
        named = {endpoint.id for endpoint, _ in found}
        for endpoint_id, line in list(self.lines.items()):
            if endpoint_id not in named:
                line.waiting.clear()
                line.more = False
                if not line.flying and now - line.used_at > REMEMBERED_S:
                    del self.lines[endpoint_id]
        for endpoint, due in found:
            line = self.lines.setdefault(endpoint.id, Line(endpoint, used_at=now))
            line.endpoint = endpoint
            if line.taking is None and endpoint.failing_since is not None:
                line.taking = False
            line.more = len(due) >= full
            line.waiting = deque(one for one in due if one.id not in flying)

    def clear(self) -> None:
        for line in self.lines.values():
            line.waiting.clear()

    def take(self, now: float) -> Iterator[tuple[Line, Batch]]:
        """One message of each endpoint in turn, until nobody has one that may be sent now. The caller says `begin` for
        each before it asks for the next."""
        again = True
        while again:
            again = False
            for line in self.lines.values():
                batch = self._next(line, now)
                if batch:
                    again = True
                    yield line, batch

    def begin(self, line: Line, now: float) -> bool:
        """Whether it counts as failing until it has ended."""
        failing = line.taking is False
        line.flying += 1
        self.busy += 1
        self.busy_failing += failing
        line.used_at = now
        if line.endpoint.form.chat:
            line.sent_at = [at for at in line.sent_at if now - at < CHAT_MEMORY_S] + [now]
        return failing

    def end(self, line: Line, failing: bool, taken: bool) -> None:
        line.flying -= 1
        self.busy -= 1
        self.busy_failing -= failing
        line.taking = taken

    def _next(self, line: Line, now: float) -> Batch:
        if not line.waiting or not line.has_room or line.endpoint.next_message_at > now:
            return ()
        if self.busy >= self.crew or (line.taking is False and self.busy_failing >= self.crew // 2):
            return ()
        if not line.endpoint.form.chat:
            return (line.waiting.popleft(),)
        waiting = [_waiting(one, now) for one in line.waiting]
        chosen = {one.delivery_id for one in next_message(waiting, line.sent_at, now)}
        batch = tuple(one for one in line.waiting if one.id in chosen)
        line.waiting = deque(one for one in line.waiting if one.id not in chosen)
        return batch


def _waiting(delivery: Delivery, now: float) -> Waiting:
    """A kind that is not known here was announced by a newer version."""
    kind, due_at = KINDS.get(delivery.kind), delivery.next_at
    return Waiting(delivery.id, delivery.kind, now if due_at is None else due_at, kind is not None and kind.urgent)
