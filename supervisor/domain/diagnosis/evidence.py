"""What is known about an end, a stall or a slow run: one frozen record, made of items with their source, clock and time.

Absent is not zero: an item that nobody read is not there, and `unread` says why. Clocks of different computers are
never compared: an item has the clock that its time belongs to. The items of one name stand in canonical order, so no
answer can depend on the order in which they were collected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from supervisor.contract.heartbeat import Exit
from supervisor.contract.signs import Hit

Value = str | float | int | bool | tuple[float | None, ...]


class Source(StrEnum):
    OWN = "own"  # an action of the supervisor
    PROVIDER = "provider"  # the platform's record or state
    HOST = "host"  # the computer of the machine: its script, its kernel
    AGENT = "agent"
    LOG = "log"


class Clock(StrEnum):
    SUPERVISOR = "supervisor"  # seconds since 1970
    AGENT = "agent"  # seconds since the agent's start, monotonic
    PROVIDER = "provider"  # seconds since 1970
    NONE = "none"  # the time is unknown


@dataclass(frozen=True, slots=True)
class Item:
    """One observation. `where`: the exact place in its source, such as `memory.events`, `serial` or `card 3`."""

    name: str
    value: Value
    source: Source
    at: float | None = None
    clock: Clock = Clock.NONE
    where: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """`error`: the last line of the exception that began the end. `unread`: name -> why it could not be read."""

    items: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    hits: tuple[Hit, ...] = ()
    exit: Exit | None = None
    error: str = ""
    unread: Mapping[str, str] = field(default_factory=dict)

    def last(self, name: str, *sources: Source) -> Item | None:
        """The newest item of this name, from one of `sources` (none = any)."""
        items = [item for item in self.items.get(name, ()) if not sources or item.source in sources]
        return items[-1] if items else None


def in_order(items: list[Item]) -> dict[str, tuple[Item, ...]]:
    """Items by name, each name's in canonical order: by time, then source, then value."""
    by_name: dict[str, list[Item]] = {}
    for item in sorted(items, key=lambda item: (item.name, item.at or 0.0, item.source, repr(item.value), item.where)):
        by_name.setdefault(item.name, []).append(item)
    return {name: tuple(same) for name, same in by_name.items()}
