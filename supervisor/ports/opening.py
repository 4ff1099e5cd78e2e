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
from supervisor.domain.machines import MachineRef
from supervisor.ports.claims import Claims
from supervisor.ports.clock import Clock
from supervisor.ports.notifier import DeliveryFailed, Notification
from supervisor.ports.objectstore import LeftBy, LeftOutput, NotWaitedFor, ObjectStore, Relay
from supervisor.ports.platform import Bills, Platform
from supervisor.ports.provider import Disasters, DiskImages, OwnCards, Provider

Hook = Callable[[str, str, Notification], int]  # (address, secret that signs or "", message) -> the HTTP status
# (machine, when its newest verified checkpoint was safe or None, seconds of training since it); ProviderUnavailable
Publish = Callable[[MachineRef, float | None, float], None]


# (store of the run, what was left there, by which session, folder for parts): into the store, as far as it proves
# itself; safe to repeat. Raises NotWaitedFor, OutputLost, StoreUnavailable
Take = Callable[[ObjectStore, LeftOutput, LeftBy, Path], None]


def takes_nothing(objects: ObjectStore, output: LeftOutput, by: LeftBy, parts: Path) -> None:
    raise NotWaitedFor(by.launch_id)


def no_hook(url: str, secret: str, message: Notification) -> int:
    raise DeliveryFailed("messages are not sent from here")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderContext:
    """`agent`: the archive that machines start with. `impatient(patience_s)`: the same object store with a short
    deadline, for a waiting person; the caller closes it. `gpu_timeout_s`: how long a machine may wait for its GPU.
    `image`: of a run without one. `scope_before()`: the scope that this database's runs use for the machines of this
    computer, "" = none. `closing`: set when this process is about to end; a wait for a platform then ends. `hook`:
    sends a message to an address of the settings, and raises DeliveryFailed. `claims`: for machines that claim their
    job; None = there is no database, so nothing is launched from here. `take`: for machines whose work comes when they
    have ended."""

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
    hook: Hook = no_hook
    claims: Claims | None = None
    take: Take = takes_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedProvider:
    """`scope`: names the set of machines that the provider sees. `server_file`: the file where machines find our
    address; None = they cannot. `disasters` None: no disasters can be injected. `cards` None: the provider manages no
    GPUs of this computer; `promised_cards`: GPUs of its largest machine. `warm`: slow imports; takes seconds, raises
    nothing. `close`: frees what was opened. `checks`: the platform's checks of the doctor. `account`: our account
    at the platform; may send a request, and raises nothing. `relay(supervisor_id)`: the object stores that its machines
    work with; None = they open ours. `publish`: shows the platform's schedulers what a preemption of a machine would
    lose, and sends nothing where they see it already; None = no scheduler there looks at it. `images`: of the
    disks of its machines; None = it makes none. `bills` None: the platform's bill is not read."""

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
    relay: Callable[[str], Relay] | None = None
    publish: Publish | None = None
    images: DiskImages | None = None
    bills: Bills | None = None
    close: Callable[[], None] = lambda: None
