"""Machines that are a folder and the processes of one agent each, on the computer where the supervisor runs.

The machines themselves are those of supervisor/host. This provider speaks of them in the words of its port, limits
their number, and gives each agent the environment and the secrets of this computer.

A provider of such machines subclasses this class with its name, traits and profile, and with an admission of its own
where more than the number of machines is limited.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from supervisor.domain.machines import Machine, MachineListing, MachineRef, Offer
from supervisor.host import refusals
from supervisor.host.folders import Folder, Folders
from supervisor.host.inspector import Inspection
from supervisor.host.machines import DEAD_KEPT_S, Machines
from supervisor.host.machines import Admission as HostAdmission
from supervisor.host.starting import Agents, Start
from supervisor.machinefolder import secrets
from supervisor.machinefolder.capacity import Admission, MachineLimits, Stockouts
from supervisor.machinefolder.observer import Observer, as_unavailable
from supervisor.ports.clock import Clock
from supervisor.ports.provider import (
    CapacityInUse,
    LaunchRejected,
    LaunchRequest,
    MachineMissing,
    Meters,
    NoCapacity,
    ProviderUnavailable,
)
from supervisor.ports.traits import Traits


class FolderProvider:
    """Provider and Disasters of ports/provider.py. `data_dir`: of the supervisor; `agent`: the zipapp that is copied
    into each machine's folder; `capacity`: machines at once by zone, absent or None = no limit; `most`: machines at
    once in total, None = no limit. A subclass has `name`, `traits` and `profile`; the folder of its own files has the
    name of its kind."""

    name: str
    traits: Traits
    meters: Meters | None = None

    def __init__(
        self,
        data_dir: Path,
        offers: Sequence[Offer],
        capacity: Mapping[str, int | None],
        *,
        agent: Path,
        clock: Clock,
        dead_kept_s: float = DEAD_KEPT_S,
        most: int | None = None,
    ) -> None:
        self._folders = Folders(data_dir.resolve(), self.traits.kind)
        self._offers = tuple(offers)
        self.agent = agent
        self._clock = clock
        self._agents = Agents(sys.executable)
        self._machines = Machines(self._folders, self._agents, clock.now, keep=self._keep, dead_kept_s=dead_kept_s)
        self._observer = Observer(self._machines, frozenset(o.placement.zone for o in self._offers))
        self._limits = MachineLimits(
            offers=self._offers,
            capacity=capacity,
            most=most,
            stockouts=Stockouts(self._folders.own / "stockouts.json"),
            observer=self._observer,
            clock=clock,
        )
        self._admission: Admission = self._limits
        self._secret_names: set[str] = set()

    def scope(self, before: Callable[[], str] = lambda: "") -> str:
        """This provider sees the machines of its data folder, also after a move. `before`: as in Folders.scope."""
        with as_unavailable("the name of this set of machines"):
            return self._folders.scope(before)

    def pin(self, image: str) -> str:
        return ""

    def offers(self) -> tuple[Offer, ...]:
        return self._offers

    def gpus(self, shape: str) -> str:
        return ""  # only the tools of the driver know the type of the cards, and this method must not call them

    def launch(self, request: LaunchRequest) -> Machine:
        with _in_words_of_the_port(f"launch of {request.name}"):
            return self._begun(request, self._machines.launch)

    def start(self, request: LaunchRequest, ref: MachineRef) -> Machine:
        """As KeepsMachines of ports/provider.py, for a subclass whose traits say that it keeps machines."""
        with _in_words_of_the_port(f"start of {request.name}"):
            return self._begun(request, self._machines.start_again)

    def stop(self, ref: MachineRef) -> None:
        with _in_words_of_the_port(f"stop of {ref.name}"):
            self._machines.switch_off(ref.name, ref.machine_id)

    def _begun(self, request: LaunchRequest, begin: Callable[..., Inspection]) -> Machine:
        placement = request.placement
        admission = HostAdmission(
            partial(self._admission.admit, placement), lambda folder, job: self._admission.renew(folder, job, placement)
        )
        values = launch_values(request)
        setup = values.get("setup")
        if isinstance(setup, dict):  # all machines here are this computer, which a setup prepares once
            values["setup"] = {**setup, "folder": str(self._folders.own / "setup")}
        return self._observer.seen(begin(values, self.agent, admission, partial(self._start, request)))

    def machines(self) -> MachineListing:
        with as_unavailable("the list of machines"):
            survey = self._observer.survey()
            self._observer.log_unreadable(survey)
            self._machines.archive_old(survey.folders.over)
            return self._admission.listing(survey)

    def find(self, ref: MachineRef) -> Machine | None:
        with as_unavailable(f"machine {ref.name}"):
            machine = self._machines.find(ref.name, ref.machine_id)
            return None if machine is None else self._observer.seen(machine)

    def release(self, ref: MachineRef) -> None:
        with _in_words_of_the_port(f"release of {ref.name}"):
            self._machines.release(ref.name, ref.machine_id)

    def ask_to_stop(self, ref: MachineRef) -> None:
        with as_unavailable(f"stop of {ref.name}"):
            self._machines.ask_to_stop(ref.name, ref.machine_id)

    def console(self, ref: MachineRef, max_bytes: int = 65536) -> bytes:
        with as_unavailable(f"console of {ref.name}"):
            return self._folders.console(ref.name, max_bytes) if max_bytes > 0 else b""

    def console_after(self, ref: MachineRef, start: int, max_bytes: int) -> tuple[bytes, int]:
        """(bytes, the offset of the first); a negative start counts from the end. Raises MachineMissing,
        ProviderUnavailable."""
        with _in_words_of_the_port(f"console of {ref.name}"):
            return self._machines.existing(ref.name, ref.machine_id).console_after(start, max_bytes)

    def check_secrets(self, references: Collection[str]) -> Mapping[str, str]:
        return {reference: secrets.problem(reference) for reference in references}

    # --- disasters ----------------------------------------------------------------------------------------------------

    def preempt(self, ref: MachineRef, notice_s: float) -> None:
        with _in_words_of_the_port(f"preemption of {ref.name}"):
            folder = self._machines.existing(ref.name, ref.machine_id)
            notice = self._machines.notice(folder, notice_s)
            if notice_s <= 0:
                self._machines.inspect(folder)
            else:
                self._observer.watch(folder.name, notice.deadline_boottime_s)

    def kill(self, ref: MachineRef) -> None:
        with _in_words_of_the_port(f"kill of {ref.name}"):
            self._machines.kill(ref.name, ref.machine_id)

    def freeze(self, ref: MachineRef) -> None:
        with _in_words_of_the_port(f"freeze of {ref.name}"):
            self._machines.freeze(ref.name, ref.machine_id)

    def stockout(self, zones: Sequence[str], for_s: float | None) -> None:
        unknown = set(zones) - self._observer.zones()
        if unknown:
            raise ValueError(f"no such zone: {', '.join(sorted(unknown))}")
        with as_unavailable("stock-out"), self._folders.locked():
            self._limits.stockouts.set(zones, for_s, self._clock.now())

    def _keep(self, folder: Folder) -> None:
        self._admission.keep(folder)

    def _start(self, request: LaunchRequest) -> Start:
        """The environment of this service without its secrets, and the secrets of the run. SecretRefused."""
        # From now on no other run inherits these variables either.
        self._secret_names |= secrets.variables(request.secrets.values())
        environment = secrets.without_secrets(os.environ, self._secret_names)
        return Start(environment, secrets.read_all(request.secrets))


def launch_values(request: LaunchRequest) -> dict[str, object]:
    """The job.json of this machine, before its cards are known."""
    return {
        **request.job,
        "name": request.name,
        "zone": request.placement.zone,
        "supervisor_id": request.supervisor_id,
        "run_id": request.run_id,
        "launch_id": request.launch_id,
    }


@contextmanager
def _in_words_of_the_port(what: str) -> Iterator[None]:
    """As `as_unavailable`, for calls with definite refusals."""
    try:
        with as_unavailable(what):
            yield
    except refusals.Refused as error:
        raise LaunchRejected(str(error)) from error.__cause__
    except refusals.NoCapacity as error:
        raise NoCapacity(str(error)) from None
    except refusals.InUse as error:
        raise CapacityInUse(str(error)) from None
    except refusals.Missing as error:
        raise MachineMissing(str(error)) from None
    except refusals.Unfinished as error:
        raise ProviderUnavailable(str(error)) from None
