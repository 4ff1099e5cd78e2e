"""doctor: what is wrong with this set-up, and what to type.

The supervisor that runs is asked. Where none answers, or a file of settings is named, the same checks are made in this
process, which needs no supervisor. The whole takes five seconds at most, whatever hangs.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

import click

from supervisor.cli import exits
from supervisor.cli.client import Json
from supervisor.cli.options import Where, where_options
from supervisor.cli.output import paragraph
from supervisor.cli.server.health import AS_JSON, check_line, coloured
from supervisor.cli.words import json_text, safe
from supervisor.domain.errors import SpotError

EXITS = {"ok": 0, "warn": 1, "fail": 2}
HEADINGS = {
    "local": "This computer",
    "google": "Google Cloud",
    "alerts": "Alerts",
    "orphans": "Machines that serve nobody",
}
INDENT = "    "
DEADLINE_S = 4.0  # of the checks, here or in the supervisor
ALIVE_S = 1.5  # a supervisor that lives says so at once
ANSWER_S = 8.0
AWAY = "it does not run, or it hangs"
REFUSES = "something answers at that address and does not take us for one of its own"
LEAST_S = 2.5  # for the checks here, after a supervisor that hangs


@click.command()
@click.option(
    "--env-file", metavar="FILE", help="Check the set-up of this environment file; no supervisor is needed."
)
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
        answer = _asked(where, not no_alert_test)
    if as_json:
        click.echo(json_text(answer))
    else:
        _show(answer["checks"])
    ctx.exit(EXITS.get(answer["worst"], 2))


def _asked(where: Where, alert_test: bool) -> Json:
    """What the supervisor says; where it does not answer, or not us, a line that says so and what is found here. Whose
    address was given may live on another computer: nothing here would tell of it."""
    began = time.monotonic()
    try:
        client = where.client()
        client.timeout_s = ALIVE_S
        _alive(client)
        client.timeout_s = ANSWER_S
        found: Json = client.get("/v1/doctor", alert_test="true" if alert_test else None)
    except exits.CliError as error:
        away = isinstance(error, exits.Unreachable)
        elsewhere = bool(where.url or os.environ.get("SPOT_URL"))
        if elsewhere and not away:
            raise
        line = _line(error.text, error.hints[0] if error.hints else "spot up", AWAY if away else REFUSES)
        if elsewhere:
            return {"worst": "fail", "checks": [line]}
        left_s = max(LEAST_S, DEADLINE_S - (time.monotonic() - began))
        found = _here(None, None, where.data_dir, alert_test, left_s)
        return {"worst": "fail", "checks": [line, *found["checks"]]}
    except SpotError:  # the settings, of which the address is one, are refused
        return _here(None, None, where.data_dir, alert_test, DEADLINE_S)
    return found


def _alive(client: Any) -> None:
    """Raises Unreachable. Any other answer is one."""
    try:
        client.get("/livez")
    except exits.Unreachable:
        raise
    except exits.CliError:
        return


def _here(
    file: str | None, env_file: str | None, data_dir: str | None, alert_test: bool, deadline_s: float
) -> Json:
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


def _show(checks: list[Json]) -> None:
    """Groups with their headings where there are several. A fix is never broken: it is there to be pasted."""
    groups = list(dict.fromkeys(check["group"] for check in checks))
    width = max([10, *(len(check["name"]) for check in checks)])
    for group in groups:
        if len(groups) > 1:
            click.echo(click.style(HEADINGS.get(group, safe(group)), bold=True))
        for check in checks:
            if check["group"] == group:
                _show_check(check, width)
        if len(groups) > 1:
            click.echo()
    if len(groups) > 1:
        click.echo(_summary(checks))


def _show_check(check: Json, width: int) -> None:
    line = "\n".join(
        paragraph(check_line(check["result"], check["name"], check["fact"], width), " " * (width + 3))
    )
    click.echo(coloured(line, check["result"]))
    if check.get("cause"):
        click.echo("\n".join(paragraph(f"{INDENT}cause: {safe(check['cause'])}", INDENT + " " * 7)))
    if check.get("fix"):
        click.echo(f"{INDENT}fix: {safe(check['fix'])}")


def _summary(checks: list[Json]) -> str:
    count = Counter(check["result"] for check in checks)
    told = [f"{count['ok']} well"]
    if count["warn"]:
        told.append(f"{count['warn']} with a warning")
    if count["fail"]:
        told.append(f"{count['fail']} to be mended")
    return ", ".join(told)
