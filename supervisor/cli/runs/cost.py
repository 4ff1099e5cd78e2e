"""cost: what runs have cost so far, what on-demand machines would have cost, and what it costs to keep their files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, pages, run_path
from supervisor.cli.options import limit_option, not_empty, output_options, run_filters, since_option
from supervisor.cli.output import Table, safe
from supervisor.cli.views import runs as views
from supervisor.wording.figures import DASH, money, plural, size_text

REST = ("logs", "evidence", "other")
ATTEMPT_FIELDS = ("number", "placement", "started_at", "ended_at", "gone_at", "price_usd_per_h", "cost_usd")


def _per_h(usd: float | None, unknown: str) -> str:
    return unknown if usd is None else f"{money(usd)}/h"


def _spent(cost: Json) -> str:
    spent = money(cost["cost_usd"])
    return f"≥ {spent}" if cost["lower_bound"] and cost["cost_usd"] is not None else spent


def _size(*kinds: str) -> Callable[[Json], str]:
    def size(cost: Json) -> str:
        stored = cost["stored_bytes"]
        return DASH if stored is None else size_text(sum(stored[kind] for kind in kinds))

    return size


COSTS = Table(
    "run_id",
    {
        "RUN": lambda cost: safe(cost["run_id"]),
        "ATT": lambda cost: str(cost["attempts"]),
        "COST": _spent,
        "ON-DEMAND": lambda cost: money(cost["on_demand_usd"] or None),
        "NOW": lambda cost: _per_h(cost["usd_per_h"], DASH),
        "RESULTS": _size("results"),
        "CHECKPOINTS": _size("checkpoints"),
        "REST": _size(*REST),
        "PER MONTH": lambda cost: money(cost["stored_usd_per_month"]),
    },
    spare=("ATT", "REST"),
)
ATTEMPTS = Table(
    "number",
    {
        "#": lambda attempt: str(attempt["number"]),
        "WHERE": lambda attempt: views.where(attempt["placement"]),
        "HOW LONG": views.lasted,
        "PRICE": lambda attempt: _per_h(attempt["price_usd_per_h"], "unknown"),
        "COST": lambda attempt: money(attempt["cost_usd"]),
    },
)


def _share(*uses: str) -> Callable[[Json], str]:
    """The share of the billed time in these classes."""

    def text(row: Json) -> str:
        values = [row["seconds"][use] for use in uses if row["seconds"][use] is not None]
        return DASH if not values or not row["billed_s"] else f"{100 * sum(values) / row['billed_s']:.0f} %"

    return text


def _percent(name: str) -> Callable[[Json], str]:
    return lambda row: DASH if row[name] is None else f"{100 * row[name]:.0f} %"


def _billed(row: Json) -> str:
    return f"{'≥ ' if row['lower_bound'] else ''}{money(row['billed_usd'])}"


LEDGER = Table(
    "name",
    {
        "NAME": lambda row: safe(row["name"] or DASH),
        "RUNS": lambda row: str(row["runs"]),
        "HOURS": lambda row: f"{row['billed_s'] / 3600:.1f}",
        "COST": _billed,
        "GOODPUT": _percent("goodput"),
        "START": _share("boot", "pull", "restore"),
        "SAVE": _share("save"),
        "LOST": _share("lost", "frozen"),
        "END": _share("finishing"),
        "IDLE": _share("idle_kept"),
        "ETTR": _percent("ettr_submit"),
        "$/GOOD H": lambda row: money(row["usd_per_productive_h"]),
    },
    spare=("END", "SAVE", "ETTR", "RUNS", "IDLE"),
)


def _hours(name: str) -> Callable[[Json], str]:
    return lambda row: DASH if row[name] is None else f"{row[name] / 3600:.1f}"


def _difference(row: Json) -> str:
    usd = row["difference_usd"]
    return DASH if usd is None else f"{'-' if usd < 0 else '+'}{money(abs(usd))}"


BILLED = Table(
    "run_id",
    {
        "DAY": lambda row: row["day"],
        "RUN": lambda row: safe(row["run_id"]),
        "OUR HOURS": _hours("ours_s"),
        "BILLED HOURS": _hours("billed_s"),
        "OURS": lambda row: f"{'≥ ' if row['lower_bound'] else ''}{money(row['ours_usd'])}",
        "BILLED": lambda row: money(row["billed_usd"]),
        "DIFFERENCE": _difference,
        "REASON": lambda row: safe(row["reason"].replace("_", " ")),
    },
)
UNKNOWN_MACHINES = Table(
    "name",
    {
        "BILLED, UNKNOWN TO US": lambda machine: safe(machine["name"]),
        "ZONE": lambda machine: safe(machine["zone"]),
        "RUN": lambda machine: safe(machine["run_id"] or DASH),
        "DAYS": lambda machine: f"{machine['first_day']} to {machine['last_day']}",
        "HOURS": _hours("billed_s"),
        "BILLED": lambda machine: money(machine["billed_usd"]),
    },
)


@click.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@run_filters
@click.option(
    "--by", type=click.Choice(["run", "group", "owner", "month"]), help="What the billed time was for, by this."
)
@click.option("--csv", "as_csv", is_flag=True, help="With --by: as CSV, with seconds and dollars of each class.")
@limit_option
@output_options
@click.pass_context
def cost(
    ctx: click.Context,
    /,
    *,
    client: Client,
    form: str,
    run_ids: tuple[str, ...],
    limit: int,
    query: Json,
    by: str | None,
    as_csv: bool,
) -> None:
    """Show what runs have cost so far, what on-demand machines would have cost, and what their files cost a month.

    One RUN is shown attempt by attempt; without RUN the newest runs are listed. With --by each billed second is in one
    class: productive, saving, lost, and so on; --since then counts the time since so long ago.
    """
    for run_id in run_ids:
        not_empty(ctx, ctx.command.params[0], run_id)
    if by is not None:
        for run_id in run_ids:
            client.get(run_path(run_id))  # an unknown run is refused, as without --by
        _show_ledger(client, form, by, _ledger_query(query, run_ids), as_csv=as_csv)
        return
    if as_csv:
        raise click.UsageError("--csv needs --by, such as --by month.")
    if len(run_ids) == 1:
        _show_run(client, form, run_ids[0])
        return
    costs: list[Json] = [client.get(run_path(run_id, "cost")) for run_id in run_ids]
    code: Json = {}
    if not run_ids:
        for page in pages(client, "/v1/cost", "runs", limit, **query):
            costs += page["runs"]
            code = page["code"]
    if output.emit({"runs": costs, "code": code}, costs, form, COSTS.key):
        return
    if not costs:
        output.note("No run matches." if any(query.values()) else "There is no run yet.")
        return
    output.show(COSTS.lines([*costs, _total(costs)] if len(costs) > 1 else costs))
    output.show(output.paragraph(_foot(costs, code), "  "))


def _ledger_query(query: Json, run_ids: tuple[str, ...]) -> Json:
    since, group, owner = (query[name] for name in ("created_after", "group", "owner"))
    if any(value for name, value in query.items() if name not in ("created_after", "group", "owner")):
        raise click.UsageError("With --by only --group, --owner, --since and names of runs choose what is counted.")
    return {"since": since, "group": group, "owner": owner, "run_id": list(run_ids) or None}


def _show_ledger(client: Client, form: str, by: str, query: Json, *, as_csv: bool) -> None:
    if as_csv:
        output.show_log(_csv(client, "/v1/ledger", {"by": by, **query}))
        return
    answer = client.get("/v1/ledger", by=by, **query)
    rows: list[Json] = answer["rows"]
    if output.emit(answer, rows, form, LEDGER.key):
        return
    if not rows:
        output.note("No run fits, so nothing was billed.")
        return
    output.show(LEDGER.lines([*rows, {**answer["total"], "name": "total"}] if len(rows) > 1 else rows))
    if not answer["complete"]:
        output.note("There are more runs, which are older.")


@click.command()
@since_option("Only the days within this time, such as 7d; without it the last 31.")
@click.option("--again", is_flag=True, help="Read the bill now, also if the last read is younger than a day.")
@click.option("--csv", "as_csv", is_flag=True, help="As CSV, with all figures.")
@output_options
def bill(*, client: Client, form: str, since: str | None, again: bool, as_csv: bool) -> None:
    """Compare our figures with the platform's own bill, by day and run, and name billed machines that we do not know.

    It is off until a setting names the bill (docs/cost.md). A read costs money, and its answer is kept for a day.
    """
    query: Json = {"since": since, "again": "true" if again else None}
    if as_csv:
        output.show_log(_csv(client, "/v1/ledger/billed", query))
        return
    answer = client.get("/v1/ledger/billed", **query)
    rows: list[Json] = answer["rows"]
    if output.emit(answer, rows, form, BILLED.key):
        return
    if rows:
        output.show(BILLED.lines(rows))
    else:
        output.note("Nothing was billed in this time, by our figures and by the bill.")
    if answer["unknown"]:
        output.show(UNKNOWN_MACHINES.lines(answer["unknown"]))
    total, settled = answer["total"], answer["settled_until"]
    whole = f"days before {settled[:16]}Z" if settled else "no day yet"
    foot = f"Compared ({whole}): ours {money(total['ours_usd'])}, billed {money(total['billed_usd'])}"
    output.show(output.paragraph(f"{foot} · read {answer['read_at'][:16]}Z from {safe(answer['source'])}", "  "))


def _csv(client: Client, path: str, query: Json) -> str:
    return client.send("GET", path, {**query, "format": "csv"}).body.decode().replace("\r\n", "\n")


def _total(costs: list[Json]) -> Json:
    sizes = [cost["stored_bytes"] for cost in costs]
    total = {
        "run_id": "total",
        "attempts": sum(cost["attempts"] for cost in costs),
        "lower_bound": any(cost["lower_bound"] for cost in costs),
        "stored_bytes": None if None in sizes else {kind: sum(size[kind] for size in sizes) for kind in sizes[0]},
    }
    for name in ("cost_usd", "on_demand_usd", "usd_per_h", "stored_usd_per_month"):
        amounts = [cost[name] for cost in costs if cost[name] is not None]
        total[name] = sum(amounts) if amounts else None
    return total


def _foot(costs: list[Json], code: Json) -> str:
    """What the figures lack, and the code bundles, which belong to no single run."""
    parts = [plural(len(costs), "run")]
    if code.get("stored_bytes") is not None:
        month = code["stored_usd_per_month"]
        parts.append(f"code bundles {size_text(code['stored_bytes'])}" + (f", {money(month)} a month" if month else ""))
    if any(cost["stored_bytes"] is None for cost in costs):
        parts.append("the object store could not be read")
    elif all(cost["stored_usd_per_month"] is None for cost in costs):
        parts.append("the monthly cost is unknown: set store_usd_per_gib_month")
    return " · ".join(parts)


def _show_run(client: Client, form: str, run_id: str) -> None:
    run, kept = client.get(run_path(run_id)), client.get(run_path(run_id, "cost"))
    attempts = client.get(run_path(run_id, "attempts"))["attempts"]
    document: dict[str, Any] = {"run_id": run_id, "cost": run["cost"]}
    document |= {name: kept[name] for name in ("files", "stored_bytes", "stored_usd_per_month")}
    document["attempts"] = [{name: attempt.get(name) for name in ATTEMPT_FIELDS} for attempt in attempts]
    if ATTEMPTS.show(document, document["attempts"], form):
        click.echo(stored_line(kept))
        click.echo(_total_line(run))


def stored_line(cost: Json) -> str:
    """`Stored: 31 files, results 12 MB, checkpoints 410 MB, logs 1.0 MB; $0.01 a month.`"""
    if cost["stored_bytes"] is None:
        return "Stored: the object store could not be read."
    sizes = [f"{kind} {size_text(size)}" for kind, size in cost["stored_bytes"].items() if size]
    month = cost["stored_usd_per_month"]
    monthly = f"; {money(month)} a month" if month is not None else ""
    return f"Stored: {', '.join([plural(cost['files'], 'file'), *sizes])}{monthly}."


def _total_line(run: Json) -> str:
    """`$6.12 so far, $1.20/h now; on-demand $18.40 (67 % saved); budget $20.00.`"""
    cost = run["cost"]
    spent, on_demand = cost["usd"] or 0.0, cost["on_demand_usd"] or 0.0
    parts = [f"{'' if cost['known'] else 'at least '}{money(spent)} so far"]
    if run.get("price_usd_per_h"):
        parts[0] += f", {money(run['price_usd_per_h'])}/h now"
    if on_demand > 0:
        parts.append(f"on-demand {money(on_demand)} ({100 * (1 - spent / on_demand):.0f} % saved)")
    if cost["budget_usd"] is not None:
        parts.append(f"budget {money(cost['budget_usd'])}")
    return "; ".join(parts) + "."
