"""Everything seen of one run at one instant. Each part is Seen, Absent or Unknown: could not read is not absent.

`NOT_READ` is the Unknown of parts that are read only on request: a decision that needs one asks for it (`wants`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from supervisor.contract.baton import Baton, FileEntry
from supervisor.contract.heartbeat import Beat
from supervisor.domain.causes import Cause
from supervisor.domain.machines.machine import Machine

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    value: T
    age_s: float = 0.0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """A complete and fresh read did not contain it."""

    age_s: float = 0.0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    reason: str
    since: float | None = None
    torn: bool = False  # it was read and cannot be understood: only a person can mend it
    taken: bool = (
        False  # another's machine has this name: asking for ours again is answered with a definite no
    )


NOT_READ = Unknown("not read")
Part = Seen[T] | Absent | Unknown


@dataclass(frozen=True, slots=True)
class CreateFailed:
    """A definite end of a create call: no machine will come of it."""

    launch_id: str
    cause: Cause  # no_capacity, quota, launch_rejected or queued
    detail: str
    of_run: bool = False  # this run was refused, whatever the place
    scope: str = "zone"  # how far a quota reaches: zone | region | project


@dataclass(frozen=True, slots=True)
class Pinned:
    """The answer to a PinImage. `digest` "" and no `problem`: the provider runs no images."""

    asked: str
    digest: str = ""  # name@sha256:...
    problem: str = ""  # missing | hidden | unavailable
    detail: str = ""
    at: float = 0.0  # when it was answered, on the supervisor's clock


@dataclass(frozen=True, slots=True)
class Verification:
    """The results of `done` compared with the store: problems = files that are missing or differ."""

    launch_id: str
    results_sha256: str
    files: tuple[FileEntry, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """`beat` is the newest beat of this run from any source, already parsed and authenticated."""

    machine: Part[Machine] = NOT_READ
    beat: Part[Beat] = NOT_READ
    baton: Part[Baton] = NOT_READ
    stop: Part[str] = NOT_READ  # the .stop marker's object generation
    lookup: Part[Machine] = NOT_READ  # the machine asked for by id or name, after the listing
    create: Part[CreateFailed] = NOT_READ
    pin: Part[Pinned] = NOT_READ
    verification: Part[Verification] = NOT_READ
    finalised: Part[bool] = NOT_READ  # baton closed, beat deleted, manifest written
    retiring: tuple[Part[Machine], ...] = ()  # in the order of run.retiring


BATON, STOP, LOOKUP = "baton", "stop", "lookup"
