"""import: a run of the older shell runner becomes a stopped run of ours.

One request, which may take as long as its checkpoint is large. Where its response takes longer than the client waits,
the request is repeated: while the first one is under way the supervisor says so, afterwards it returns the run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import Problem, Unreachable
from supervisor.cli.options import not_empty, output_options
from supervisor.cli.output import safe
from supervisor.cli.runs.specfile import read_spec
from supervisor.wording.figures import count, plural, size_text

POLL_S = 5.0
VALUE_CHARS = 160


@click.command("import")
@click.argument("source", metavar="OLD_RUN", callback=not_empty)
@click.option("--as", "run_id", metavar="NEW_ID", help="Id of the new run (default: the old one's).")
@click.option("--spec", "file", metavar="FILE", help="Spec (YAML) instead of the old run's own.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@output_options
def import_(*, client: Client, form: str, source: str, run_id: str | None, file: str | None, dry_run: bool) -> None:
    """Import a run of the older shell runner: its checkpoint and its history, as a stopped run.

    OLD_RUN: gs://BUCKET/runs/RUN_ID, as the supervisor's account sees it. The old folder is only read.
    """
    body: Json = {"url": source, "dry_run": dry_run}
    if file is not None:
        its_id, body["spec"] = read_spec(file, is_local=lambda _: False)
        run_id = run_id or its_id
    if run_id is not None:
        body["run_id"] = run_id
    response = _imported(client, body)
    if output.emit(response, [response["run"] or response], form, "run_id"):
        return
    output.show(output.paragraphs(_lines(response), "    "))
    again = f"spot import {source} --as {response['run_id']}" + (f" --spec {file}" if file else "")
    output.suggest(again if dry_run else f"spot resume {response['run_id']}")


def _imported(client: Client, body: Json) -> Json:
    noted = False
    while True:
        try:
            return dict(client.post("/v1/imports", body))
        except (Unreachable, Problem) as error:
            waits = error.sent if isinstance(error, Unreachable) else error.code == "IMPORT_RUNNING" and noted
            if not waits:
                raise
        if not noted:
            output.note("The import takes longer than one request. Ctrl-C leaves; the import continues.")
            noted = True
        time.sleep(POLL_S)


def _lines(response: Json) -> list[str]:
    run = response["run"]
    lines = [
        f"{safe(response['run_id'])}  {'imported' if run else 'would be imported'} from {safe(response['source'])}"
    ]
    if run:
        lines.append(f"  {output.status_mark(run['status'])}  {safe(run['status_text'])}")
    if response["files"]:
        files = ", ".join(f"{file['name']} ({size_text(file['size'])})" for file in response["files"])
        step = "step unknown, counts as 0" if response["step"] is None else f"step {count(response['step'])}"
        old = f"; the old run was {safe(response['old_state'])}" if response["old_state"] else ""
        lines.append(f"  checkpoint: {files}, {step}; history: {plural(response['events'], 'event')}{old}")
    lines += [f"  {name}: {_value(value)}" for name, value in response["spec"].items() if name != "labels"]
    lines += [f"  not imported: {line}" for line in _by_reason(response["left_out"])]
    return [*lines, *(f"  note: {safe(warning)}" for warning in response["warnings"])]


def _by_reason(left_out: Sequence[str]) -> list[str]:
    """`zone, fallback_zones: why`: one line for each reason."""
    names_of: dict[str, list[str]] = {}
    for line in left_out:
        name, _, reason = safe(line).partition(": ")
        names_of.setdefault(reason, []).append(name)
    return [", ".join(names) + (f": {reason}" if reason else "") for reason, names in names_of.items()]


def _value(value: Any) -> str:
    if isinstance(value, dict):
        text = ", ".join(f"{key} = {_figure(item)}" for key, item in value.items())
    else:
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    line = " ".join(safe(text).split())
    return line if len(line) <= VALUE_CHARS else line[: VALUE_CHARS - 1] + "…"


def _figure(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else str(value)
