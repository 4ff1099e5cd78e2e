"""The machines that there are now: how they look, `gc`, which releases those that serve nobody, and `gpus`: the GPUs of
the supervisor's own computer, and the word that one is back.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import FAILED
from supervisor.cli.options import output_option, server_options
from supervisor.cli.output import safe
from supervisor.cli.views.runs import where
from supervisor.wording.figures import DASH, duration, money, plural

MACHINES: output.Table = {
    "MACHINE": lambda machine: safe(machine["machine"]),
    "WHERE": where,
    "STATE": lambda machine: safe(machine["state"]),
    "AGE": lambda machine: duration(machine.get("age_s")),
    "RUN": lambda machine: safe((machine.get("ours") and machine.get("run_id")) or DASH),
    "ATT": lambda machine: str(machine.get("attempt") or DASH),
    "$/H": lambda machine: money(machine.get("usd_per_h")),
    "WHAT FOR": lambda machine: safe(machine.get("why") or ""),
}
GPUS: output.Table = {
    "GPU": lambda gpu: DASH if gpu["index"] is None else str(gpu["index"]),
    "NAME": lambda gpu: safe(gpu["name"] or DASH),
    "UUID": lambda gpu: safe(gpu["uuid"]),
    "STATE": lambda gpu: safe(gpu["state"]),
}
MISSING_NAMED = 3
ROOMY = 100  # columns


def show_machines(client: Client, form: str, everything: bool) -> None:
    """`spot ls --machines [--all]`."""
    answer = client.get("/v1/machines", all="true" if everything else None)
    if output.emit(answer, answer["machines"], form, "machine"):
        return
    output.show(machine_lines(answer["machines"]))
    click.echo(footer(answer))
    for line in hints(answer, everything):
        output.note(line)


def machine_lines(machines: Sequence[Json]) -> list[str]:
    """A table. On a narrow terminal without what is least missed, so that nothing in it is cut: what a machine is for
    where each serves its run, else its age and the number of its attempt."""
    if not machines:
        return []
    room, left_out = output.terminal_columns(), set[str]()
    if room is not None and room < ROOMY:
        serving = all(machine["use"] == "serves" for machine in machines)
        left_out = {"WHAT FOR"} if serving else {"AGE", "ATT"}
    return output.table({title: cell for title, cell in MACHINES.items() if title not in left_out}, machines)


def project(account: Json) -> str:
    """`project my-project (123456789012)`; what these machines belong to, as far as it is told."""
    name, number = account.get("name"), account.get("number")
    if not name:
        return f"provider {safe(account['provider'])}"
    noun = f"{safe(account['noun'])} " if account.get("noun") else ""
    return f"{noun}{safe(name)}" + (f" ({safe(number)})" if number else "")


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
    lines, summary, missing = [], answer["summary"], answer["missing"]
    if answer["unread_zones"]:
        zones = ", ".join(safe(zone) for zone in answer["unread_zones"])
        lines.append(f"Not read: {zones}. There may be machines there.")
    orphans = sum(machine["use"] == "orphan" for machine in answer["machines"])
    if orphans:
        lines.append(f"{plural(orphans, 'machine')} of ours {_serves(orphans)} no live run: spot gc")
    if summary["foreign"] and not everything:
        lines.append(f"{plural(summary['foreign'], 'machine')} of others: spot ls --machines --all")
    if missing:
        lines += _missing(answer)
    return lines


def _missing(answer: Json) -> list[str]:
    missing, account = answer["missing"], answer["account"]
    named = ", ".join(
        f"{safe(machine['run_id'])} ({safe(machine['machine'])} in {safe(machine['zone'])})"
        for machine in missing[:MISSING_NAMED]
    )
    more = len(missing) - MISSING_NAMED
    lines = [f"Not seen, though a run thinks it has it: {named}" + (f" and {more} more" if more > 0 else "") + "."]
    if not answer["summary"]["ours"] and account.get("compare"):
        lines.append(f"This supervisor looks at {project(account)}. {safe(account['compare'])}")
    return lines


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
    return [machine for machine in done["left"] if machine["use"] == "orphan" and "repeat" in machine["why"]]


def _tell(answer: Json, what: str) -> None:
    released, left = answer["released"], answer["left"]
    output.show(machine_lines([*released, *left]))
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
    output.show(output.table(GPUS, answer["gpus"]))
    for gpu in answer["gpus"]:
        if gpu["set_aside"]:
            output.note(f"When it works again: spot gpus --back {safe(gpu['uuid'])}")
