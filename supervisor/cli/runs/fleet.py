"""All active runs at once: which they are and what they cost, stopping each the normal way, and waiting until the cloud
says that their machines are gone.

Which runs are meant comes with the machines: those of the supervisor's own cell. A run whose work is verified waits for
a person, and a machine that is kept is kept on purpose: both are told of and left as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from supervisor.cli import output
from supervisor.cli.client import Client, Json, pages, run_path
from supervisor.cli.exits import TIMEOUT, CliError, Problem
from supervisor.cli.finding import TERMINAL
from supervisor.cli.machines.machines import rate
from supervisor.cli.words import safe
from supervisor.domain.status import ACTIVE
from supervisor.wording.figures import DASH, money

POLL_S = 3.0
MOST = 100_000
PATIENCE_S = 1800.0  # the longest stop grace and a slow delete together
TITLES = ("RUN", "STATUS", "$/H", "MACHINE")
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
    found = [run for page in pages(client, "/v1/runs", "runs", MOST, status=statuses) for run in page["runs"]]
    return [
        {"run_id": run["run_id"], "status": run["status"], "usd_per_h": run.get("price_usd_per_h"), "machines": [],
         "kept": False}
        for run in found
    ]  # fmt: skip


def spared(answer: Json) -> list[Json]:
    """Runs whose machines stay, because somebody still needs them."""
    return [run for run in answer["runs"] if run["status"] == "awaiting_teardown" or run["kept"]]


def run_lines(runs: Sequence[Json]) -> list[str]:
    return output.columns(TITLES, [_row(run) for run in runs]) if runs else []


def _row(run: Json) -> list[str]:
    machines = ", ".join(safe(name) for name in run["machines"]) or DASH
    return [safe(run["run_id"]), output.status_mark(run["status"]), money(run.get("usd_per_h")), machines]


def cost_of(runs: Sequence[Json]) -> str:
    """`$3.60/h, and 1 of unknown price`."""
    known = [run["usd_per_h"] for run in runs if run.get("usd_per_h") is not None]
    return rate(sum(known), len(runs), len(runs) - len(known))


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
    wanted, told, left = set(names), "", [str(name) for name in names]
    until = time.monotonic() + PATIENCE_S
    try:
        while True:
            answer = client.patiently(lambda: client.get("/v1/machines"), output.note)
            left = _left(answer, wanted)
            if not left:
                return []
            if "; ".join(left) != told:
                told = "; ".join(left)
                say(f"Waiting until they are gone: {told}. Ctrl-C leaves.")
            if time.monotonic() > until:
                raise CliError(
                    f"Still there after {PATIENCE_S / 60:.0f} min: {told}.",
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
    for one in answer["machines"]:
        name = one.get("run_id")
        if name in wanted - kept and one["use"] in ON_ITS_WAY:
            left.setdefault(
                name, f"{safe(name)} ({safe(one['machine'])} in {safe(one['zone'])}, {safe(one['state'])})"
            )
    return list(left.values())
