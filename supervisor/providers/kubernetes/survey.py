"""All machines at one instant: one list of Jobs and one of pods, and what only events and nodes say.

The Jobs are read before the pods: a pod that has ended meanwhile says more than its Job, and one that is missing says
nothing. Events and nodes are read only while a pod waits for a reason that it does not give itself, at most once a
minute, and only where the account may: a refusal is remembered for an hour. Nothing that is kept here between two ticks
decides anything but how long a wait has lasted, and whether a suspended Job has run before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from supervisor.domain.machines import SUPERVISOR_LABEL, Machine
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.kubernetes import machines
from supervisor.providers.kubernetes.api import Api, ApiError, own
from supervisor.providers.kubernetes.machines import Beside, Seen, Sighting
from supervisor.providers.kubernetes.objects import MACHINE_LABEL, SHAPE_LABEL, selector
from supervisor.providers.kubernetes.settings import KubernetesSettings, toleration
from supervisor.providers.kubernetes.states import UnknownState
from supervisor.providers.kubernetes.waiting import Pool, Wait, pool_of

Json = dict[str, Any]
EVERY_S, DENIED_S = 60.0, 3600.0
WARNINGS = "type=Warning"
NODES = "/api/v1/nodes"


@dataclass(frozen=True, slots=True)
class Entry:
    """One machine of a survey. `seen` None: it is unknown, and `problem` says why. `wait`: the reason of its wait,
    without a cause that does not count yet."""

    sighting: Sighting
    seen: Seen | None
    problem: str = ""
    wait: Wait | None = None

    @property
    def machine(self) -> Machine | None:
        return None if self.seen is None else self.seen.machine


class Surveyor:
    """Safe to use from every thread."""

    def __init__(self, api: Api, s: KubernetesSettings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._api, self._settings, self._monotonic = api, s, monotonic
        self._tolerations = [toleration(word) for word in s.kubernetes_tolerations]
        self._lock = threading.Lock()
        self._since: dict[str, tuple[str, float]] = {}  # UID of a Job -> kind of its wait, and when that was seen first
        self._ran: set[str] = set()
        self._released: set[str] = set()
        self._due: dict[str, float] = {}  # what is read beside -> when it may be read again
        self._events: dict[str, list[Json]] = {}
        self._pools: dict[tuple[str, str], Pool] = {}

    def survey(self) -> list[Entry]:
        """Of all supervisors. Raises ProviderUnavailable."""
        with self._lock:
            remembered = {*self._ran, *self._released, *self._since}
        jobs = self._api.items(self._api.jobs(), SUPERVISOR_LABEL)
        pods = self._api.items(self._api.path("pods"), SUPERVISOR_LABEL)
        entries = self._entries(jobs, pods, is_whole=True)
        self._forget(remembered - {str(own(job, "metadata", "uid")) for job in jobs})
        return entries

    def read_one(self, name: str) -> Entry | None:
        """None = the API says that there is no such Job. Raises ProviderUnavailable."""
        job = self._api.find(self._api.jobs(name))
        if job is None:
            return None
        pods = self._api.items(self._api.path("pods"), f"{MACHINE_LABEL}={name}")
        entries = self._entries([job], pods, is_whole=False)
        return entries[0] if entries else Entry(Sighting(job), None, f"{name} is a Job of somebody else")

    def created(self, job: Json) -> Entry:
        """Of a Job that was created just now."""
        with self._lock:
            return self._entry(Sighting(job))

    def note_release(self, uid: str) -> None:
        """This supervisor deletes that Job."""
        with self._lock:
            self._released.add(uid)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _entries(self, jobs: Sequence[Json], pods: Sequence[Json], *, is_whole: bool) -> list[Entry]:
        with self._lock:
            beside = Beside(ran=frozenset(self._ran), released=frozenset(self._released))
        sightings = machines.sightings(jobs, pods, beside)
        self._read_beside(sightings, is_whole)
        with self._lock:
            beside = replace(beside, events=dict(self._events), pools=dict(self._pools))
        if beside.events or beside.pools:
            sightings = machines.sightings(jobs, pods, beside)
        with self._lock:
            self._ran |= {sighting.uid for sighting in sightings if sighting.pods}
            return [self._entry(sighting) for sighting in sightings]

    def _entry(self, sighting: Sighting) -> Entry:
        """The lock is held."""
        try:
            seen = machines.seen(sighting, self._settings.kubernetes_gpu_resource)
        except UnknownState as error:
            return Entry(sighting, None, f"{sighting.name}: {error}")
        return Entry(sighting, seen, wait=self._counted(sighting.uid, seen.wait))

    def _counted(self, uid: str, wait: Wait | None) -> Wait | None:
        """The wait as it counts now: with its cause only when it has lasted. The lock is held."""
        if wait is None or wait.cause is None:
            self._since.pop(uid, None)
            return wait
        kind, now = f"{wait.cause} {wait.after_s:g}", self._monotonic()
        if self._since.get(uid, ("", now))[0] != kind:
            self._since[uid] = (kind, now)
        return wait if now - self._since[uid][1] >= wait.after_s else replace(wait, cause=None)

    def _forget(self, gone: Set[str]) -> None:
        """What belongs to Jobs that were remembered before a list, and are not in it."""
        with self._lock:
            self._ran -= gone
            self._released -= gone
            self._since = {uid: since for uid, since in self._since.items() if uid not in gone}

    def _read_beside(self, sightings: Sequence[Sighting], is_whole: bool) -> None:
        """`is_whole`: these are all, so what none of them needs is forgotten."""
        waits = any(map(machines.needs_events, sightings))
        places = {(each.zone, each.labels.get(SHAPE_LABEL, "")) for each in sightings if machines.needs_nodes(each)}
        if is_whole:
            self._events = self._events if waits else {}
            self._pools = {place: pool for place, pool in self._pools.items() if place in places}
        if waits and self._may_read("events"):
            events = self._read("events", self._api.path("events"), fields=WARNINGS)
            self._events = self._events if events is None else self._by_object(events)
        for zone, shape in sorted(places):
            labels = selector(self._settings, zone, shape)
            if labels and self._may_read(f"nodes {zone} {shape}"):
                nodes = self._read("nodes", NODES, selector=",".join(f"{key}={labels[key]}" for key in sorted(labels)))
                if nodes is None:
                    return  # the other pools would fail too, each after its own deadline
                resource = self._settings.kubernetes_gpu_resource
                pool = pool_of(nodes, labels, self._tolerations, resource)
                self._pools = {**self._pools, (zone, shape): pool}  # other threads read the old one

    def _may_read(self, what: str) -> bool:
        """At most once in EVERY_S; not while its kind is denied."""
        now = self._monotonic()
        with self._lock:
            if now < max(self._due.get(what, 0.0), self._due.get(what.partition(" ")[0], 0.0)):
                return False
            self._due[what] = now + EVERY_S
            return True

    def _read(self, kind: str, path: str, *, selector: str = "", fields: str = "") -> list[Json] | None:
        """None = it cannot be read now: the listing is complete without it."""
        try:
            return self._api.items(path, selector, fields)
        except ProviderUnavailable as error:
            if isinstance(error, ApiError) and error.status == 403:
                with self._lock:
                    self._due[kind] = self._monotonic() + DENIED_S
            return None

    @staticmethod
    def _by_object(events: Iterable[Json]) -> dict[str, list[Json]]:
        by_uid: dict[str, list[Json]] = {}
        for event in events:
            involved: Mapping[str, Any] = own(event, "involvedObject") or {}
            by_uid.setdefault(str(involved.get("uid") or ""), []).append(event)
        return by_uid
