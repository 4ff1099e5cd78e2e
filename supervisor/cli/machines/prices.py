"""prices: what machines cost per hour, where that was read and how old it is; and the refresh."""

from __future__ import annotations

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.options import output_option, server_options
from supervisor.cli.words import safe
from supervisor.wording.figures import DASH, plural

TITLES = ("SHAPE", "REGION", "SPOT", "ON-DEMAND", "SAVED", "AGE", "SOURCE")
UNKNOWN = "unknown"
REFRESH_S = 180.0  # Google's price list has many pages


class _ShownByDefault(click.Group):
    """`spot prices` means `spot prices ls`, also with its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        meant = not first or (first.startswith("-") and first not in ("-h", "--help"))
        return super().parse_args(ctx, ["ls", *args] if meant else args)


@click.group(cls=_ShownByDefault)
def prices() -> None:
    """What machines cost per hour, and how old these figures are.

    `spot prices` alone is `spot prices ls` and takes the same options.
    """


@prices.command(short_help="Show the price of each shape in each region.")
@output_option
@server_options
def ls(client: Client, form: str) -> None:
    """Show the price of each shape in each region: of the whole machine, with its boot disk and address."""
    answer = client.get("/v1/prices")
    if output.emit(answer, answer["prices"], form, "shape"):
        return
    _show(answer)


@prices.command(short_help="Ask Google for its prices now, and use them.")
@output_option
@server_options
def refresh(client: Client, form: str) -> None:
    """Ask Google for its prices now and use them from now on; takes up to a minute. Runs that have a machine keep its
    price."""
    client.timeout_s = REFRESH_S
    answer = client.post("/v1/prices/refresh", {})
    if output.emit(answer, answer["changed"], form, "shape"):
        return
    _show(answer)
    changed = answer["changed"]
    for one in changed:
        market = "spot" if one["market"] == "spot" else "on-demand"
        before, after = per_h(one["from_usd_per_h"]), per_h(one["to_usd_per_h"])
        click.echo(f"{safe(one['shape'])} in {safe(one['region'])}: {market} {before} → {after}")
    click.echo(f"{plural(len(changed), 'price')} changed." if changed else "Nothing has changed.")


def _show(answer: Json) -> None:
    rows = answer["prices"]
    for line in output.columns(TITLES, [_row(one) for one in rows]):
        click.echo(line)
    old = sum(one["old"] for one in rows)
    if old:
        days = answer["old_after_days"]
        output.note(f"! {plural(old, 'price')} older than {days} days: spot prices refresh")
    if any(one["spot_usd_per_h"] is None or one["on_demand_usd_per_h"] is None for one in rows):
        output.note(
            "An unknown price is not counted, and a budget on it is refused: spot prices refresh, or set "
            "gce_prices."
        )


def _row(one: Json) -> list[str]:
    saved = one["saved_percent"]
    return [
        safe(one["shape"]),
        safe(one["region"]),
        per_h(one["spot_usd_per_h"]),
        per_h(one["on_demand_usd_per_h"]),
        DASH if saved is None else f"{saved:.0f} %",
        _age(one),
        safe(one["source"] or DASH),
    ]


def _age(one: Json) -> str:
    days = one["age_days"]
    if days is None:
        return DASH
    text = "today" if days == 0 else "1 day" if days == 1 else f"{days} days"
    return click.style(f"{text} !", fg="yellow") if one["old"] else text


def per_h(usd: float | None) -> str:
    """With four digits: machines cost cents per hour."""
    return UNKNOWN if usd is None else f"${usd:.4f}/h"
