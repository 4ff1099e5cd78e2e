"""The providers of a cell behind the provider port: a place that hangs delays nobody but itself.

A launch goes by its placement, everything about one machine by its reference. What a look asks goes through a Line: in
a thread of its own, with a bound. Who missed the bound is not waited for again before an answer has kept it; the
question goes on, and its answer, when it comes, has the age of its request. So a slow provider costs the others one
wait, and one that always needs longer is seen all the same.

A lone provider is asked in the thread of the caller: there is nobody to delay.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, cast

from supervisor.domain.machines import Machine, MachineListing, MachineRef, Offer
from supervisor.domain.observation import OBSERVE_S
from supervisor.ports.provider import LaunchRequest, Provider, ProviderUnavailable
from supervisor.ports.traits import Traits
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)
T = TypeVar("T")

LOOKUPS = 8  # single machines of one provider that are asked for side by side

Monotonic = Callable[[], float]
LookedUp = Machine | ProviderUnavailable | None


class Daemons(Executor):
    """A thread for each call, which ends with the process: what hangs holds up no end. The caller bounds them."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the future carries it to whoever waits
                future.set_exception(error)

        threading.Thread(target=work, name="ask", daemon=True).start()
        return future


@dataclass(frozen=True, slots=True)
class _Answer(Generic[T]):
    value: T | None
    error: Exception | None
    took_s: float

    def get(self) -> T:
        if self.error is not None:
            raise self.error
        return cast(T, self.value)


@dataclass(frozen=True, slots=True)
class _Question(Generic[T]):
    asked_at: float  # monotonic
    future: Future[_Answer[T]]


class Line(Generic[T]):
    """Questions to one provider, one after the other. For one thread."""

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
        self._question: _Question[T] | None = None
        self._late: _Question[T] | None = None  # the one before, where its answer was too late for its look
        self._new = False  # the question was asked for this look
        self._missed = False  # no look has had its answer yet
        self._prompt = True  # the answer before kept the bound

    def ask(self, call: Callable[[], T]) -> None:
        """Unless the question before is still under way."""
        last = self._question
        self._late, self._new = None, last is None or last.future.done()
        if not self._new:
            return
        if last is not None:
            self._prompt = last.future.result().took_s <= self._bound_s
            self._late = last if self._missed else None
        asked_at = self._monotonic()
        self._question = _Question(asked_at, self._threads.submit(self._answer, call, asked_at))
        self._question.future.add_done_callback(partial(self._came, asked_at))
        self._missed = True

    def answer(self, until: float) -> tuple[T, float | None]:
        """(the answer; when it was asked for, where it came too late for the look that asked). Waits until then
        (monotonic), unless the answer before was late. Raises ProviderUnavailable where there is none yet, and what
        the call raised."""
        try:
            return self._answer_now(until)
        except ProviderUnavailable:
            if self._late is None:
                raise
            return self._late.future.result().get(), self._late.asked_at

    def _answer_now(self, until: float) -> tuple[T, float | None]:
        question = self._question
        assert question is not None
        waits = self._new and self._prompt
        try:
            answer = question.future.result(max(0.0, until - self._monotonic()) if waits else 0.0)
        except TimeoutError:
            silent_s = self._monotonic() - question.asked_at
            raise ProviderUnavailable(f"{self._name} has not answered for {silent_s:.0f} s") from None
        self._missed = False
        return answer.get(), None if self._new else question.asked_at

    def _came(self, asked_at: float, answer: Future[_Answer[T]]) -> None:
        took_s = self._monotonic() - asked_at
        if took_s > self._bound_s:
            self._came_late(took_s)

    def _answer(self, call: Callable[[], T], asked_at: float) -> _Answer[T]:
        value, error = None, None
        try:
            value = call()
        except Exception as raised:  # noqa: BLE001 - raised again where the answer is taken
            error = raised
        return _Answer(value, error, self._monotonic() - asked_at)


@dataclass(frozen=True, slots=True)
class Listed:
    """`asked_at`: monotonic, of an answer that came too late for the look that asked; None = it kept the bound."""

    listing: MachineListing
    asked_at: float | None = None


class Fleet(Mapping[str, Provider]):
    """By name, in the order of preference. As a provider it speaks for all of them; its name and traits are those of
    the first. The questions of a look (`look`, `lookups`) come from one thread."""

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
        self._threads = threads or Daemons()
        line = monotonic, bound_s, self._threads
        self._listings = {name: Line[MachineListing](name, *line, came_late) for name in providers}
        self._lookups = {name: Line[bool](name, *line) for name in providers}
        self._without_answer: frozenset[MachineRef] = frozenset()  # at the last look: first at the next one

    def __getitem__(self, name: str) -> Provider:
        return self._providers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._providers)

    def __len__(self) -> int:
        return len(self._providers)

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
    def lone(self) -> bool:
        return len(self._providers) == 1

    # --- a look ---------------------------------------------------------------------------------------------------

    def look(self) -> dict[str, Listed | ProviderUnavailable]:
        """One listing of each, side by side."""
        if self.lone:
            return {name: self._at_once(provider) for name, provider in self._providers.items()}
        for name, line in self._listings.items():
            line.ask(self._providers[name].machines)
        until = self._monotonic() + self._bound_s
        return {name: self._listed(name, line, until) for name, line in self._listings.items()}

    def _at_once(self, provider: Provider) -> Listed | ProviderUnavailable:
        try:
            return Listed(provider.machines())
        except ProviderUnavailable as error:
            return error

    def _listed(self, name: str, line: Line[MachineListing], until: float) -> Listed | ProviderUnavailable:
        try:
            return Listed(*line.answer(until))
        except ProviderUnavailable as error:
            return error
        except Exception as error:  # a mistake in one provider must not stop the others
            log.exception("no listing", extra={telemetry.ACTION: "observe", telemetry.PROVIDER: name})
            return ProviderUnavailable(f"{name} cannot be listed: {error}")

    def lookups(self, refs: Sequence[MachineRef]) -> dict[MachineRef, LookedUp]:
        """`find` of each, side by side. An answer that comes too late is never used: a machine may come meanwhile. What
        one look does not come to is asked first at the next one."""
        results: dict[MachineRef, LookedUp] = {}
        by_provider: dict[str, list[MachineRef]] = {}
        for ref in sorted(refs, key=lambda ref: ref not in self._without_answer):
            by_provider.setdefault(ref.provider, []).append(ref)
        until = self._monotonic() + self._bound_s
        for name in by_provider.keys() & self._providers.keys():
            last_at = until - self._bound_s / 2  # a request that is begun later would rarely be in time
            self._lookups[name].ask(partial(self._find_all, by_provider[name], results, last_at))
        missing = {name: self._unanswered(name, until) for name in by_provider}
        answered = results.copy()  # threads that are late go on writing
        self._without_answer = frozenset(ref for ref in refs if ref not in answered)
        return {ref: answered.get(ref, missing[ref.provider]) for ref in refs}

    def _unanswered(self, name: str, until: float) -> ProviderUnavailable:
        """Waits for its answers; what is to be said of those that did not come."""
        try:
            provider_of(self, name)
            self._lookups[name].answer(until)
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

    # --- the provider port ----------------------------------------------------------------------------------------

    def pin(self, image: str) -> str:
        """By the first that runs images: a tag names the same content for all of them."""
        return next((one for one in self.values() if one.traits.images), self._first).pin(image)

    def offers(self) -> tuple[Offer, ...]:
        return tuple(offer for provider in self.values() for offer in provider.offers())

    def gpus(self, shape: str) -> str:
        return next((words for provider in self.values() if (words := provider.gpus(shape))), "")

    def launch(self, request: LaunchRequest) -> Machine:
        return provider_of(self, request.placement.provider).launch(request)

    def machines(self) -> MachineListing:
        answers = self.look()
        listings = [answer.listing for answer in answers.values() if isinstance(answer, Listed)]
        silent = {name: error for name, error in answers.items() if not isinstance(error, Listed)}
        if not listings:
            raise next(iter(silent.values()))
        unread = {offer.placement.zone for name in silent for offer in self[name].offers()}
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
        """Each by the first whose machines read references of its kind."""
        answers: dict[str, str] = {}
        for reference in references:
            kin = (one for one in self.values() if one.traits.secrets.read(reference))
            answers.update(next(kin, self._first).check_secrets([reference]))
        return answers


def provider_of(providers: Mapping[str, Provider], name: str) -> Provider:
    """Raises ProviderUnavailable for one that is not in the settings (any more)."""
    provider = providers.get(name)
    if provider is None:
        raise ProviderUnavailable(f"provider {name} is not in the settings")
    return provider


def fleet_of(providers: Mapping[str, Provider], monotonic: Monotonic = time.monotonic) -> Fleet:
    return providers if isinstance(providers, Fleet) else Fleet(providers, monotonic)
