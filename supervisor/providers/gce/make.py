"""How machines on Google Cloud are made from settings: the kind that the list of providers names.

No library of Google is imported before `ready` or `open_provider` is called, so a supervisor of other machines starts
without any of them. Opening sends no request: the first tick does.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import fields
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

PACKAGES = ("google.auth", "google.cloud.compute_v1", "google.cloud.storage")  # of the extra `google`
PLATFORM_DEADLINE_S = 6.0
DOCTOR_DEADLINE_S = 2.5  # the doctor has 4 s, of which loading takes 1.2 s: a refusal after retries still fits
PRICES_DEADLINE_S = 30.0


def ready() -> None:
    """Raises SettingsRefused for a missing package, with the command that installs it. Imports nothing of it."""
    for name in PACKAGES:
        try:
            is_installed = find_spec(name) is not None
        except ModuleNotFoundError:  # a parent package is missing
            is_installed = False
        if not is_installed:
            raise SettingsRefused(
                f"provider = gce needs Google's libraries, and {name} is not installed. "
                "Install them: pip install 'spot-supervisor[google]'",
                {"package": name},
            )


def open_provider(name: str, s: GceSettings, context: ProviderContext) -> OpenedProvider:
    """Raises SettingsRefused for a shape that is not valid."""
    from supervisor.ports.opening import OpenedProvider
    from supervisor.providers.gce import config as gce
    from supervisor.providers.gce.advice.data_places import DataPlaces
    from supervisor.providers.gce.calls.account import account_email
    from supervisor.providers.gce.calls.clients import Compute
    from supervisor.providers.gce.calls.retry import Retry
    from supervisor.providers.gce.doctor.bucket import Bucket
    from supervisor.providers.gce.doctor.checks import Doctor
    from supervisor.providers.gce.machines.images import GceImages
    from supervisor.providers.gce.machines.releasing import GceDisasters
    from supervisor.providers.gce.platform import GcePlatform
    from supervisor.providers.gce.prices.export import BillingExport
    from supervisor.providers.gce.prices.pricing import Pricing
    from supervisor.providers.gce.provider import GceProvider

    config = config_of(name, s, context)

    # Requests that a user waits for use clients of their own: their deadlines are different, and a burst of their
    # retries does not slow a tick.
    def compute(deadline_s: float) -> Compute:
        return Compute(config, Retry(deadline_s=deadline_s, per_try_s=deadline_s))

    pricing = Pricing(config, compute(PRICES_DEADLINE_S), context.clock.now, context.data_dir)
    offered, wait = gce.offers(config), partial(pause, closing=context.closing)
    provider = GceProvider(config, offered, context.objects, context.agent, context.clock, pause=wait)
    provider.priced = pricing.priced

    platform_compute = compute(PLATFORM_DEADLINE_S)
    doctor_bucket = cast("Bucket", context.impatient(DOCTOR_DEADLINE_S))
    doctor = Doctor(
        config, compute(DOCTOR_DEADLINE_S), doctor_bucket, prices=pricing.finding, image=context.image, pin=provider.pin
    )
    places = DataPlaces(config, cast("Bucket", context.objects).bucket)
    platform = GcePlatform(config, platform_compute, places, context.agent, pricing)

    def warm() -> None:
        provider.warm()
        places.learn()
        log_account(platform)
        pricing.refresh_old()

    return OpenedProvider(
        provider=provider,
        platform=platform,
        scope=provider.scope(),
        disasters=GceDisasters(platform_compute),
        checks=doctor.checks,
        warm=warm,
        account=partial(account_email, platform_compute),
        close=provider.close,
        images=GceImages(config, platform_compute),
        bills=BillingExport(config, compute(PRICES_DEADLINE_S)) if config.billing_table else None,
    )


def log_account(platform: Platform) -> None:
    """Log the name and the number of the project once: users often look for their machines in another project."""
    import logging

    from supervisor.ports.objectstore import StoreUnavailable
    from supervisor.ports.provider import ProviderUnavailable
    from supervisor.telemetry import logs as telemetry

    with suppress(ProviderUnavailable, StoreUnavailable):  # the doctor reports it
        account = platform.account()
        extra = {telemetry.ACTION: "warm", "project": account.name, "project_number": account.number}
        logging.getLogger(__name__).info("machines belong to this project", extra=extra)


def pause(for_s: float, closing: threading.Event) -> None:
    """The backoff of a call to Google. It ends when this process closes: the next process repeats the call. Raises
    ProviderUnavailable."""
    from supervisor.ports.provider import ProviderUnavailable

    if closing.wait(for_s):
        raise ProviderUnavailable("the supervisor is closing")


def config_of(name: str, s: GceSettings, context: ProviderContext) -> GceConfig:
    """Raises SettingsRefused for a shape that is not valid."""
    from supervisor.providers.gce.config import GceConfig, parse_shape

    shapes = {}
    for shape, text in s.gce_shapes.items():
        try:
            shapes[shape] = parse_shape(text)
        except ValueError as error:
            raise SettingsRefused(f"gce_shapes: {shape}: {error}", {"shape": shape}) from None
    values: dict[str, Any] = {
        field.name: getattr(s, setting)
        for field in fields(GceConfig)
        for setting in (f"gce_{field.name}", field.name)
        if hasattr(s, setting)
    }
    return GceConfig(
        **values
        | _disks(s)
        | {
            "name": name,
            "shapes": shapes,
            "gpu_timeout_s": context.gpu_timeout_s,
            "machine_prefix": context.machine_prefix,
            "public_url": context.public_url,
            "store_url": context.objects.url,
            "storage_endpoint": _storage_endpoint(),
        }
    )


def _disks(s: GceSettings) -> dict[str, Any]:
    """`data_disk` and `new_disk`: at most one of the two is not None."""
    from supervisor.providers.gce.config import DataDisk, NewDisk

    mount, fs, read_only = s.gce_data_disk_mount, s.gce_data_disk_fs, s.gce_data_disk_read_only
    new_disk = data_disk = None
    if s.gce_data_disk == NEW_DISK:
        new_disk = NewDisk(s.gce_data_disk_gb, s.gce_data_disk_type, mount, fs)
    elif s.gce_data_disk:
        data_disk = DataDisk(s.gce_data_disk, s.gce_data_disk_zone, mount, fs, read_only=read_only)
    return {"data_disk": data_disk, "new_disk": new_disk}


def _storage_endpoint() -> str:
    """STORAGE_EMULATOR_HOST, which Google's own library reads: machines must use the same address."""
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
