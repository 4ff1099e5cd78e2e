"""Machines that are sessions of Colab: started by a person with one pasted cell, or by the official client.

A launch is kept in the object store first. In the way `cell` it then waits for its person: the machine is ASKED, keeps
its place, and says what is needed. In the way `client` the session is made, and the same cell runs in it as a process
of its own. Either way the notebook claims its job, and from then on the machine is its claim. Each step is safe to
repeat: a claim is good once, however often a cell runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from supervisor.domain.machines import Machine, MachineListing, MachineRef, Offer
from supervisor.domain.profile import Profile
from supervisor.machinefolder import secrets
from supervisor.machinefolder.provider import launch_values
from supervisor.ports.claims import Cell, Claim, Claims, Handover
from supervisor.ports.clock import Clock
from supervisor.ports.provider import (
    LaunchFailed,
    LaunchPending,
    LaunchRejected,
    LaunchRequest,
    Meters,
    NotSupported,
    ProviderUnavailable,
)
from supervisor.ports.traits import Traits
from supervisor.providers.colab import cell as cells
from supervisor.providers.colab.client import Client, Listing, NotSignedIn
from supervisor.providers.colab.kept import Kept, Launches, of_request
from supervisor.providers.colab.profile import profile
from supervisor.providers.colab.settings import CELL, CLIENT, ColabSettings, gpus, has_gpu, offers
from supervisor.providers.colab.states import Sighting, machine_of
from supervisor.providers.colab.traits import TRAITS

TICKET_S = 900.0
RENEW_S = 60.0  # a ticket with less time left is replaced: nobody copies a cell that has ended when it is pasted
LISTED_S = 90.0  # a listing that is older does not answer a repeated launch
CAP_RESERVE_S = 600.0  # the agent leaves so long before the cap: a last checkpoint, and its upload
NO_LIST = Listing({}, complete=False)


class ColabProvider:
    """Provider, HandsOver and PastedCell of the ports. `client` None: no session is made by it. `on`: the day of the
    settings. `fill(ticket, run_id)`: the cell of a machine."""

    traits: Traits = TRAITS
    meters: Meters | None = None

    def __init__(
        self,
        name: str,
        s: ColabSettings,
        *,
        launches: Launches,
        claims: Claims | None,
        client: Client | None,
        clock: Clock,
        on: str,
        fill: Callable[[str, str], str],
    ) -> None:
        self.name, self.client, self._settings, self._clock, self._fill = name, client, s, clock, fill
        self._launches, self._book = launches, claims
        self._profile, self._offers = profile(s, on), offers(name, s)
        self._opened_at = clock.now()
        self._lock = threading.Lock()
        self._client_lock = threading.Lock()  # a session is looked for and made by one thread at a time
        self._listed: tuple[float, Mapping[str, Machine]] = (float("-inf"), {})  # monotonic time, by name
        self._tickets: dict[str, tuple[str, float]] = {}  # launch id -> ticket, when it ends

    def profile(self, zone: str = "") -> Profile:
        return self._profile

    def pin(self, image: str) -> str:
        return ""

    def offers(self) -> tuple[Offer, ...]:
        return self._offers

    def gpus(self, shape: str) -> str:
        return gpus(shape)

    # --- launching ----------------------------------------------------------------------------------------------------

    def launch(self, request: LaunchRequest) -> Machine:
        self._check(request)
        if request.repeated and self._waits_for_person(request):
            raise LaunchPending(f"{request.name} waits for its cell")
        kept = self._launches.find(request.name)
        if kept is None:
            secrets.read_all(request.secrets)  # they are read again at the claim
        kept = self._launches.keep(of_request(request, self._clock.now()))
        claim = self._claims.all().get(kept.key)
        if claim is None and kept.way == CLIENT and not kept.started_at:
            kept = self._start(request, kept)
        machine = self._machine(kept, claim, NO_LIST)
        if claim is None or machine is None:
            raise LaunchPending(f"{request.name} has no notebook yet")
        return machine

    def _check(self, request: LaunchRequest) -> None:
        place = request.placement
        if place not in {offer.placement for offer in self._offers}:
            raise LaunchRejected(f"the settings offer no {place.shape} by the way {place.zone}")

    def _waits_for_person(self, request: LaunchRequest) -> bool:
        """By the last listing, so that a wait of hours costs no request of its own."""
        read_at, machines = self._listed
        machine = machines.get(request.name) if self._clock.monotonic() - read_at < LISTED_S else None
        return machine is not None and machine.launch_id == request.launch_id and bool(machine.needs)

    def _start(self, request: LaunchRequest, kept: Kept) -> Kept:
        """Make its session, and run the cell there. Raises LaunchFailed, after the launch was forgotten;
        ProviderUnavailable."""
        client = self._with_client()
        with self._client_lock:
            kept = self._launches.find(request.name) or kept
            if kept.started_at:
                return kept
            try:
                if request.name not in client.sessions().sessions:
                    client.new(request.name, kept.shape)
            except NotSignedIn as error:
                if request.repeated:  # an earlier call may have made it
                    raise
                self._launches.forget(kept)
                raise LaunchRejected(str(error)) from None
            except LaunchFailed:
                self._launches.forget(kept)
                raise
            text = self._fill(self._ticket(request)[0], request.run_id)
            client.execute(request.name, cells.in_background(text, request.name))
            return self._launches.note_start(kept, self._clock.now())

    def hand_over(self, request: LaunchRequest) -> Handover:
        self._check(request)
        return Handover(self.job(request), secrets.read_all(request.secrets))

    def job(self, request: LaunchRequest) -> dict[str, object]:
        """The agent leaves before the cap of the session, at a safe point: nothing announces the end."""
        session_s = max(0.5 * self._cap_s, self._cap_s - CAP_RESERVE_S)
        ends_s = min(request.machine_max_s, session_s)
        return {
            **launch_values(request),
            "machine_max_s": ends_s,
            "session_max_s": session_s,
            "expiry_s": self._cap_s - ends_s if ends_s < request.machine_max_s else 0.0,
            **({"gpus": 1} if has_gpu(request.placement.shape) else {}),
        }

    def cell(self, request: LaunchRequest) -> Cell:
        self._check(request)
        if request.placement.zone != CELL:
            raise NotSupported(f"{request.name} is started by the client: nobody pastes a cell")
        ticket, expires_at = self._ticket(request)
        text = self._fill(ticket, request.run_id)
        return Cell(
            text,
            expires_at,
            cells.notebook(text, request.run_id, request.placement.shape),
            cells.NEW_NOTEBOOK,
            cells.wanted(request.placement.shape),
        )

    def _ticket(self, request: LaunchRequest) -> tuple[str, float]:
        now = self._clock.now()
        key = f"{request.supervisor_id} {request.run_id} {request.launch_id}"
        with self._lock:
            self._tickets = {each: kept for each, kept in self._tickets.items() if kept[1] > now + RENEW_S}
            if key not in self._tickets:
                self._tickets[key] = (self._claims.ticket(request, now + TICKET_S), now + TICKET_S)
            return self._tickets[key]

    # --- reading ------------------------------------------------------------------------------------------------------

    def machines(self) -> MachineListing:
        """One listing of launches, one of claims, and one of the client's sessions where any launch is the client's."""
        kept, claims = self._launches.all(), self._claims.all()
        unread, listing = "", NO_LIST
        if any(each.way == CLIENT for each in kept.values()):
            try:
                listing = self._with_client().sessions()
            except ProviderUnavailable as error:
                unread = str(error)
        listed: dict[str, Machine] = {}
        for each in kept.values():
            if unread and each.way == CLIENT:
                continue
            machine = self._machine(each, claims.get(each.key), listing)
            if machine is not None:
                listed[machine.name] = machine
        with self._lock:
            self._listed = (self._clock.monotonic(), listed)
        unreachable = {CLIENT: unread} if unread else {}
        return MachineListing(tuple(listed.values()), frozenset(unreachable), reasons=unreachable)

    def find(self, ref: MachineRef) -> Machine | None:
        kept = self._launches.find(ref.name)
        if kept is None:
            return None
        sighting = self._sighting(kept, self._claims.all().get(kept.key), NO_LIST)
        if not sighting.has_id(ref.machine_id):
            return None
        listing = self._with_client().sessions() if kept.way == CLIENT else NO_LIST
        return self._machine(kept, sighting.claim, listing)

    def _machine(self, kept: Kept, claim: Claim | None, listing: Listing) -> Machine | None:
        sighting = self._sighting(kept, claim, listing)
        return machine_of(sighting, self._cap_s, self._clock.now())

    def _sighting(self, kept: Kept, claim: Claim | None, listing: Listing) -> Sighting:
        return Sighting(kept, claim, listing.has(kept.name) if kept.way == CLIENT else None, self._opened_at)

    def console(self, ref: MachineRef, max_bytes: int = 65536) -> bytes:
        """What its cell prints stays in the notebook."""
        return b""

    def check_secrets(self, references: Collection[str]) -> Mapping[str, str]:
        return {reference: secrets.problem(reference) for reference in references}

    # --- ending -------------------------------------------------------------------------------------------------------

    def release(self, ref: MachineRef) -> None:
        """The client ends its session. A person's session ends by itself: its claim is forgotten, so no ticket and no
        pass of it opens anything, its agent leaves, and the cell gives the runtime back."""
        kept = self._launches.find(ref.name)
        if kept is None:
            return
        claim = self._claims.all().get(kept.key)
        if not self._sighting(kept, claim, NO_LIST).has_id(ref.machine_id):
            return
        if kept.way == CLIENT:
            with self._client_lock:
                self._with_client().stop(kept.name)
        self._claims.drop(*kept.key)
        self._launches.forget(kept)

    def ask_to_stop(self, ref: MachineRef) -> None:
        raise NotSupported("nothing reaches a session: its agent reads the .stop marker")

    @property
    def _claims(self) -> Claims:
        if self._book is None:
            raise ProviderUnavailable("claims are known to the supervisor's own process alone")
        return self._book

    @property
    def _cap_s(self) -> float:
        return self._settings.colab_session_cap_s

    def _with_client(self) -> Client:
        if self.client is None:
            raise ProviderUnavailable("a session was made by the client, which colab_ways does not name any more")
        return self.client
