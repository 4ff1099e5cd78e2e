"""change: other labels, limits, or zones of later attempts for an existing run.

The request names the version of the run that was read. After a change by another user the run is read again, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import Problem
from supervisor.cli.finding import choose_run
from supervisor.cli.options import add_options, label_option, output_options, run_argument
from supervisor.cli.output import safe
from supervisor.cli.runs.submit_options import LIMITS

DEFAULT = "default"


def label_change(value: str) -> tuple[str, str | None]:
    """The type of `KEY=VALUE`, and of `KEY-`, which removes the label."""
    key, sign, text = value.partition("=")
    if sign and key:
        return key, text
    if not sign and value.endswith("-") and len(value) > 1:
        return value[:-1], None
    raise click.BadParameter(f"{value!r} is neither KEY=VALUE nor KEY-.")


def or_default(read: Callable[[str], object]) -> Callable[[str], tuple[object]]:
    """The value in a tuple: (None,) is the default of the API, None an option that was not given."""

    def reading(value: str) -> tuple[object]:
        if value == DEFAULT:
            return (None,)
        try:
            return (read(value),)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a whole number.") from None

    return reading


def _limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (limit.decorator(type=or_default(limit.settings.get("type", str))) for limit in LIMITS)
    return add_options(command, *options)


@click.command()
@run_argument
@label_option(label_change, "Set a label; KEY- removes it.")
@click.option(
    "--zone", multiple=True, metavar="ZONE", help="Only these zones, in this order, for later attempts; `default`: all."
)
@_limit_options
@output_options
def change(
    client: Client,
    form: str,
    run_id: str | None,
    label: tuple[tuple[str, str | None], ...],
    zone: tuple[str, ...],
    **limits: tuple[object] | None,
) -> None:
    """Change labels, limits, or the zones of later attempts. The value `default` restores the default of a limit.

    A resume changes the other fields of the spec: spot resume RUN --spec FILE --replace-spec
    """
    patch: Json = {}
    if label:
        patch["labels"] = dict(label)
    if zone:
        patch["zones"] = None if zone == (DEFAULT,) else list(zone)
    new_limits = {name.removeprefix("limits_"): value[0] for name, value in limits.items() if value is not None}
    if new_limits:
        patch["limits"] = new_limits
    if not patch:
        raise click.UsageError("Name a change: --label, --zone, --budget, --deadline or another limit.")
    run = _changed(client, run_path(choose_run(client, run_id)), patch)
    output.show_warnings(run["warnings"])
    if output.emit(run, [run], form, "run_id"):
        return
    click.echo(output.run_line(run))
    for name in run["before"]:
        click.echo(f"  {safe(name)}: {_shown(run['before'][name])} → {_shown(run['after'][name])}")
    if not run["before"]:
        click.echo("  Nothing changed: these are its values already.")


def _changed(client: Client, path: str, patch: Json) -> Json:
    for last in (False, True):
        tag = client.send("GET", path).headers.get("etag", "*")
        try:
            return dict(client.send("PATCH", path, body=patch, headers={"If-Match": tag}).json())
        except Problem as error:
            if last or error.code != "PRECONDITION_FAILED":
                raise
    raise AssertionError("the last pass returns or raises")


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(map(safe, value)) or "all"
    return f"{value:g}" if isinstance(value, float) else safe(value)
