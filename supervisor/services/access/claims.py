"""Claims: a session of a notebook exchanges its ticket for the job of its launch.

The job is made new from the row, by the function that also makes a launch, so job and secrets wait nowhere. A claim is
an object outside the run's own folder, created only if absent: of two tabs, two replicas and a repeated request one
wins. The winner may repeat its claim, because a response can be lost. The object is there before the response: after a
kill in between, the same notebook repeats, and another one is refused.

`seen_at` is memory of this process: the last request of a session at the door, and its last pushed beat.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.attempt import Try
from supervisor.domain.errors import HandoverRefused, LaunchOver, TicketRefused, TicketUsed, Unavailable
from supervisor.domain.run import Run
from supervisor.ports.claims import Claim, ClaimKey, HandsOver
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import (
    ABSENT,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    PreconditionFailed,
    ReachableStore,
    StoreUnavailable,
)
from supervisor.ports.provider import LaunchFailed, LaunchRequest, ProviderUnavailable
from supervisor.services.access.passes import Grant, Signer, read_ticket, write_pass, write_ticket
from supervisor.services.parts import Parts
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

FIELD = "claim"  # of the object's metadata: one listing reads all claims
SEEN_KEPT = 10_000
KEPT_PER_RUN = 50  # claims that no provider has dropped
_CLEANED = re.compile(r"[^ !#-\[\]-~]")  # what JSON would write longer than it is

# (run, try, spec, nonce) -> the request of this launch, as the loop makes it
Rebuild = Callable[[Run, Try, Mapping[str, Any], str], LaunchRequest]
Pushed = Callable[[str], tuple[Beat, float] | None]  # run id -> its newest beat, with its monotonic time


def _nothing_pushed(run_id: str) -> tuple[Beat, float] | None:
    return None


class PassShown(TypedDict):
    """`expires_at`: epoch seconds, by the supervisor's clock."""

    text: str
    expires_at: float


ClaimAnswer = TypedDict(
    "ClaimAnswer",
    {"run_id": str, "launch_id": str, "job": dict[str, Any], "secrets": dict[str, str], "pass": PassShown, "door": str},
)


@dataclass
class ClaimBook:
    """Claims of ports/claims.py. Thread-safe. `pushed`: the inbox of beats, known after the providers are opened."""

    signer: Signer
    objects: ObjectStore
    clock: Clock
    pushed: Pushed = _nothing_pushed
    _seen: OrderedDict[ClaimKey, float] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ticket(self, request: LaunchRequest, expires_at: float) -> str:
        return write_ticket(self.signer, request.run_id, request.launch_id, expires_at)

    def all(self) -> Mapping[ClaimKey, Claim]:
        try:
            claims = [self._read(info) for info in self._listed("")]
        except StoreUnavailable as error:
            raise ProviderUnavailable(f"the claims cannot be read: {error}") from error
        return {(claim.run_id, claim.launch_id): claim for claim in claims}

    def drop(self, run_id: str, launch_id: str) -> None:
        with self._lock:
            self._seen.pop((run_id, launch_id), None)
        try:
            self.objects.delete(self._key(run_id, launch_id))
        except StoreUnavailable as error:
            raise ProviderUnavailable(f"the claim cannot be deleted: {error}") from error

    def saw(self, grant: Grant) -> None:
        """The session of this launch is at the door."""
        key = grant.run_id, grant.launch_id
        with self._lock:
            self._seen[key] = self.clock.now()
            self._seen.move_to_end(key)
            if len(self._seen) > SEEN_KEPT:
                self._seen.popitem(last=False)

    def refuse_others(self, grant: Grant, claimant: str) -> None:
        """Before anything is done for a claim: everybody who sees the notebook has its ticket. Raises TicketUsed,
        StoreUnavailable."""
        if self._holder(grant) not in (None, claimant):
            raise _used(grant)

    def take(self, grant: Grant, claimant: str, session: Mapping[str, str]) -> None:
        """The launch is this claimant's. Raises TicketUsed, StoreUnavailable."""
        key = self._key(grant.run_id, grant.launch_id)
        own = {_clean(name): _clean(value) for name, value in session.items()}
        values = {"claimant": claimant, "session": own, "at": self.clock.now()}
        text = json.dumps({"run_id": grant.run_id, "launch_id": grant.launch_id, **values})
        try:
            self.objects.put(key, text.encode(), if_generation=ABSENT, metadata={FIELD: text})
        except PreconditionFailed:
            if self._holder(grant) != claimant:
                raise _used(grant) from None
        else:
            self._forget_oldest(grant.run_id)
        self.saw(grant)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _key(self, run_id: str, launch_id: str) -> str:
        return runfiles.claim(self.signer.supervisor_id, run_id, launch_id)

    def _listed(self, below: str) -> Iterator[ObjectInfo]:
        for page in self.objects.pages(runfiles.claims(self.signer.supervisor_id) + below):
            yield from page.objects

    def _holder(self, grant: Grant) -> str | None:
        """Whose claim it is; None = nobody's."""
        key = self._key(grant.run_id, grant.launch_id)
        try:
            return str(json.loads(self.objects.get(key)[0])["claimant"])
        except ObjectMissing:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise StoreUnavailable(f"{key} is no claim") from error

    def _read(self, info: ObjectInfo) -> Claim:
        """Raises StoreUnavailable for an object that is no claim: what cannot be read is not absent."""
        try:
            row = json.loads(info.metadata[FIELD])
            run_id, launch_id, at = str(row["run_id"]), str(row["launch_id"]), float(row["at"])
            session = {str(name): str(value) for name, value in row["session"].items()}
            claimant = str(row["claimant"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreUnavailable(f"{info.key} is no claim") from error
        return Claim(run_id, launch_id, claimant, session, at, max(at, self._seen_at(run_id, launch_id)))

    def _seen_at(self, run_id: str, launch_id: str) -> float:
        newest = self.pushed(run_id)
        with self._lock:
            seen_at = self._seen.get((run_id, launch_id), 0.0)
        if newest is None or newest[0].launch_id != launch_id:
            return seen_at
        return max(seen_at, self.clock.now() - (self.clock.monotonic() - newest[1]))

    def _forget_oldest(self, run_id: str) -> None:
        """A provider drops the claim of each launch that it releases; this is for one that has left the settings."""
        with suppress(StoreUnavailable, ValueError):  # the next claim does it; another name is not ours
            keys = [info.key for info in self._listed(f"{run_id}/")]
            for key in sorted(keys, key=_launch_of)[:-KEPT_PER_RUN]:
                self.objects.delete(key)


def _used(grant: Grant) -> TicketUsed:
    text = "Another notebook has claimed this launch. Only one may train: close this one."
    return TicketUsed(text, {"run_id": grant.run_id, "launch_id": grant.launch_id})


def _launch_of(key: str) -> tuple[int, int, int]:
    return parse_launch_id(key.rpartition("/")[2])


def _clean(text: str) -> str:
    """Texts of a notebook, in one line of ASCII, so that their size is known."""
    return _CLEANED.sub("?", text)


@dataclass(frozen=True)
class Door:
    """`public_url`: where machines reach this supervisor, without a slash at its end. `agent`: its archive.
    `reachable`: our object store, where others reach it; None = its bytes go through this process."""

    parts: Parts
    book: ClaimBook
    rebuild: Rebuild
    public_url: str
    agent: Path
    reachable: ReachableStore | None = None

    def claim(self, ticket: str, claimant: str, session: Mapping[str, str]) -> ClaimAnswer:
        """Raises TicketRefused, TicketExpired, TicketUsed, LaunchOver, HandoverRefused, Unavailable, StoreUnavailable,
        ProviderUnavailable, StoreDown."""
        grant = read_ticket(self.book.signer, ticket, self.parts.clock.now())
        request, provider = self._launch(grant)
        self.book.refuse_others(grant, claimant)
        try:
            handover = provider.hand_over(request)
        except LaunchFailed as error:
            raise HandoverRefused(f"{grant.run_id} is not handed over: {error}.", {"run_id": grant.run_id}) from None
        self.book.take(grant, claimant, session)
        fields = {telemetry.ACTION: "claim", telemetry.RUN_ID: grant.run_id, "launch_id": grant.launch_id}
        log.info("A session has claimed its job.", extra={**fields, "platform": _clean(session.get("platform", ""))})
        self.parts.wake.set()
        return {
            "run_id": grant.run_id,
            "launch_id": grant.launch_id,
            "job": {**handover.job, "store_url": f"door:{self.url}/{grant.run_id}", "server_url": self.public_url},
            "secrets": dict(handover.secrets),
            "pass": self.new_pass(grant.run_id, grant.launch_id),
            "door": self.url,
        }

    @property
    def url(self) -> str:
        return f"{self.public_url}/v1/door"

    def new_pass(self, run_id: str, launch_id: str) -> PassShown:
        text, expires_at = write_pass(self.book.signer, run_id, launch_id, self.parts.clock.now())
        return {"text": text, "expires_at": expires_at}

    def _launch(self, grant: Grant) -> tuple[LaunchRequest, HandsOver]:
        """By the row as it is now."""
        store = self.parts.store
        run = store.find(grant.run_id)
        if run is None:
            raise TicketRefused(f"There is no run {grant.run_id} any more.", {"run_id": grant.run_id})
        try_ = run.open_try
        if try_ is None or try_.launch_id != grant.launch_id or run.terminal or run.stop is not None:
            raise _over(run, grant)
        provider: object = self.parts.providers.get(try_.placement.provider)
        if not isinstance(provider, HandsOver):
            raise TicketRefused("The provider of this launch hands no job over.", {"run_id": grant.run_id})
        return self.rebuild(run, try_, store.spec(run.key), self._nonce(run, grant)), provider

    def _nonce(self, run: Run, grant: Grant) -> str:
        """That of the launch, which only the baton has."""
        try:
            following = batons.decode(self.parts.objects.get(runfiles.baton(run.run_id))[0]).next
        except (ObjectMissing, ValueError):
            raise Unavailable(f"The baton of {run.run_id} cannot be read.", {"part": "object store"}) from None
        if following is None or following.launch_id != grant.launch_id:
            raise _over(run, grant)
        return following.nonce


def _over(run: Run, grant: Grant) -> LaunchOver:
    now = "is being stopped" if run.stop is not None and not run.terminal else f"is {run.status}"
    text = f"The launch {grant.launch_id} of {run.run_id} is over; the run {now}."
    return LaunchOver(text, {"run_id": run.run_id, "launch_id": grant.launch_id, "status": str(run.status)})
