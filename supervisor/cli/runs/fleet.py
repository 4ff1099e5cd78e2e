"""All active runs at once: what they cost, stopping each of them, and waiting until the cloud lists their machines no
more. For `stop --all` and `submit --cleanup-all`.

The runs come with the machines, so they are those of the supervisor's own cell. A run whose results wait for an
approval and a machine that is kept on purpose are shown and left alone. Foreign machines in the project are never
touched.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from supervisor.cli import output
from supervisor.cli.client import Client, Json, pages, run_path
from supervisor.cli.exits import TIMEOUT, CliError, Problem
from supervisor.cli.machines.machines import machine_lines, project, rate, refused
from supervisor.cli.output import Table, note, safe
from supervisor.domain.status import ACTIVE, TERMINAL, Status
from supervisor.wording.figures import DASH, money, plural

POLL_S = 3.0
RUNS_MAX = 100_000
PATIENCE_S = 1800.0  # the longest stop grace and a slow delete together
APPROVAL = Status.AWAITING_TEARDOWN
LEAVING = ("serves", "retiring")  # uses of a machine that a stop ends
RUNS = Table(
    "run_id",
    {
        "RUN": lambda run: safe(run["run_id"]),
        "STATUS": lambda run: output.status_mark(run["status"]),
        "$/H": lambda run: money(run.get("usd_per_h")),
        "MACHINE": lambda run: ", ".join(map(safe, run["machines"])) or DASH,
    },
)


def active(client: Client) -> list[Json]:
    """The runs that a stop would end; while the cloud does not respond, every active run of the supervisor."""
    try:
        return _stoppable(client.get("/v1/machines"))
    except Problem as error:
        if error.status != 503:
            raise
        note(error.text)
    statuses = sorted(ACTIVE - {APPROVAL})
    runs = [run for page in pages(client, "/v1/runs", "runs", RUNS_MAX, status=statuses) for run in page["runs"]]
    return [
        {"run_id": run["run_id"], "status": run["status"], "usd_per_h": run.get("price_usd_per_h"), "machines": [],
         "kept": False}
        for run in runs
    ]  # fmt: skip


def _stoppable(response: Json) -> list[Json]:
    """Of `GET /v1/machines`."""
    return [run for run in response["runs"] if run["status"] not in (*TERMINAL, APPROVAL)]


def _spared(response: Json) -> list[Json]:
    """Runs whose machines are still needed."""
    return [run for run in response["runs"] if run["status"] == APPROVAL or run["kept"]]


def run_lines(runs: Sequence[Json]) -> list[str]:
    return RUNS.lines(runs) if runs else []


def cost_of(runs: Sequence[Json]) -> str:
    """`$3.60/h, and 1 of unknown price`."""
    rates = [run["usd_per_h"] for run in runs if run.get("usd_per_h") is not None]
    return rate(sum(rates), len(runs), len(runs) - len(rates))


def stop_each(client: Client, runs: Sequence[Json]) -> list[Json]:
    """Request all stops before any wait. A run that has disappeared meanwhile is no error."""
    stopped = []
    for run in runs:
        try:
            stopped.append(client.post(run_path(run["run_id"], "stop"), {}))
        except Problem as error:
            if error.status != 404:
                raise
    return stopped


def _wait_gone(client: Client, names: Sequence[str]) -> list[str]:
    """Wait until no machine of these runs is left, in the supervisor's records and in the cloud's list. The rest after
    Ctrl-C; empty = all are gone. Raises CliError (exit 8) after PATIENCE_S."""
    last_text, left = "", list(names)
    until = time.monotonic() + PATIENCE_S
    try:
        while True:
            response = client.patiently(lambda: client.get("/v1/machines"))
            left = _left(response, set(names))
            if not left:
                return []
            text = "; ".join(left)
            if text != last_text:
                last_text = text
                note(f"Waiting until they are gone: {text}. Ctrl-C leaves.")
            if time.monotonic() > until:
                reason = f"Still there after {PATIENCE_S / 60:.0f} min: {text}."
                raise CliError(reason, TIMEOUT, "TIMEOUT", ("spot ls --machines",))
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        return left


def _left(response: Json, names: set[str]) -> list[str]:
    """`digits-7 (spot-… , stopping)` for each run that has not ended or whose machine is not gone. An unreadable zone
    may hide a machine: the supervisor's own record counts until the cloud says that the machine is gone."""
    names = names - {run["run_id"] for run in _spared(response)}
    left = {}
    for run in response["runs"]:
        if run["run_id"] in names and (run["status"] not in TERMINAL or run["machines"]):
            machines = ", ".join(map(safe, run["machines"])) or "no machine"
            left[run["run_id"]] = f"{safe(run['run_id'])} ({machines}, {safe(run['status'])})"
    for machine in response["machines"]:
        name = machine.get("run_id")
        if name in names and machine["use"] in LEAVING:
            place = f"{safe(machine['machine'])} in {safe(machine['zone'])}, {safe(machine['state'])}"
            left.setdefault(name, f"{safe(name)} ({place})")
    return list(left.values())


def clean_up(client: Client, yes: bool, dry_run: bool = False) -> bool:
    """Stop all active runs, wait for their machines to go, and release machines without a run. False: the user left
    while machines were still going. Everything is printed on standard error, because the output is the submitted run's.
    Raises UsageError without a terminal, Abort at a no."""
    response = client.get("/v1/machines")
    runs, orphans = _stoppable(response), [machine for machine in response["machines"] if machine["use"] == "orphan"]
    _show_plan(response, runs, orphans)
    if not runs and not orphans:
        note("Nothing to clean up.")
        return True
    if dry_run:
        note("This is a dry run: nothing is stopped or released.")
        return True
    actions = [f"stop {plural(len(runs), 'run')} ({cost_of(runs)})"] if runs else []
    actions += [f"release {plural(len(orphans), 'machine')} without a run"] if orphans else []
    output.confirm(f"First {' and '.join(actions)} in {project(response['account'])}?", yes)
    if runs and not _stop(client, runs):
        return False
    _release(client)
    return True


def _show_plan(response: Json, runs: list[Json], orphans: list[Json]) -> None:
    for line in [*run_lines(runs), *machine_lines(orphans)]:
        note(line)
    for run in _spared(response):
        note(f"{safe(run['run_id'])} is {safe(run['status'])} and keeps its machine: left alone.")
    if response["unread_zones"]:
        note(f"Not read: {', '.join(map(safe, response['unread_zones']))}. Machines there are not touched.")


def _stop(client: Client, runs: list[Json]) -> bool:
    for run in stop_each(client, runs):
        note(output.run_line(run))
    left = _wait_gone(client, [run["run_id"] for run in runs])
    if left:
        note(f"\nLeft; nothing was submitted. Still stopping: {'; '.join(left)}. See spot ls --machines")
        return False
    note("Their machines are gone.")
    return True


def _release(client: Client) -> None:
    done = client.post("/v1/gc", {"dry_run": False})
    released = len(done["released"])
    if released:
        saved = rate(done["usd_per_h"], released, done["unpriced"])
        note(f"{plural(released, 'machine')} without a run released, {saved}.")
    for machine in refused(done):
        name = f"{safe(machine['machine'])} in {safe(machine['zone'])}"
        note(f"{name} is still there: {safe(machine['why'])}. Retry: spot gc")
