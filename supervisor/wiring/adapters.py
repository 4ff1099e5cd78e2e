"""The object store and the providers of this supervisor, opened from the settings.

The store comes first, then each provider by its kind, in the order of the settings. Opening sends no request: the first
tick gets the first responses of a platform. A vendor's libraries are imported only if a provider or store of that
vendor is in use. A store folder is created only if no run can have files in it: an empty mount point is not an empty
store.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from supervisor.domain import machines
from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import OK, Finding
from supervisor.machinefolder.agent_archive import agent_path
from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.objectstores.outputs import take
from supervisor.objectstores.reading import open_remote
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ObjectReader, ObjectStore, StoreUnavailable
from supervisor.ports.opening import OpenedProvider, ProviderContext
from supervisor.ports.store import RunFilter, Store
from supervisor.providers.kinds import PROVIDERS
from supervisor.services.access.claims import ClaimBook
from supervisor.services.access.passes import Signer
from supervisor.settings import loading as settings_of
from supervisor.settings.loading import Settings
from supervisor.telemetry import recording
from supervisor.wiring.outlets import send_hook

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """`impatient(patience_s)`: the same store with short timeouts, for a waiting user; `close` closes it too. `warm`
    imports slow libraries and raises nothing."""

    objects: ObjectStore
    impatient: Callable[[float], ObjectStore]
    warm: Callable[[], None] = lambda: None
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Adapters:
    """`opened`: the providers by name, in the order of the settings; never empty. `warm` imports slow libraries, may
    take seconds and raises nothing. `close` closes everything. `closing`: set when this process is being stopped, so
    that waits for the cloud end. `impatient`: as in OpenedStore. `claims`: None without a database."""

    opened: Mapping[str, OpenedProvider]
    objects: ObjectStore
    agent: Path
    warm: Callable[[], None]
    close: Callable[[], None]
    closing: threading.Event
    impatient: Callable[[float], ObjectStore]
    claims: ClaimBook | None = None

    @property
    def first(self) -> OpenedProvider:
        """The provider of a run that names none."""
        return next(iter(self.opened.values()))

    @property
    def namesake(self) -> str:
        """The provider that names the cell: the first with machines on this computer, else the first. A supervisor that
        cannot see a machine must not judge it. So a cell with such machines must not have the name of a cloud, which a
        supervisor on another computer may have too."""
        here = (name for name, opened in self.opened.items() if opened.provider.traits.shares_computer)
        return next(here, next(iter(self.opened)))

    @property
    def lone(self) -> OpenedProvider:
        """The only provider. Raises SettingsRefused if there are several."""
        if len(self.opened) > 1:
            names = ", ".join(f"[providers.{name}]" for name in self.opened)
            text = f"{names}: this needs settings with only one provider. Leave one section in them."
            raise SettingsRefused(text, {"providers": list(self.opened)})
        return self.first


def choose(settings: Settings, store: Store | None, clock: Clock, agent_dir: Path | None = None) -> Adapters:
    """`store`: the database, None = create nothing. `agent_dir`: where a checkout builds the agent; None = the data
    folder. Raises SettingsRefused."""
    get_ready(settings)
    agent, closing = agent_path(agent_dir or settings.data_dir), threading.Event()
    stored = open_store(settings, store)
    claims = None if store is None else ClaimBook(Signer(store.secret, store.supervisor_id), stored.objects, clock)
    opened: dict[str, OpenedProvider] = {}
    with contextlib.ExitStack() as closers:
        closers.callback(stored.close)
        for name, section in settings.sections.items():
            context = context_of(settings, name, stored=stored, agent=agent, clock=clock, store=store, closing=closing)
            context = replace(context, claims=claims)
            opened[name] = PROVIDERS[section.kind].open(name, section.values, context)
            closers.callback(opened[name].close)
        _check_scopes(settings, opened)
        closing_all = closers.pop_all()

    def warm() -> None:
        stored.warm()
        for provider in opened.values():
            provider.warm()

    return Adapters(opened, stored.objects, agent, warm, closing_all.close, closing, stored.impatient, claims)


def get_ready(settings: Settings) -> None:
    """Before any vendor's library is imported. Raises SettingsRefused: a package is missing (with the command that
    installs it), or the recording cannot be written."""
    kinds, record_file = [PROVIDERS[section.kind] for section in settings.sections.values()], settings.log.record_file
    for kind in kinds:
        kind.ready()
    if not record_file or not any(kind.traits.rented for kind in kinds):
        return
    try:
        recording.begin(Path(record_file))
    except OSError as error:
        text = f"record_file: {record_file} cannot be written: {error.strerror}"
        raise SettingsRefused(text, {"name": "record_file"}) from None


def context_of(
    settings: Settings,
    name: str,
    *,
    stored: OpenedStore,
    agent: Path,
    clock: Clock,
    store: Store | None,
    closing: threading.Event,
) -> ProviderContext:
    """What the provider with this name is opened with."""
    traits = PROVIDERS[settings.sections[name].kind].traits
    return ProviderContext(
        data_dir=settings.data_dir,
        objects=stored.objects,
        impatient=stored.impatient,
        agent=agent,
        clock=clock,
        public_url=settings.machines.public_url,
        machine_prefix=settings.knobs.machine_prefix,
        gpu_timeout_s=settings_of.gpu_timeout_s(settings, traits),
        image=settings.machines.default_image,
        scope_before=lambda: _scope_before(settings, name, store),
        closing=closing,
        hook=partial(send_hook, "" if store is None else store.supervisor_id),
        take=take,
    )


def _scope_before(settings: Settings, name: str, store: Store | None) -> str:
    """The scope of this folder's machines in the runs of the database: a backup of the database may have been restored
    into an empty folder. Only for a database on this computer: folders may share other databases."""
    if store is None or not settings.database_url.startswith("sqlite"):
        return ""
    scopes = {scope for scope in (machines.scope_of(cell, name) for cell in store.lease_names()) if scope}
    return scopes.pop() if len(scopes) == 1 else ""


def _check_scopes(settings: Settings, opened: Mapping[str, OpenedProvider]) -> None:
    """Two providers with the same machines would count each machine twice. Raises SettingsRefused."""
    names: dict[tuple[str, str], str] = {}
    for name, provider in opened.items():
        earlier = names.setdefault((settings.sections[name].kind, provider.scope), name)
        if earlier != name:
            raise SettingsRefused(
                f"[providers.{earlier}] and [providers.{name}] see the same machines (their "
                f"{provider.provider.traits.place} is {provider.scope}): make them one section",
                {"providers": [earlier, name]},
            )


def open_store(settings: Settings, store: Store | None) -> OpenedStore:
    """`store`: the database, None = do not create a folder. Raises SettingsRefused."""
    if _is_folder(settings):
        folder = _folder(settings, store)
        return OpenedStore(folder, lambda patience_s: folder)
    opened = contextlib.ExitStack()
    remote = opened.enter_context(contextlib.closing(_opened(open_remote, settings)))

    def impatient(patience_s: float) -> ObjectStore:
        return opened.enter_context(contextlib.closing(_opened(partial(open_remote, patience_s=patience_s), settings)))

    def warm() -> None:
        with contextlib.suppress(StoreUnavailable):  # the first use reports it
            remote.warm()

    return OpenedStore(remote, impatient, warm, opened.close)


@contextlib.contextmanager
def stored_objects(settings: Settings) -> Iterator[ObjectReader | None]:
    """The object store alone, for reading before anything else is opened; None = its folder is missing or empty. Raises
    SettingsRefused."""
    get_ready(settings)
    if _is_folder(settings):
        objects = _opened(FilesystemStore.at, settings)
        yield objects if objects.folder.is_dir() and any(objects.folder.iterdir()) else None
        return
    with contextlib.closing(_opened(open_remote, settings)) as remote:
        yield remote


def store_beside(settings: Settings) -> tuple[ObjectStore | None, tuple[Finding, ...]]:
    """The store folder of a supervisor that may never have started; None with a line that says so. Raises
    SettingsRefused."""
    objects = _opened(FilesystemStore.at, settings)
    if objects.folder.exists():
        return objects, ()
    fact = f"{objects.url} does not exist yet: the first `spot serve` creates it"
    return None, (Finding("objects", OK, fact),)


def _is_folder(settings: Settings) -> bool:
    return settings.store_url.startswith("file:")


def _folder(settings: Settings, store: Store | None) -> FilesystemStore:
    objects = _opened(FilesystemStore.at, settings)
    if store is None:
        return objects
    if settings.origins["store_url"] == "default" or not store.page(RunFilter(), None, 1).runs:
        if objects.folder.parent == settings.data_dir:
            # Logs and results of runs are private, whatever the data folder's mode. The store reports errors.
            with contextlib.suppress(OSError):
                objects.folder.mkdir(mode=0o700)
        return FilesystemStore.create(objects.folder)
    return objects


def _opened(at: Callable[[str], T], settings: Settings) -> T:
    """Raises SettingsRefused."""
    try:
        return at(settings.store_url)
    except (ValueError, ImportError) as error:
        raise SettingsRefused(f"store_url: {error}", {"store_url": settings.store_url}) from None
