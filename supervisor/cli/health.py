"""health and doctor: is the supervisor fit, does a run need a person, and what is wrong with this computer."""

from __future__ import annotations

import json

import click

from supervisor.cli import exits, views
from supervisor.cli.client import Client, Json
from supervisor.cli.options import server_options
from supervisor.cli.words import safe

AS_JSON = click.option("--json", "as_json", is_flag=True, help="JSON instead of lines.")
MARKS = {"ok": ("✔", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}
DOCTOR_EXITS = {"ok": 0, "warn": 1, "fail": 2}


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
        click.echo(json.dumps(document, ensure_ascii=False))
    else:
        for check in answer["checks"]:
            click.echo(_check_line("ok" if check["ok"] else "fail", check["name"], check["fact"]))
        click.echo(line)
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


@click.command()
@AS_JSON
@server_options
@click.pass_context
def doctor(ctx: click.Context, /, client: Client, as_json: bool) -> None:
    """Check this computer, and the cloud where machines are; each problem comes with its fix.

    Exit 0: all well, 1: warnings, 2: something fails.
    """
    try:
        answer: Json = client.get("/v1/doctor")
    except exits.Unreachable as error:
        fix = error.hints[0] if error.hints else ""
        check = {
            "group": "local",
            "name": "supervisor",
            "result": "fail",
            "fact": error.text,
            "cause": "",
            "fix": fix,
        }
        answer = {"worst": "fail", "checks": [check]}
    if as_json:
        click.echo(json.dumps(answer, ensure_ascii=False))
    else:
        width = max([10, *(len(check["name"]) for check in answer["checks"])])
        for check in answer["checks"]:
            click.echo(_check_line(check["result"], check["name"], check["fact"], width))
            for word in ("cause", "fix"):
                if check.get(word):
                    click.echo(f"    {word}: {safe(check[word])}")
    ctx.exit(DOCTOR_EXITS.get(answer["worst"], 2))


def _check_line(result: str, name: str, fact: str, width: int = 10) -> str:
    sign, colour = MARKS.get(result, ("?", "white"))
    return f"{click.style(sign, fg=colour)} {safe(name):<{width}} {safe(fact)}"
