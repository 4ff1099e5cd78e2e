"""The providers of a cell behind the provider port: one that does not respond delays none of the others.

A launch goes to the provider of its placement, everything about one machine to the provider of its reference. What a
tick requests from all of them goes through a `Call` for each: in a thread of its own, with a time limit. A call that
missed the limit is not waited for again before a result has kept it. It goes on, and its result, when it comes, has the
age of its request. So a slow provider costs the others one wait, and one that always needs longer is observed all the
same. A lone provider is called in the thread of the caller: there is none to delay.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar, cast

from supervisor.domain.machines import Machine, MachineListing, MachineRef, Offer
from supervisor.domain.observation import OBSERVE_S
from supervisor.domain.profile import Profile
from supervisor.ports.provider import KeepsMachines, LaunchRequest, Meters, Provider, ProviderUnavailable
from supervisor.ports.traits import Traits
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry.worker import Daemons

log = logging.getLogger(__name__)
T = TypeVar("T")

LOOKUPS = 8  # machines of one provider that are looked up in parallel

Monotonic = Callable[[], float]
LookedUp = Machine | ProviderUnavailable | None


@dataclass(frozen=True, slots=True)
class Listed:
    """`requested_at`: monotonic, of a listing that was too late for the tick that requested it; None = in time."""

    listing: MachineListing
    requested_at: float | None = None


class Fleet(Mapping[str, Provider]):
    """By name, in the order of preference. As a provider it acts for all of them; its name, traits and profile are
    those of the first. `listings` and `lookups` are called from one thread."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        monotonic: Monotonic = time.monotonic,
        bound_s: float = OBSERVE_S,
        threads: Executor | None = None,
        came_late: Callable[[float], object] = lambda took_s: None,
    ) -> None:
        """`came_late`: called, in another thread, with the length of each listing that took longer than the bound."""
        self._providers, self._monotonic, self._bound_s = dict(providers), monotonic, bound_s
        self._threads = threads or Daemons("observe")
        shared = monotonic, bound_s, self._threads
        self._listings = {name: Call[MachineListing](name, *shared, came_late) for name in providers}
        self._lookups = {name: Call[bool](name, *shared) for name in providers}
        self._without_answer: frozenset[MachineRef] = frozenset()  # in the last tick: first in the next one

    def __getitem__(self, name: str) -> Provider:
        return self._providers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._providers)

    def __len__(self) -> int:
        return len(self._providers)

    @property
    def lone(self) -> bool:
        return len(self._providers) == 1

    # --- in parallel --------------------------------------------------------------------------------------------------

    def listings(self) -> dict[str, Listed | ProviderUnavailable]:
        """One listing of each provider, in parallel."""
        if self.lone:
            return {name: _list_now(provider) for name, provider in self._providers.items()}
        for name, call in self._listings.items():
            call.start(self._providers[name].machines)
        until = self._monotonic() + self._bound_s
        return {name: _listed(name, call, until) for name, call in self._listings.items()}

    def lookups(self, refs: Sequence[MachineRef]) -> dict[MachineRef, LookedUp]:
        """`find` of each machine, in parallel. A result that comes too late is never used: the machine may appear in
        between. Machines without a result in one tick are looked up first in the next one."""
        results: dict[MachineRef, LookedUp] = {}
        by_provider: dict[str, list[MachineRef]] = {}
        for ref in sorted(refs, key=lambda ref: ref not in self._without_answer):
            by_provider.setdefault(ref.provider, []).append(ref)
        until = self._monotonic() + self._bound_s
        for name in by_provider.keys() & self._providers.keys():
            last_at = until - self._bound_s / 2  # a request that starts later would rarely end in time
            self._lookups[name].start(partial(self._find_all, by_provider[name], results, last_at))
        missing = {name: self._wait_for_lookups(name, until) for name in by_provider}
        answered = results.copy()  # late threads go on writing
        self._without_answer = frozenset(ref for ref in refs if ref not in answered)
        return {ref: answered.get(ref, missing[ref.provider]) for ref in refs}

    def _wait_for_lookups(self, name: str, until: float) -> ProviderUnavailable:
        """The result of those that have none in time."""
        try:
            provider_of(self, name)
            self._lookups[name].result(until)
        except ProviderUnavailable as error:
            return error
        return ProviderUnavailable(f"{name} has not answered")

    def _find_all(self, refs: Sequence[MachineRef], results: dict[MachineRef, LookedUp], last_at: float) -> bool:
        todo, taking = iter(refs), threading.Lock()

        def work() -> None:
            while True:
                with taking:
                    ref = next(todo, None)
                if ref is None or self._monotonic() > last_at:
                    return
                try:
                    results[ref] = self._providers[ref.provider].find(ref)
                except Exception as error:  # noqa: BLE001 - one machine that cannot be read
                    results[ref] = ProviderUnavailable(str(error))

        for future in [self._threads.submit(work) for _ in refs[:LOOKUPS]]:
            future.result()
        return True

    # --- the provider port --------------------------------------------------------------------------------------------

    @property
    def _first(self) -> Provider:
        return next(iter(self._providers.values()))

    @property
    def name(self) -> str:
        return self._first.name

    @property
    def traits(self) -> Traits:
        return self._first.traits

    @property
    def meters(self) -> Meters | None:
        return self._first.meters

    def profile(self, zone: str = "") -> Profile:
        return self._first.profile(zone)

    def pin(self, image: str) -> str:
        """By the first provider that runs images: a tag names the same content for all of them."""
        return next((provider for provider in self.values() if provider.traits.images), self._first).pin(image)

    def offers(self) -> tuple[Offer, ...]:
        return tuple(offer for provider in self.values() for offer in provider.offers())

    def gpus(self, shape: str) -> str:
        return next((words for provider in self.values() if (words := provider.gpus(shape))), "")

    def launch(self, request: LaunchRequest) -> Machine:
        return provider_of(self, request.placement.provider).launch(request)

    def machines(self) -> MachineListing:
        answers = self.listings()
        listings = [answer.listing for answer in answers.values() if isinstance(answer, Listed)]
        failed = {name: error for name, error in answers.items() if not isinstance(error, Listed)}
        if not listings:
            raise next(iter(failed.values()))
        unread = {offer.placement.zone for name in failed for offer in self[name].offers()}
        return MachineListing(
            tuple(machine for listing in listings for machine in listing.machines),
            frozenset(unread).union(*(listing.unreachable for listing in listings)),
            next((listing.capacity for listing in listings if listing.capacity is not None), None),
        )

    def find(self, ref: MachineRef) -> Machine | None:
        return provider_of(self, ref.provider).find(ref)

    def release(self, ref: MachineRef) -> None:
        provider_of(self, ref.provider).release(ref)

    def ask_to_stop(self, ref: MachineRef) -> None:
        provider_of(self, ref.provider).ask_to_stop(ref)

    def console(self, ref: MachineRef, max_bytes: int = 65536) -> bytes:
        return provider_of(self, ref.provider).console(ref, max_bytes)

    def check_secrets(self, references: Collection[str]) -> Mapping[str, str]:
        """Each by the first provider whose machines read references of its kind."""
        answers: dict[str, str] = {}
        for reference in references:
            readers = (provider for provider in self.values() if provider.traits.secrets.read(reference))
            answers.update(next(readers, self._first).check_secrets([reference]))
        return answers


def provider_of(providers: Mapping[str, Provider], name: str) -> Provider:
    """Raises ProviderUnavailable when the settings do not contain it (any more)."""
    provider = providers.get(name)
    if provider is None:
        raise ProviderUnavailable(f"provider {name} is not in the settings")
    return provider


def keeper_of(providers: Mapping[str, Provider], name: str) -> KeepsMachines:
    """Raises ProviderUnavailable also where its machines cannot be kept (any more): its settings may have changed."""
    provider = provider_of(providers, name)
    if provider.traits.keeps:
        return cast(KeepsMachines, provider)
    raise ProviderUnavailable(f"provider {name} cannot start a machine again")


def fleet_of(providers: Mapping[str, Provider], monotonic: Monotonic = time.monotonic) -> Fleet:
    return providers if isinstance(providers, Fleet) else Fleet(providers, monotonic)


def _list_now(provider: Provider) -> Listed | ProviderUnavailable:
    try:
        return Listed(provider.machines())
    except ProviderUnavailable as error:
        return error


def _listed(name: str, call: Call[MachineListing], until: float) -> Listed | ProviderUnavailable:
    try:
        return Listed(*call.result(until))
    except ProviderUnavailable as error:
        return error
    except Exception as error:  # a bug in one provider must not stop the others
        log.exception("no listing", extra={telemetry.ACTION: "observe", telemetry.PROVIDER: name})
        return ProviderUnavailable(f"{name} cannot be listed: {error}")


# --- one call after the other to one provider -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[T]):
    value: T | None
    error: Exception | None
    took_s: float

    def get(self) -> T:
        if self.error is not None:
            raise self.error
        return cast(T, self.value)


@dataclass(frozen=True, slots=True)
class _Started(Generic[T]):
    requested_at: float  # monotonic
    future: Future[_Outcome[T]]


class Call(Generic[T]):
    """The same call to one provider, again and again, never two at once. For one thread."""

    def __init__(
        self,
        name: str,
        monotonic: Monotonic,
        bound_s: float,
        threads: Executor,
        came_late: Callable[[float], object] = lambda took_s: None,
    ) -> None:
        self._name, self._bound_s, self._threads = name, bound_s, threads
        self._monotonic, self._came_late = monotonic, came_late
        self._last: _Started[T] | None = None
        self._late: _Started[T] | None = None  # the one before, where its result was too late for its tick
        self._new = False  # the last one was started for this tick
        self._missed = False  # no tick has had its result yet
        self._prompt = True  # the result before kept the bound

    def start(self, call: Callable[[], T]) -> None:
        """Unless the last one still runs."""
        last = self._last
        self._late, self._new = None, last is None or last.future.done()
        if not self._new:
            return
        if last is not None:
            self._prompt = last.future.result().took_s <= self._bound_s
            self._late = last if self._missed else None
        requested_at = self._monotonic()
        self._last = _Started(requested_at, self._threads.submit(self._run, call, requested_at))
        self._last.future.add_done_callback(partial(self._ended, requested_at))
        self._missed = True

    def result(self, until: float) -> tuple[T, float | None]:
        """(the result; when it was requested, where it was too late for the tick that requested it). Waits until then
        (monotonic), unless the result before was late. Raises ProviderUnavailable where there is none yet, and what
        the call raised."""
        try:
            return self._result_now(until)
        except ProviderUnavailable:
            if self._late is None:
                raise
            return self._late.future.result().get(), self._late.requested_at

    def _result_now(self, until: float) -> tuple[T, float | None]:
        last = self._last
        assert last is not None
        waits = self._new and self._prompt
        try:
            outcome = last.future.result(max(0.0, until - self._monotonic()) if waits else 0.0)
        except TimeoutError:
            silent_s = self._monotonic() - last.requested_at
            raise ProviderUnavailable(f"{self._name} has not answered for {silent_s:.0f} s") from None
        self._missed = False
        return outcome.get(), None if self._new else last.requested_at

    def _ended(self, requested_at: float, _: Future[_Outcome[T]]) -> None:
        took_s = self._monotonic() - requested_at
        if took_s > self._bound_s:
            self._came_late(took_s)

    def _run(self, call: Callable[[], T], requested_at: float) -> _Outcome[T]:
        value, error = None, None
        try:
            value = call()
        except Exception as raised:  # noqa: BLE001 - raised again where the result is read
            error = raised
        return _Outcome(value, error, self._monotonic() - requested_at)
