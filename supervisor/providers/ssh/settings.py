"""The settings of hosts by SSH: their names, their GPUs, and what they cost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import Finding
from supervisor.domain.machines import How
from supervisor.providers.ssh.traits import TRAITS
from supervisor.settings.kinds import StoreForm, need
from supervisor.settings.values import LARGEST_COUNT, Argv, Rules, check_keys, safe_address

if TYPE_CHECKING:
    from supervisor.domain.machines import Offer

STORE = StoreForm("file:///FOLDER", re.compile(r"file:///.*", re.DOTALL))
RULES = Rules(
    counts={"ssh_machines": (0, LARGEST_COUNT)},
    pairs={
        "ssh_gpus": "shape=cards pairs, such as l4=1,l4x2=2",
        "ssh_prices": "host=$/h pairs, such as gpu1=1.20,gpu2=0",
        "ssh_facts": "field=value pairs of the profile, such as local_nvme=/mnt/nvme,mirror=https://mirror.example",
        "ssh_meters": "pairs of a host and command, webhook, ask or none, such as gpu1=ask,gpu2=none",
    },
    texts={
        "ssh_prices": re.compile(r"\d{1,4}(\.\d{1,6})?"),
        "ssh_facts": re.compile(r"[^\s,]{1,200}"),
        "ssh_meters": re.compile("command|webhook|ask|none"),
    },
    empty=frozenset({"ssh_config", "ssh_known_hosts", "ssh_meter_webhook", "ssh_meter_secret"}),
)
NO_METER = "none"
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
FOLDER = re.compile(r"(~/)?[A-Za-z0-9._/-]{1,200}")  # it is a word of a remote command, which has no quotes
PYTHON = re.compile(r"[A-Za-z0-9._/~-]{1,200}")
NO_DAY = "2000-01-01"  # of facts that are only checked
RELAY = "relay"
STORES = ("direct", RELAY)
WHOLE_HOST = "host"  # the shape where the settings name no GPUs: all of the host


@dataclass(frozen=True, kw_only=True)
class SshSettings:
    """`ssh_hosts`: names of the SSH configuration, or host names; each is a zone. `ssh_gpus`: shape -> cards of each of
    its machines; empty = one machine has the whole host. `ssh_machines`: at once on each host; 0 = one, or as many as
    the cards of ssh_gpus allow. `ssh_prices`: host -> $/h. `ssh_folder`: of machines, on each host. `ssh_python`: 3.8
    or newer, on each host. `ssh_preset`: the rental that the hosts come from (presets/). `ssh_facts`: what the user
    knows of the hosts: field of the profile -> value. `ssh_store`: the hosts open the object store themselves (direct),
    or the supervisor copies it (relay). `ssh_config`, `ssh_known_hosts`: files; empty = those of the user.

    How the bill of a host is stopped: `ssh_meter_command` on the supervisor's computer, or a POST to
    `ssh_meter_webhook`, signed with `ssh_meter_secret` (env:NAME or file:/PATH); without both a person does it, where
    the hosts are from a rental. `ssh_meter_confirm`: a command that exits with 0 when the bill has ended. `{host}` and
    `{verb}` in their words are replaced. `ssh_meters`: host -> command, webhook, ask or none, where it differs."""

    ssh_hosts: tuple[str, ...] = ()
    ssh_gpus: Mapping[str, int] = field(default_factory=dict)
    ssh_machines: int = 0
    ssh_prices: Mapping[str, str] = field(default_factory=dict)
    ssh_folder: str = "~/.spot-machines"
    ssh_python: str = "python3"
    ssh_preset: str = "generic"
    ssh_facts: Mapping[str, str] = field(default_factory=dict)
    ssh_store: str = "direct"
    ssh_config: str = ""
    ssh_known_hosts: str = ""
    ssh_meters: Mapping[str, str] = field(default_factory=dict)
    ssh_meter_command: Argv = ()
    ssh_meter_webhook: str = ""
    ssh_meter_secret: str = ""
    ssh_meter_confirm: Argv = ()


def check(s: SshSettings) -> None:
    """Raises SettingsRefused."""
    from supervisor.providers.ssh import presets  # loads profiles, which few commands need

    check_keys("ssh_prices", s.ssh_prices, "ssh_hosts", s.ssh_hosts)
    for name, values, form, expected in (
        ("ssh_hosts", s.ssh_hosts, HOST, "a host name, or a name of the SSH configuration (which sets user and port)"),
        ("ssh_folder", (s.ssh_folder,), FOLDER, "a path of letters, digits, dots, hyphens and slashes"),
        ("ssh_python", (s.ssh_python,), PYTHON, "a program, such as python3 or /opt/conda/bin/python"),
    ):
        for value in values:
            if not form.fullmatch(value):
                raise SettingsRefused(f"{name} = {value}: expected {expected}", {"name": name})
    if s.ssh_store not in STORES:
        expected = "direct (the hosts open the object store) or relay (the supervisor copies it)"
        raise SettingsRefused(f"ssh_store = {s.ssh_store}: expected {expected}", {"name": "ssh_store"})
    if s.ssh_preset != SshSettings.ssh_preset and s.ssh_preset not in presets.names():
        expected = ", ".join(presets.names())
        raise SettingsRefused(f"ssh_preset = {s.ssh_preset}: expected one of {expected}", {"name": "ssh_preset"})
    try:
        presets.of_user(s.ssh_facts, NO_DAY)
    except presets.PresetInvalid as error:
        raise SettingsRefused(f"ssh_facts: {error}", {"name": "ssh_facts"}) from None
    _check_meters(s)


def _check_meters(s: SshSettings) -> None:
    check_keys("ssh_meters", s.ssh_meters, "ssh_hosts", s.ssh_hosts)
    if s.ssh_meter_webhook and safe_address(s.ssh_meter_webhook) is None:
        text = "ssh_meter_webhook: expected https://HOST/PATH, or http:// with a loopback address"
        raise SettingsRefused(text, {"name": "ssh_meter_webhook"})
    if s.ssh_meter_secret and not re.fullmatch(r"env:\w+|file:/.+", s.ssh_meter_secret):
        raise SettingsRefused("ssh_meter_secret: expected env:NAME or file:/PATH", {"name": "ssh_meter_secret"})
    needed = {How.COMMAND: "ssh_meter_command", How.WEBHOOK: "ssh_meter_webhook"}
    for host in s.ssh_hosts:
        name = needed.get(meter_of(s, host))  # type: ignore[arg-type]
        if name is not None and not getattr(s, name):
            text = f"ssh_meters: {host} = {s.ssh_meters[host]} needs {name}, and it is not set"
            raise SettingsRefused(text, {"name": name})


def meter_of(s: SshSettings, host: str) -> How | None:
    """How the bill of this host is stopped; None = the host costs nothing, or its bill is no business of ours."""
    if host in s.ssh_meters:
        return None if s.ssh_meters[host] == NO_METER else How(s.ssh_meters[host])
    if s.ssh_meter_command:
        return How.COMMAND
    if s.ssh_meter_webhook:
        return How.WEBHOOK
    return How.ASK if s.ssh_preset != SshSettings.ssh_preset else None


def complete(s: SshSettings) -> None:
    """Raises SettingsRefused."""
    need(TRAITS.kind, s, {"ssh_hosts": "gpu1,gpu2"})


def most_machines(s: SshSettings) -> int | None:
    """At once on each host; None = the cards limit them."""
    if s.ssh_machines:
        return s.ssh_machines
    return None if any(s.ssh_gpus.values()) else 1


def offers(name: str, s: SshSettings) -> tuple[Offer, ...]:
    """Every host of a shape, then the next shape. A host is neither spot nor on-demand: it serves both."""
    from supervisor.domain.machines import Offer, Placement

    usd_per_h = {host: float(price) for host, price in s.ssh_prices.items()}
    return tuple(
        Offer(
            Placement(name, TRAITS.kind, host, shape, spot), usd_per_h.get(host), usd_per_h.get(host), off_usd_per_h=0.0
        )
        for spot in (True, False)
        for shape in (s.ssh_gpus or (WHOLE_HOST,))
        for host in s.ssh_hosts
    )


def meaning(s: SshSettings, store_url: str, image: str) -> tuple[str, tuple[Finding, ...]]:
    """The settings in effect, in words."""
    relayed = ", from and to folders on the hosts" if s.ssh_store == RELAY else ""
    return f"machines are on {', '.join(s.ssh_hosts)}; objects in {store_url}{relayed}", ()
