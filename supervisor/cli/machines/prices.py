"""prices: what machines cost per hour, where that was read and how old it is; and the refresh.

zones: where machines could be had lately, and where not.
"""

from __future__ import annotations

import time

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.options import output_option, server_options
from supervisor.cli.output import safe
from supervisor.wording.figures import DASH, duration, epoch, money, plural

UNKNOWN = "unknown"
REFRESH_S = 180.0  # a cloud's price list has many pages


class _ShownByDefault(click.Group):
    """`spot prices` means `spot prices ls`, also with its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        is_listing = not first or (first.startswith("-") and first not in ("-h", "--help"))
        return super().parse_args(ctx, ["ls", *args] if is_listing else args)


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
    for price in changed:
        market = "spot" if price["market"] == "spot" else "on-demand"
        before, after = per_h(price["from_usd_per_h"]), per_h(price["to_usd_per_h"])
        click.echo(f"{safe(price['shape'])} in {safe(price['region'])}: {market} {before} → {after}")
    click.echo(f"{plural(len(changed), 'price')} changed." if changed else "Nothing has changed.")


def _show(answer: Json) -> None:
    rows = answer["prices"]
    output.show(output.table(PRICES, rows))
    old = sum(price["old"] for price in rows)
    if old:
        days = answer["old_after_days"]
        output.note(f"! {plural(old, 'price')} older than {days} days: spot prices refresh")
    if any(price["spot_usd_per_h"] is None or price["on_demand_usd_per_h"] is None for price in rows):
        setting = safe(answer.get("setting") or "a price in the settings")
        output.note(
            f"An unknown price is not counted, and a budget on it is refused: spot prices refresh, or set {setting}."
        )


def _age(price: Json) -> str:
    days = price["age_days"]
    if days is None:
        return DASH
    text = "today" if days == 0 else "1 day" if days == 1 else f"{days} days"
    return click.style(f"{text} !", fg="yellow") if price["old"] else text


def per_h(usd: float | None) -> str:
    """With four digits: machines cost cents per hour."""
    return UNKNOWN if usd is None else f"${usd:.4f}/h"


PRICES: output.Table = {
    "SHAPE": lambda price: safe(price["shape"]),
    "REGION": lambda price: safe(price["region"]),
    "SPOT": lambda price: per_h(price["spot_usd_per_h"]),
    "ON-DEMAND": lambda price: per_h(price["on_demand_usd_per_h"]),
    "SAVED": lambda price: DASH if price["saved_percent"] is None else f"{price['saved_percent']:.0f} %",
    "AGE": _age,
    "SOURCE": lambda price: safe(price["source"] or DASH),
}


@click.command()
@output_option
@server_options
def zones(client: Client, form: str) -> None:
    """Show what was learned of each zone: room, refusals and their pauses, machines that were taken away."""
    answer = client.get("/v1/zones")
    if output.emit(answer, answer["zones"], form, "zone"):
        return
    output.show(output.table(ZONES, answer["zones"]))
    output.note(f"LOST: preemptions within the last {duration(answer['window_s'])}. The cloud was not asked.")


def _state(zone: Json) -> str:
    until = epoch(zone["cool_until"])
    if until is None:
        out = epoch(zone["last_stock_out_at"])
        return safe(zone["state"]) + (f", no room {duration(max(0.0, time.time() - out))} ago" if out else "")
    return f"{safe(zone['state'])}, asked again in {duration(max(0.0, until - time.time()))}"


def _offer(zone: Json) -> str:
    gpu = f" ({safe(zone['gpu'])})" if zone.get("gpu") else ""
    return safe(zone["shape"]) + gpu + ("" if zone["spot"] else "  on-demand")


ZONES: output.Table = {
    "ZONE": lambda zone: safe(zone["zone"]),
    "SHAPE": _offer,
    "STATE": _state,
    "MACHINES": lambda zone: str(zone["machines"] or DASH),
    "LOST": lambda zone: str(zone["preemptions"] or DASH),
    "$/H": lambda zone: money(zone["price_usd_per_h"]),
    "WHY": lambda zone: safe(": ".join(part for part in (zone["cause"], zone["detail"]) if part)),
}
