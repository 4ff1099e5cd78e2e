"""Runs for the store's tests: the smallest one, and one with a value in each field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from supervisor.domain.attempt import Attempt, Pulse, Try
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Placement
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.store import Change, Lease, Store

NOW = 1_800_000_000.123456
CELL = "local file:///objects"
SPEC = {"command": ["python", "train.py"], "env": {"LR": "0.1"}, "limits": {"max_attempts": 3}}
PLACE = Placement("local", "here", "zone-b", "small", True)
SUBMITTED = Event(EventKind.SUBMITTED, "Submitted by local.", "local")
STARTED = Event(EventKind.STARTED, "Training in zone-b.", data={"zone": "zone-b", "steps": [1, 2], "cost": 1.5})


def a_run(run_id: str = "digits-1", **fields: object) -> Run:
    """A run as a submit makes it."""
    plain = Run(
        key=0,
        run_id=run_id,
        owner="local",
        cell=CELL,
        provider="local",
        generation=1,
        status=Status.PENDING,
        policy=Policy(),
        created_at=NOW,
        generation_at=NOW,
        status_since=NOW,
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def a_try(attempt: int = 1, number: int = 1, **fields: object) -> Try:
    name = f"spot-0a1b2c3d-a{attempt}-t{number}"
    plain = Try(attempt, number, f"1.{attempt}.{number}", name, PLACE, NOW, 0.5, 1.5)
    return replace(plain, **fields)  # type: ignore[arg-type]


def an_attempt(number: int = 1, **fields: object) -> Attempt:
    try_ = a_try(number)
    plain = Attempt(
        number=number,
        generation=1,
        launch_id=try_.launch_id,
        machine_name=try_.machine_name,
        machine_id="local:0a1b2c3d:71:22",
        placement=PLACE,
        requested_at=NOW,
        started_at=NOW + 1.25,
        price_usd_per_h=0.5,
        on_demand_usd_per_h=1.5,
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def a_pulse(step: int | None = 10, **fields: object) -> Pulse:
    plain = Pulse("1.1.1", 7, "training", NOW, NOW + 3.5, step, 50_000, metrics={"loss": 0.125, "gpu": 97.0})
    return replace(plain, **fields)  # type: ignore[arg-type]


def running(run: Run, number: int = 1, **fields: object) -> Run:
    """`run` in its n-th attempt."""
    more = {"try_": a_try(number), "attempt": an_attempt(number), "pulse": a_pulse(), **fields}
    return replace(run, status=Status.RUNNING, status_since=NOW + 5, **more)  # type: ignore[arg-type]


def full(run: Run) -> Run:
    """`run` with a value in each field, none of them the default, and texts from all of Unicode."""
    keep = ("key", "version", "run_id", "owner", "cell", "provider", "created_at")
    rich = replace(filled(Run), **{name: getattr(run, name) for name in keep})
    pulse = replace(filled(Pulse), recent="")  # what its beat carries of earlier seconds is not kept with it
    try_ = replace(filled(Try), nonce_hash="ab" * 32)
    rival = replace(filled(Try), launch_id="rival", number=2, nonce_hash="cd" * 32)
    return replace(rich, pulse=pulse, try_=try_, rival=rival)


def filled(hint: Any, seed: str = "x", inside: tuple[Any, ...] = ()) -> Any:
    """A value of this type, different for each seed, so swapped fields show. `inside`: the classes around it; an
    optional one of them again is None, else a machine would hold its call, and that one its machine, without end."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        wanted = next(arg for arg in args if arg is not NoneType)
        return None if wanted in inside else filled(wanted, seed, inside)
    if origin is tuple:
        return (filled(args[0], seed, inside), filled(args[0], seed + "2", inside))
    if origin is Mapping:
        return {seed: filled(args[1], seed, inside), "ß": filled(args[1], seed + "2", inside)}
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        hints = get_type_hints(hint)
        defaults = (
            hint._field_defaults if hasattr(hint, "_fields") else {each.name: each.default for each in fields(hint)}
        )
        values = {name: filled(hints[name], name, (*inside, hint)) for name in hints}
        flipped = {name: not default for name, default in defaults.items() if hints[name] is bool}
        return hint(**{**values, **flipped})
    if issubclass(hint, StrEnum):
        return list(hint)[len(seed) % len(hint)]
    number = sum(seed.encode())
    some = {
        str: f"{seed}: “naïve” → 日本 \U0001f600\n\t\\u0000 is six characters",
        int: 10**15 + number,
        float: NOW + number / 7,
        bool: True,
    }
    return some[hint]


def insert(store: Store, *runs: Run, labels: dict[str, str] | None = None) -> list[Run]:
    """The stored runs, with their first event."""
    with store.begin(NOW) as tx:
        return [tx.insert(run, SPEC, labels or {}, [SUBMITTED]) for run in runs]


def changed(store: Store, before: Run, after: Run, *events: Event) -> Run:
    """The stored run after this change."""
    with store.begin(NOW) as tx:
        stored = tx.apply(Change(before, after, events), NOW)
    assert stored is not None
    return stored


def lease_of(store: Store, owner: str = "me") -> Lease:
    lease = store.take_lease(CELL, owner, 60.0, 100.0)
    assert lease is not None
    return lease
