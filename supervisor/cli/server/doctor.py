"""doctor: what is wrong with this set-up, and what to type. health: is the supervisor fit, and does a run need you.

The supervisor that runs is asked. Where none answers, or a file of settings is named, the doctor's checks are made in
this process, which needs no supervisor. The whole takes five seconds at most, whatever hangs.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

import click

from supervisor.cli import exits
from supervisor.cli.client import Client, Json
from supervisor.cli.options import AS_JSON, Where, server_options, where_options
from supervisor.cli.output import check_sign, coloured, json_text, paragraph, safe
from supervisor.cli.views import runs as views
from supervisor.domain.errors import SpotError


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
    runs = client.get("/v1/runs", status=["awaiting_teardown", "finishing", "waiting"], page_size=1000)["runs"]
    return [run["run_id"] for run in runs if run["needs_person"] or run["status"] == "awaiting_teardown"]


def patrol_line(summary: Json, waiting: list[str]) -> str:
    """One line that tells the whole state, also when nothing has changed."""
    person = "needs you: " + ", ".join(safe(name) for name in waiting) if waiting else "nobody needs you"
    return f"{views.summary_line(summary)} · {person}"


def check_line(result: str, name: str, fact: str, width: int = 10) -> str:
    """Without colour, so that it can be measured and broken."""
    return f"{check_sign(result)} {safe(name):<{width}} {safe(fact)}"


EXITS = {"ok": 0, "warn": 1, "fail": 2}
HEADINGS = {"local": "This computer", "alerts": "Alerts", "orphans": "Machines that serve nobody"}
INDENT = "    "
DEADLINE_S = 4.0  # of the checks, here or in the supervisor
ALIVE_S = 1.5  # a supervisor that lives says so at once
ANSWER_S = 8.0
AWAY = "it does not run, or it hangs"
REFUSES = "something answers at that address and does not take us for one of its own"
LEAST_S = 2.5  # for the checks here, after a supervisor that hangs


@click.command()
@click.option("--env-file", metavar="FILE", help="Check the set-up of this environment file; no supervisor is needed.")
@click.option("--config", "file", metavar="FILE", help="The same with a TOML file of settings.")
@click.option("--here", is_flag=True, help="Check in this process, also where a supervisor runs.")
@click.option("--no-alert-test", is_flag=True, help="Send no test message to the alert address.")
@where_options
@AS_JSON
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    *,
    env_file: str | None,
    file: str | None,
    here: bool,
    no_alert_test: bool,
    where: Where,
    as_json: bool,
) -> None:
    """Check this computer, the cloud, the alert address and stray machines; each problem comes with its fix.

    Asks the supervisor that runs; without one, or with --env-file, --config or --here, checks here. A test message,
    marked as such, goes to the alert address. Exit 0: all well, 1: warnings, 2: something fails.
    """
    if where.url and (env_file or file or here):
        raise click.UsageError("--url asks a supervisor; --env-file, --config and --here ask none.")
    if env_file or file or here:
        answer = _here(file, env_file, where.data_dir, not no_alert_test, DEADLINE_S)
    else:
        answer = _diagnosis(where, not no_alert_test)
    if as_json:
        click.echo(json_text(answer))
    else:
        _show(answer["checks"], answer.get("groups") or {})
    ctx.exit(EXITS.get(answer["worst"], 2))


def _diagnosis(where: Where, alert_test: bool) -> Json:
    """What the supervisor says; where it does not answer, or not us, a line that says so and what is found here. Whose
    address was given may live on another computer: nothing here would tell of it."""
    began = time.monotonic()
    try:
        client = where.client()
        client.timeout_s = ALIVE_S
        _alive(client)
        client.timeout_s = ANSWER_S
        report: Json = client.get("/v1/doctor", alert_test="true" if alert_test else None)
    except exits.CliError as error:
        away = isinstance(error, exits.Unreachable)
        elsewhere = bool(where.url or os.environ.get("SPOT_URL"))
        if elsewhere and not away:
            raise
        line = _line(error.text, error.hints[0] if error.hints else "spot up", AWAY if away else REFUSES)
        if elsewhere:
            return {"worst": "fail", "checks": [line]}
        left_s = max(LEAST_S, DEADLINE_S - (time.monotonic() - began))
        report = _here(None, None, where.data_dir, alert_test, left_s)
        return {"worst": "fail", "checks": [line, *report["checks"]]}
    except SpotError:  # the settings, of which the address is one, are refused
        return _here(None, None, where.data_dir, alert_test, DEADLINE_S)
    return report


def _alive(client: Any) -> None:
    """Raises Unreachable. Any other answer is one."""
    try:
        client.get("/livez")
    except exits.Unreachable:
        raise
    except exits.CliError:
        return


def _here(file: str | None, env_file: str | None, data_dir: str | None, alert_test: bool, deadline_s: float) -> Json:
    from supervisor.cli.server.server import examine_here

    if not (file or env_file):
        file, env_file = os.environ.get("SPOT_CONFIG"), os.environ.get("SPOT_ENV_FILE")
    return examine_here({"data_dir": data_dir}, file, env_file, alert_test, deadline_s)


def _line(fact: str, fix: str, cause: str) -> Json:
    return {
        "group": "local",
        "name": "supervisor",
        "result": "fail",
        "fact": fact,
        "cause": cause,
        "fix": fix.removeprefix("start it: "),
    }


def _show(checks: list[Json], titles: Json) -> None:
    """Groups with their headings where there are several. A fix is never broken: it is there to be pasted."""
    groups = list(dict.fromkeys(check["group"] for check in checks))
    width = max([10, *(len(check["name"]) for check in checks)])
    for group in groups:
        if len(groups) > 1:
            click.echo(click.style(HEADINGS.get(group) or safe(titles.get(group, group)), bold=True))
        for check in checks:
            if check["group"] == group:
                _show_check(check, width)
        if len(groups) > 1:
            click.echo()
    if len(groups) > 1:
        click.echo(_summary(checks))


def _show_check(check: Json, width: int) -> None:
    line = "\n".join(paragraph(check_line(check["result"], check["name"], check["fact"], width), " " * (width + 3)))
    click.echo(coloured(line, check["result"]))
    if check.get("cause"):
        click.echo("\n".join(paragraph(f"{INDENT}cause: {safe(check['cause'])}", INDENT + " " * 7)))
    if check.get("fix"):
        click.echo(f"{INDENT}fix: {safe(check['fix'])}")


def _summary(checks: list[Json]) -> str:
    count = Counter(check["result"] for check in checks)
    parts = [f"{count['ok']} well"]
    if count["warn"]:
        parts.append(f"{count['warn']} with a warning")
    if count["fail"]:
        parts.append(f"{count['fail']} to be mended")
    return ", ".join(parts)
