"""spot submit of a file with `matrix` or `lines`: one run for each cell.

Each cell is a submit of its own, so a refused one stops no other. Its run id follows from the file: a repeat finds the
live runs unchanged, and leaves alone the ones that have ended, unless the user says what should happen to them.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import FAILED, USAGE, CliError, Problem
from supervisor.cli.files.local_inputs import settle_code
from supervisor.cli.output import Table, note, safe, status_mark
from supervisor.cli.runs.cells import Cell, SweepRefused, cells_of
from supervisor.cli.runs.specfile import at_line, in_words_of_file
from supervisor.domain.status import TERMINAL
from supervisor.wording.figures import plural

AT_ONCE = 200  # run ids in one filter
ALL_FAIL = (401, 403, 429, 503)  # refusals that every further cell would meet
COMMAND_CHARS = 200
PATIENCE_S = 30.0  # while the supervisor does not respond


def submit_sweep(client: Client, body: Json, file: str | None, given: Mapping[str, Any], form: str) -> None:
    """`body`: of the template, with `matrix` and `lines` in its spec. Raises CliError, Exit where a cell is refused."""
    for flag, name in (("--watch", "follow"), ("--cleanup-all", "cleanup_all")):
        if given[name]:
            raise click.UsageError(f"{flag} is for one run; this file makes many.")
    if body.get("run_id"):
        raise CliError("A sweep names its runs itself: give `group` instead of run_id.", USAGE, "SWEEP_REFUSED")
    try:
        cells = cells_of(body["spec"])
    except SweepRefused as refusal:
        raise CliError(at_line(file, refusal.names, refusal.text), USAGE, "SWEEP_REFUSED") from None
    if given["dry_run"]:
        _show_cells(cells, form)
        _check_first(client, cells[0], body, file)
        return
    _settle_codes(client, cells)
    _submit(client, cells, body, file, form)


def with_smoked_code(body: Json) -> Json:
    """The body of a submit, whose smoke names the code that it has tried: the hash of the spec is known by now."""
    smoke, code = body.get("smoke"), body["spec"].get("code")
    return {**body, "smoke": {**smoke, "code": code}} if smoke and code else body


# --- dry run ----------------------------------------------------------------------------------------------------------


def _show_cells(cells: Sequence[Cell], form: str) -> None:
    records = [{"run_id": cell.run_id, "values": dict(cell.values), "spec": cell.spec} for cell in cells]
    if output.emit({"cells": records}, records, form, "run_id"):
        return
    axes = list(dict.fromkeys(axis for cell in cells for axis in cell.values))
    columns: dict[str, Callable[[Any], str]] = {"RUN": lambda cell: safe(cell.run_id)}
    for axis in axes:
        columns[axis] = partial(_value_of, axis)
    output.show(Table("run_id", {**columns, "COMMAND": _command}).lines(cells))
    note(f"{plural(len(cells), 'run')} of group {cells[0].spec['group']}. This is a dry run: nothing is submitted.")


def _value_of(axis: str, cell: Cell) -> str:
    return safe(cell.values.get(axis, ""))


def _command(cell: Cell) -> str:
    command = cell.spec.get("command", "")
    text = safe(command if isinstance(command, str) else shlex.join(map(str, command)))
    return text if len(text) <= COMMAND_CHARS else text[: COMMAND_CHARS - 1] + "…"


def _check_first(client: Client, cell: Cell, body: Json, file: str | None) -> None:
    """What the supervisor refuses in one cell it usually refuses in all."""
    spec = dict(cell.spec)
    code_follows = settle_code(client, spec, send=False)
    params = {"validate_only": "true", "code_follows": "true" if code_follows else None}
    try:
        client.send("POST", "/v1/runs", params, {**body, "run_id": cell.run_id, "spec": spec})
    except Problem as error:
        raise _of_cell(error, cell, file) from None


# --- submit -----------------------------------------------------------------------------------------------------------


def _settle_codes(client: Client, cells: Sequence[Cell]) -> None:
    """Each folder of code is packed and stored once, checked against the command of its first cell."""
    hashes: dict[str, str] = {}
    for cell in cells:
        code = cell.spec.get("code")
        if isinstance(code, str) and code in hashes:
            cell.spec["code"] = hashes[code]
        elif isinstance(code, str):
            settle_code(client, cell.spec)
            hashes[code] = cell.spec["code"]


def _submit(client: Client, cells: Sequence[Cell], body: Json, file: str | None, form: str) -> None:
    ended, restarts = _ended(client, cells), body["replace_spec"] or body["rerun"]
    rows: list[Json] = []
    refused: list[Json] = []
    for cell in cells:
        if cell.run_id in ended and not restarts:
            rows.append({**ended[cell.run_id], "sweep": "left alone"})
            continue
        try:
            run, is_new = _send(client, with_smoked_code({**body, "run_id": cell.run_id, "spec": cell.spec}))
        except Problem as error:
            if error.status in ALL_FAIL:
                note(_summary(rows, refused, cells))
                raise
            error = _of_cell(error, cell, file)
            refused.append({"run_id": cell.run_id, "code": error.code, "detail": error.text})
        else:
            word = "new" if is_new else "resumed" if cell.run_id in ended else "there already"
            rows.append({**run, "sweep": word})
    document = {"group": cells[0].spec["group"], "runs": rows, "refused": refused}
    if not output.emit(document, rows, form, "run_id") and rows:
        output.show(SUBMITTED.lines(rows))
    for warning in dict.fromkeys(text for row in rows for text in row.get("warnings") or ()):
        note(f"warning: {safe(warning)}")
    for refusal in refused:
        note(f"{safe(refusal['run_id'])}: {safe(refusal['detail'])}     ({safe(refusal['code'])})")
    note(_summary(rows, refused, cells))
    if refused:
        raise click.exceptions.Exit(FAILED)
    output.suggest(f"spot ls --group {cells[0].spec['group']}")


SUBMITTED = Table(
    "run_id",
    {
        "RUN": lambda run: safe(run["run_id"]),
        "STATUS": lambda run: status_mark(run["status"]),
        "SUBMIT": lambda run: run["sweep"],
    },
)


def _ended(client: Client, cells: Sequence[Cell]) -> dict[str, Json]:
    """The runs of these cells that have ended, by run id."""
    ended: dict[str, Json] = {}
    for start in range(0, len(cells), AT_ONCE):
        names = [cell.run_id for cell in cells[start : start + AT_ONCE]]
        for run in client.get("/v1/runs", run_id=names, page_size=AT_ONCE)["runs"]:
            if run["status"] in TERMINAL:
                ended[run["run_id"]] = run
    return ended


def _send(client: Client, body: Json) -> tuple[Json, bool]:
    """(the run, whether it is new). A lost response is no reason to stop: the same body changes nothing more."""
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    response = client.patiently(lambda: client.send("POST", "/v1/runs", body=body, headers=headers), PATIENCE_S)
    return dict(response.json()), response.status == 201


def _of_cell(error: Problem, cell: Cell, file: str | None) -> Problem:
    """The refusal with the cell and the line of the file."""
    fields = frozenset({pointer.removeprefix("#/spec/").split("/")[0] for pointer, _ in error.errors})
    prefix = ("lines", str(cell.line)) if cell.line is not None and fields & cell.own else ()
    error = in_words_of_file(error, file, prefix)
    error.text = f"{cell.run_id}: {error.text}"
    return error


def _summary(rows: Sequence[Json], refused: Sequence[Json], cells: Sequence[Cell]) -> str:
    """`6 runs: 4 new, 1 there already, 1 left alone (ended), 0 refused.`"""
    words = ("new", "resumed", "there already", "left alone")
    counts = {word: sum(row["sweep"] == word for row in rows) for word in words}
    parts = [f"{number} {word}" for word, number in counts.items() if number]
    parts += [f"{len(refused)} refused"] if refused else []
    missing = len(cells) - len(rows) - len(refused)
    parts += [f"{missing} not submitted"] if missing else []
    text = f"{plural(len(cells), 'run')} of group {cells[0].spec['group']}: {', '.join(parts)}."
    if counts["left alone"]:
        text += f" Runs that have ended are left alone; `spot resume --group {cells[0].spec['group']}` continues them."
    return text
