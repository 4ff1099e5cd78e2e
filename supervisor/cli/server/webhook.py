"""webhook: where announcements are sent. The secret of a new webhook is printed once, alone on its line."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from supervisor.cli.client import Client, Json, pages
from supervisor.cli.exits import FAILED, Problem
from supervisor.cli.options import json_flag, json_options, limit_option, output_options, since_option, yes_option
from supervisor.cli.output import Table, confirm, emit, note, safe, suggest, utc_minute, when
from supervisor.wording.figures import DASH, plural

STATE_COLORS = {"delivered": "green", "pending": "yellow", "given_up": "red"}
FORMS = ("standard", "slack", "discord")


def webhook_state(webhook: Json) -> str:
    if not webhook["enabled"]:
        return click.style(f"off: {safe(webhook['disabled_why'])}", fg="red")
    if not webhook["failing_since"]:
        return ""
    since = when(webhook["failing_since"])
    text = f"failing for {since.removesuffix(' ago')}" if since.endswith(" ago") else f"failing since {since}"
    return click.style(text, fg="yellow")


WEBHOOKS = Table(
    "webhook_id",
    {
        "ID": lambda webhook: safe(webhook["webhook_id"]),
        "URL": lambda webhook: safe(webhook["url"]),
        "FORM": lambda webhook: safe(webhook["form"]),
        "OWNER": lambda webhook: safe(webhook["owner"]) + (", all" if webhook["everything"] else ""),
        "KINDS": lambda webhook: (
            safe(",".join(webhook["kinds"])) or ("all" if webhook["form"] == "standard" else "usual")
        ),
        "SINCE": lambda webhook: when(webhook["created_at"]),
        "NOTE": lambda webhook: safe(webhook["note"]),
        "": webhook_state,
    },
    spare=("SINCE", "FORM", "NOTE", "OWNER"),
)
DELIVERIES = Table(
    "delivery_id",
    {
        "NUMBER": lambda delivery: str(delivery["delivery_id"]),
        "AT": lambda delivery: when(delivery["at"]),
        "RUN": lambda delivery: safe(delivery["run_id"] or DASH),
        "KIND": lambda delivery: safe(delivery["kind"]),
        "STATE": lambda delivery: click.style(safe(delivery["state"]), fg=STATE_COLORS.get(delivery["state"], "white")),
        "TRIES": lambda delivery: str(delivery["tries"]),
        "STATUS": lambda delivery: str(delivery["status"] or DASH),
        "NEXT TRY": lambda delivery: when(delivery["next_try_at"]),
        "WHY": lambda delivery: safe(delivery["detail"]),
    },
    spare=("STATUS", "TRIES", "AT"),
)


@click.group()
def webhook() -> None:
    """Send announcements to Slack, to Discord, or signed to your own receiver."""


@webhook.command()
@click.argument("address", metavar="URL")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only this kind of announcement; repeatable.")
@click.option("--form", "message_form", type=click.Choice(FORMS), help="Form of the messages (default: by the host).")
@click.option("--everything", is_flag=True, help="Of all owners and of the supervisor; for administrators.")
@click.option("--note", "note_text", default="", metavar="TEXT", help="A note for people.")
@json_options
def add(
    *,
    client: Client,
    address: str,
    kinds: tuple[str, ...],
    message_form: str | None,
    everything: bool,
    note_text: str,
    form: str,
) -> None:
    """Add a webhook: send announcements to URL from now on. Without --kind: all; to Slack and Discord those that need
    you or end a run."""
    body: dict[str, Any] = {"url": address, "kinds": list(dict.fromkeys(kinds)), "note": note_text}
    body |= {"everything": everything} | ({"form": message_form} if message_form else {})
    try:
        added = client.post("/v1/webhooks", body)
    except Problem as error:
        if error.code == "URL_REFUSED":
            error.hints = ("for a receiver in a private network, the administrator sets webhook_allow_hosts",)
        raise
    if emit(added, [added], form, WEBHOOKS.key):
        return
    name = safe(added["webhook_id"])
    note(f"Webhook {name} to {safe(added['url'])} sends {_announcements(added)}.")
    _show_secret(added)
    note(f"Test it:    spot webhook test {name}")
    note(f"Remove it:  spot webhook rm {name}")


@webhook.command()
@json_flag
@output_options
def ls(client: Client, form: str) -> None:
    """List the webhooks, and whether their messages are accepted."""
    response = client.get("/v1/webhooks")
    if WEBHOOKS.show(response, response["webhooks"], form):
        if not response["webhooks"]:
            note("There is no webhook yet.")
        suggest("spot webhook add URL")


@webhook.command()
@click.argument("webhook_id", metavar="ID")
@json_options
@click.pass_context
def test(ctx: click.Context, /, client: Client, webhook_id: str, form: str) -> None:
    """Send a message that is marked as a test. Exit 1 where it is not accepted."""
    response = client.post(_path(webhook_id, "test"), {})
    if not emit(response, [response], form, WEBHOOKS.key):
        if response["delivered"]:
            click.echo(f"{safe(webhook_id)} accepted a test message (HTTP {response['status']}).")
        else:
            note(f"{safe(webhook_id)} did not accept a test message: {safe(response['detail'])}.")
    if not response["delivered"]:
        ctx.exit(FAILED)


@webhook.command()
@click.argument("webhook_id", metavar="ID")
@click.option("--failed", is_flag=True, help="Only messages that were given up.")
@limit_option
@json_flag
@output_options
def deliveries(*, client: Client, webhook_id: str, failed: bool, limit: int, form: str) -> None:
    """List the messages to a webhook, the newest first."""
    query = {"failed": "true"} if failed else {}
    records: list[Json] = []
    for page in pages(client, _path(webhook_id, "deliveries"), "deliveries", limit, **query):
        records += page["deliveries"]
    if DELIVERIES.show({"deliveries": records}, records, form):
        if not records:
            note("No message was given up." if failed else "No message was sent yet.")
        if any(record["state"] == "given_up" for record in records):
            suggest(f"spot webhook replay {safe(webhook_id)} --failed")


@webhook.command()
@click.argument("webhook_id", metavar="ID")
@click.argument("number", required=False, type=click.IntRange(1))
@click.option("--failed", is_flag=True, help="All messages that were given up, instead of NUMBER.")
@since_option("With --failed: within this time (default: 7d).")
@json_options
def replay(*, client: Client, webhook_id: str, number: int | None, failed: bool, since: str | None, form: str) -> None:
    """Send message NUMBER again, or with --failed all that failed. They keep their ids."""
    if failed == (number is not None):
        raise click.UsageError("Give either the NUMBER of one message, or --failed.")
    if number is not None:
        response = client.post(_path(webhook_id, "deliveries", str(number), "replay"), {})
    else:
        response = client.post(_path(webhook_id, "replay"), {"since": since} if since else {})
    if not emit(response, [response], form, "replayed"):
        click.echo(f"{plural(response['replayed'], 'message')} to be sent again.")
        suggest(f"spot webhook deliveries {safe(webhook_id)}")


@webhook.command()
@click.argument("webhook_id", metavar="ID")
@json_options
def rotate(client: Client, webhook_id: str, form: str) -> None:
    """Make a new secret, shown once. For 24 hours each message carries both signatures."""
    rotated = client.post(_path(webhook_id, "rotate"), {})
    if not emit(rotated, [rotated], form, WEBHOOKS.key):
        until = utc_minute(rotated["old_secret_until"])
        note(f"Webhook {safe(rotated['webhook_id'])}: the old secret signs too until {until}.")
        _show_secret(rotated)


@webhook.command()
@click.argument("webhook_id", metavar="ID")
@json_options
def enable(client: Client, webhook_id: str, form: str) -> None:
    """Switch a webhook on. Its waiting messages are sent now."""
    _switch(client, webhook_id, True, form)


@webhook.command()
@click.argument("webhook_id", metavar="ID")
@json_options
def disable(client: Client, webhook_id: str, form: str) -> None:
    """Switch a webhook off. Its waiting messages are kept; until it is on again, no message is added."""
    _switch(client, webhook_id, False, form)


@webhook.command()
@click.argument("webhook_id", metavar="ID")
@yes_option()
@json_options
def rm(client: Client, webhook_id: str, yes: bool, form: str) -> None:
    """Remove a webhook and the record of its messages."""
    confirm(f"Remove webhook {safe(webhook_id)} and its waiting messages?", yes)
    removed = client.send("DELETE", _path(webhook_id)).json()
    if not emit(removed, [removed], form, WEBHOOKS.key):
        click.echo(f"Webhook {safe(removed['webhook_id'])} to {safe(removed['url'])} is removed.")


def _switch(client: Client, webhook_id: str, enabled: bool, form: str) -> None:
    webhook = client.send("PATCH", _path(webhook_id), body={"enabled": enabled}).json()
    if not emit(webhook, [webhook], form, WEBHOOKS.key):
        click.echo(f"Webhook {safe(webhook['webhook_id'])} is {'on' if webhook['enabled'] else 'off'}.")


def _path(webhook_id: str, *more: str) -> str:
    return "/".join(["/v1/webhooks", quote(webhook_id, safe=""), *more])


def _show_secret(webhook: Json) -> None:
    if webhook["secret"]:
        note("Its messages are signed with this secret, which is shown only once:")
        click.echo(safe(webhook["secret"]))


def _announcements(webhook: Json) -> str:
    usual = "all announcements" if webhook["form"] == "standard" else "announcements that need you or end a run"
    whose = "of every owner" if webhook["everything"] else f"of runs of {safe(webhook['owner'])}"
    return f"{safe(', '.join(webhook['kinds'])) or usual}, {whose}"
