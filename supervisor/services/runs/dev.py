"""Simulated failures on request, for demos and tests: any failure on a machine of this computer, a preemption also on a
rented machine.

The failure hits the machine of the run's live attempt, and the loop has to detect it. On a rented machine the
preemption is real: the work since the last checkpoint is lost and paid for again, so a person must confirm it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NotRequired

from typing_extensions import TypedDict

from supervisor.domain.callers import LOCAL as LOCAL_CALLER
from supervisor.domain.callers import Caller
from supervisor.domain.errors import ConfirmNeeded, Conflict, DevRefused, InvalidRequest, Unavailable
from supervisor.domain.events import EventKind
from supervisor.domain.machines import MachineRef
from supervisor.ports.provider import Disasters, MachineMissing, NotSupported, ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import find_run
from supervisor.wording.figures import plural

ZONES_SHOWN = 100  # in the history
DONE = {"preempt": "preempted", "kill": "killed", "freeze": "frozen"}


class Disaster(TypedDict):
    """`notice_s`: of a preemption; null where the platform gives its own notice."""

    done: str
    run_id: str
    machine: str
    zone: str
    notice_s: NotRequired[float | None]


class Stockout(TypedDict):
    done: str
    zones: list[str]
    for_s: float | None


class Dev:
    """`disasters`: by provider, for providers that can inject failures. Every method raises NotFound, DevRefused,
    Conflict (no machine now), Unavailable."""

    def __init__(self, parts: Parts, disasters: Mapping[str, Disasters]) -> None:
        self._parts, self._disasters = parts, disasters

    def preempt(self, run_id: str, notice_s: float, confirmed: bool = False, caller: Caller = LOCAL_CALLER) -> Disaster:
        """Send the notice now and preempt the machine `notice_s` later; a rented machine gets the platform's own
        notice. Raises ConfirmNeeded for a rented machine if it is not confirmed."""
        ref = self._machine(run_id, "preempt")
        rented = self._parts.traits(ref.provider).rented
        if rented and not confirmed:
            raise ConfirmNeeded(
                f"This really preempts {ref.name} in {ref.zone}, the machine of {run_id}: its work since the last "
                "checkpoint is lost, and another machine is rented.",
                {"run_id": run_id, "machine": ref.name, "zone": ref.zone},
            )
        done = self._strike("preempt", run_id, lambda disasters, ref: disasters.preempt(ref, notice_s), caller)
        return {**done, "notice_s": None if rented else notice_s}

    def kill(self, run_id: str, caller: Caller = LOCAL_CALLER) -> Disaster:
        """Kill everything on the machine at once; no record is left."""
        return self._strike("kill", run_id, lambda disasters, ref: disasters.kill(ref), caller)

    def freeze(self, run_id: str, caller: Caller = LOCAL_CALLER) -> Disaster:
        """Suspend the training; the agent beside it continues."""
        return self._strike("freeze", run_id, lambda disasters, ref: disasters.freeze(ref), caller)

    def stockout(self, zones: Sequence[str], for_s: float | None, caller: Caller = LOCAL_CALLER) -> Stockout:
        """These zones have no capacity for `for_s` seconds (None: until a call with 0). Raises InvalidRequest."""
        provider = self._provider_of(zones)
        try:
            self._disasters[provider].stockout(zones, for_s)
        except NotSupported as error:
            raise DevRefused(_sentence(error)) from None
        except ValueError:
            zone_names = self._zones(provider)
            text = f"Not every zone is in the settings. Known: {', '.join(zone_names)}."
            raise InvalidRequest(text, {"known": zone_names}, [("#/zones", "unknown zone")]) from None
        text = f"{caller.actor} let {plural(len(zones), 'zone')} run out of machines."
        self._record(None, text, {"done": "stockout", "zones": list(zones)[:ZONES_SHOWN], "for_s": for_s}, caller)
        return {"done": "stockout", "zones": list(zones), "for_s": for_s}

    def _provider_of(self, zones: Sequence[str]) -> str:
        """The first provider that offers all these zones; if there is none, the first provider."""
        fits = (name for name in self._disasters if set(zones) <= set(self._zones(name)))
        return next(fits, next(iter(self._disasters)))

    def _zones(self, provider: str) -> list[str]:
        offers = self._parts.providers[provider].offers()
        return list(dict.fromkeys(offer.placement.zone for offer in offers))

    def _strike(self, what: str, run_id: str, act: Callable[[Disasters, MachineRef], None], caller: Caller) -> Disaster:
        ref = self._machine(run_id, what)
        try:
            act(self._disasters[ref.provider], ref)
        except NotSupported as error:
            raise DevRefused(_sentence(error), {"run_id": run_id}) from None
        except MachineMissing as error:
            raise Conflict(f"The machine of {run_id} is gone already.", {"run_id": run_id}) from error
        except ProviderUnavailable as error:
            raise Unavailable(f"The machine of {run_id} cannot be read now. Retry.", {"run_id": run_id}) from error
        data = {"done": what, "machine": ref.name, "zone": ref.zone}
        text = f"{caller.actor} let {ref.name} in {ref.zone} be {DONE[what]}."
        self._record(find_run(self._parts, run_id).key, text, data, caller)
        return {"done": what, "run_id": run_id, "machine": ref.name, "zone": ref.zone}

    def _record(self, key: int | None, text: str, data: Mapping[str, object], caller: Caller) -> None:
        event = caller.event(EventKind.DISASTER, text, data)
        self._parts.store.add_events(key, [event], self._parts.clock.now())

    def _machine(self, run_id: str, what: str) -> MachineRef:
        run = find_run(self._parts, run_id)
        traits = self._parts.traits(run.provider)
        if run.provider not in self._disasters or (traits.rented and what != "preempt"):
            raise DevRefused(
                f"{run_id} runs on {run.provider}. A machine there can only be preempted, and only by its supervisor.",
                {"run_id": run_id},
            )
        if run.cell != self._parts.cells[run.provider]:
            raise DevRefused(
                f"The machine of {run_id} belongs to another supervisor's {traits.place}. Send the request to it.",
                {"run_id": run_id},
            )
        if run.live_attempt is None:
            raise Conflict(
                f"{run_id} is {run.status} and has no machine now.", {"run_id": run_id, "status": run.status}
            )
        return run.live_attempt.ref


def _sentence(error: Exception) -> str:
    text = str(error).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
