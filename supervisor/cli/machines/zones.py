"""zones: where machines could be had lately, and where not."""

from __future__ import annotations

import time

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.options import output_option, server_options
from supervisor.cli.words import safe
from supervisor.wording.figures import DASH, duration, epoch, money

TITLES = ("ZONE", "SHAPE", "STATE", "MACHINES", "LOST", "$/H", "WHY")


@click.command()
@output_option
@server_options
def zones(client: Client, form: str) -> None:
    """Show what was learned of each zone: room, refusals and their pauses, machines that were taken away."""
    answer = client.get("/v1/zones")
    if output.emit(answer, answer["zones"], form, "zone"):
        return
    for line in output.columns(TITLES, [_row(one) for one in answer["zones"]]):
        click.echo(line)
    output.note(f"LOST: preemptions within the last {duration(answer['window_s'])}. The cloud was not asked.")


def _row(one: Json) -> list[str]:
    market = "" if one["spot"] else "  on-demand"
    return [
        safe(one["zone"]),
        safe(one["shape"]) + (f" ({safe(one['gpu'])})" if one.get("gpu") else "") + market,
        _state(one),
        str(one["machines"] or DASH),
        str(one["preemptions"] or DASH),
        money(one["price_usd_per_h"]),
        safe(": ".join(part for part in (one["cause"], one["detail"]) if part)),
    ]


def _state(one: Json) -> str:
    until = epoch(one["cool_until"])
    if until is None:
        out = epoch(one["last_stock_out_at"])
        return safe(one["state"]) + (f", no room {duration(max(0.0, time.time() - out))} ago" if out else "")
    return f"{safe(one['state'])}, asked again in {duration(max(0.0, until - time.time()))}"
