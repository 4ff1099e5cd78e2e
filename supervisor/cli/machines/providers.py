"""provider: where machines come from, what each provider can do, and whether its machines can be listed now.

zones: in which of their zones machines were available lately, and in which not.
"""

from __future__ import annotations

import time

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import NOT_FOUND, CliError
from supervisor.cli.machines.adding import add
from supervisor.cli.options import output_options
from supervisor.cli.output import Table, safe
from supervisor.cli.views.profile import profile_lines
from supervisor.wording.figures import DASH, duration, epoch, money


def _listing(provider: Json) -> str:
    """The age of the last complete listing, after what is wrong."""
    if provider["breaker"] is None:
        return "another supervisor leads"
    age_s = provider["listing_age_s"]
    text = "none yet" if age_s is None else f"{duration(age_s)} ago"
    if not provider["listing_read"]:
        text = f"unreadable; {text}"
    return f"breaker open; {text}" if provider["breaker"] == "open" else text


PROVIDERS = Table(
    "name",
    {
        "NAME": lambda provider: safe(provider["name"]),
        "KIND": lambda provider: safe(provider["kind"]),
        "TITLE": lambda provider: safe(provider["title"]),
        "ZONES": lambda provider: str(len(provider["places"])),
        "IMAGES": lambda provider: "yes" if provider["images"] else "no",
        "STORES": lambda provider: ", ".join(map(safe, provider["stores"])),
        "LISTING": _listing,
    },
    spare=("TITLE", "STORES"),
)


@click.group()
def provider() -> None:
    """Show the providers of the supervisor: where machines come from."""


provider.add_command(add)


@provider.command("list")
@output_options
def list_(client: Client, form: str) -> None:
    """List the providers, the first choice first. LISTING: the age of the last listing of their machines."""
    response = client.get("/v1/providers")
    PROVIDERS.show(response, response["providers"], form)


@provider.command()
@click.argument("name")
@output_options
def show(client: Client, form: str, name: str) -> None:
    """Show one provider: what it can do, what stops its bill, and what survives which end.

    Each value has its source and its day; -o json also says where it was read. "unknown": nobody has looked yet.
    """
    providers = client.get("/v1/providers")["providers"]
    chosen = next((listed for listed in providers if listed["name"] == name), None)
    if chosen is None:
        names = ", ".join(safe(listed["name"]) for listed in providers)
        text = f"There is no provider {safe(name)}. This supervisor has {names}."
        raise CliError(text, NOT_FOUND, "PROVIDER_UNKNOWN", ("spot provider list",))
    if not output.emit(chosen, [chosen], form, PROVIDERS.key):
        output.show(output.labeled(_facts(chosen)))
        for described in (part for part in (chosen, *chosen["places"]) if part.get("profile")):
            heading = [f"In {safe(described['zone'])}:"] if "zone" in described else []
            output.show(["", *heading, *profile_lines(described["profile"])])


def _facts(provider: Json) -> list[tuple[str, str]]:
    facts = [
        ("provider", f"{safe(provider['name'])} ({safe(provider['kind'])}): {safe(provider['title'])}"),
        ("listing", _listing(provider)),
        ("billing", safe(provider["meter"])),
        ("images", "commands run in a container image" if provider["images"] else "commands run without an image"),
        ("secrets", safe(provider["secrets"])),
        ("machines", "irreplaceable: you approve each release" if provider["irreplaceable"] else "replaceable"),
    ]
    facts += [("store", f"{safe(scheme)}: {safe(how)}") for scheme, how in provider["stores"].items()]
    for place in provider["places"]:
        shapes = ", ".join(map(safe, place["shapes"])) or DASH
        facts.append(("zone", f"{safe(place['zone'])} in {safe(place['region'])}: {shapes}"))
    return facts


def _state(zone: Json) -> str:
    until, refused = epoch(zone["cool_until"]), epoch(zone["last_stock_out_at"])
    if until is not None:
        return f"{safe(zone['state'])}, retry in {duration(max(0.0, until - time.time()))}"
    ago = "" if refused is None else f", no capacity {duration(max(0.0, time.time() - refused))} ago"
    return safe(zone["state"]) + ago


def _shape(zone: Json) -> str:
    gpu = f" ({safe(zone['gpu'])})" if zone.get("gpu") else ""
    return safe(zone["shape"]) + gpu + ("" if zone["spot"] else "  on-demand")


ZONES = Table(
    "zone",
    {
        "ZONE": lambda zone: safe(zone["zone"]),
        "SHAPE": _shape,
        "STATE": _state,
        "MACHINES": lambda zone: str(zone["machines"] or DASH),
        "LOST": lambda zone: str(zone["preemptions"] or DASH),
        "$/H": lambda zone: money(zone["price_usd_per_h"]),
        "WHY": lambda zone: safe(": ".join(part for part in (zone["cause"], zone["detail"]) if part)),
    },
)


@click.command()
@output_options
def zones(client: Client, form: str) -> None:
    """Show what is known of each zone: capacity, refusals and the time of the next retry, preempted machines."""
    response = client.get("/v1/zones")
    if ZONES.show(response, response["zones"], form):
        output.note(f"LOST: machines preempted within the last {duration(response['window_s'])}. No cloud was queried.")
