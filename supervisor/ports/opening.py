"""How a provider is opened: what the application gives it, and what it gives back.

The composition root fills a ProviderContext. The provider's own folder makes an OpenedProvider of it and of its
settings. Opening sends no request: the first tick does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.domain.findings import Check
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ObjectStore
from supervisor.ports.platform import Platform
from supervisor.ports.provider import Disasters, OwnCards, Provider


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderContext:
    """`agent`: the archive that machines are started with. `impatient(patience_s)`: the same object store for a person
    who waits; its owner closes it. `gpu_timeout_s`: how long a machine may wait for its GPU. `image`: of a run that
    names none. `scope_before()`: what the runs of this database call the machines of this computer, "" = nothing.
    `closing`: set when this process is told to end; who waits for a platform ends its wait."""

    data_dir: Path
    objects: ObjectStore
    impatient: Callable[[float], ObjectStore]
    agent: Path
    clock: Clock
    public_url: str
    machine_prefix: str
    gpu_timeout_s: float
    image: str
    scope_before: Callable[[], str]
    closing: threading.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedProvider:
    """`scope`: the provider's word for the machines that it sees. `server_file`: where machines find our address; None
    = they cannot. `disasters` None: nobody may strike these machines. `cards` None: no GPUs are given out here;
    `promised_cards`: of the largest machine. `warm` imports what is slow to import, may take seconds and raises
    nothing; `close` ends what was opened. `checks`: the doctor's questions to the platform. `account`: who asks the
    platform; may ask it, and raises nothing."""

    provider: Provider
    platform: Platform
    scope: str
    server_file: str | None = None
    disasters: Disasters | None = None
    cards: OwnCards | None = None
    promised_cards: int = 0
    checks: Callable[[], Sequence[Check]] = tuple
    warm: Callable[[], None] = lambda: None
    account: Callable[[], str] = lambda: ""
    close: Callable[[], None] = lambda: None
