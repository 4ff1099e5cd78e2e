"""Machines on hosts by SSH: each host is a zone, and everything on it is done by one program there.

One probe of each host is a listing. A host that does not respond makes its own zone Unknown and nothing else. A lost
connection never ends a machine: the agent belongs to no connection. Only before a call is sent does a failure say that
nothing was started.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from supervisor.domain.machines import Capacity, Machine, MachineListing, MachineRef, MachineState, Offer
from supervisor.domain.profile import Fact, Profile, Source, Tier, day_of, merge, tier_of
from supervisor.machinefolder import secrets
from supervisor.machinefolder.observer import machine_of
from supervisor.machinefolder.provider import launch_values
from supervisor.ports.provider import (
    LaunchRejected,
    LaunchRequest,
    Meters,
    NoCapacity,
    NotSupported,
    ProviderUnavailable,
    SecretRefused,
)
from supervisor.ports.traits import Traits
from supervisor.providers.ssh.facts import Readings
from supervisor.providers.ssh.meters import SshMeters, with_meter
from supervisor.providers.ssh.presets import of_user, preset
from supervisor.providers.ssh.settings import RELAY, SshSettings, most_machines, offers
from supervisor.providers.ssh.traits import TRAITS
from supervisor.remote.connections import Connections, NotConnected
from supervisor.remote.hosts import Answer, Host, probe_all
from supervisor.remote.stays import HostRelay

SETTING = "ssh_gpus"
MIRROR = "HF_ENDPOINT"  # https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables

T = TypeVar("T")


class SshProvider:
    """Provider and Disasters of ports/provider.py. `name`: of its section in the settings. `agent()`: the archive."""

    traits: Traits = TRAITS

    def __init__(
        self,
        name: str,
        s: SshSettings,
        connections: Connections,
        agent: Callable[[], Path],
        *,
        meters: SshMeters,
        on: str,
        store_url: str,
    ) -> None:
        """`on`: the day of the settings, YYYY-MM-DD. `store_url`: of our object store."""
        self.name, self._settings, self._connections, self._on = name, s, connections, on
        self.meters: Meters | None = meters if meters.by_zone else None
        facts = {**s.ssh_facts, "store_reach": RELAY} if s.ssh_store == RELAY else s.ssh_facts
        self._base = merge(preset(s.ssh_preset), of_user(facts, on))
        self._offers = offers(name, s)
        self._hosts = {
            alias: Host(alias, connections, folder=s.ssh_folder, python=s.ssh_python, agent=agent)
            for alias in s.ssh_hosts
        }
        self._most = most_machines(s)
        self._probes: dict[str, Answer] = {}  # of the last listing that could read the host
        self._readings = Readings(connections, store_url, s.ssh_gpus)
        self._also_note: Callable[[str, Answer], None] = lambda zone, probe: None

    def profile(self, zone: str = "") -> Profile:
        base, probe = self._base, self._probes.get(zone)
        profile = base if probe is None else merge(base, _measured(base, probe))
        if zone in self._hosts:
            profile = self._readings.with_host(profile, zone, probe)
        return with_meter(profile, self._settings, [zone] if zone else self._settings.ssh_hosts, self._on)

    def pin(self, image: str) -> str:
        return ""

    def offers(self) -> tuple[Offer, ...]:
        return self._offers

    def gpus(self, shape: str) -> str:
        return ""  # only the driver's tools on the host know the type of its cards

    def launch(self, request: LaunchRequest) -> Machine:
        return self._begin("launch", request)

    def start(self, request: LaunchRequest, ref: MachineRef) -> Machine:
        return self._begin("start_again", request)

    def stop(self, ref: MachineRef) -> None:
        self._call(ref, "switch_off")

    def _begin(self, operation: str, request: LaunchRequest) -> Machine:
        if request.placement not in {offer.placement for offer in self._offers}:
            raise LaunchRejected(f"{request.placement.shape} on {request.placement.zone} is not in the settings")
        values, unreadable = self._secrets(request)
        call = {
            "launch": {**launch_values(request), "own_login": True, **self._by_profile(request)},
            "shape": request.placement.shape,
            "secrets": values,
            "most": self._most,
            **self._common(),
        }
        host = self._host(request.placement.zone)
        try:
            machine = machine_of(host.call(operation, call)["machine"])
            self._readings.prove_detached(request)
            return machine
        except LaunchRejected as error:
            raise unreadable or error from None
        except NotConnected as error:
            if request.repeated:  # an earlier call may have been sent
                raise ProviderUnavailable(str(error)) from None
            raise NoCapacity(str(error)) from None

    def machines(self) -> MachineListing:
        questions = {**self._common(), **self._readings.questions(self._probes)}
        answers = probe_all(tuple(self._hosts.values()), self._connections, **questions)
        good = {alias: answer for alias, answer in answers.items() if not isinstance(answer, str)}
        reasons = {alias: answer for alias, answer in answers.items() if isinstance(answer, str)}
        self._probes.update(self._readings.kept(good))
        for alias, answer in good.items():
            self._also_note(alias, answer)
        for alias, answer in good.items():
            for name, why in answer["unreadable"].items():
                reasons[alias] = f"the folder of {name} on {alias} cannot be read: {why}"
        machines = [machine_of(values) for answer in good.values() for values in answer["machines"]]
        zones = {alias: self._left(answer) for alias, answer in good.items()}
        own = frozenset(self._hosts)
        return MachineListing(tuple(machines), frozenset(reasons), Capacity(zones=zones), own, reasons)

    def find(self, ref: MachineRef) -> Machine | None:
        values = self._call(ref, "find")["machine"]
        return None if values is None else machine_of(values)

    def release(self, ref: MachineRef) -> None:
        self._call(ref, "release")

    def ask_to_stop(self, ref: MachineRef) -> None:
        self._call(ref, "stop")

    def console(self, ref: MachineRef, max_bytes: int = 65536) -> bytes:
        if max_bytes <= 0:
            return b""
        return _content(self._call(ref, "console", start=None, max_bytes=max_bytes))

    def console_after(self, ref: MachineRef, start: int, max_bytes: int) -> tuple[bytes, int]:
        """(bytes, the offset of the first); a negative start counts from the end. MachineMissing,
        ProviderUnavailable."""
        answer = self._call(ref, "console", start=start, max_bytes=max_bytes)
        return _content(answer), int(answer["start"])

    def check_secrets(self, references: Collection[str]) -> Mapping[str, str]:
        return {reference: secrets.problem(reference) for reference in references}

    def relay(self, supervisor_id: str, transfers: Connections) -> HostRelay:
        """The object stores on these hosts. They get the probe of each listing before that returns."""

        def watch(note: Callable[[str, Answer], None]) -> None:
            self._also_note = note

        hosts = {alias: host.over(transfers) for alias, host in self._hosts.items()}
        return HostRelay(hosts, supervisor_id, watch, transfers.end)

    # --- disasters ----------------------------------------------------------------------------------------------------

    def preempt(self, ref: MachineRef, notice_s: float) -> None:
        self._call(ref, "preempt", notice_s=notice_s)

    def kill(self, ref: MachineRef) -> None:
        self._call(ref, "kill")

    def freeze(self, ref: MachineRef) -> None:
        self._call(ref, "freeze")

    def stockout(self, zones: Sequence[str], for_s: float | None) -> None:
        raise NotSupported("a host by SSH has no stock-outs")

    # ------------------------------------------------------------------------------------------------------------------

    def _by_profile(self, request: LaunchRequest) -> dict[str, object]:
        """The fast disk of the host, and the mirror of the Hugging Face Hub where the hub itself is out of reach."""
        profile, env = self._base, dict[str, object](request.job.get("env") or {})  # type: ignore[call-overload]
        if profile.mirror.value:
            env.setdefault(MIRROR, profile.mirror.value)
        return {"local_nvme": profile.local_nvme.value or None, "env": env}

    def _secrets(self, request: LaunchRequest) -> tuple[Mapping[str, str] | None, SecretRefused | None]:
        """A machine that runs already needs them no more, so an unreadable one refuses only a start."""
        try:
            return secrets.read_all(request.secrets), None
        except SecretRefused as error:
            return None, error

    @property
    def hosts(self) -> tuple[Host, ...]:
        return tuple(self._hosts.values())

    def _common(self) -> dict[str, object]:
        return {"promised": self._settings.ssh_gpus, "setting": SETTING}

    def _host(self, zone: str) -> Host:
        host = self._hosts.get(zone)
        if host is None:  # removed from the settings, while a machine of ours may run there
            raise ProviderUnavailable(f"{zone} is not in ssh_hosts any more: add it again to reach its machines")
        return host

    def _call(self, ref: MachineRef, operation: str, **values: object) -> Answer:
        named = {"name": ref.name, "machine_id": ref.machine_id, **values}
        with _unavailable():
            return self._host(ref.zone).call(operation, {**named, **self._common()})

    def _left(self, answer: Answer) -> int:
        """How many more machines fit on this host."""
        living = sum(values["state"] not in (MachineState.ENDED, MachineState.ASKED) for values in answer["machines"])
        limits = [] if self._most is None else [self._most - living - len(answer["unreadable"])]
        needed = [count for count in self._settings.ssh_gpus.values() if count]
        if needed and answer["cards_left"] is not None:
            limits.append(answer["cards_left"] // min(needed))
        return max(0, min(limits, default=1))


def _measured(base: Profile, probe: Answer) -> Profile:
    """What the last probe saw: how processes stay there, and the disk of the home."""
    day = day_of(probe["at"])

    def fact(value: T, note: str) -> Fact[T]:
        return Fact(value, Source.MEASURED, day, note)

    home = tier_of(base, "~")
    disk = Tier(
        "" if home is None else home.name,
        bytes_cap=fact(int(probe["disk_bytes"]), "statvfs of the folder of machines"),
        inodes_cap=fact(int(probe["inodes"]), "statvfs of the folder of machines"),
    )
    scope = "a scope of the user's systemd" if probe["lingers"] else "a session of its own (setsid)"
    tiers = (disk,) if home is not None else ()
    return Profile(TRAITS.kind, "", detach=fact(scope, "the user lingers, or not (loginctl)"), tiers=tiers)


@contextmanager
def _unavailable() -> Iterator[None]:
    try:
        yield
    except NotConnected as error:
        raise ProviderUnavailable(str(error)) from None


def _content(answer: Answer) -> bytes:
    return str(answer["content"]).encode("utf-8", "surrogateescape")
