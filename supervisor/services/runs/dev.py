"""Disasters on request, for demos and tests: all of them on machines of this computer, a preemption on rented ones too.

Each is done to the machine of the run's live attempt; the loop finds out by itself, as it would in earnest. On a rented
machine it is in earnest: what was done since the last checkpoint is paid for again, so a person must have said so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.domain.callers import LOCAL as LOCAL_CALLER
from supervisor.domain.callers import Caller
from supervisor.domain.errors import ConfirmNeeded, Conflict, DevRefused, InvalidRequest, Unavailable
from supervisor.domain.events import EventKind
from supervisor.domain.machines import MachineRef
from supervisor.ports.provider import Disasters, MachineMissing, NotSupported, ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import find_run
from supervisor.services.views.run_view import Json
from supervisor.wording.figures import plural

TOLD = 100  # zones in the history
DONE = {"preempt": "preempted", "kill": "killed", "freeze": "frozen"}


class Dev:
    """`disasters`: by provider, of those that can do something to their machines. Raises NotFound, DevRefused,
    Conflict (no machine now), Unavailable."""

    def __init__(self, parts: Parts, disasters: Mapping[str, Disasters]) -> None:
        self._parts, self._disasters = parts, disasters

    def preempt(self, run_id: str, notice_s: float, confirmed: bool = False, caller: Caller = LOCAL_CALLER) -> Json:
        """Notice now, the machine is taken away `notice_s` later; a rented one with the platform's own notice. Raises
        ConfirmNeeded where it is rented and nobody has confirmed it."""
        ref = self._machine(run_id, "preempt")
        rented = self._parts.traits(ref.provider).rented
        if rented and not confirmed:
            raise ConfirmNeeded(
                f"This takes {ref.name} in {ref.zone} away from {run_id} in earnest: what it did since its last "
                "checkpoint is lost, and another machine is rented.",
                {"run_id": run_id, "machine": ref.name, "zone": ref.zone},
            )
        answer = self._strike("preempt", run_id, notice_s, caller)
        return {**answer, "notice_s": None if rented else notice_s}

    def kill(self, run_id: str, caller: Caller = LOCAL_CALLER) -> Json:
        """Everything on the machine is killed at once; no record is left."""
        return self._strike("kill", run_id, 0.0, caller)

    def freeze(self, run_id: str, caller: Caller = LOCAL_CALLER) -> Json:
        """The training stands still; the agent beside it goes on."""
        return self._strike("freeze", run_id, 0.0, caller)

    def stockout(self, zones: Sequence[str], for_s: float | None, caller: Caller = LOCAL_CALLER) -> Json:
        """These zones have no capacity for `for_s` seconds (None: until called again with 0). Raises InvalidRequest."""
        provider = self._provider_of(zones)
        try:
            self._disasters[provider].stockout(zones, for_s)
        except NotSupported as error:
            raise DevRefused(_sentence(error)) from None
        except ValueError:
            zone_names = self._zones(provider)
            text = f"Not every zone is one of the settings. Known: {', '.join(zone_names)}."
            raise InvalidRequest(text, {"known": zone_names}, [("#/zones", "unknown zone")]) from None
        text = f"{caller.actor} let {plural(len(zones), 'zone')} run out of machines."
        self._tell(None, text, {"done": "stockout", "zones": list(zones)[:TOLD], "for_s": for_s}, caller)
        return {"done": "stockout", "zones": list(zones), "for_s": for_s}

    def _provider_of(self, zones: Sequence[str]) -> str:
        """The first one that offers all these zones; where there is none, the first."""
        fits = (name for name in self._disasters if set(zones) <= set(self._zones(name)))
        return next(fits, next(iter(self._disasters)))

    def _zones(self, provider: str) -> list[str]:
        offers = self._parts.providers[provider].offers()
        return list(dict.fromkeys(offer.placement.zone for offer in offers))

    def _strike(self, what: str, run_id: str, notice_s: float, caller: Caller) -> Json:
        ref = self._machine(run_id, what)
        disasters = self._disasters[ref.provider]
        try:
            if what == "preempt":
                disasters.preempt(ref, notice_s)
            elif what == "kill":
                disasters.kill(ref)
            else:
                disasters.freeze(ref)
        except NotSupported as error:
            raise DevRefused(_sentence(error), {"run_id": run_id}) from None
        except MachineMissing as error:
            raise Conflict(f"The machine of {run_id} is gone already.", {"run_id": run_id}) from error
        except ProviderUnavailable as error:
            raise Unavailable(f"The machine of {run_id} cannot be read now. Try again.", {"run_id": run_id}) from error
        data = {"done": what, "machine": ref.name, "zone": ref.zone}
        text = f"{caller.actor} let {ref.name} in {ref.zone} be {DONE[what]}."
        self._tell(find_run(self._parts, run_id).key, text, data, caller)
        return {**data, "run_id": run_id}

    def _tell(self, key: int | None, text: str, data: Json, caller: Caller) -> None:
        event = caller.event(EventKind.DISASTER, text, data)
        self._parts.store.add_events(key, [event], self._parts.clock.now())

    def _machine(self, run_id: str, what: str) -> MachineRef:
        run = find_run(self._parts, run_id)
        traits = self._parts.traits(run.provider)
        if run.provider not in self._disasters or (traits.rented and what != "preempt"):
            raise DevRefused(
                f"{run_id} runs on {run.provider}; there a machine can be preempted at most, by its own supervisor.",
                {"run_id": run_id},
            )
        if run.cell != self._parts.cells[run.provider]:
            raise DevRefused(
                f"The machine of {run_id} belongs to another supervisor's {traits.place}. Ask that supervisor.",
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
