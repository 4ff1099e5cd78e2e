"""prices: what machines cost per hour, the source and age of each price, and the refresh from the cloud."""

from __future__ import annotations

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.options import output_options
from supervisor.cli.output import Table, safe
from supervisor.wording.figures import DASH, plural

REFRESH_S = 180.0  # a cloud's price list has many pages


class _ShownByDefault(click.Group):
    """`spot prices` is `spot prices ls`, with its options too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        is_listing = not first or (first.startswith("-") and first not in ("-h", "--help"))
        return super().parse_args(ctx, ["ls", *args] if is_listing else args)


def per_h(usd: float | None) -> str:
    """With four digits, because machines cost cents per hour."""
    return "unknown" if usd is None else f"${usd:.4f}/h"


def _age(price: Json) -> str:
    days = price["age_days"]
    if days is None:
        return DASH
    text = "today" if days == 0 else "1 day" if days == 1 else f"{days} days"
    return click.style(f"{text} !", fg="yellow") if price["old"] else text


PRICES = Table(
    "shape",
    {
        "SHAPE": lambda price: safe(price["shape"]),
        "REGION": lambda price: safe(price["region"]),
        "SPOT": lambda price: per_h(price["spot_usd_per_h"]),
        "ON-DEMAND": lambda price: per_h(price["on_demand_usd_per_h"]),
        "SAVED": lambda price: DASH if price["saved_percent"] is None else f"{price['saved_percent']:.0f} %",
        "AGE": _age,
        "SOURCE": lambda price: safe(price["source"] or DASH),
    },
)


@click.group(cls=_ShownByDefault)
def prices() -> None:
    """Show what machines cost per hour, and how old these prices are.

    `spot prices` is short for `spot prices ls` and takes the same options.
    """


@prices.command()
@output_options
def ls(client: Client, form: str) -> None:
    """Show the price of each shape in each region. It includes boot disk and address."""
    response = client.get("/v1/prices")
    if not output.emit(response, response["prices"], form, PRICES.key):
        _show(response)


@prices.command()
@output_options
def refresh(client: Client, form: str) -> None:
    """Read the prices from Google now and use them. Takes up to a minute; a run keeps the price of its machine."""
    client.timeout_s = REFRESH_S
    response = client.post("/v1/prices/refresh", {})
    changed = response["changed"]
    if output.emit(response, changed, form, PRICES.key):
        return
    _show(response)
    for price in changed:
        market = "spot" if price["market"] == "spot" else "on-demand"
        before, after = per_h(price["from_usd_per_h"]), per_h(price["to_usd_per_h"])
        click.echo(f"{safe(price['shape'])} in {safe(price['region'])}: {market} {before} → {after}")
    click.echo(f"{plural(len(changed), 'price')} changed." if changed else "No price changed.")


def _show(response: Json) -> None:
    rows = response["prices"]
    output.show(PRICES.lines(rows))
    old = sum(price["old"] for price in rows)
    if old:
        days = response["old_after_days"]
        output.note(f"! {plural(old, 'price')} older than {days} days: spot prices refresh")
    if any(price["spot_usd_per_h"] is None or price["on_demand_usd_per_h"] is None for price in rows):
        setting = safe(response.get("setting") or "a price in the settings")
        output.note(
            f"An unknown price is not counted, and a run with a budget is refused there: spot prices refresh, or set "
            f"{setting}."
        )
