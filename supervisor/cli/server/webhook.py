"""webhook: who is told of announcements. The secret of a new one is printed once, alone on its line."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, pages
from supervisor.cli.exits import FAILED, Problem
from supervisor.cli.options import AS_JSON, duration_s, output_option, server_options
from supervisor.cli.output import json_text, moment, safe
from supervisor.wording.figures import DASH, plural

SPARE = ("SINCE", "FORM", "NOTE", "OWNER")  # what a narrow terminal goes without first
SENT_SPARE = ("STATUS", "TRIES", "AT")
STATES = {"delivered": "green", "pending": "yellow", "given_up": "red"}
FORMS = ("standard", "slack", "discord")


@click.group()
def webhook() -> None:
    """Webhooks: addresses that are told of announcements, in Slack, in Discord, or signed for your own receiver."""


@webhook.command(short_help="Add a webhook; its secret is shown once.")
@click.argument("address", metavar="URL")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only these announcements; may be repeated.")
@click.option("--form", type=click.Choice(FORMS), help="What the receiver understands (default: as its host says).")
@click.option("--everything", is_flag=True, help="Of all owners, and of the supervisor itself; for administrators.")
@click.option("--note", default="", help="For people, such as what it is for.")
@AS_JSON
@server_options
def add(
    *,
    client: Client,
    address: str,
    kinds: tuple[str, ...],
    form: str | None,
    everything: bool,
    note: str,
    as_json: bool,
) -> None:
    """Tell URL of announcements from now on. Without --kind: of all; in Slack and Discord of what needs a person or is
    over."""
    body: dict[str, Any] = {"url": address, "kinds": list(dict.fromkeys(kinds)), "note": note}
    body |= {"everything": everything} | ({"form": form} if form else {})
    try:
        made = client.post("/v1/webhooks", body)
    except Problem as error:
        if error.code == "URL_REFUSED":
            error.hints = ("for a receiver of your own network, whoever runs the supervisor sets webhook_allow_hosts",)
        raise
    if as_json:
        _print(made)
        return
    name = safe(made["webhook_id"])
    output.note(f"Webhook {name} to {safe(made['url'])} hears of {_hears(made)}.")
    _show_secret(made)
    output.note(f"Try it:     spot webhook test {name}")
    output.note(f"Remove it:  spot webhook rm {name}")


@webhook.command(short_help="Show the webhooks, without addresses and secrets.")
@AS_JSON
@output_option
@server_options
def ls(client: Client, form: str) -> None:
    """Show the webhooks: where they lead, what they hear of, and whether it is taken."""
    answer = client.get("/v1/webhooks")
    if output.emit(answer, answer["webhooks"], form, "webhook_id"):
        return
    if not answer["webhooks"]:
        output.note("There is no webhook yet.")
    else:
        output.show(output.table(shown(output.terminal_columns() is not None), answer["webhooks"], SPARE))
    output.suggest("spot webhook add URL")


@webhook.command(short_help="Send one message that says that it is a test.")
@click.argument("webhook_id", metavar="ID")
@AS_JSON
@server_options
@click.pass_context
def test(ctx: click.Context, /, client: Client, webhook_id: str, as_json: bool) -> None:
    """Send one message that says that it is a test; exit code 1 where it was not taken."""
    answer = client.post(_path(webhook_id, "test"), {})
    if as_json:
        _print(answer)
    elif answer["delivered"]:
        click.echo(f"{safe(webhook_id)} took a test message (HTTP {answer['status']}).")
    else:
        click.echo(f"{safe(webhook_id)} did not take a test message: {safe(answer['detail'])}.", err=True)
    if not answer["delivered"]:
        ctx.exit(FAILED)


@webhook.command(short_help="Show what was sent, and what became of it.")
@click.argument("webhook_id", metavar="ID")
@click.option("--failed", is_flag=True, help="Only what was given up.")
@click.option("-n", "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="At most so many.")
@AS_JSON
@output_option
@server_options
def deliveries(*, client: Client, webhook_id: str, failed: bool, limit: int, form: str) -> None:
    """Show what was sent and what is still to be sent to a webhook, newest first."""
    wish = {"failed": "true"} if failed else {}
    deliveries = [
        delivery
        for page in pages(client, _path(webhook_id, "deliveries"), "deliveries", limit, **wish)
        for delivery in page["deliveries"]
    ]
    if output.emit({"deliveries": deliveries}, deliveries, form, "delivery_id"):
        return
    if not deliveries:
        output.note("Nothing was given up." if failed else "Nothing was sent to it yet.")
        return
    output.show(output.table(_sent(output.terminal_columns() is not None), deliveries, SENT_SPARE))
    if any(delivery["state"] == "given_up" for delivery in deliveries):
        output.suggest(f"spot webhook replay {safe(webhook_id)} --failed")


@webhook.command(short_help="Send something again.")
@click.argument("webhook_id", metavar="ID")
@click.argument("number", required=False, type=click.IntRange(1))
@click.option("--failed", is_flag=True, help="All that was given up, instead of one NUMBER.")
@click.option("--since", type=duration_s, metavar="AGE", help="With --failed: within this time (default: 7d).")
@AS_JSON
@server_options
def replay(
    *, client: Client, webhook_id: str, number: int | None, failed: bool, since: float | None, as_json: bool
) -> None:
    """Send delivery NUMBER again, or with --failed all that was given up; with the ids that they had."""
    if failed == (number is not None):
        raise click.UsageError("Say either the number of one delivery, or --failed for all that was given up.")
    if number is not None:
        answer = client.post(_path(webhook_id, "deliveries", str(number), "replay"), {})
    else:
        body = {} if since is None else {"since": output.rfc3339_ago(since)}
        answer = client.post(_path(webhook_id, "replay"), body)
    if as_json:
        _print(answer)
        return
    click.echo(f"{plural(answer['replayed'], 'message')} to be sent again.")
    output.suggest(f"spot webhook deliveries {safe(webhook_id)}")


@webhook.command(short_help="Make a new secret; the old one signs too for a day.")
@click.argument("webhook_id", metavar="ID")
@AS_JSON
@server_options
def rotate(client: Client, webhook_id: str, as_json: bool) -> None:
    """Make a new secret, shown once. For 24 hours messages carry both signatures."""
    made = client.post(_path(webhook_id, "rotate"), {})
    if as_json:
        _print(made)
        return
    output.note(
        f"Webhook {safe(made['webhook_id'])}: the old secret signs too until {moment(made['old_secret_until'])}."
    )
    _show_secret(made)


@webhook.command(short_help="Switch a webhook on again.")
@click.argument("webhook_id", metavar="ID")
@AS_JSON
@server_options
def enable(client: Client, webhook_id: str, as_json: bool) -> None:
    """Switch a webhook on again. What waited for it is sent now."""
    _switch(client, webhook_id, True, as_json)


@webhook.command(short_help="Switch a webhook off; what waits for it is kept.")
@click.argument("webhook_id", metavar="ID")
@AS_JSON
@server_options
def disable(client: Client, webhook_id: str, as_json: bool) -> None:
    """Switch a webhook off. What waits for it is kept, what happens meanwhile is not told."""
    _switch(client, webhook_id, False, as_json)


@webhook.command(short_help="Remove a webhook.")
@click.argument("webhook_id", metavar="ID")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@AS_JSON
@server_options
def rm(client: Client, webhook_id: str, yes: bool, as_json: bool) -> None:
    """Remove a webhook, with the record of what was sent to it."""
    if not output.confirmed(f"Remove webhook {safe(webhook_id)} and all that waits for it?", yes):
        raise click.Abort
    gone = client.send("DELETE", _path(webhook_id)).json()
    if as_json:
        _print(gone)
        return
    click.echo(f"Webhook {safe(gone['webhook_id'])} to {safe(gone['url'])} is removed.")


def _switch(client: Client, webhook_id: str, enabled: bool, as_json: bool) -> None:
    webhook = client.send("PATCH", _path(webhook_id), body={"enabled": enabled}).json()
    if as_json:
        _print(webhook)
        return
    click.echo(f"Webhook {safe(webhook['webhook_id'])} is {'on' if webhook['enabled'] else 'off'}.")


def _path(webhook_id: str, *more: str) -> str:
    return "/".join(["/v1/webhooks", quote(webhook_id, safe=""), *more])


def _print(document: Json) -> None:
    click.echo(json_text(document, 2))


def _show_secret(made: Json) -> None:
    if made["secret"]:
        output.note("Its messages are signed with this secret, which is shown this once:")
        click.echo(safe(made["secret"]))


def _hears(webhook: Json) -> str:
    usual = "all announcements" if webhook["form"] == "standard" else "what needs a person or is over"
    whose = "of every owner" if webhook["everything"] else f"of runs of {safe(webhook['owner'])}"
    return f"{safe(', '.join(webhook['kinds'])) or usual}, {whose}"


def shown(short: bool) -> output.Table:
    """`short`: for a terminal, with times as ages."""

    def state(webhook: Json) -> str:
        if not webhook["enabled"]:
            return click.style(f"off: {safe(webhook['disabled_why'])}", fg="red")
        if not webhook["failing_since"]:
            return ""
        since = moment(webhook["failing_since"], short)
        text = f"failing for {since.removesuffix(' ago')}" if short else f"failing since {since}"
        return click.style(text, fg="yellow")

    return {
        "ID": lambda webhook: safe(webhook["webhook_id"]),
        "WHERE": lambda webhook: safe(webhook["url"]),
        "FORM": lambda webhook: safe(webhook["form"]),
        "OWNER": lambda webhook: safe(webhook["owner"]) + (", all" if webhook["everything"] else ""),
        "HEARS": lambda webhook: (
            safe(",".join(webhook["kinds"])) or ("all" if webhook["form"] == "standard" else "usual")
        ),
        "SINCE": lambda webhook: moment(webhook["created_at"], short),
        "NOTE": lambda webhook: safe(webhook["note"]),
        "": state,
    }


def _sent(short: bool) -> output.Table:
    return {
        "NUMBER": lambda delivery: str(delivery["delivery_id"]),
        "AT": lambda delivery: moment(delivery["at"], short),
        "RUN": lambda delivery: safe(delivery["run_id"] or DASH),
        "KIND": lambda delivery: safe(delivery["kind"]),
        "STATE": lambda delivery: click.style(safe(delivery["state"]), fg=STATES.get(delivery["state"], "white")),
        "TRIES": lambda delivery: str(delivery["tries"]),
        "STATUS": lambda delivery: str(delivery["status"] or DASH),
        "NEXT TRY": lambda delivery: moment(delivery["next_try_at"], short),
        "WHY": lambda delivery: safe(delivery["detail"]),
    }
