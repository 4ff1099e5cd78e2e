"""change: other labels, limits, zones of later attempts, or another place in the queue, for an existing run.

The request names the version of the run that was read. After a change by another user the run is read again, once. With
--group every live run of a group is changed, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, pages, run_path
from supervisor.cli.exits import FAILED, Problem
from supervisor.cli.finding import choose_run
from supervisor.cli.options import (
    add_options,
    duration_s,
    label_option,
    not_empty,
    output_options,
    run_argument,
    yes_option,
)
from supervisor.cli.output import confirm, note, safe
from supervisor.cli.runs.submit_options import LIMITS
from supervisor.domain.status import ACTIVE
from supervisor.wording.figures import plural

DEFAULT = "default"
QUEUE = ("max_parallel", "priority", "min_run_s")  # fields of the spec; the other numbers are limits
GROUP_MOST = 100_000  # runs of a group


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
@click.option("--max-parallel", type=or_default(int), metavar="N", help="Runs of its group with a machine at once.")
@click.option("--priority", type=or_default(int), metavar="N", help="The highest gets the next machine (-100 to 100).")
@click.option(
    "--min-run",
    "min_run_s",
    type=or_default(duration_s),
    metavar="TIME",
    help="Train so long before it yields to a higher priority.",
)
@click.option(
    "--after", multiple=True, metavar="RUN", help="Start when this run is completed; `default`: wait for none."
)
@_limit_options
@click.option("--group", metavar="NAME", callback=not_empty, help="Every live run of this group, instead of one run.")
@yes_option()
@output_options
def change(
    *,
    client: Client,
    form: str,
    run_id: str | None,
    label: tuple[tuple[str, str | None], ...],
    zone: tuple[str, ...],
    after: tuple[str, ...],
    group: str | None,
    yes: bool,
    **numbers: tuple[object] | None,
) -> None:
    """Change labels, limits, the zones of later attempts, or what a run waits for. The value `default` restores the
    default of a limit.

    A resume changes the other fields of the spec: spot resume RUN --spec FILE --replace-spec
    """
    patch = _patch(label, zone, after, numbers)
    if not patch:
        raise click.UsageError("Name a change: --label, --zone, --budget, --deadline or another limit.")
    if group is not None:
        if run_id is not None:
            raise click.UsageError(f"Name {run_id} or use --group, not both.")
        _change_group(client, group, patch, form, yes)
        return
    run = _changed(client, run_path(choose_run(client, run_id)), patch)
    output.show_warnings(run["warnings"])
    if output.emit(run, [run], form, "run_id"):
        return
    click.echo(output.run_line(run))
    for name in run["before"]:
        click.echo(f"  {safe(name)}: {_shown(run['before'][name])} → {_shown(run['after'][name])}")
    if not run["before"]:
        click.echo("  Nothing changed: these are its values already.")


def _patch(
    label: tuple[tuple[str, str | None], ...],
    zone: tuple[str, ...],
    after: tuple[str, ...],
    numbers: Mapping[str, tuple[object] | None],
) -> Json:
    patch: Json = {}
    if label:
        patch["labels"] = dict(label)
    if zone:
        patch["zones"] = None if zone == (DEFAULT,) else list(zone)
    new_numbers = {name: value[0] for name, value in numbers.items() if value is not None}
    patch |= {name: new_numbers.pop(name) for name in QUEUE if name in new_numbers}
    if new_numbers:
        patch["limits"] = {name.removeprefix("limits_"): value for name, value in new_numbers.items()}
    if after:
        patch["after"] = None if after == (DEFAULT,) else list(after)
    return patch


def _change_group(client: Client, group: str, patch: Json, form: str, yes: bool) -> None:
    """Raises Abort at a no, Exit where a run refuses."""
    listing = pages(client, "/v1/runs", "runs", GROUP_MOST, group=group, status=sorted(ACTIVE), sort="created")
    names = [run["run_id"] for page in listing for run in page["runs"]]
    if names:
        confirm(f"Change {plural(len(names), 'live run')} of group {group}?", yes)
    else:
        note(f"No run of group {safe(group)} is live.")
    changed, refused = [], 0
    for name in names:
        try:
            changed.append(_changed(client, run_path(name), patch))
        except Problem as error:
            if error.status not in (404, 409, 422):
                raise
            refused += 1
            note(f"{safe(name)}: {safe(error.text)}     ({safe(error.code)})")
    if not output.emit({"runs": changed}, changed, form, "run_id") and names:
        same = sum(not run["before"] for run in changed)
        click.echo(f"change: {plural(len(changed) - same, 'run')}, {same} unchanged.")
    if refused:
        raise click.exceptions.Exit(FAILED)


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
