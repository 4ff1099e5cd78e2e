"""import: a run of the older shell runner becomes a stopped run of ours.

One request, which may take as long as its checkpoint is large. Where its answer takes longer than we wait for one, the
same request is repeated: while the first is under way it says so, afterwards it gives the run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import Problem, Unreachable
from supervisor.cli.options import not_empty, output_option, server_options
from supervisor.cli.output import safe
from supervisor.cli.runs.specfile import read_spec
from supervisor.wording.figures import count, plural, size_text

POLL_S = 5.0
PATH = "/v1/imports"


@click.command("import")
@click.argument("source", metavar="OLD_RUN", callback=not_empty)
@click.option("--as", "run_id", metavar="NEW_ID", help="Name of the new run (default: the old one's).")
@click.option("--spec", "file", metavar="FILE", help="Spec (YAML) instead of what the old run says of itself.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
@output_option
@server_options
def import_run(*, client: Client, form: str, source: str, run_id: str | None, file: str | None, dry_run: bool) -> None:
    """Take over a run of the older shell runner: its checkpoint and its history, as a stopped run.

    OLD_RUN: gs://BUCKET/runs/RUN_ID, as the supervisor's account sees it. The old folder is only read.
    """
    body: Json = {"url": source, "dry_run": dry_run}
    if file is not None:
        named, body["spec"] = read_spec(file, is_local=lambda _: False)
        run_id = run_id or named
    if run_id is not None:
        body["run_id"] = run_id
    answer = _ask(client, body)
    if output.emit(answer, [answer["run"] or answer], form, "run_id"):
        return
    output.show(_lines(answer))
    again = f"spot import {source} --as {answer['run_id']}" + (f" --spec {file}" if file else "")
    output.suggest(again if dry_run else f"spot resume {answer['run_id']}")


def _ask(client: Client, body: Json) -> Json:
    said = False
    while True:
        try:
            return dict(client.post(PATH, body))
        except (Unreachable, Problem) as error:
            waits = error.sent if isinstance(error, Unreachable) else error.code == "IMPORT_RUNNING" and said
            if not waits:
                raise
        if not said:
            output.note("It takes longer than one answer may; Ctrl-C leaves, the import goes on.")
            said = True
        time.sleep(POLL_S)


def _lines(answer: Json) -> list[str]:
    done = answer["run"] is not None
    step = "step not known, counts as 0" if answer["step"] is None else f"step {count(answer['step'])}"
    files = ", ".join(f"{file['name']} ({size_text(file['size'])})" for file in answer["files"])
    lines = [f"{safe(answer['run_id'])}  {'imported' if done else 'would be imported'} from {safe(answer['source'])}"]
    if done:
        lines.append(f"  {output.status_mark(answer['run']['status'])}  {safe(answer['run']['status_text'])}")
    if files:
        old = f"; the old run was {safe(answer['old_state'])}" if answer["old_state"] else ""
        lines.append(f"  checkpoint: {files}, {step}; history: {plural(answer['events'], 'event')}{old}")
    lines += [f"  {name}: {_value(value)}" for name, value in answer["spec"].items() if name != "labels"]
    lines += [f"  not carried over: {line}" for line in _together(answer["left_out"])]
    lines += [f"  note: {safe(warning)}" for warning in answer["warnings"]]
    return [broken for line in lines for broken in output.paragraph(line, "    ")]


def _together(left_out: Sequence[str]) -> list[str]:
    """`zone, fallback_zones: why` instead of a line for each, where the reason is the same."""
    by_reason: dict[str, list[str]] = {}
    for line in left_out:
        name, _, reason = safe(line).partition(": ")
        by_reason.setdefault(reason, []).append(name)
    return [", ".join(names) + (f": {reason}" if reason else "") for reason, names in by_reason.items()]


def _value(value: Any) -> str:
    if isinstance(value, dict):
        text = ", ".join(f"{key} = {_figure(item)}" for key, item in value.items())
    else:
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    line = " ".join(safe(text).split())
    return line if len(line) <= 160 else line[:159] + "…"


def _figure(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else str(value)
