"""gpus: the GPUs of the supervisor's own computer, and the word that one is back."""

from __future__ import annotations

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.options import output_option, server_options
from supervisor.cli.words import safe
from supervisor.wording.figures import DASH

TITLES = ("GPU", "NAME", "UUID", "STATE")


@click.command()
@click.option("--back", metavar="UUID", help="Say that this GPU works again: runs may have it.")
@output_option
@server_options
def gpus(client: Client, form: str, back: str | None) -> None:
    """Show the GPUs of the supervisor's computer: who has each, and which are set aside as broken.

    A GPU that its driver calls broken is given to no run before you say that it is back.
    """
    if back is not None:
        done = client.post("/v1/gpus/back", {"gpu": back})
        if not output.emit(done, [done], form, "gpu"):
            click.echo(f"{safe(done['gpu'])} is back: the next run that needs a GPU may have it.")
            output.note("A run that waits asks again by itself; spot retry RUN asks now.")
        return
    answer = client.get("/v1/gpus")
    if output.emit(answer, answer["gpus"], form, "uuid"):
        return
    for line in output.columns(TITLES, [_row(one) for one in answer["gpus"]]):
        click.echo(line)
    for one in answer["gpus"]:
        if one["set_aside"]:
            output.note(f"When it works again: spot gpus --back {safe(one['uuid'])}")


def _row(one: Json) -> list[str]:
    index = DASH if one["index"] is None else str(one["index"])
    return [index, safe(one["name"] or DASH), safe(one["uuid"]), safe(one["state"])]
