"""A provider under test, wrapped with what only its own test knows: how time passes, how to make a reading fail."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

from supervisor.contract.identifiers import request_id
from supervisor.domain.machines import Machine, MachineRef, MachineState
from supervisor.ports.provider import LaunchRequest, ProviderUnavailable


class Subject(ABC):
    """One provider under test."""

    provider: Any
    gpus: Mapping[str, str] = {}  # shape -> what its machines have, as the provider must say it

    def __init__(self) -> None:
        self.token = uuid4().hex[:8]  # machines of other tests on this computer are none of ours

    @abstractmethod
    def eventually(self, condition: Callable[[], Any], what: str) -> Any:
        """Let time pass until the condition holds; returns its value."""

    @abstractmethod
    def unreadable(self, request: LaunchRequest) -> AbstractContextManager[None]:
        """While this is open, the zone of this machine cannot be read."""

    @abstractmethod
    def all_unreadable(self) -> AbstractContextManager[None]:
        """While this is open, nothing can be read."""

    @abstractmethod
    def keep_secret(self, value: str) -> str:
        """A reference that leads to this value."""

    @abstractmethod
    def spoil_secret(self, reference: str, spoilt: bool = True) -> None:
        """From now on it cannot be read; `spoilt` False: it can again."""

    def looking_for_room(self, request: LaunchRequest, finds: bool) -> AbstractContextManager[None]:
        """While this context is open, the platform looks for capacity for some time, and then `finds` some or not."""
        raise NotImplementedError

    def request(
        self,
        run: str = "digits",
        attempt: int = 1,
        try_number: int = 1,
        zone: int = 0,
        supervisor_id: str = "supervisor-one",
    ) -> LaunchRequest:
        zones = list(dict.fromkeys(offer.placement.zone for offer in self.provider.offers()))
        placement = next(o.placement for o in self.provider.offers() if o.placement.zone == zones[zone])
        launch_id = f"1.{attempt}.{try_number}"
        return LaunchRequest(
            name=f"t{self.token}-{run}-a{attempt}-t{try_number}",
            request_id=request_id(supervisor_id, run, 1, attempt, try_number),
            placement=placement,
            supervisor_id=supervisor_id,
            run_id=run,
            launch_id=launch_id,
            machine_max_s=3600.0,
            job={"version": 1, "run_id": run, "launch_id": launch_id, "nonce": "secret-nonce"},
        )

    def kept(self, run: str = "digits", attempt: int = 1) -> LaunchRequest:
        """A request for a machine that is kept. A later attempt's names the machine of the first one."""
        request = self.request(run=run, attempt=attempt)
        name = self.request(run=run).name
        return replace(request, name=name, keep=True, job={**request.job, "keep_machine": True})

    def off(self, request: LaunchRequest) -> Machine:
        """Switch it off, and wait until it is."""
        self.provider.stop(ref(request))
        return self.eventually(
            lambda: (m := self.listed(request)) and m.state is MachineState.ENDED and m, "the machine to be off"
        )

    def up_again(self, request: LaunchRequest) -> Machine:
        """Start it again, and wait until it is up."""

        def is_up() -> Machine | None:
            with suppress(ProviderUnavailable):  # it is not off yet, or it takes longer than this call may
                self.provider.start(request, ref(request))
            machine = self.listed(request)
            return machine if machine is not None and machine.state is MachineState.UP else None

        return self.eventually(is_up, "the machine to be up again")

    def listed(self, request: LaunchRequest) -> Machine | None:
        return next((m for m in self.provider.machines().machines if m.name == request.name), None)

    def up(self, request: LaunchRequest) -> Machine:
        """Launch it and wait until it is up."""
        self.provider.launch(request)
        return self.eventually(
            lambda: (m := self.listed(request)) and m.state is MachineState.UP and m, "the machine to be up"
        )

    def gone(self, request: LaunchRequest) -> None:
        self.eventually(lambda: self.listed(request) is None, "the machine to be gone")


def ref(request: LaunchRequest, machine_id: str | None = None) -> MachineRef:
    placement = request.placement
    return MachineRef(placement.provider, placement.zone, request.name, machine_id)
