"""How machines on Google Cloud are made from settings: the kind that the list of providers names.

Nothing of Google's is imported before `ready` or `open_provider` is called: a supervisor of other machines starts
without any of its libraries. Opening asks nobody: what Google has to say comes with the first tick.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from supervisor.domain.errors import SettingsRefused
from supervisor.providers.gce import settings
from supervisor.providers.gce.settings import NEW_DISK, GceSettings
from supervisor.providers.gce.traits import TRAITS
from supervisor.settings.kinds import Kind

if TYPE_CHECKING:
    import threading

    from supervisor.ports.opening import OpenedProvider, ProviderContext
    from supervisor.ports.platform import Platform
    from supervisor.providers.gce.config import GceConfig

# What the extra `google` brings; the names are asked for without importing anything of it.
PACKAGES = ("google.auth", "google.cloud.compute_v1", "google.cloud.storage")
ASKING_DEADLINE_S = 6.0
DOCTOR_DEADLINE_S = 2.5  # a refusal after repeats is told within the doctor's 4 s, less 1.2 s of loading
PRICES_DEADLINE_S = 30.0


def ready() -> None:
    """Raises SettingsRefused: a package is missing, with the command that installs it."""
    for name in PACKAGES:
        try:
            is_installed = find_spec(name) is not None
        except ModuleNotFoundError:  # a package above it is missing
            is_installed = False
        if not is_installed:
            raise SettingsRefused(
                f"provider = gce needs Google's libraries, and {name} is not installed. "
                "Install them: pip install 'spot-supervisor[google]'",
                {"package": name},
            )


def open_provider(name: str, s: GceSettings, context: ProviderContext) -> OpenedProvider:
    """Raises SettingsRefused where a shape or the zones cannot be meant so."""
    from supervisor.ports.opening import OpenedProvider
    from supervisor.providers.gce import config as gce
    from supervisor.providers.gce.advice.data_places import DataPlaces
    from supervisor.providers.gce.calls.account import asks_as
    from supervisor.providers.gce.calls.clients import Compute
    from supervisor.providers.gce.calls.errors import Retry
    from supervisor.providers.gce.doctor.bucket import Bucket
    from supervisor.providers.gce.doctor.checks import Doctor
    from supervisor.providers.gce.machines.releasing import GceDisasters
    from supervisor.providers.gce.platform import GcePlatform
    from supervisor.providers.gce.prices.pricing import Pricing
    from supervisor.providers.gce.provider import GceProvider

    config = config_of(name, s, context)
    # The price list has many pages, and a person waits for it: its own client with the patience of a minute.
    patient = Compute(config, Retry(deadline_s=PRICES_DEADLINE_S, per_try_s=PRICES_DEADLINE_S))
    pricing = Pricing(config, patient, context.clock.now, context.data_dir)
    offered, wait = gce.offers(config), partial(pause, closing=context.closing)
    provider = GceProvider(config, offered, context.objects, context.agent, context.clock, pause=wait)
    provider.priced = pricing.priced

    # A person waits: clients of their own, whose patience is short and whose storms trouble no tick.
    asking = Compute(config, Retry(deadline_s=ASKING_DEADLINE_S, per_try_s=ASKING_DEADLINE_S))
    examined = cast("Bucket", context.impatient(DOCTOR_DEADLINE_S))
    examining = Compute(config, Retry(deadline_s=DOCTOR_DEADLINE_S, per_try_s=DOCTOR_DEADLINE_S))
    doctor = Doctor(config, examining, examined, prices=pricing.finding, image=context.image, pin=provider.pin)
    places = DataPlaces(config, cast("Bucket", context.objects).bucket)
    platform = GcePlatform(config, asking, places, context.agent, pricing)

    def warm() -> None:
        provider.warm()
        places.learn()
        tell_whose(platform)
        pricing.refresh_old()

    return OpenedProvider(
        provider=provider,
        platform=platform,
        scope=provider.scope(),
        disasters=GceDisasters(asking),
        checks=doctor.checks,
        warm=warm,
        account=partial(asks_as, asking),
        close=provider.close,
    )


def tell_whose(platform: Platform) -> None:
    """Name and number of the project, once, in the log: the question of where these machines are is asked late."""
    import logging

    from supervisor.ports.objectstore import StoreUnavailable
    from supervisor.ports.provider import ProviderUnavailable
    from supervisor.telemetry import logs as telemetry

    with suppress(ProviderUnavailable, StoreUnavailable):  # the doctor says it
        whose = platform.account()
        extra = {telemetry.ACTION: "warm", "project": whose.name, "project_number": whose.number}
        logging.getLogger(__name__).info("machines are those of this project", extra=extra)


def pause(for_s: float, closing: threading.Event) -> None:
    """Of a call that waits for Google. It does not hold up the end of this process: the next one asks again. Raises
    ProviderUnavailable."""
    from supervisor.ports.provider import ProviderUnavailable

    if closing.wait(for_s):
        raise ProviderUnavailable("the supervisor is closing")


def config_of(name: str, s: GceSettings, context: ProviderContext) -> GceConfig:
    """Raises SettingsRefused where a shape cannot be meant so."""
    from supervisor.providers.gce import config as gce

    shapes = {}
    for shape, text in s.gce_shapes.items():
        try:
            shapes[shape] = gce.parse_shape(text)
        except ValueError as error:
            raise SettingsRefused(f"gce_shapes: {shape}: {error}", {"shape": shape}) from None
    return gce.GceConfig(
        name=name,
        project=s.gce_project,
        zones=s.gce_zones,
        shapes=shapes,
        prices=s.gce_prices,
        service_account=s.gce_service_account,
        network=s.gce_network,
        subnet=s.gce_subnet,
        external_ip=s.gce_external_ip,
        boot_image=s.gce_boot_image,
        boot_disk_gb=s.gce_boot_disk_gb,
        boot_disk_type=s.gce_boot_disk_type,
        min_cpu_platform=s.gce_min_cpu_platform,
        shielded=s.gce_shielded,
        gpu_driver_version=s.gce_gpu_driver_version,
        notice_s=s.gce_notice_s,
        shm_size=s.gce_shm_size,
        gpu_timeout_s=context.gpu_timeout_s,
        **_disks(s),
        capacity_advice=s.gce_capacity_advice,
        serial_logging=s.gce_serial_logging,
        machine_prefix=context.machine_prefix,
        public_url=context.public_url,
        store_url=context.objects.url,
        endpoint=s.gce_endpoint,
        storage_endpoint=_storage_endpoint(),
        secret_manager_endpoint=s.secret_manager_endpoint,
        billing_endpoint=s.billing_endpoint,
        logging_endpoint=s.logging_endpoint,
        resource_manager_endpoint=s.resource_manager_endpoint,
        iam_endpoint=s.iam_endpoint,
    )


def _disks(s: GceSettings) -> dict[str, Any]:
    from supervisor.providers.gce.config import DataDisk, NewDisk

    mount, fs = s.gce_data_disk_mount, s.gce_data_disk_fs
    if s.gce_data_disk == NEW_DISK:
        return {"new_disk": NewDisk(s.gce_data_disk_gb, s.gce_data_disk_type, mount, fs)}
    if not s.gce_data_disk:
        return {}
    read_only = s.gce_data_disk_read_only
    return {"data_disk": DataDisk(s.gce_data_disk, s.gce_data_disk_zone, mount, fs, read_only=read_only)}


def _storage_endpoint() -> str:
    """Google's own library reads this name; machines must be told the same."""
    host = os.environ.get("STORAGE_EMULATOR_HOST", "")
    return host if not host or "://" in host else f"http://{host}"


KIND = Kind(
    traits=TRAITS,
    values=GceSettings,
    prefix="gce_",
    store=settings.STORE,
    rules=settings.RULES,
    check=settings.check,
    complete=settings.complete,
    idle=settings.idle,
    meaning=settings.meaning,
    ready=ready,
    open=open_provider,
    leaves_no_trace=True,
)
