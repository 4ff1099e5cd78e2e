"""What `spot trial` does with the cloud in its own process: show the offers, and remove the rest of a trial.

A removal needs no running supervisor: it finds its machines by the supervisor's id in the trial's data folder, and its
objects by their prefix, which is unique. Machines are removed first, because they still write. A create call that was
in progress when the supervisor ended may still become a machine, so the listing must be empty several times in a row.
All of it is safe to repeat.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from supervisor.domain.errors import Unavailable
from supervisor.domain.machines import MachineRef, Offer
from supervisor.ports.objectstore import ObjectStore
from supervisor.ports.provider import Provider, ProviderUnavailable
from supervisor.reconciler.system_clock import SystemClock
from supervisor.services.access.data_folder import ID_FILE
from supervisor.settings.loading import Settings
from supervisor.wiring import adapters
from supervisor.wiring.adapters import Adapters
from supervisor.wiring.bootstrap import start_errors

REMOVAL_S = 600.0  # a VM takes a minute or two to disappear
LISTING_INTERVAL_S = 2.0
EMPTY_LISTINGS = 3


def offers(settings: Settings) -> tuple[Offer, ...]:
    """Where a trial may rent its machine, and the price. Raises SettingsRefused."""
    with _opened(settings) as cloud:
        return cloud.lone.provider.offers()


def remove(settings: Settings, say: Callable[[str], None]) -> tuple[int, int]:
    """(machines, objects) of a trial that were still there and are removed now; its supervisor has ended. Raises
    SpotError; Unavailable if machines are still there."""
    try:
        supervisor_id = (settings.data_dir / ID_FILE).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        supervisor_id = ""  # it never rented a machine
    with start_errors(settings), _opened(settings) as cloud:
        machines = _release(cloud.lone.provider, supervisor_id, say) if supervisor_id else 0
        return machines, _empty(cloud.objects)


@contextlib.contextmanager
def _opened(settings: Settings) -> Iterator[Adapters]:
    cloud = adapters.choose(settings, None, SystemClock())
    try:
        yield cloud
    finally:
        cloud.close()


def _release(provider: Provider, supervisor_id: str, say: Callable[[str], None]) -> int:
    """The number of machines, once all are gone."""
    released: set[str] = set()
    until, empty, why = time.monotonic() + REMOVAL_S, 0, ""
    while empty < EMPTY_LISTINGS:
        if time.monotonic() > until:
            names = ", ".join(sorted(released)) or "not known, because the machines could not be listed"
            raise Unavailable(f"Machines of the trial may still be there and cost money: {names}. {why}".strip())
        try:
            listing = provider.machines()
            ours = [machine for machine in listing.machines if machine.supervisor_id == supervisor_id]
            for machine in ours:
                if machine.name not in released:
                    say(f"Deleting {machine.name} in {machine.zone}.")
                    released.add(machine.name)
                provider.release(MachineRef(provider.name, machine.zone, machine.name, machine.machine_id))
            empty = 0 if ours or listing.unreachable else empty + 1
        except ProviderUnavailable as error:
            empty, why = 0, f"{error}."
        if empty < EMPTY_LISTINGS:
            time.sleep(LISTING_INTERVAL_S)
    return len(released)


def _empty(objects: ObjectStore) -> int:
    """Delete everything below the prefix of this store: the number of objects."""
    count = 0
    while keys := [info.key for page in objects.pages("") for info in page.objects]:
        count += sum(objects.delete(key) for key in keys)
    return count
