"""base: scripts with a name that prepare machines, and the images of prepared disks where the provider makes any."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.client import Client
from supervisor.cli.exits import USAGE, CliError
from supervisor.cli.options import duration_s, json_options, not_empty, output_options, secret_reference
from supervisor.cli.output import Table, safe, when
from supervisor.wording.figures import DASH, money, size_text

BASES = Table(
    "name",
    {
        "BASE": lambda base: safe(base["name"]),
        "STATUS": lambda base: safe(base["status"]),
        "PROVIDER": lambda base: safe(base["provider"]),
        "CREATED": lambda base: when(base["created_at"]),
        "SIZE": lambda base: DASH if base["size_bytes"] is None else size_text(base["size_bytes"]),
        "$/MONTH": lambda base: money(base["usd_per_month"]),
        "WHY": lambda base: safe(base["detail"] or ""),
    },
    spare=("CREATED",),
)


@click.group()
def base() -> None:
    """Show, create and remove bases: prepared machines that many runs start from.

    A spec says `base: NAME`, and means the newest version of that name.
    """


@base.command(short_help="Create the next version of a base.")
@click.argument("name", metavar="NAME", callback=not_empty)
@click.option("--script", metavar="FILE", callback=not_empty, help="What prepares a machine; - is standard input.")
@click.option("--from", "from_run", metavar="RUN", callback=not_empty, help="Repeat the setup of this run.")
@click.option("--image", metavar="REF", callback=not_empty, help="Container image in which the script runs.")
@click.option("--provider", metavar="NAME", callback=not_empty, help="Where the machine is prepared.")
@click.option("--zone", "zones", metavar="ZONE", multiple=True, help="Only these zones; repeatable.")
@click.option("--shape", "shapes", metavar="SHAPE", multiple=True, help="Shape; repeatable. One without a GPU will do.")
@click.option("--secret", "secrets", metavar="NAME[=REF]", multiple=True, type=secret_reference, help="Its secret.")
@click.option("--setup-limit", "setup_s", metavar="TIME", type=duration_s, help="Longest time of the script (1h).")
@json_options
def create(client: Client, form: str, name: str, script: str | None, from_run: str | None, **machine: Any) -> None:
    """Create the next version of the base NAME, from a script or from the setup of a run."""
    if (script is None) == (from_run is None):
        raise click.UsageError("Use either --script FILE or --from RUN.")
    fields = {"name": name, "script": None if script is None else _read(script), "from_run": from_run, **machine}
    fields |= {"zones": list(machine["zones"]), "shapes": list(machine["shapes"]), "secrets": dict(machine["secrets"])}
    made = client.post("/v1/bases", {key: value for key, value in fields.items() if value})
    if output.emit(made, [made], form, "name"):
        return
    click.echo(f"Base {safe(made['name'])} is {safe(made['status'])}.")
    if made["run_id"] is not None:
        output.note(f"Its machine is prepared by the run {safe(made['run_id'])}: spot watch {safe(made['run_id'])}")


@base.command()
@output_options
def ls(client: Client, form: str) -> None:
    """List the bases, with their size and what their images cost."""
    response = client.get("/v1/bases")
    if output.emit(response, response["bases"], form, BASES.key):
        return
    output.show(BASES.lines(response["bases"]) if response["bases"] else [])
    if not response["bases"]:
        output.note("There is no base. `spot base create NAME --script FILE` makes one.")


@base.command()
@click.argument("name", metavar="NAME", callback=not_empty)
@json_options
def rm(client: Client, form: str, name: str) -> None:
    """Delete this version of a base, and its image."""
    gone = client.send("DELETE", f"/v1/bases/{name}").json()
    if not output.emit(gone, [gone], form, "name"):
        click.echo(f"Base {safe(gone['name'])} is {safe(gone['status'])}.")


def _read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise CliError(f"{path} cannot be read: {why}", USAGE, "SCRIPT_UNREADABLE") from None
