"""The machines that there are now: how they look, and `gc`, which releases those that serve nobody."""

from __future__ import annotations

from collections.abc import Sequence

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import FAILED
from supervisor.cli.options import output_option, server_options
from supervisor.cli.views.runs import where
from supervisor.cli.words import safe
from supervisor.wording.figures import DASH, duration, money, plural

TITLES = ("MACHINE", "WHERE", "STATE", "AGE", "RUN", "ATT", "$/H", "WHAT FOR")
MISSING_NAMED = 3
ROOMY = 100  # columns


def show_machines(client: Client, form: str, everything: bool) -> None:
    """`spot ls --machines [--all]`."""
    answer = client.get("/v1/machines", all="true" if everything else None)
    if output.emit(answer, answer["machines"], form, "machine"):
        return
    for line in machine_lines(answer["machines"]):
        click.echo(line)
    click.echo(footer(answer))
    for line in hints(answer, everything):
        output.note(line)


def machine_lines(machines: Sequence[Json]) -> list[str]:
    """A table. On a narrow terminal without what is least missed, so that nothing in it is cut: what a machine is for
    where each serves its run, else its age and the number of its attempt."""
    if not machines:
        return []
    rows = [_row(machine) for machine in machines]
    room, kept = output.terminal_columns(), list(range(len(TITLES)))
    if room is not None and room < ROOMY:
        if all(machine["use"] == "serves" for machine in machines):
            return output.columns(TITLES[:-1], [row[:-1] for row in rows])
        kept = [n for n in kept if TITLES[n] not in ("AGE", "ATT")]
    return output.columns([TITLES[n] for n in kept], [[row[n] for n in kept] for row in rows])


def _row(machine: Json) -> list[str]:
    foreign = not machine.get("ours")
    return [
        safe(machine["machine"]),
        where(machine),
        safe(machine["state"]),
        duration(machine.get("age_s")),
        DASH if foreign else safe(machine.get("run_id") or DASH),
        str(machine.get("attempt") or DASH),
        money(machine.get("usd_per_h")),
        safe(machine.get("why") or ""),
    ]


def project(account: Json) -> str:
    """`project my-project (123456789012)`; what these machines belong to, as far as it is told."""
    name, number = account.get("name"), account.get("number")
    if not name:
        return f"provider {safe(account['provider'])}"
    if account.get("provider") != "gce":
        return safe(name)
    return f"project {safe(name)}" + (f" ({safe(number)})" if number else "")


def footer(answer: Json) -> str:
    """`3 machines · $2.34/h now · project p (1234)`."""
    summary = answer["summary"]
    now = rate(summary["usd_per_h"], summary["ours"], summary["unpriced"])
    return " · ".join([plural(summary["ours"], "machine"), f"{now} now", project(answer["account"])])


def rate(usd_per_h: float, count: int, unpriced: int) -> str:
    """`$0.35/h, and 1 of unknown price`: what is not known is never $0."""
    if not unpriced:
        return f"{money(usd_per_h)}/h"
    return "price unknown" if unpriced == count else f"{money(usd_per_h)}/h, and {unpriced} of unknown price"


def hints(answer: Json, everything: bool) -> list[str]:
    """What else a person should know: zones that were not read, strangers, and a console that shows another project."""
    told, summary, missing = [], answer["summary"], answer["missing"]
    if answer["unread_zones"]:
        zones = ", ".join(safe(zone) for zone in answer["unread_zones"])
        told.append(f"Not read: {zones}. There may be machines there.")
    orphans = sum(one["use"] == "orphan" for one in answer["machines"])
    if orphans:
        told.append(f"{plural(orphans, 'machine')} of ours {_serves(orphans)} no live run: spot gc")
    if summary["foreign"] and not everything:
        told.append(f"{plural(summary['foreign'], 'machine')} of others: spot ls --machines --all")
    if missing:
        told += _missing(answer)
    return told


def _missing(answer: Json) -> list[str]:
    missing, account = answer["missing"], answer["account"]
    named = ", ".join(
        f"{safe(one['run_id'])} ({safe(one['machine'])} in {safe(one['zone'])})"
        for one in missing[:MISSING_NAMED]
    )
    more = len(missing) - MISSING_NAMED
    told = [
        f"Not seen, though a run thinks it has it: {named}" + (f" and {more} more" if more > 0 else "") + "."
    ]
    if not answer["summary"]["ours"] and account.get("provider") == "gce":
        name = safe(account.get("name") or "?")
        told.append(
            f"This supervisor looks at {project(account)}. Does your console or gcloud show another project? Compare: "
            f"gcloud config list; gcloud compute instances list --project={name}"
        )
    return told


def _serves(count: int) -> str:
    return "serves" if count == 1 else "serve"


@click.command()
@click.option("--dry-run", is_flag=True, help="Only tell what would be released.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option
@server_options
@click.pass_context
def gc(ctx: click.Context, /, client: Client, form: str, dry_run: bool, yes: bool) -> None:
    """Release the machines of this supervisor that serve no run. Those of others are never touched."""
    seen = client.post("/v1/gc", {"dry_run": True})
    due = seen["released"]
    if dry_run or not due:
        if not output.emit(seen, due, form, "machine"):
            _tell(seen, "would be released" if due else "")
        return
    if form == "table":
        _tell(seen, "would be released")
    many = plural(len(due), "machine")
    if not output.confirmed(f"Release {many} ({_sum(seen)}) in {project(seen['account'])}?", yes):
        raise click.Abort
    done = client.post("/v1/gc", {"dry_run": False})
    if not output.emit(done, done["released"], form, "machine"):
        _tell(done, "released")
    if refused(done):
        ctx.exit(FAILED)


def refused(done: Json) -> list[Json]:
    """Machines that should have gone now, and whose release was not taken."""
    return [one for one in done["left"] if one["use"] == "orphan" and "repeat" in one["why"]]


def _tell(answer: Json, what: str) -> None:
    released, left = answer["released"], answer["left"]
    for line in machine_lines([*released, *left]):
        click.echo(line)
    if released:
        click.echo(f"{plural(len(released), 'machine')} {what}, {_sum(answer)}.")
    else:
        click.echo("Nothing to release: " + (
            f"{plural(answer['serving'], 'machine')} in use." if answer["serving"] else "no machine of ours is there."
        ))  # fmt: skip
    if left:
        click.echo(f"{plural(len(left), 'machine')} left as said above.")
    if answer["foreign"]:
        output.note(f"{plural(answer['foreign'], 'machine')} of others: never touched.")
    if answer["unread_zones"]:
        output.note(f"Not read, so nothing there is touched: {', '.join(map(safe, answer['unread_zones']))}.")


def _sum(answer: Json) -> str:
    return rate(answer["usd_per_h"], len(answer["released"]), answer["unpriced"])
