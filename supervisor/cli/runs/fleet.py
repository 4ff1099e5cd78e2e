"""All active runs at once: which they are and what they cost, stopping each the normal way, and waiting until the cloud
says that their machines are gone.

Which runs are meant comes with the machines: those of the supervisor's own cell. A run whose work is verified waits for
a person, and a machine that is kept is kept on purpose: both are told of and left as they are.

`submit --cleanup-all` stops every active run of this supervisor, waits, releases what serves nobody, and only then
submits. What others have in the project is never touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, pages, run_path
from supervisor.cli.exits import TIMEOUT, CliError, Problem
from supervisor.cli.finding import TERMINAL
from supervisor.cli.machines.machines import machine_lines, project, rate, refused
from supervisor.cli.output import safe
from supervisor.domain.status import ACTIVE
from supervisor.wording.figures import DASH, money, plural

POLL_S = 3.0
MOST = 100_000
PATIENCE_S = 1800.0  # the longest stop grace and a slow delete together
RUNS: output.Table = {
    "RUN": lambda run: safe(run["run_id"]),
    "STATUS": lambda run: output.status_mark(run["status"]),
    "$/H": lambda run: money(run.get("usd_per_h")),
    "MACHINE": lambda run: ", ".join(safe(name) for name in run["machines"]) or DASH,
}
ON_ITS_WAY = ("serves", "retiring")


def stoppable(answer: Json) -> list[Json]:
    """Of `GET /v1/machines`: the runs that a stop would end."""
    return [run for run in answer["runs"] if run["status"] not in (*TERMINAL, "awaiting_teardown")]


def active(client: Client) -> list[Json]:
    """The same, also while the cloud does not answer: then every active run that the supervisor has."""
    try:
        return stoppable(client.get("/v1/machines"))
    except Problem as error:
        if error.status != 503:
            raise
        output.note(error.text)
    statuses = sorted(str(status) for status in ACTIVE if status != "awaiting_teardown")
    runs = [run for page in pages(client, "/v1/runs", "runs", MOST, status=statuses) for run in page["runs"]]
    return [
        {"run_id": run["run_id"], "status": run["status"], "usd_per_h": run.get("price_usd_per_h"), "machines": [],
         "kept": False}
        for run in runs
    ]  # fmt: skip


def spared(answer: Json) -> list[Json]:
    """Runs whose machines stay, because somebody still needs them."""
    return [run for run in answer["runs"] if run["status"] == "awaiting_teardown" or run["kept"]]


def run_lines(runs: Sequence[Json]) -> list[str]:
    return output.table(RUNS, runs) if runs else []


def cost_of(runs: Sequence[Json]) -> str:
    """`$3.60/h, and 1 of unknown price`."""
    rates = [run["usd_per_h"] for run in runs if run.get("usd_per_h") is not None]
    return rate(sum(rates), len(runs), len(runs) - len(rates))


def stop_each(client: Client, runs: Sequence[Json]) -> list[Json]:
    """Every one is asked to stop before any is waited for. A run that is gone meanwhile is no error."""
    stopped = []
    for run in runs:
        try:
            stopped.append(client.post(run_path(run["run_id"], "stop"), {}))
        except Problem as error:
            if error.status != 404:
                raise
    return stopped


def wait_gone(client: Client, names: Sequence[str], say: Callable[[str], None]) -> list[str]:
    """Until no machine of these runs is left, by the supervisor's rows and by the cloud's own list. What is still
    on the way when the person leaves (Ctrl-C); empty = all gone. Raises CliError (exit 8) after PATIENCE_S."""
    wanted, last_text, left = set(names), "", [str(name) for name in names]
    until = time.monotonic() + PATIENCE_S
    try:
        while True:
            answer = client.patiently(lambda: client.get("/v1/machines"), output.note)
            left = _left(answer, wanted)
            if not left:
                return []
            if "; ".join(left) != last_text:
                last_text = "; ".join(left)
                say(f"Waiting until they are gone: {last_text}. Ctrl-C leaves.")
            if time.monotonic() > until:
                raise CliError(
                    f"Still there after {PATIENCE_S / 60:.0f} min: {last_text}.",
                    TIMEOUT,
                    "TIMEOUT",
                    ("spot ls --machines",),
                )
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        return left


def _left(answer: Json, wanted: set[str]) -> list[str]:
    """`digits-7 (spot-… , stopping)` for each run that is not over and gone. A zone that could not be read may hide a
    machine: the supervisor's own row tells of it until the cloud has said that it is gone."""
    kept = {run["run_id"] for run in spared(answer)}
    left = {}
    for run in answer["runs"]:
        if run["run_id"] in wanted - kept and (run["status"] not in TERMINAL or run["machines"]):
            where = ", ".join(safe(name) for name in run["machines"]) or "no machine"
            left[run["run_id"]] = f"{safe(run['run_id'])} ({where}, {safe(run['status'])})"
    for machine in answer["machines"]:
        name = machine.get("run_id")
        if name in wanted - kept and machine["use"] in ON_ITS_WAY:
            left.setdefault(
                name, f"{safe(name)} ({safe(machine['machine'])} in {safe(machine['zone'])}, {safe(machine['state'])})"
            )
    return list(left.values())


def clean_up(client: Client, yes: bool, dry_run: bool = False) -> bool:
    """False: the person left while machines were on their way. All words go to standard error, since the output is the
    submitted run's. Raises UsageError where nobody can be asked, Abort where somebody says no."""
    answer = client.get("/v1/machines")
    runs, orphans = stoppable(answer), _orphans(answer)
    _show_plan(answer, runs, orphans)
    if not runs and not orphans:
        output.note("Nothing to clean up.")
        return True
    if dry_run:
        output.note("This is a dry run: nothing is stopped or released.")
        return True
    what = " and ".join(
        [*([f"stop {plural(len(runs), 'run')} ({cost_of(runs)})"] if runs else []),
         *([f"release {plural(len(orphans), 'machine')} without a run"] if orphans else [])]
    )  # fmt: skip
    if not output.confirmed(f"First {what} in {project(answer['account'])}?", yes):
        raise click.Abort
    if runs and not _stop(client, runs):
        return False
    _release(client)
    return True


def _orphans(answer: Json) -> list[Json]:
    return [machine for machine in answer["machines"] if machine["use"] == "orphan"]


def _show_plan(answer: Json, runs: list[Json], orphans: list[Json]) -> None:
    for line in [*run_lines(runs), *machine_lines(orphans)]:
        output.note(line)
    for run in spared(answer):
        output.note(f"{safe(run['run_id'])} is {safe(run['status'])} and keeps its machine: it is left as it is.")
    if answer["unread_zones"]:
        output.note(f"Not read: {', '.join(map(safe, answer['unread_zones']))}. Machines there are not touched.")


def _stop(client: Client, runs: list[Json]) -> bool:
    for run in stop_each(client, runs):
        output.note(output.run_line(run))
    left = wait_gone(client, [run["run_id"] for run in runs], output.note)
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
    for machine in refused(done):
        output.note(
            f"{safe(machine['machine'])} in {safe(machine['zone'])} is still there: {safe(machine['why'])}. spot gc"
        )
