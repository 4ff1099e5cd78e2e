"""change: other labels, limits, or zones of later attempts for a run that exists already.

The change is made to the run as it was read: where somebody was faster, it is read again, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import Problem
from supervisor.cli.finding import choose_run
from supervisor.cli.options import amount, duration_s, label_option, output_option, run_argument, server_options
from supervisor.cli.output import safe

DEFAULT = "default"
LIMITS: tuple[tuple[str, str, Callable[[str], object], str], ...] = (
    ("--budget", "budget_usd", amount, "Cost at most, in US dollars."),
    ("--deadline", "deadline", str, "When it must have ended: RFC 3339, such as 2030-01-31T08:00:00Z."),
    ("--max-runtime", "max_runtime_s", duration_s, "Training time at most (90s, 30m, 2h)."),
    ("--wait", "wait_for_capacity_s", duration_s, "How long to wait for capacity."),
    ("--max-attempts", "max_attempts", int, "Attempts that count (preemptions do not)."),
    ("--max-user-failures", "max_user_failures", int, "Failures of the command itself."),
)


def label_change(value: str) -> tuple[str, str | None]:
    """The type of `KEY=VALUE` and of `KEY-`, which takes the label away."""
    key, sign, text = value.partition("=")
    if sign and key:
        return key, text
    if not sign and value.endswith("-") and len(value) > 1:
        return value[:-1], None
    raise click.BadParameter(f"{value!r} is neither KEY=VALUE nor KEY-.")


def or_default(read: Callable[[str], object]) -> Callable[[str], tuple[object]]:
    """The value in a tuple, so that the default, which is None for the API, is not taken for "not given"."""

    def reading(value: str) -> tuple[object]:
        if value == DEFAULT:
            return (None,)
        try:
            return (read(value),)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a whole number.") from None

    return reading


def _limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for flag, name, read, help_text in reversed(LIMITS):
        option = click.option(flag, name, type=or_default(read), metavar="VALUE", help=help_text)
        command = option(command)
    return command


@click.command()
@run_argument
@label_option(label_change, "Set a label; KEY- takes it away.")
@click.option("--zone", multiple=True, help="Only these zones, in this order, for later attempts; `default`: all.")
@_limit_options
@output_option
@server_options
def change(
    client: Client,
    form: str,
    run_id: str | None,
    label: tuple[tuple[str, str | None], ...],
    zone: tuple[str, ...],
    **limits: tuple[object] | None,
) -> None:
    """Change labels, limits, or the zones of later attempts of a run. `default` gives a limit its default back.

    What is trained changes by a resume: spot resume RUN --spec FILE --replace-spec.
    """
    patch: Json = {}
    if label:
        patch["labels"] = dict(label)
    if zone:
        patch["zones"] = None if zone == (DEFAULT,) else list(zone)
    given = {name: value[0] for name, value in limits.items() if value is not None}
    if given:
        patch["limits"] = given
    if not patch:
        raise click.UsageError("Say what to change: --label, --zone, --budget, --deadline or another limit.")
    run = _changed(client, run_path(choose_run(client, run_id)), patch)
    for warning in run["warnings"]:
        output.note(f"warning: {safe(warning)}")
    if output.emit(run, [run], form, "run_id"):
        return
    click.echo(output.run_line(run))
    for name in run["before"]:
        click.echo(f"  {safe(name)}: {_shown(run['before'][name])} → {_shown(run['after'][name])}")
    if not run["before"]:
        click.echo("  It was so already: nothing was changed.")


def _changed(client: Client, path: str, patch: Json) -> Json:
    try:
        return _once(client, path, patch)
    except Problem as error:
        if error.code != "PRECONDITION_FAILED":
            raise
    return _once(client, path, patch)


def _once(client: Client, path: str, patch: Json) -> Json:
    tag = client.send("GET", path).headers.get("etag", "*")
    return dict(client.send("PATCH", path, body=patch, headers={"If-Match": tag}).json())


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(safe(part) for part in value) or "all"
    return f"{value:g}" if isinstance(value, float) else safe(value)
