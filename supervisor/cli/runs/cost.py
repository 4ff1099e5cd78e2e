"""cost: what runs have cost so far, and what their files cost to keep; purge deletes all files of a run.

A purge needs the run's name typed once more.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, pages, run_path
from supervisor.cli.exits import CONFLICT, FAILED, USAGE, CliError, Unreachable
from supervisor.cli.finding import TERMINAL
from supervisor.cli.options import list_filters, not_empty, output_option, server_options
from supervisor.cli.output import safe
from supervisor.cli.runs.control import show_change
from supervisor.cli.views import runs as views
from supervisor.wording.figures import DASH, count, money, plural, size_text

REST = ("logs", "evidence", "other")


@click.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@list_filters
@output_option
@server_options
@click.pass_context
def cost(
    ctx: click.Context, /, *, client: Client, form: str, run_ids: tuple[str, ...], limit: int, query: Json
) -> None:
    """What runs have cost so far, what on-demand machines would have cost, and what their files cost a month.

    One RUN is shown attempt by attempt; without any, the newest runs are shown (the filters are those of `spot ls`).
    """
    for name in run_ids:
        not_empty(ctx, ctx.command.params[0], name)
    if len(run_ids) == 1:
        _show_run(client, form, run_ids[0])
        return
    runs: list[Json] = []
    code: Json = {}
    if run_ids:
        runs = [client.get(run_path(name, "cost")) for name in run_ids]
    else:
        for page in pages(client, "/v1/cost", "runs", limit, **query):
            runs += page["runs"]
            code = page["code"]
    if output.emit({"runs": runs, "code": code}, runs, form, "run_id"):
        return
    if not runs:
        output.note("No run matches." if any(query.values()) else "There is no run yet.")
        return
    output.show(output.table(COSTS, [*runs, _total(runs)] if len(runs) > 1 else runs))
    click.echo(_foot(runs, code))


def _per_h(usd: float | None, unknown: str) -> str:
    return unknown if usd is None else f"{money(usd)}/h"


def _spent(run: Json) -> str:
    spent = money(run["cost_usd"])
    return f"≥ {spent}" if run["lower_bound"] and run["cost_usd"] is not None else spent


def _size(*kinds: str) -> Callable[[Json], str]:
    def size(run: Json) -> str:
        stored = run["stored_bytes"]
        return DASH if stored is None else size_text(sum(stored[kind] for kind in kinds))

    return size


COSTS: output.Table = {
    "RUN": lambda run: safe(run["run_id"]),
    "ATT": lambda run: str(run["attempts"]),
    "COST": _spent,
    "ON-DEMAND": lambda run: money(run["on_demand_usd"] or None),
    "NOW": lambda run: _per_h(run["usd_per_h"], DASH),
    "RESULTS": _size("results"),
    "CHECKPOINTS": _size("checkpoints"),
    "REST": _size(*REST),
    "A MONTH": lambda run: money(run["stored_usd_per_month"]),
}
ATTEMPTS: output.Table = {
    "#": lambda attempt: str(attempt["number"]),
    "WHERE": lambda attempt: views.where(attempt["placement"]),
    "HOW LONG": lambda attempt: views.lasted(attempt, time.time()),
    "PRICE": lambda attempt: _per_h(attempt["price_usd_per_h"], "unknown"),
    "COST": lambda attempt: money(attempt["cost_usd"]),
}


def _total(runs: list[Json]) -> Json:
    sizes = [run["stored_bytes"] for run in runs]
    read = None if None in sizes else {name: sum(size[name] for size in sizes) for name in sizes[0]}
    total = {
        "run_id": "total",
        "attempts": sum(run["attempts"] for run in runs),
        "lower_bound": any(run["lower_bound"] for run in runs),
        "stored_bytes": read,
    }
    for name in ("cost_usd", "on_demand_usd", "usd_per_h", "stored_usd_per_month"):
        amounts = [run[name] for run in runs if run[name] is not None]
        total[name] = sum(amounts) if amounts else None
    return total


def _foot(runs: list[Json], code: Json) -> str:
    """What is missing in the figures, and the code bundles, which no run owns alone."""
    parts = [plural(len(runs), "run")]
    if code.get("stored_bytes") is not None:
        month = code["stored_usd_per_month"]
        parts.append(f"code bundles {size_text(code['stored_bytes'])}" + (f", {money(month)} a month" if month else ""))
    if any(run["stored_bytes"] is None for run in runs):
        parts.append("the object store could not be read")
    elif all(run["stored_usd_per_month"] is None for run in runs):
        parts.append("what a month costs is not known: set store_usd_per_gib_month")
    return " · ".join(parts)


def _show_run(client: Client, form: str, name: str) -> None:
    run, kept = client.get(run_path(name)), client.get(run_path(name, "cost"))
    attempts = client.get(run_path(name, "attempts"))["attempts"]
    figures = {name: kept[name] for name in ("files", "stored_bytes", "stored_usd_per_month")}
    document = {"run_id": name, "cost": run["cost"], **figures, "attempts": [_figures(attempt) for attempt in attempts]}
    if output.emit(document, document["attempts"], form, "number"):
        return
    if attempts:
        output.show(output.table(ATTEMPTS, attempts))
    click.echo(stored_line(kept))
    click.echo(total_line(run))


def _figures(attempt: Json) -> dict[str, Any]:
    names = ("number", "placement", "started_at", "ended_at", "gone_at", "price_usd_per_h", "cost_usd")
    return {name: attempt.get(name) for name in names}


def stored_line(kept: Json) -> str:
    """`Stored: 31 files, results 12 MB, checkpoints 410 MB, logs 1.0 MB; $0.01 a month.`"""
    if kept["stored_bytes"] is None:
        return "Stored: the object store could not be read."
    sizes = [f"{kind} {size_text(size)}" for kind, size in kept["stored_bytes"].items() if size]
    month = kept["stored_usd_per_month"]
    monthly = f"; {money(month)} a month" if month is not None else ""
    return f"Stored: {', '.join([plural(kept['files'], 'file'), *sizes])}{monthly}."


def total_line(run: Json) -> str:
    """`$6.12 so far, $1.20/h now; on-demand $18.40 (67 % saved); budget $20.00.`"""
    cost_of = run["cost"]
    spent, plain = cost_of["usd"] or 0.0, cost_of["on_demand_usd"] or 0.0
    parts = [f"{'' if cost_of['known'] else 'at least '}{money(spent)} so far"]
    if run.get("price_usd_per_h"):
        parts[0] += f", {money(run['price_usd_per_h'])}/h now"
    if plain > 0:
        parts.append(f"on-demand {money(plain)} ({100 * (1 - spent / plain):.0f} % saved)")
    if cost_of["budget_usd"] is not None:
        parts.append(f"budget {money(cost_of['budget_usd'])}")
    return "; ".join(parts) + "."


POLL_S = 5.0
STUCK_S = 60.0  # without one file less: nobody deletes any more


@click.command()
@click.argument("run_id", metavar="RUN", callback=not_empty)
@click.option("--confirm", metavar="RUN", help="The run's name once more, instead of being asked for it.")
@output_option
@server_options
def purge(client: Client, form: str, run_id: str, confirm: str | None) -> None:
    """Delete all files of a run: results, checkpoints, logs. Its history stays, and so does shared code.

    Only after the run has ended and its machines are gone. Cut off, it is finished by the same command.
    """
    run, kept = client.get(run_path(run_id)), client.get(run_path(run_id, "cost"))
    if confirm is None and run["status"] not in TERMINAL:
        text = f"Nothing of {run_id} was deleted: it is {run['status']}: stop it, and wait until it has stopped."
        raise CliError(text, CONFLICT, "PURGE_REFUSED", (f"spot stop {run_id}",))
    for line in what_goes(run, kept):
        output.note(line)
    typed = _typed(run_id) if confirm is None else confirm
    if typed != run_id:
        raise CliError(f"Nothing was deleted: {typed!r} is not {run_id}.", USAGE, "INVALID_REQUEST")
    answer = _purge(client, run_id)
    show_change(answer, form)
    output.suggest(f"spot events {run_id}")


def what_goes(run: Json, kept: Json) -> list[str]:
    """What the person is about to lose."""
    results = run.get("results")
    files = "none verified" if results is None else f"{count(results['files'])} verified"
    return [
        safe(run["status_text"]),
        stored_line(kept),
        f"Newest checkpoint: {count(run['checkpoint_step'])}. Results: {files}. All of it is deleted for good.",
    ]


def _typed(run_id: str) -> str:
    if not sys.stdin.isatty():
        raise click.UsageError(f"Say --confirm {run_id}: there is no terminal to ask on.")
    return str(click.prompt(f"Type {run_id} to delete all of its files", err=True)).strip()


def _purge(client: Client, run_id: str) -> Json:
    """One request; where its answer takes longer than we wait for one, the run says when it is over, and the number of
    its files whether somebody is still at it."""
    try:
        return dict(client.post(run_path(run_id, "purge"), {"confirm": run_id}))
    except Unreachable as error:
        if not error.sent:
            raise
        lost = error
    run = client.get(run_path(run_id))
    if not run["purging"] and run["purged_at"] is None:
        raise lost
    output.note("It takes longer than one answer may; Ctrl-C leaves, the purge goes on.")
    left, since = 0, time.monotonic()
    while run["purging"]:
        time.sleep(POLL_S)
        files = client.get(run_path(run_id, "cost"))["files"]
        if files != left:
            left, since = files, time.monotonic()
        elif time.monotonic() - since > STUCK_S:
            text = f"The purge of {run_id} was cut off. Repeat it: it goes on where it stopped."
            raise CliError(text, FAILED, "UNAVAILABLE", (f"spot purge {run_id}",))
        run = client.get(run_path(run_id))
    return dict(run)
