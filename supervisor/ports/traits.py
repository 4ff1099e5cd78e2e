"""What the core may know of a provider without knowing its name.

Each provider declares its own traits. Whoever has to decide by the kind of machine asks them: no name of a provider,
and of no vendor, is compared anywhere. They hold for all machines of a provider, and never change while it is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecretKinds:
    """References of secrets that its machines can read. `prefixes`: how such a reference begins. `forms`: the
    references in words. `advice`: where to put a value that stood in a spec, as the end of a sentence."""

    prefixes: tuple[str, ...]
    forms: str
    advice: str

    def read(self, reference: str) -> bool:
        return reference.startswith(self.prefixes)


@dataclass(frozen=True, slots=True)
class Traits:
    """`kind`: the word of the list PROVIDERS. `title`: the place of the machines as a heading. `group`: the group of
    its lines in the doctor's report. `place`: what tells its machines from those of another supervisor, in words.

    `images`: commands run in a container image; False: on the machine as it is. `stores`: scheme of an object store ->
    how machines reach it, the usual one first. `job_max_bytes`: room for a packed spec beside its command; None = no
    limit. `launches_at_once`: create calls side by side. `shares_computer`: its machines are processes of the
    supervisor's computer: they see its files, its environment and its GPUs, and install no driver. `irreplaceable`:
    machines cannot be had back once released, so a person approves each release. `meter`: what stops the bill.

    Words for people, "" = there is nothing to say: `account_noun`: what its account is called (`project`). `tool`: how
    the platform's own program is told the account, `compare`: a question and what to compare where a person sees other
    machines there; both with {name} for the account. `log_service`: what keeps consoles of machines that are gone, and
    `log_keeps` of which. `price_setting`: the setting of prices.
    `removal`: the command that deletes one machine by hand, with {name}, {zone} and {account}."""

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

    @property
    def rented(self) -> bool:
        """A machine that is lost costs somebody money."""
        return not self.shares_computer
