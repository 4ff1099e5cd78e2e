"""Which machines and which store this supervisor has: what the settings name is opened here.

The store comes first, then each provider by its kind, in the order of the settings. Opening asks nobody: what a
platform has to say comes with the first tick. A vendor's libraries are imported only where a provider or store of that
vendor is in use.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.domain import machines
from supervisor.domain.errors import SettingsRefused
from supervisor.machinefolder.agent_archive import agent_path
from supervisor.notifiers.webhook import WebhookNotifier
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ObjectReader, ObjectStore
from supervisor.ports.opening import OpenedProvider, ProviderContext
from supervisor.ports.store import Store
from supervisor.providers.kinds import PROVIDERS
from supervisor.settings import files as settings_files
from supervisor.settings import loading as settings_of
from supervisor.settings.loading import Settings
from supervisor.telemetry import recording
from supervisor.wiring import stores
from supervisor.wiring.stores import OpenedStore, open_store


@dataclass(frozen=True, slots=True)
class Adapters:
    """`opened`: the providers by their names, in the order of the settings; never empty. `warm` imports what is slow to
    import, may take seconds and raises nothing; `close` ends what was opened. `closing`: set when this process is told
    to end; who waits for the cloud ends its wait."""

    opened: Mapping[str, OpenedProvider]
    objects: ObjectStore
    agent: Path
    warm: Callable[[], None]
    close: Callable[[], None]
    closing: threading.Event

    @property
    def first(self) -> OpenedProvider:
        """Of the provider that a run has which names none."""
        return next(iter(self.opened.values()))

    @property
    def namesake(self) -> str:
        """The provider that names the cell: the first whose machines are on this computer, else the first. Whoever
        cannot see a machine must not judge it, so a cell with such machines must not have the name of a cloud, which a
        supervisor on another computer has too."""
        here = (name for name, opened in self.opened.items() if opened.provider.traits.shares_computer)
        return next(here, next(iter(self.opened)))

    @property
    def lone(self) -> OpenedProvider:
        """The only provider. Raises SettingsRefused where there are several."""
        if len(self.opened) > 1:
            names = ", ".join(f"[providers.{name}]" for name in self.opened)
            raise SettingsRefused(
                f"{names}: this is done with one provider alone. Leave one section in the settings of it.",
                {"providers": list(self.opened)},
            )
        return self.first


def choose(settings: Settings, store: Store | None, clock: Clock, agent_dir: Path | None = None) -> Adapters:
    """`store`: the database, None = nothing is made. `agent_dir`: where the agent is built, in a checkout; None = the
    data folder. Raises SettingsRefused."""
    get_ready(settings)
    agent, closing = agent_path(agent_dir or settings.data_dir), threading.Event()
    stored = open_store(settings, store)
    opened: dict[str, OpenedProvider] = {}
    with contextlib.ExitStack() as closers:
        closers.callback(stored.close)
        for name, section in settings.sections.items():
            context = context_of(settings, name, stored=stored, agent=agent, clock=clock, store=store, closing=closing)
            opened[name] = PROVIDERS[section.kind].open(name, section.values, context)
            closers.callback(opened[name].close)
        _check_scopes(settings, opened)
        closing_all = closers.pop_all()

    def warm() -> None:
        stored.warm()
        for provider in opened.values():
            provider.warm()

    return Adapters(opened, stored.objects, agent, warm, closing_all.close, closing)


def get_ready(settings: Settings) -> None:
    """Before anything of a vendor's is loaded. Raises SettingsRefused: a package is missing, with the command that
    installs it, or the recording cannot be written."""
    kinds = [PROVIDERS[section.kind] for section in settings.sections.values()]
    for kind in kinds:
        kind.ready()
    if not settings.record_file or not any(kind.traits.rented for kind in kinds):
        return
    try:
        recording.begin(Path(settings.record_file))
    except OSError as error:
        text = f"record_file: {settings.record_file} cannot be written: {error.strerror}"
        raise SettingsRefused(text, {"name": "record_file"}) from None


@contextlib.contextmanager
def stored_objects(settings: Settings) -> Iterator[ObjectReader | None]:
    """The object store alone, to be read before anything else is opened; None = its folder is not there yet, or empty.
    Raises SettingsRefused."""
    get_ready(settings)
    with stores.stored_objects(settings) as objects:
        yield objects


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
    """What the provider of this name is opened with."""
    traits = PROVIDERS[settings.sections[name].kind].traits
    return ProviderContext(
        data_dir=settings.data_dir,
        objects=stored.objects,
        impatient=stored.impatient,
        agent=agent,
        clock=clock,
        public_url=settings.public_url,
        machine_prefix=settings.machine_prefix,
        gpu_timeout_s=settings_of.gpu_timeout_s(settings, traits),
        image=settings.default_image,
        scope_before=lambda: _scope_before(settings, name, store),
        closing=closing,
    )


def _scope_before(settings: Settings, name: str, store: Store | None) -> str:
    """What the runs of this database call the machines of this folder: a backup of the database may have been put into
    an empty one. Only where the database lies on this computer; others share theirs with other folders."""
    if store is None or not settings.database_url.startswith("sqlite"):
        return ""
    scopes = {scope for scope in (machines.scope_of(cell, name) for cell in store.lease_names()) if scope}
    return scopes.pop() if len(scopes) == 1 else ""


def _check_scopes(settings: Settings, opened: Mapping[str, OpenedProvider]) -> None:
    """Two providers that see the same machines would count each of them twice. Raises SettingsRefused."""
    names: dict[tuple[str, str], str] = {}
    for name, provider in opened.items():
        key = (settings.sections[name].kind, provider.scope)
        if key in names:
            place = provider.provider.traits.place
            raise SettingsRefused(
                f"[providers.{names[key]}] and [providers.{name}] see the same machines (their {place} is "
                f"{provider.scope}): make one section of them",
                {"providers": [names[key], name]},
            )
        names[key] = name


def alerts(settings: Settings, sender: str) -> WebhookNotifier | None:
    """The way to the alert address; None where there is none. Raises SettingsRefused."""
    if not settings.alert_url:
        return None
    try:
        secret = settings_files.secret_of("alert_secret", settings.alert_secret)
        return WebhookNotifier(settings.alert_url, secret, sender)
    except ValueError as error:
        raise SettingsRefused(f"alert_secret: {error}", {"name": "alert_secret"}) from None
