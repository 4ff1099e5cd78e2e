"""config show: every setting, its value, and where that value comes from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from supervisor.cli.output import note, terminal_columns
from supervisor.cli.server.server import settings_options
from supervisor.cli.words import json_text
from supervisor.settings import alerts as settings_alerts
from supervisor.settings import loading as settings_of
from supervisor.settings.loading import Settings

VALUE_ROOM = 21  # so that a line of 80 columns shows what stands behind a value
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*@")


@click.group()
def config() -> None:
    """The settings of the supervisor."""


@config.command()
@settings_options
@click.option("--origin", is_flag=True, help="Also show where each value comes from.")
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table")
def show(origin: bool, form: str, file: str | None, env_file: str | None, **flags: str | None) -> None:
    """Show every setting as `spot serve` would see it here and now."""
    known = settings_of.load(flags, file=file, env_file=env_file)
    for warning in known.warnings:
        note(f"warning: {warning}")
    values = {name: _shown(known, name) for name in settings_of.FIELDS}
    if form == "json":
        rows = {name: {"value": value, "origin": known.origins[name]} for name, value in values.items()}
        click.echo(json_text(rows if origin else values, 2))
        return
    table = [("SETTING", "VALUE", "ORIGIN" if origin else "ENVIRONMENT")]
    for name, value in values.items():
        table.append((name, _text(value), known.origins[name] if origin else settings_of.env_name(name)))
    for line in _lines(table):
        click.echo(line)


def _lines(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """At a terminal a value that is longer than most pushes only its own line: it is never cut, and the others keep
    what stands behind them."""
    room = None if terminal_columns() is None else VALUE_ROOM
    first = max(len(name) for name, _, _ in rows)
    second = max(len(value) for _, value, _ in rows if room is None or len(value) <= room)
    return [f"{name:<{first}}  {value:<{second}}  {told}" for name, value, told in rows]


def _shown(known: Settings, name: str) -> object:
    """A JSON value; a password in a URL is left out, and so is what is a credential as a whole."""
    value = getattr(known, name)
    if isinstance(value, Path):
        return str(value)
    if name in settings_alerts.SECRET:
        return settings_alerts.shown(name, value)
    if name.endswith("_url"):
        return _PASSWORD.sub(r"\1:***@", value)
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, dict) else value


def _text(value: object) -> str:
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ",".join(str(part) for part in value)
    if isinstance(value, dict):
        return ",".join(f"{key}={_pair(part)}" for key, part in value.items()) or "none"
    return str(value)


def _pair(part: object) -> str:
    return "/".join(f"{number:g}" for number in part) if isinstance(part, tuple | list) else str(part)
