"""cost: what runs have cost so far, and what their files cost to keep."""

from __future__ import annotations

import time
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, pages, run_path
from supervisor.cli.options import list_filters, not_empty, output_option, server_options
from supervisor.cli.views import runs as views
from supervisor.cli.words import safe
from supervisor.wording.figures import DASH, money, plural, size_text

TITLES = ("RUN", "ATT", "COST", "ON-DEMAND", "NOW", "RESULTS", "CHECKPOINTS", "REST", "A MONTH")
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
        _one(client, form, run_ids[0])
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
    rows = [_row(run) for run in runs]
    for line in output.columns(TITLES, [*rows, _total_row(runs)] if len(rows) > 1 else rows):
        click.echo(line)
    click.echo(_foot(runs, code))


def _row(run: Json) -> list[str]:
    spent = money(run["cost_usd"])
    return [
        safe(run["run_id"]),
        str(run["attempts"]),
        f"≥ {spent}" if run["lower_bound"] and run["cost_usd"] is not None else spent,
        money(run["on_demand_usd"] or None),
        money(run["usd_per_h"]) + "/h" if run["usd_per_h"] is not None else DASH,
        *_sizes(run["stored_bytes"]),
        money(run["stored_usd_per_month"]),
    ]


def _sizes(stored: Json | None) -> list[str]:
    if stored is None:
        return [DASH, DASH, DASH]
    rest = sum(stored[kind] for kind in REST)
    return [size_text(size) for size in (stored["results"], stored["checkpoints"], rest)]


def _total_row(runs: list[Json]) -> list[str]:
    sizes = [run["stored_bytes"] for run in runs]
    read = None if None in sizes else {name: sum(size[name] for size in sizes) for name in sizes[0]}
    total = {
        "run_id": "total",
        "attempts": sum(run["attempts"] for run in runs),
        "lower_bound": any(run["lower_bound"] for run in runs),
        "stored_bytes": read,
    }
    for name in ("cost_usd", "on_demand_usd", "usd_per_h", "stored_usd_per_month"):
        known = [run[name] for run in runs if run[name] is not None]
        total[name] = sum(known) if known else None
    return _row(total)


def _foot(runs: list[Json], code: Json) -> str:
    """What is missing in the figures, and the code bundles, which no run owns alone."""
    parts = [plural(len(runs), "run")]
    if code.get("stored_bytes") is not None:
        month = code["stored_usd_per_month"]
        parts.append(
            f"code bundles {size_text(code['stored_bytes'])}" + (f", {money(month)} a month" if month else "")
        )
    if any(run["stored_bytes"] is None for run in runs):
        parts.append("the object store could not be read")
    elif all(run["stored_usd_per_month"] is None for run in runs):
        parts.append("what a month costs is not known: set store_usd_per_gib_month")
    return " · ".join(parts)


def _one(client: Client, form: str, name: str) -> None:
    run, kept = client.get(run_path(name)), client.get(run_path(name, "cost"))
    attempts = client.get(run_path(name, "attempts"))["attempts"]
    figures = {name: kept[name] for name in ("files", "stored_bytes", "stored_usd_per_month")}
    document = {
        "run_id": name,
        "cost": run["cost"],
        **figures,
        "attempts": [_figures(one) for one in attempts],
    }
    if output.emit(document, document["attempts"], form, "number"):
        return
    rows = [
        [
            str(attempt["number"]),
            views.where(attempt["placement"]),
            views.lasted(attempt, time.time()),
            money(attempt["price_usd_per_h"]) + "/h" if attempt["price_usd_per_h"] is not None else "unknown",
            money(attempt["cost_usd"]),
        ]
        for attempt in attempts
    ]
    for line in output.columns(("#", "WHERE", "HOW LONG", "PRICE", "COST"), rows) if rows else ():
        click.echo(line)
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
    told = f"; {money(month)} a month" if month is not None else ""
    return f"Stored: {', '.join([plural(kept['files'], 'file'), *sizes])}{told}."


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
