"""health: is the supervisor fit, and does a run need a person."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from supervisor.cli import exits
from supervisor.cli.client import Client, Json
from supervisor.cli.options import server_options
from supervisor.cli.output import paragraph
from supervisor.cli.views import runs as views
from supervisor.cli.words import json_text, safe


def AS_JSON(command: F) -> F:  # noqa: N802 - it stands where an option stands
    """-o json, as everywhere; --json, which is what some of these commands took first, goes on. The command gets
    `as_json`."""

    @wraps(command)
    def with_form(*args: Any, old: bool, asked: str | None = None, **kwargs: Any) -> Any:
        return command(*args, as_json=old or asked == "json", **kwargs)

    decorated: Any = click.option("--json", "old", is_flag=True, hidden=True)(with_form)
    has_form = any(param.name == "form" for param in getattr(command, "__click_params__", ()))
    if not has_form:
        decorated = click.option(
            "-o", "--output", "asked", type=click.Choice(["table", "json"]), help="Form of the output."
        )(decorated)
    found: F = decorated
    return found


F = TypeVar("F", bound=Callable[..., Any])
MARKS = {"ok": ("✔", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}
UNKNOWN = ("?", "white")  # a result of a newer supervisor


@click.command()
@AS_JSON
@server_options
@click.pass_context
def health(ctx: click.Context, /, client: Client, as_json: bool) -> None:
    """Is the supervisor well, and does any run need a person? Exit 0 when it is well, 1 when it is not."""
    answer: Json = client.send("GET", "/readyz", params={"verbose": "true"}, accept=503).json()
    ready = answer["ready"]
    # With the database away there is nothing to patrol; its check above says so.
    listed = client.get("/v1/runs", page_size=1) if ready else {"summary": {}}
    waiting = _needing(client) if ready else []
    line = patrol_line(listed["summary"], waiting) if ready else "not ready; runs cannot be listed"
    if as_json:
        document = {**answer, "patrol": line, "needs_person": waiting, "summary": listed["summary"]}
        click.echo(json_text(document))
    else:
        for check in answer["checks"]:
            result = "ok" if check["ok"] else "fail"
            click.echo(coloured(check_line(result, check["name"], check["fact"]), result))
        click.echo("\n".join(paragraph(line)))
    ctx.exit(exits.OK if ready else exits.FAILED)


def _needing(client: Client) -> list[str]:
    """Ids of the runs that wait for a person."""
    found = client.get("/v1/runs", status=["awaiting_teardown", "finishing", "waiting"], page_size=1000)[
        "runs"
    ]
    return [run["run_id"] for run in found if run["needs_person"] or run["status"] == "awaiting_teardown"]


def patrol_line(summary: Json, waiting: list[str]) -> str:
    """One line that tells the whole state, also when nothing has changed."""
    person = "needs you: " + ", ".join(safe(name) for name in waiting) if waiting else "nobody needs you"
    return f"{views.summary_line(summary)} · {person}"


def check_line(result: str, name: str, fact: str, width: int = 10) -> str:
    """Without colour, so that it can be measured and broken."""
    return f"{MARKS.get(result, UNKNOWN)[0]} {safe(name):<{width}} {safe(fact)}"


def coloured(line: str, result: str) -> str:
    """Its sign in the colour of the result."""
    return click.style(line[:1], fg=MARKS.get(result, UNKNOWN)[1]) + line[1:]
