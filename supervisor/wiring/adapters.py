"""Which machines and which store this supervisor has: the setting `provider` chooses, here and nowhere else.

What belongs to Google Cloud is imported only when it is chosen: a supervisor of local machines starts without any of
Google's libraries. Making the adapters asks nobody: what Google has to say comes with the first tick.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import Check
from supervisor.domain.machines import placement
from supervisor.machinefolder.agent_archive import agent_path, with_bytecode
from supervisor.notifiers.webhook import WebhookNotifier
from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ObjectReader, ObjectStore, StoreUnavailable
from supervisor.ports.platform import Platform
from supervisor.ports.provider import Disasters, OwnCards, Provider, ProviderUnavailable
from supervisor.ports.store import RunFilter, Store
from supervisor.providers.local.carrying import carries
from supervisor.providers.local.platform import LocalPlatform
from supervisor.providers.local.provider import LocalProvider
from supervisor.settings import files as settings_files
from supervisor.settings import loading as settings_of
from supervisor.settings.gce import GCE, NEW_DISK
from supervisor.settings.loading import Settings
from supervisor.telemetry import google_recording
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)
T = TypeVar("T")

# What the extra `google` brings; the names are asked for without importing anything of it.
GOOGLE_PACKAGES = ("google.auth", "google.cloud.compute_v1", "google.cloud.storage")
ASKING_DEADLINE_S = 6.0
DOCTOR_DEADLINE_S = 2.5  # a refusal after repeats is told within the doctor's 4 s, less 1.2 s of loading
PRICES_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Adapters:
    """`scope`: the provider's word for the machines that it sees. `server_file`: where machines find our address; None
    = they cannot. `disasters` None: nobody may strike these machines. `cards` None: no GPUs are given out here. `warm`
    imports what is slow to import, may take seconds and raises nothing; `close` ends what the adapters hold open.
    `checks`: the doctor's questions to the cloud. `closing`: set when this process is told to end; who waits for the
    cloud ends its wait."""

    provider: Provider
    platform: Platform
    scope: str
    objects: ObjectStore
    agent: Path | None
    server_file: str | None = None
    disasters: Disasters | None = None
    cards: OwnCards | None = None
    checks: Callable[[], Sequence[Check]] = tuple
    warm: Callable[[], None] = lambda: None
    account: Callable[[], str] = lambda: ""  # who asks the cloud; may ask it, and raises nothing
    close: Callable[[], None] = lambda: None
    closing: threading.Event = field(default_factory=threading.Event)


def choose(settings: Settings, store: Store, clock: Clock) -> Adapters:
    """Raises SettingsRefused."""
    return (
        google(settings, clock, settings.data_dir)
        if settings.provider == GCE
        else _local(settings, store, clock)
    )


def _scope_before(settings: Settings, store: Store) -> str:
    """What the runs of this database call the machines of this folder: a backup of the database may have been put into
    an empty one. Only where the database lies on this computer; others share theirs with other folders."""
    if not settings.database_url.startswith("sqlite"):
        return ""
    scopes = {scope for scope in map(placement.local_scope, store.led()) if scope}
    return scopes.pop() if len(scopes) == 1 else ""


def _local(settings: Settings, store: Store, clock: Clock) -> Adapters:
    agent = agent_path(settings.data_dir)
    objects = _folder(settings, store)
    local = LocalProvider(
        settings.data_dir,
        settings_of.offers(settings),
        settings.local_capacity,
        agent=with_bytecode(agent, settings.data_dir / "agent-compiled.pyz"),
        clock=clock,
        gpus=settings.local_gpus,
        most=most_machines(settings)[0],
    )
    try:
        scope = local.scope(lambda: _scope_before(settings, store))
    except ProviderUnavailable as error:
        raise SettingsRefused(
            f"{error}. Restore it from a backup: it says which runs these machines belong to."
        ) from None
    return Adapters(
        local,
        LocalPlatform(local, settings.data_dir),
        scope,
        objects,
        agent,
        str(settings.data_dir / "server.json"),
        local,
        local,
    )


def most_machines(settings: Settings) -> tuple[int | None, str]:
    """(machines at once on this computer, why); None = local_capacity says it of every zone."""
    if settings.local_machines:
        return settings.local_machines, "local_machines"
    if all(zone in settings.local_capacity for zone in settings.local_zones):
        return None, "local_capacity"
    return carries(settings.local_gpus)


def _folder(settings: Settings, store: Store) -> FilesystemStore:
    """A store is made only where no run can have anything in it yet: an empty mount point is not an empty store."""
    objects = _refusing(FilesystemStore.at, settings.store_url)
    if settings.origins["store_url"] == "default" or not store.page(RunFilter(), None, 1).runs:
        if objects.root.parent == settings.data_dir:
            # Logs and results of runs: private, whatever the data folder's mode. The store says what is wrong.
            with contextlib.suppress(OSError):
                objects.root.mkdir(mode=0o700)
        return FilesystemStore.create(objects.root)
    return objects


@contextlib.contextmanager
def stored_objects(settings: Settings) -> Iterator[ObjectReader | None]:
    """The object store alone, to be read before anything else is opened; None = its folder is not
    there yet, or empty. Raises SettingsRefused."""
    if settings.provider != GCE:
        objects = _refusing(FilesystemStore.at, settings.store_url)
        yield objects if objects.root.is_dir() and any(objects.root.iterdir()) else None
        return
    _ready_google(settings)
    from supervisor.objectstores.gcs.store import GcsStore

    with contextlib.closing(_refusing(GcsStore.at, settings.store_url)) as bucket:
        yield bucket


def _refusing(at: Callable[[str], T], url: str) -> T:
    try:
        return at(url)
    except ValueError as error:
        raise SettingsRefused(f"store_url: {error}", {"store_url": url}) from None


def google(settings: Settings, clock: Clock, agent_dir: Path) -> Adapters:
    """`agent_dir`: where the agent is built, in a checkout. Asks nobody. Raises SettingsRefused."""
    _ready_google(settings)
    from supervisor.objectstores.gcs.store import GcsStore
    from supervisor.providers.gce import config as gce
    from supervisor.providers.gce.advice.data_places import DataPlaces
    from supervisor.providers.gce.calls.account import asks_as
    from supervisor.providers.gce.calls.clients import Compute
    from supervisor.providers.gce.calls.retry import Retry
    from supervisor.providers.gce.doctor.checks import Doctor
    from supervisor.providers.gce.machines.disasters import GceDisasters
    from supervisor.providers.gce.platform import GcePlatform
    from supervisor.providers.gce.prices.pricing import Pricing
    from supervisor.providers.gce.provider import GceProvider

    agent, config = agent_path(agent_dir), gce_config(settings)
    objects = _refusing(GcsStore.at, settings.store_url)
    closing = threading.Event()
    # The price list has many pages, and a person waits for it: its own client with the patience of a minute.
    patient = Compute(config, Retry(deadline_s=PRICES_DEADLINE_S, per_try_s=PRICES_DEADLINE_S))
    pricing = Pricing(config, patient, clock.now, settings.data_dir)
    offered, wait = gce.offers(config), partial(pause, closing=closing)
    provider = GceProvider(config, offered, objects, agent, clock, pause=wait)
    provider.priced = pricing.priced

    # A person waits: clients of their own, whose patience is short and whose storms trouble no tick.
    asking = Compute(config, Retry(deadline_s=ASKING_DEADLINE_S, per_try_s=ASKING_DEADLINE_S))
    examined = GcsStore(settings.store_url, patience_s=DOCTOR_DEADLINE_S)
    examining = Compute(config, Retry(deadline_s=DOCTOR_DEADLINE_S, per_try_s=DOCTOR_DEADLINE_S))
    doctor = Doctor(
        config, examining, examined, prices=pricing.finding, image=settings.default_image, pin=provider.pin
    )
    places = DataPlaces(config, objects.bucket)
    platform = GcePlatform(config, asking, places, agent, pricing)

    def warm() -> None:
        provider.warm()
        places.learn()
        with contextlib.suppress(StoreUnavailable):  # the first use says it
            objects.warm()
        _tell_whose(platform)
        pricing.refresh_old()

    def close() -> None:
        for opened in (provider, objects, examined):
            opened.close()

    return Adapters(
        provider,
        platform,
        provider.scope(),
        objects,
        agent,
        disasters=GceDisasters(asking),
        checks=doctor.checks,
        warm=warm,
        close=close,
        closing=closing,
        account=partial(asks_as, asking),
    )


def _tell_whose(platform: Platform) -> None:
    """Name and number of the project, once, in the log: the question of where these machines are is asked late."""
    with contextlib.suppress(ProviderUnavailable):  # the doctor says it
        whose = platform.account()
        extra = {telemetry.ACTION: "warm", "project": whose.name, "project_number": whose.number}
        log.info("machines are those of this project", extra=extra)


def alerts(settings: Settings, sender: str) -> WebhookNotifier | None:
    """The way to the alert address; None where there is none. Raises SettingsRefused."""
    if not settings.alert_url:
        return None
    try:
        secret = settings_files.secret_of("alert_secret", settings.alert_secret)
        return WebhookNotifier(settings.alert_url, secret, sender)
    except ValueError as error:
        raise SettingsRefused(f"alert_secret: {error}", {"name": "alert_secret"}) from None


def pause(for_s: float, closing: threading.Event) -> None:
    """Of a call that waits for Google. It does not hold up the end of this process: the next one asks again. Raises
    ProviderUnavailable."""
    if closing.wait(for_s):
        raise ProviderUnavailable("the supervisor is closing")


def gce_config(settings: Settings) -> Any:
    """The GceConfig of these settings. Raises SettingsRefused where a shape or the zones cannot be meant so."""
    from supervisor.providers.gce import config as gce

    shapes = {}
    for name, text in settings.gce_shapes.items():
        try:
            shapes[name] = gce.parse_shape(text)
        except ValueError as error:
            raise SettingsRefused(f"gce_shapes: {name}: {error}", {"shape": name}) from None
    disk = new_disk = None
    mount, fs = settings.gce_data_disk_mount, settings.gce_data_disk_fs
    if settings.gce_data_disk == NEW_DISK:
        new_disk = gce.NewDisk(settings.gce_data_disk_gb, settings.gce_data_disk_type, mount, fs)
    elif settings.gce_data_disk:
        read_only = settings.gce_data_disk_read_only
        disk = gce.DataDisk(
            settings.gce_data_disk, settings.gce_data_disk_zone, mount, fs, read_only=read_only
        )
    return gce.GceConfig(
        project=settings.gce_project,
        zones=settings.gce_zones,
        shapes=shapes,
        prices=settings.gce_prices,
        service_account=settings.gce_service_account,
        network=settings.gce_network,
        subnet=settings.gce_subnet,
        external_ip=settings.gce_external_ip,
        boot_image=settings.gce_boot_image,
        boot_disk_gb=settings.gce_boot_disk_gb,
        boot_disk_type=settings.gce_boot_disk_type,
        min_cpu_platform=settings.gce_min_cpu_platform,
        shielded=settings.gce_shielded,
        gpu_driver_version=settings.gce_gpu_driver_version,
        notice_s=settings.gce_notice_s,
        shm_size=settings.gce_shm_size,
        gpu_timeout_s=settings.gpu_timeout_s,
        data_disk=disk,
        new_disk=new_disk,
        capacity_advice=settings.gce_capacity_advice,
        serial_logging=settings.gce_serial_logging,
        machine_prefix=settings.machine_prefix,
        public_url=settings.public_url,
        store_url=settings.store_url,
        endpoint=settings.gce_endpoint,
        storage_endpoint=_storage_endpoint(),
        secret_manager_endpoint=settings.secret_manager_endpoint,
        billing_endpoint=settings.billing_endpoint,
        logging_endpoint=settings.logging_endpoint,
        resource_manager_endpoint=settings.resource_manager_endpoint,
        iam_endpoint=settings.iam_endpoint,
    )


def _storage_endpoint() -> str:
    """Google's own library reads this name; machines must be told the same."""
    host = os.environ.get("STORAGE_EMULATOR_HOST", "")
    return host if not host or "://" in host else f"http://{host}"


def _ready_google(settings: Settings) -> None:
    """Before anything of Google's is loaded. Raises SettingsRefused: a package is missing, with the command that
    installs it, or the recording cannot be written."""
    for name in GOOGLE_PACKAGES:
        try:
            found = find_spec(name) is not None
        except ModuleNotFoundError:  # a package above it is missing
            found = False
        if not found:
            raise SettingsRefused(
                f"provider = gce needs Google's libraries, and {name} is not installed. "
                "Install them: pip install 'spot-supervisor[google]'",
                {"package": name},
            )
    if not settings.record_file:
        return
    try:
        google_recording.begin(Path(settings.record_file))
    except OSError as error:
        text = f"record_file: {settings.record_file} cannot be written: {error.strerror}"
        raise SettingsRefused(text, {"name": "record_file"}) from None
