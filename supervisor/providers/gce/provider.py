"""Spot VMs of Google Compute Engine behind the port ports/provider.py.

No state in memory matters: machines are found by their names and labels, create calls by their request ids, ends by
Google's own operations. What is kept between two ticks (operations that were read, released machines, advice) only
saves requests. This file combines the parts, and turns every unclear response into ProviderUnavailable.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from supervisor.domain.machines import SUPERVISOR_LABEL, Machine, MachineListing, MachineRef, MachineState, Offer
from supervisor.domain.profile import Profile, day_of
from supervisor.images.registry import Registries
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ObjectStore
from supervisor.ports.provider import LaunchRejected, LaunchRequest, Meters, NotSupported, ProviderUnavailable
from supervisor.providers.gce.advice.capacity import CapacityAdvice
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError, as_unavailable
from supervisor.providers.gce.calls.retry import Retry
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.machines.instance import refuse_secrets, secret_problem
from supervisor.providers.gce.machines.keeping import Keeper
from supervisor.providers.gce.machines.launching import Launcher, PayloadUpload
from supervisor.providers.gce.machines.machine import (
    ENDS,
    STARTED_LABEL,
    STATES,
    Item,
    Listing,
    epoch_s,
    machine_of,
    shape_names_of,
)
from supervisor.providers.gce.machines.records import Records
from supervisor.providers.gce.machines.releasing import Releaser
from supervisor.providers.gce.prices.machine_facts import gpus
from supervisor.providers.gce.profile import profile
from supervisor.providers.gce.traits import TRAITS
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

THREADS = 8
NO_CONSOLE = frozenset({400, 404})  # the machine does not exist, or it is off


class GceProvider:
    """Provider of ports/provider.py. The constructor sends no request and loads none of Google's packages; ImportError
    where they are not installed. `pause` waits that many seconds; `per_try_s`: for one response; `credentials`: finds
    the credentials, None = Application Default Credentials. `priced` may be set: the offers with current prices."""

    traits = TRAITS
    meters: Meters | None = None

    def __init__(
        self,
        config: GceConfig,
        offers: Sequence[Offer],
        objects: ObjectStore,
        agent_path: Path | None,
        clock: Clock,
        *,
        pause: Callable[[float], None] = time.sleep,
        per_try_s: float = 10.0,
        credentials: Callable[[], Any] | None = None,
    ) -> None:
        self.name = config.name
        self._config, self._offers = config, tuple(offers)
        self._profile = profile(config, day_of(clock.now()))
        self._shape_names = shape_names_of(config.shapes)
        self._gpus = lru_cache(partial(gpus, config.shapes))  # a list of runs needs the same few again and again
        self.priced: Callable[[Sequence[Offer]], tuple[Offer, ...]] = tuple
        retry = Retry(per_try_s=per_try_s, monotonic=clock.monotonic, sleep=pause)
        self._compute = compute = Compute(config, retry, credentials)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="gce")
        self._zones = tuple(dict.fromkeys((*config.zones, *(offer.placement.zone for offer in self._offers))))
        self._listing = Listing(compute, self._zones)
        self._records = Records(compute, self._threads, clock.monotonic)
        self._releaser = Releaser(compute, self._threads)
        self._upload = PayloadUpload(objects, agent_path, clock.monotonic)
        self._launcher = Launcher(config, compute, self._records, self._upload, clock=clock, pause=pause)
        self._keeper = Keeper(config, compute, self._launcher, self._upload)
        self._advice = CapacityAdvice(config, self._offers, compute, self._threads, clock.monotonic)
        self._registries = Registries(self._authorization)

    def warm(self) -> None:
        """Load Google's clients and upload the agent now: seconds. The first use reports a failure."""
        self._compute.warm()
        with suppress(LaunchRejected, ProviderUnavailable):
            self._upload.payload()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def scope(self) -> str:
        """This provider sees the machines of the project."""
        return self._config.project

    # --- the provider -------------------------------------------------------------------------------------------------

    def profile(self, zone: str = "") -> Profile:
        return self._profile

    def pin(self, image: str) -> str:
        return self._registries.pin(image)

    def offers(self) -> tuple[Offer, ...]:
        return self.priced(self._advice.ordered())

    def gpus(self, shape: str) -> str:
        return self._gpus(shape)

    def launch(self, request: LaunchRequest) -> Machine:
        try:
            self._refuse(request)
        except LaunchRejected as refusal:
            return self._launcher.unless_present(request, refusal)
        self._advice.refresh_soon()
        return self._launcher.launch(request)

    def start(self, request: LaunchRequest, ref: MachineRef) -> Machine:
        self._refuse(request)
        return self._keeper.start(request, ref)

    def stop(self, ref: MachineRef) -> None:
        self._keeper.stop(ref)

    def _refuse(self, request: LaunchRequest) -> None:
        """LaunchRejected for a placement that the settings do not offer, and for secrets that no machine can read."""
        place = request.placement
        if not any(offer.placement == place for offer in self._offers):
            raise LaunchRejected(f"the settings do not offer {place.shape} in {place.zone}")
        refuse_secrets(request.secrets)

    def machines(self) -> MachineListing:
        with as_unavailable("the list of machines"):
            instances = self._listing.read()
        for _, item in instances.items:
            self._note_start(item)
        # The operations are read after the listing: they include the end of every machine that it shows as ended.
        ended_zones = sorted({zone for zone, item in instances.items if _ends(item) and _has_supervisor(item)})
        zones = [zone for zone in dict.fromkeys((*self._zones, *ended_zones)) if zone not in instances.unreachable]
        unread = self._records.refresh(zones)
        for zone, error in unread.items():
            log.warning(
                "operations unreadable: the reasons why machines end there are unknown",
                extra={telemetry.ACTION: "observe", telemetry.ZONE: zone, telemetry.ERROR: str(error)},
            )
        machines, unreachable = [], set(instances.unreachable)
        for zone, item in instances.items:
            machine = self._machine(zone, item)
            machines.append(machine)
            if zone in unread and self._lacks_reason(machine):
                unreachable.add(zone)  # the reason of this end could not be read: nothing may follow from the end
        machines += self._releaser.unconfirmed({machine.machine_id for machine in machines}, unreachable)
        return MachineListing(tuple(machines), frozenset(unreachable))

    def find(self, ref: MachineRef) -> Machine | None:
        with as_unavailable(f"machine {ref.name}"):
            item = self._compute.get(ref.zone, ref.name)
            if item is not None and (not ref.machine_id or str(item["id"]) == ref.machine_id):
                self._note_start(item)
                if _ends(item) and self._records.end(str(item["id"])) is None:
                    self._records.read_machine(ref.zone, str(item["id"]))
                return self._machine(ref.zone, item)
            return self._gone(ref)

    def release(self, ref: MachineRef) -> None:
        self._releaser.release(ref)

    def ask_to_stop(self, ref: MachineRef) -> None:
        raise NotSupported("the supervisor cannot signal a machine on Google Cloud: its agent reads the .stop marker")

    def console(self, ref: MachineRef, max_bytes: int = 65536) -> bytes:
        if max_bytes <= 0:
            return b""
        try:
            text = self._compute.serial(ref.zone, ref.name, max_bytes)
        except ApiError as error:
            if error.status in NO_CONSOLE:
                return b""
            raise ProviderUnavailable(f"console of {ref.name}: {error}") from error
        return text.encode(errors="replace")[-max_bytes:]

    def check_secrets(self, references: Collection[str]) -> Mapping[str, str]:
        return {reference: secret_problem(reference) for reference in references}

    # --- inside -------------------------------------------------------------------------------------------------------

    def _machine(self, zone: str, item: Item) -> Machine:
        end = self._records.end(str(item["id"]))
        record, word = (end.record, end.word) if end is not None else (None, "")
        machine = machine_of(item, zone, record, word, self._shape_names)
        if end is not None or machine.state is not MachineState.ENDED or not self._lacks_reason(machine):
            return machine
        # Google may still list the reason: until then the machine is ending.
        may_come = self._records.may_come(machine.machine_id)
        return replace(machine, state=MachineState.ENDING) if may_come else machine

    def _note_start(self, item: Item) -> None:
        if STARTED_LABEL in (item.get("labels") or {}):
            self._records.started_again(str(item["id"]), epoch_s(item.get("lastStartTimestamp")))

    def _lacks_reason(self, machine: Machine) -> bool:
        """A machine of some supervisor ends, and the reason is unknown."""
        unknown = self._records.end(machine.machine_id) is None
        return unknown and machine.state in ENDS and bool(machine.supervisor_id)

    def _gone(self, ref: MachineRef) -> Machine | None:
        """A machine that does not exist any more, if an operation still says why."""
        if not ref.machine_id or not ref.machine_id.isdigit():
            return None
        end = self._records.end(ref.machine_id)
        if end is None or end.is_off:
            end = self._records.end_of_gone(ref.zone, ref.machine_id)
        if end is None or end.record is None:
            return None
        ended = MachineState.ENDED
        return Machine(ref.machine_id, ref.name, ref.zone, ended, "", "", "", record=end.record, detail="gone")

    def _authorization(self) -> str:
        with as_unavailable("the account's token"):
            return self._compute.authorization()


def _ends(item: Item) -> bool:
    return STATES.get(str(item.get("status"))) in ENDS


def _has_supervisor(item: Item) -> bool:
    """Of this supervisor or of another one. The ended machines of other users cost no request in each tick, whatever
    their zone is."""
    return bool((item.get("labels") or {}).get(SUPERVISOR_LABEL))
