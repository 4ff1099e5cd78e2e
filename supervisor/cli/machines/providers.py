"""provider: where machines come from, what each provider can do, and whether its machines can be listed now.

A new section of the settings file is checked as a start would, before it is written; the file keeps everything that is
in it. Where it names no provider yet, machines on this computer get a section of their own first: without one they
would no longer be offered.

zones: in which of their zones machines were available lately, and in which not.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import FAILED, NOT_FOUND, USAGE, CliError
from supervisor.cli.options import output_options
from supervisor.cli.output import Table, safe
from supervisor.cli.views.profile import other_lines, profile_lines
from supervisor.wiring import settings as wired
from supervisor.wording.figures import DASH, duration, epoch, money

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
SECTION = re.compile(r"^\s*\[providers\.", re.MULTILINE)
LONE = re.compile(r"^\s*provider\s*=", re.MULTILINE)


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
        general = chosen.get("profile")
        output.show([*output.labeled(_facts(chosen)), *(["", *profile_lines(general)] if general else [])])
        for place in (place for place in chosen["places"] if place.get("profile")):
            others = other_lines(place["profile"], general)
            output.show(["", f"In {safe(place['zone'])}, where that differs:", *others] if others else [])


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


@provider.command()
@click.argument("name")
@click.option("--kind", required=True, metavar="KIND", help="The kind of provider, as in `spot provider list`.")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="A host; repeatable, the first choice first.")
@click.option("--set", "values", multiple=True, metavar="KEY=VALUE", help="A setting of the section; repeatable.")
@click.option("--config", "file", envvar="SPOT_CONFIG", metavar="FILE", help="The settings file (SPOT_CONFIG).")
def add(name: str, kind: str, hosts: tuple[str, ...], values: tuple[str, ...], file: str | None) -> None:
    """Write the section of provider NAME into the settings file. The supervisor reads it at its next start.

    \b
      spot provider add lab --kind ssh --host gpu1 --host gpu2 --config spot.toml
    """
    if not NAME.fullmatch(name):
        raise CliError(f"{safe(name)} is not a name: use lower-case letters, digits and dashes.", USAGE, "USAGE")
    if file is None:
        hints = (f"spot provider add {name} --kind {kind} --config spot.toml",)
        raise CliError("Name the settings file with --config, or set SPOT_CONFIG.", USAGE, "USAGE", hints)
    path = Path(file)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    after = before + _section(before, name, kind, hosts, values)
    _check(after, path)
    _replace(path, after)
    output.note(
        f"{safe(str(path))} has [providers.{name}] now. It counts from the next start: SPOT_CONFIG={safe(file)} spot up"
    )
    if not SECTION.search(before) and kind != wired.DEFAULT_KIND:
        output.note(f"[providers.{wired.DEFAULT_KIND}] comes first: a run without --provider {name} trains there.")


def _section(before: str, name: str, kind: str, hosts: Sequence[str], values: Sequence[str]) -> str:
    if f"[providers.{name}]" in before:
        raise CliError(f"The settings file has [providers.{name}] already: change it there.", FAILED, "PROVIDER_EXISTS")
    if LONE.search(before):
        text = "The settings file names one `provider`. Make it a section first, as docs/settings.md shows."
        raise CliError(text, FAILED, "PROVIDER_EXISTS")
    lines = [] if not before or before.endswith("\n") else [""]
    default = wired.DEFAULT_KIND
    if not SECTION.search(before) and kind != default:
        lines += ["", f"[providers.{default}]", f"kind = {json.dumps(default)}"]
    lines += ["", f"[providers.{name}]", f"kind = {json.dumps(kind)}"]
    if hosts:
        lines.append(f"hosts = {json.dumps(list(hosts))}")
    for pair in values:
        key, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"[a-z0-9_]+", key):
            raise CliError(f"--set {safe(pair)}: expected KEY=VALUE, such as machines=2.", USAGE, "USAGE")
        lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join([*lines, ""]).removeprefix("\n" if not before else "")


def _check(text: str, path: Path) -> None:
    """Read the settings as a start would. Raises SettingsRefused, with the name of the setting."""
    with tempfile.TemporaryDirectory(prefix="spot-settings-") as folder:
        draft = Path(folder) / path.name
        draft.write_text(text, encoding="utf-8")
        wired.load({}, file=str(draft), env_file=os.environ.get("SPOT_ENV_FILE"))


def _replace(path: Path, text: str) -> None:
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.absolute().parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as target:
        target.write(text)
    if path.exists():
        os.chmod(draft, path.stat().st_mode & 0o777)
    os.replace(draft, path)


def _state(zone: Json) -> str:
    lost, until, refused = map(epoch, (zone.get("no_contact_since"), zone["cool_until"], zone["last_stock_out_at"]))
    if lost is not None:
        return f"no contact for {duration(max(0.0, time.time() - lost))}"
    if until is not None:
        return f"{safe(zone['state'])}, retry in {duration(max(0.0, until - time.time()))}"
    ago = "" if refused is None else f", no capacity {duration(max(0.0, time.time() - refused))} ago"
    return safe(zone["state"]) + ago


def _shape(zone: Json) -> str:
    gpu = f" ({safe(zone['gpu'])})" if zone.get("gpu") else ""
    return safe(zone["shape"]) + gpu + ("" if zone["spot"] else f"  {safe(zone.get('market') or 'on-demand')}")


def _lives(zone: Json) -> str:
    """Lost machines of all machines there; an older server does not send them."""
    return f"{zone['lives_lost']} of {zone['lives']}" if zone.get("lives") else DASH


ZONES = Table(
    "zone",
    {
        "ZONE": lambda zone: safe(zone["zone"]),
        "SHAPE": _shape,
        "STATE": _state,
        "MACHINES": lambda zone: str(zone["machines"] or DASH),
        "LOST": lambda zone: str(zone["preemptions"] or DASH),
        "LIVES": _lives,
        "BACK": lambda zone: DASH if zone.get("returns_after_s") is None else duration(zone["returns_after_s"]),
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
        output.note(
            f"LOST: machines preempted within the last {duration(response['window_s'])}. LIVES: preempted machines of "
            "all that runs had there. BACK: when a zone that refused usually has capacity again. No cloud was queried."
        )
