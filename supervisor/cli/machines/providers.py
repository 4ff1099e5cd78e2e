"""provider: the places that machines come from, what each can do, and whether the supervisor can read it now."""

from __future__ import annotations

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import NOT_FOUND, CliError
from supervisor.cli.options import output_option, server_options
from supervisor.cli.output import safe
from supervisor.wording.figures import DASH, duration

SPARE = ("TITLE", "STORES")


@click.group()
def provider() -> None:
    """The providers of the supervisor: where machines come from."""


@provider.command("list", short_help="Show all providers, the first choice first.")
@output_option
@server_options
def list_(client: Client, form: str) -> None:
    """Show all providers in the order of preference, and how old the last listing of their machines is."""
    answer = client.get("/v1/providers")
    if output.emit(answer, answer["providers"], form, "name"):
        return
    output.show(output.table(PROVIDERS, answer["providers"], SPARE))


@provider.command(short_help="Show what one provider can do.")
@click.argument("name")
@output_option
@server_options
def show(client: Client, form: str, name: str) -> None:
    """Show what the provider NAME can do, its zones and shapes, and whether its machines can be read now."""
    answer = client.get("/v1/providers")["providers"]
    chosen = next((each for each in answer if each["name"] == name), None)
    if chosen is None:
        names = ", ".join(safe(each["name"]) for each in answer)
        raise CliError(
            f"There is no provider {safe(name)}; this supervisor has {names}.",
            NOT_FOUND,
            "PROVIDER_UNKNOWN",
            ("spot provider list",),
        )
    if output.emit(chosen, [chosen], form, "name"):
        return
    facts = _facts(chosen)
    width = max(map(len, (title for title, _ in facts)))
    for title, text in facts:
        click.echo(f"{title:<{width}}  {text}")


def _listing(each: Json) -> str:
    """How old the last complete listing is; what is wrong comes first."""
    if each["breaker"] is None:
        return "another supervisor leads"
    age_s = each["listing_age_s"]
    text = "none yet" if age_s is None else f"{duration(age_s)} ago"
    if not each["listing_read"]:
        text = f"cannot be read; {text}"
    return f"breaker open; {text}" if each["breaker"] == "open" else text


PROVIDERS: output.Table = {
    "NAME": lambda each: safe(each["name"]),
    "KIND": lambda each: safe(each["kind"]),
    "TITLE": lambda each: safe(each["title"]),
    "ZONES": lambda each: str(len(each["places"])),
    "IMAGES": lambda each: "yes" if each["images"] else "no",
    "STORES": lambda each: ", ".join(map(safe, each["stores"])),
    "LISTING": _listing,
}


def _facts(each: Json) -> list[tuple[str, str]]:
    facts = [
        ("provider", f"{safe(each['name'])} ({safe(each['kind'])}): {safe(each['title'])}"),
        ("listing", _listing(each)),
        ("meter", safe(each["meter"])),
        ("images", "commands run in a container image" if each["images"] else "commands run as they are"),
        ("secrets", safe(each["secrets"])),
        ("machines", "cannot be had back: each release is approved" if each["irreplaceable"] else "replaceable"),
    ]
    facts += [("store", f"{safe(scheme)}: {safe(how)}") for scheme, how in each["stores"].items()]
    for place in each["places"]:
        shapes = ", ".join(map(safe, place["shapes"])) or DASH
        facts.append(("place", f"{safe(place['zone'])} in {safe(place['region'])}: {shapes}"))
    return facts
