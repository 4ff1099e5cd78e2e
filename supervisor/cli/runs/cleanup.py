"""`submit --cleanup-all`: stop every active run of this supervisor, wait until the cloud says that their machines are
gone, release what serves nobody, and only then submit. What others have in the project is never touched.
"""

from __future__ import annotations

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.machines.machines import machine_lines, project, rate, refused
from supervisor.cli.runs import fleet
from supervisor.cli.words import safe
from supervisor.wording.figures import plural


def clean_up(client: Client, yes: bool, dry_run: bool = False) -> bool:
    """False: the person left while machines were on their way. All words go to standard error, since the output is the
    submitted run's. Raises UsageError where nobody can be asked, Abort where somebody says no."""
    answer = client.get("/v1/machines")
    runs, orphans = fleet.stoppable(answer), _orphans(answer)
    _show(answer, runs, orphans)
    if not runs and not orphans:
        output.note("Nothing to clean up.")
        return True
    if dry_run:
        output.note("This is a dry run: nothing is stopped or released.")
        return True
    what = " and ".join(
        [*([f"stop {plural(len(runs), 'run')} ({fleet.cost_of(runs)})"] if runs else []),
         *([f"release {plural(len(orphans), 'machine')} without a run"] if orphans else [])]
    )  # fmt: skip
    if not output.confirmed(f"First {what} in {project(answer['account'])}?", yes):
        raise click.Abort
    if runs and not _stop(client, runs):
        return False
    _release(client)
    return True


def _orphans(answer: Json) -> list[Json]:
    return [one for one in answer["machines"] if one["use"] == "orphan"]


def _show(answer: Json, runs: list[Json], orphans: list[Json]) -> None:
    for line in [*fleet.run_lines(runs), *machine_lines(orphans)]:
        output.note(line)
    for run in fleet.spared(answer):
        output.note(
            f"{safe(run['run_id'])} is {safe(run['status'])} and keeps its machine: it is left as it is."
        )
    if answer["unread_zones"]:
        output.note(
            f"Not read: {', '.join(map(safe, answer['unread_zones']))}. Machines there are not touched."
        )


def _stop(client: Client, runs: list[Json]) -> bool:
    for run in fleet.stop_each(client, runs):
        output.note(output.told(run))
    left = fleet.wait_gone(client, [run["run_id"] for run in runs], output.note)
    if left:
        output.note(
            f"\nLeft; nothing was submitted. Still on the way: {'; '.join(left)}. They go on stopping:"
            " spot ls --machines"
        )
        return False
    output.note("Their machines are gone.")
    return True


def _release(client: Client) -> None:
    done = client.post("/v1/gc", {"dry_run": False})
    if done["released"]:
        many = plural(len(done["released"]), "machine")
        cost = rate(done["usd_per_h"], len(done["released"]), done["unpriced"])
        output.note(f"{many} without a run released, {cost}.")
    for one in refused(done):
        output.note(
            f"{safe(one['machine'])} in {safe(one['zone'])} is still there: {safe(one['why'])}. spot gc"
        )
