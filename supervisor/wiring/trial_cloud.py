"""What `spot trial` asks the cloud in its own process: what a machine costs, and that nothing of it stays behind.

A removal needs no supervisor that works: it knows its machines by the supervisor's id, which stands in the trial's
data folder, and its objects by their prefix, which nobody else has. Machines go first, because they still write. A
create call that was under way when the supervisor ended may still become a machine, so the listing must be empty
several times in a row. All of it is safe to repeat.
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

REMOVAL_S = 600.0  # a VM takes a minute or two to go
LOOK_S = 2.0
EMPTY_LOOKS = 3


def offers(settings: Settings) -> tuple[Offer, ...]:
    """Raises SettingsRefused."""
    with _opened(settings) as cloud:
        return cloud.lone.provider.offers()


def remove(settings: Settings, say: Callable[[str], None]) -> tuple[int, int]:
    """Its supervisor has ended. Raises Unavailable where machines are still there, StoreUnavailable."""
    try:
        supervisor_id = (settings.data_dir / ID_FILE).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        supervisor_id = ""  # it never came so far as to rent anything
    with _opened(settings) as cloud:
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
    """Returns when none is there any more: how many there were."""
    released: set[str] = set()
    until, empty, why = time.monotonic() + REMOVAL_S, 0, ""
    while empty < EMPTY_LOOKS:
        if time.monotonic() > until:
            names = ", ".join(sorted(released)) or "not known, because the machines could not be listed"
            raise Unavailable(f"Machines of the trial may still be there and cost money: {names}. {why}".strip())
        try:
            listing = provider.machines()
            ours = [one for one in listing.machines if one.supervisor_id == supervisor_id]
            for machine in ours:
                if machine.name not in released:
                    say(f"Deleting {machine.name} in {machine.zone}.")
                    released.add(machine.name)
                provider.release(MachineRef(provider.name, machine.zone, machine.name, machine.machine_id))
            empty = 0 if ours or listing.unreachable else empty + 1
        except ProviderUnavailable as error:
            empty, why = 0, f"{error}."
        if empty < EMPTY_LOOKS:
            time.sleep(LOOK_S)
    return len(released)


def _empty(objects: ObjectStore) -> int:
    """Deletes everything below the prefix of this store: how many objects there were."""
    count = 0
    while keys := [one.key for page in objects.pages("") for one in page.objects]:
        count += sum(objects.delete(key) for key in keys)
    return count
