"""What the core may know about a provider without its name.

Each provider declares its traits. Code that depends on the kind of machine reads them: it never compares the name of a
provider or a vendor. They are the same for all machines of a provider, and constant while it is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecretKinds:
    """References to secrets that its machines can read. `prefixes`: the begin of such a reference. `forms`: the
    references in words. `advice`: where to store a value that was in a spec, as the end of a sentence."""

    prefixes: tuple[str, ...]
    forms: str
    advice: str

    def read(self, reference: str) -> bool:
        return reference.startswith(self.prefixes)


@dataclass(frozen=True, slots=True)
class Traits:
    """`kind`: the key in PROVIDERS. `title`: a heading for its machines. `group`: of its lines in the doctor's report.
    `place`: in words, what separates its machines from the machines of another supervisor.

    `images`: commands run in a container image; False: directly on the machine. `stores`: scheme of an object store ->
    how machines access it, the default first. `job_max_bytes`: the limit for a packed spec beside its command; None =
    no limit. `launches_at_once`: concurrent create calls. `shares_computer`: its machines are processes of the
    supervisor's computer, with its files, environment and GPUs, and install no driver. `irreplaceable`: a released
    machine cannot be recreated, so a person approves each release. `relaunches`: an agent can be started again after a
    reboot of its machine, without the supervisor. `memory_grows`: the machine after one that ran out of memory has
    more. `keeps`: its machines can be switched off, and started again with their disks (KeepsMachines of
    ports/provider.py). `warning_s`: its machines are warned at least so long before their end, and the next one earlier
    where saves take longer, or where a time limit has cut one off; 0 = that does not change. `code_max_bytes`: of a
    code bundle as it is stored, None = no limit. `network` False: its machines download nothing. `meter`: what stops
    the bill. `races`: it bills by the second and deletes a machine at once, so two may be requested where one is
    needed.

    Texts for people, "" = none: `account_noun`: the noun for its account (`project`). `tool`: the option that gives the
    account to the platform's own program; `compare`: a question and what to compare when a person sees other machines
    there; both with {name} for the account. `log_service`: the service that keeps the consoles of machines that are
    gone, `log_keeps`: of which machines. `price_setting`: the setting of prices. `removal`: the command that deletes
    one machine by hand, with {name}, {zone} and {account}."""

    kind: str
    title: str
    group: str
    place: str
    images: bool
    secrets: SecretKinds
    stores: Mapping[str, str]
    job_max_bytes: int | None
    launches_at_once: int
    shares_computer: bool
    irreplaceable: bool
    meter: str
    account_noun: str = ""
    tool: str = ""
    compare: str = ""
    log_service: str = ""
    log_keeps: str = ""
    price_setting: str = ""
    removal: str = ""
    relaunches: bool = False
    memory_grows: bool = False
    warning_s: float = 0.0
    keeps: bool = False
    code_max_bytes: int | None = None
    network: bool = True
    races: bool = False

    @property
    def rented(self) -> bool:
        """A forgotten machine costs money."""
        return not self.shares_computer
