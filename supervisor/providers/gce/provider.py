"""Spot VMs of Google Compute Engine behind the promises of ports/provider.py.

Nothing that matters lives in memory: machines are found again by their names and labels, create calls by their request
ids, ends by Google's own operations. What is kept between two ticks (known operations, released machines, advice) only
saves requests. Each part has a file of its own; this one puts them together and turns what was not clearly answered
into ProviderUnavailable.
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
from supervisor.images.registry import Registries
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ObjectStore
from supervisor.ports.provider import LaunchRejected, LaunchRequest, NotSupported, ProviderUnavailable
from supervisor.providers.gce.advice.advice import Advice
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError, Retry, clear_answers
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.machines import secrets
from supervisor.providers.gce.machines.launching import Launcher, ParcelPost
from supervisor.providers.gce.machines.machine import STATES, Item, Listing, machine_of, shape_names
from supervisor.providers.gce.machines.records import Records
from supervisor.providers.gce.machines.releasing import Releaser
from supervisor.providers.gce.prices.machine_facts import gpus
from supervisor.providers.gce.traits import TRAITS
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

THREADS = 8
ENDS = (MachineState.ENDING, MachineState.ENDED)
NO_CONSOLE = frozenset({400, 404})  # a machine that is not there, or that is off


class GceProvider:
    """Provider of ports/provider.py. Making one asks nothing of the network and loads none of Google's packages;
    ImportError where they are not installed. `pause` waits so many seconds; `per_try_s`: for one answer;
    `credentials`: where they come from, None = Application Default Credentials. `priced` may be set: the offers at the
    prices of now."""

    traits = TRAITS

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
        self._shape_names = shape_names(config.shapes)
        self._gpus = lru_cache(partial(gpus, config.shapes))  # a list of runs asks for the same few again and again
        self.priced: Callable[[Sequence[Offer]], tuple[Offer, ...]] = tuple
        retry = Retry(per_try_s=per_try_s, monotonic=clock.monotonic, sleep=pause)
        self._compute = compute = Compute(config, retry, credentials)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="gce")
        self._zones = tuple(dict.fromkeys((*config.zones, *(offer.placement.zone for offer in self._offers))))
        self._listing = Listing(compute, self._zones)
        self._records = Records(compute, self._threads, clock.monotonic)
        self._releaser = Releaser(compute, self._threads)
        self._parcels = parcels = ParcelPost(objects, agent_path, clock.monotonic)
        self._launcher = Launcher(config, compute, self._records, parcels, clock, pause)
        self._advice = Advice(config, self._offers, compute, self._threads, clock.monotonic)
        self._registries = Registries(self._authorization)

    def warm(self) -> None:
        """Load Google's clients and upload the agent now: seconds. Failures show at the first use."""
        self._compute.warm()
        with suppress(LaunchRejected, ProviderUnavailable):
            self._parcels.ready()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def scope(self) -> str:
        """Which machines this provider sees: those of the project."""
        return self._config.project

    # --- the provider -------------------------------------------------------------------------------------------------

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
        self._advice.wanted()
        return self._launcher.launch(request)

    def _refuse(self, request: LaunchRequest) -> None:
        """LaunchRejected for what these settings do not offer, and for secrets that no machine can read."""
        place = request.placement
        if not any(offer.placement == place for offer in self._offers):
            raise LaunchRejected(f"{place.shape} in {place.zone} is not offered by these settings")
        secrets.refuse(request.secrets)

    def machines(self) -> MachineListing:
        with clear_answers("the list of machines"):
            found = self._listing.read()
        # Only now the operations: so every machine that the listing shows as ended has its operation in what follows.
        ours = sorted({zone for zone, item in found.machines if _ends(item) and _of_a_supervisor(item)})
        asked = [zone for zone in dict.fromkeys((*self._zones, *ours)) if zone not in found.unreachable]
        unread = self._records.refresh(asked)
        for zone, error in unread.items():
            log.warning(
                "operations unreadable: why machines end there is not known",
                extra={telemetry.ACTION: "observe", telemetry.ZONE: zone, telemetry.ERROR: str(error)},
            )
        machines, away = [], set(found.unreachable)
        for zone, item in found.machines:
            machine = self._told(zone, item)
            machines.append(machine)
            if zone in unread and self._lacks_word(machine):
                away.add(zone)  # ended, and why could not be read: nothing may follow from it
        machines += self._releaser.unconfirmed({machine.machine_id for machine in machines}, away)
        return MachineListing(tuple(machines), frozenset(away))

    def find(self, ref: MachineRef) -> Machine | None:
        with clear_answers(f"machine {ref.name}"):
            item = self._compute.get(ref.zone, ref.name)
            if item is not None and (not ref.machine_id or str(item["id"]) == ref.machine_id):
                if _ends(item) and self._records.known(str(item["id"])) is None:
                    self._records.look(ref.zone, str(item["id"]))
                return self._told(ref.zone, item)
            return self._gone(ref)

    def release(self, ref: MachineRef) -> None:
        self._releaser.release(ref)

    def ask_to_stop(self, ref: MachineRef) -> None:
        raise NotSupported("nothing reaches into a machine on Google Cloud: the .stop marker says the same")

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
        return {reference: secrets.problem(reference) for reference in references}

    # --- inside -------------------------------------------------------------------------------------------------------

    def _told(self, zone: str, item: Item) -> Machine:
        end = self._records.known(str(item["id"]))
        record, word = (end.record, end.word) if end is not None else (None, "")
        machine = machine_of(item, zone, record, word, self._shape_names)
        if end is not None:
            return machine
        ended = machine.state is MachineState.ENDED and self._lacks_word(machine)
        # Why is still to come: until then it has not ended.
        waits = ended and self._records.may_come(machine.machine_id)
        return replace(machine, state=MachineState.ENDING) if waits else machine

    def _lacks_word(self, machine: Machine) -> bool:
        """A machine of some supervisor ends, and nothing is known of the reason."""
        unknown = self._records.known(machine.machine_id) is None
        return unknown and machine.state in ENDS and bool(machine.supervisor_id)

    def _gone(self, ref: MachineRef) -> Machine | None:
        """A machine that is not there any more, where an operation still tells why."""
        if not ref.machine_id or not ref.machine_id.isdigit():
            return None
        end = self._records.known(ref.machine_id)
        if end is None or end.is_off:
            end = self._records.ask(ref.zone, ref.machine_id)
        if end is None or end.record is None:
            return None
        ended, gone = MachineState.ENDED, end.record
        return Machine(ref.machine_id, ref.name, ref.zone, ended, "", "", "", record=gone, detail="gone")

    def _authorization(self) -> str:
        with clear_answers("the account's token"):
            return self._compute.authorization()


def _ends(item: Item) -> bool:
    return STATES.get(str(item.get("status"))) in ENDS


def _of_a_supervisor(item: Item) -> bool:
    """Ours or another's. What other people leave switched off, in whatever zone, costs no request at each look."""
    return bool((item.get("labels") or {}).get(SUPERVISOR_LABEL))
