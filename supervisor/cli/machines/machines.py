"""The machines that exist now: `ls --machines`, `gc`, which releases machines without a run, and `gpus`.

`gc` and `ls --machines` show the same table. Machines that carry no id of this supervisor are counted, never touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import CONFLICT, FAILED, NOT_FOUND, CliError
from supervisor.cli.options import output_options, yes_option
from supervisor.cli.output import Table, safe, when
from supervisor.cli.views.profile import meter_lines
from supervisor.cli.views.runs import where
from supervisor.domain.status import TERMINAL
from supervisor.wording.figures import DASH, duration, money, plural

MACHINES = Table(
    "machine",
    {
        "MACHINE": lambda machine: safe(machine["machine"]),
        "WHERE": where,
        "STATE": lambda machine: safe(machine["state"]),
        "AGE": lambda machine: duration(machine.get("age_s")),
        "RUN": lambda machine: safe((machine.get("ours") and machine.get("run_id")) or DASH),
        "ATT": lambda machine: str(machine.get("attempt") or DASH),
        "$/H": lambda machine: money(machine.get("usd_per_h")),
        "USE": lambda machine: safe(machine.get("why") or ""),
    },
    spare=("AGE", "ATT"),
)
SERVING_MACHINES = replace(MACHINES, spare=("USE",))  # where each machine serves its run, USE says little
GPUS = Table(
    "uuid",
    {
        "GPU": lambda gpu: DASH if gpu["index"] is None else str(gpu["index"]),
        "NAME": lambda gpu: safe(gpu["name"] or DASH),
        "UUID": lambda gpu: safe(gpu["uuid"]),
        "STATE": lambda gpu: safe(gpu["state"]),
    },
)
KEPT = Table(
    "machine",
    {
        "MACHINE": lambda machine: safe(machine["machine"]),
        "WHERE": where,
        "RUN": lambda machine: f"{safe(machine['run_id'])} ({safe(machine['run_status'])})",
        "OFF": lambda machine: "no" if machine["off_since"] is None else when(machine["off_since"]),
        "$/H": lambda machine: money(machine["usd_per_h"]),
        "DELETED": lambda machine: "now" if machine["given_up"] else when(machine["deleted_at"]),
    },
    spare=("OFF",),
)
MISSING_SHOWN = 3


def show_machines(client: Client, form: str, everything: bool) -> None:
    """`spot ls --machines [--all]`."""
    response = client.get("/v1/machines", all="true" if everything else None)
    if output.emit(response, response["machines"], form, MACHINES.key):
        return
    output.show(machine_lines(response["machines"]))
    summary = response["summary"]
    now = rate(summary["usd_per_h"], summary["ours"], summary["unpriced"])
    click.echo(" · ".join([plural(summary["ours"], "machine"), f"{now} now", project(response["account"])]))
    output.show(meter_lines(response.get("meters", ())))
    for line in _hints(response, everything):
        output.note(line)


def machine_lines(machines: Sequence[Json]) -> list[str]:
    """The table; nothing without machines."""
    table = SERVING_MACHINES if all(machine["use"] == "serves" for machine in machines) else MACHINES
    return table.lines(machines) if machines else []


def project(account: Json) -> str:
    """`project my-project (123456789012)`: the account of the machines, as far as it is known."""
    name, number = account.get("name"), account.get("number")
    if not name:
        return f"provider {safe(account['provider'])}"
    noun = f"{safe(account['noun'])} " if account.get("noun") else ""
    return f"{noun}{safe(name)}" + (f" ({safe(number)})" if number else "")


def rate(usd_per_h: float, count: int, unpriced: int) -> str:
    """`$0.35/h, and 1 of unknown price`: an unknown price is never $0."""
    if not unpriced:
        return f"{money(usd_per_h)}/h"
    return "price unknown" if unpriced == count else f"{money(usd_per_h)}/h, and {unpriced} of unknown price"


def _hints(response: Json, everything: bool) -> list[str]:
    """Zones that were not read, machines without a run, foreign machines, and machines that a run misses."""
    lines, summary = [], response["summary"]
    if response["unread_zones"]:
        zones = ", ".join(map(safe, response["unread_zones"]))
        lines.append(f"Not read: {zones}. Machines there are not listed.")
    orphans = sum(machine["use"] == "orphan" for machine in response["machines"])
    if orphans:
        lines.append(f"{plural(orphans, 'machine')} of ours without a live run: spot gc")
    if summary["foreign"] and not everything:
        lines.append(f"{plural(summary['foreign'], 'machine')} not ours: spot ls --machines --all")
    return lines + (_missing(response) if response["missing"] else [])


def _missing(response: Json) -> list[str]:
    missing, account = response["missing"], response["account"]
    names = ", ".join(
        f"{safe(machine['run_id'])} ({safe(machine['machine'])} in {safe(machine['zone'])})"
        for machine in missing[:MISSING_SHOWN]
    )
    more = len(missing) - MISSING_SHOWN
    lines = [f"Missing machines of runs: {names}" + (f" and {more} more" if more > 0 else "") + "."]
    if not response["summary"]["ours"] and account.get("compare"):
        lines.append(f"This supervisor uses {project(account)}. {safe(account['compare'])}")
    return lines


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be released.")
@yes_option()
@output_options
@click.pass_context
def gc(ctx: click.Context, /, client: Client, form: str, dry_run: bool, yes: bool) -> None:
    """Release the machines of this supervisor that serve no run. Machines of others are never touched."""
    plan = client.post("/v1/gc", {"dry_run": True})
    due = plan["released"]
    if dry_run or not due:
        _show_release(plan, form, "would be released")
        return
    if form == "table":
        _show_release(plan, form, "would be released")
    output.confirm(f"Release {plural(len(due), 'machine')} ({_sum(plan)}) in {project(plan['account'])}?", yes)
    done = client.post("/v1/gc", {"dry_run": False})
    _show_release(done, form, "released")
    if refused(done):
        ctx.exit(FAILED)


def refused(done: Json) -> list[Json]:
    """Machines due for release whose release the platform refused."""
    return [machine for machine in done["left"] if machine["use"] == "orphan" and "repeat" in machine["why"]]


def _show_release(response: Json, form: str, what: str) -> None:
    released, left, serving = response["released"], response["left"], response["serving"]
    if output.emit(response, released, form, MACHINES.key):
        return
    output.show(machine_lines([*released, *left]))
    if released:
        click.echo(f"{plural(len(released), 'machine')} {what}, {_sum(response)}.")
    else:
        click.echo(
            f"Nothing to release: {plural(serving, 'machine') + ' in use' if serving else 'no machine of ours'}."
        )
    if left:
        click.echo(f"{plural(len(left), 'machine')} left for the reason in USE.")
    if response["foreign"]:
        output.note(f"{plural(response['foreign'], 'machine')} not ours: never touched.")
    if response["unread_zones"]:
        output.note(f"Not read, so nothing there is touched: {', '.join(map(safe, response['unread_zones']))}.")


def _sum(response: Json) -> str:
    return rate(response["usd_per_h"], len(response["released"]), response["unpriced"])


@click.command()
@click.option("--back", metavar="UUID", help="This GPU works again: runs may use it.")
@output_options
def gpus(client: Client, form: str, back: str | None) -> None:
    """Show the GPUs of the supervisor's computer: which run has each, and which are set aside as broken.

    No run gets a GPU that its driver reports as broken, until you return it with --back.
    """
    if back is not None:
        done = client.post("/v1/gpus/back", {"gpu": back})
        if not output.emit(done, [done], form, "gpu"):
            click.echo(f"{safe(done['gpu'])} is back: the next run that needs a GPU may use it.")
            output.note("A waiting run retries by itself; spot retry RUN retries now.")
        return
    response = client.get("/v1/gpus")
    if GPUS.show(response, response["gpus"], form):
        for gpu in response["gpus"]:
            if gpu["set_aside"]:
                output.note(f"When it works again: spot gpus --back {safe(gpu['uuid'])}")


@click.group()
def machine() -> None:
    """Machines that runs keep switched off, with their disks, for their next attempt (`keep: machine`).

    NAME is the name of the machine or the id of its run.
    """


@machine.command("ls", short_help="List the kept machines.")
@output_options
def machine_ls(client: Client, form: str) -> None:
    """List the kept machines, with the price of their disks and the time of their deletion."""
    response = client.get("/v1/machines/kept")
    if not response["machines"] and form == "table":
        output.note("No machine is kept. `keep: machine` in a spec keeps one: see docs/keep.md.")
        return
    if KEPT.show(response, response["machines"], form):
        for kept in response["machines"]:
            if kept["refusal"] and not kept["given_up"]:
                output.note(f"{safe(kept['machine'])} could not be started: {safe(kept['refusal'])}")


@machine.command("start", short_help="Start it now for the next attempt of its run.")
@click.argument("name")
@output_options
def machine_start(client: Client, form: str, name: str) -> None:
    """Start it now for the next attempt of its run: a waiting run tries at once, an ended one is resumed."""
    kept = _kept(client, name)
    action = "resume" if kept["run_status"] in TERMINAL else "retry"
    run = client.post(run_path(kept["run_id"], action), {})
    output.show_run(run, form)


@machine.command("stop", short_help="Stop the run that trains on it, and keep it.")
@click.argument("name", metavar="RUN")
@yes_option()
@output_options
def machine_stop(client: Client, form: str, name: str, yes: bool) -> None:
    """Stop the run that trains on it: its checkpoint is saved, then the machine is switched off and kept."""
    if any(name in (kept["machine"], kept["run_id"]) for kept in client.get("/v1/machines/kept")["machines"]):
        output.note(f"{safe(name)} is off, or being switched off: nothing was changed.")
        return
    run = client.get(run_path(name))
    if client.get(run_path(name, "spec"))["spec"].get("keep") != "machine":
        text = f"{safe(name)} keeps no machine: a stop would delete it. `spot stop {safe(name)}` stops the run."
        raise CliError(text, CONFLICT, "NOTHING_KEPT")
    output.confirm(f"Stop {safe(run['run_id'])} and switch its machine off?", yes)
    output.show_run(client.post(run_path(name, "stop"), {}), form)


@machine.command("rm")
@click.argument("name")
@yes_option()
@output_options
def machine_rm(client: Client, form: str, name: str, yes: bool) -> None:
    """Delete a kept machine with its disks. Its run goes on from its checkpoint on a new one."""
    kept = _kept(client, name)
    output.confirm(f"Delete {safe(kept['machine'])} of {safe(kept['run_id'])} with its disks?", yes)
    output.show_run(client.post(run_path(kept["run_id"], "machine/delete"), {}), form)


def _kept(client: Client, name: str) -> Json:
    """The kept machine of this name, or of this run. Raises CliError."""
    machines = client.get("/v1/machines/kept")["machines"]
    matching = [kept for kept in machines if name in (kept["machine"], kept["run_id"])]
    if not matching:
        text = f"No run keeps a machine of the name {safe(name)} switched off; `spot machine ls` lists them."
        raise CliError(text, NOT_FOUND, "NOTHING_KEPT")
    return dict(matching[0])
