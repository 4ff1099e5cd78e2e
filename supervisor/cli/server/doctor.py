"""doctor: what is wrong with this setup, and the command that fixes it. health: is the supervisor ready, and does a
run need the user.

The doctor asks the running supervisor. Without a response, or for a named file of settings, it makes the checks in this
process, which needs no supervisor. All of it takes five seconds at most, even where a service hangs.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import click

from supervisor.cli import exits
from supervisor.cli.client import Client, Json
from supervisor.cli.finding import Target
from supervisor.cli.options import json_flag, json_option, json_options, target_options
from supervisor.cli.output import check_advice, check_lines, json_text, paragraph, safe, show
from supervisor.cli.views import runs as views
from supervisor.domain.errors import SpotError
from supervisor.wording.figures import duration, epoch

EXITS = {"ok": 0, "warn": 1, "fail": 2}
HEADINGS = {"local": "This computer", "alerts": "Alerts", "orphans": "Machines without a run"}
NAME_WIDTH = 10
DEADLINE_S = 4.0  # of the checks, here or in the supervisor
LIVE_S = 1.5  # a live supervisor responds at once
RESPONSE_S = 8.0
LEAST_S = 2.5  # for the checks here, after a supervisor that hangs
AWAY = "it does not run, or it hangs"
NEEDING = ["awaiting_teardown", "waiting", "finishing", "recovering", "launching", "pending"]
REFUSES = "a server responds at that address and refuses our token"


@click.command()
@json_options
@click.pass_context
def health(ctx: click.Context, /, client: Client, form: str) -> None:
    """Show whether the supervisor is ready (exit 0, else 1) and which runs need you."""
    response: Json = client.send("GET", "/readyz", params={"verbose": "true"}, accept=503).json()
    ready = response["ready"]
    # Without the database runs cannot be listed; its check says so.
    summary = client.get("/v1/runs", page_size=1)["summary"] if ready else {}
    needing = _needing(client) if ready else []
    away = _away(client) if ready else []
    patrol = patrol_line(summary, needing) if ready else "not ready; runs cannot be listed"
    if form == "json":
        click.echo(
            json_text({**response, "patrol": patrol, "needs_person": needing, "no_contact": away, "summary": summary})
        )
    else:
        for check in response["checks"]:
            _show_check({**check, "result": "ok" if check["ok"] else "fail"}, NAME_WIDTH)
        for zone in away:
            _show_check({"name": "contact", "result": "warn", "fact": _no_contact(zone)}, NAME_WIDTH)
        show(paragraph(patrol))
    ctx.exit(exits.OK if ready else exits.FAILED)


def _needing(client: Client) -> list[str]:
    """Ids of the runs that need the user."""
    runs = client.get("/v1/runs", status=NEEDING, page_size=1000)["runs"]
    return [run["run_id"] for run in runs if run["needs_person"] or run["status"] == "awaiting_teardown"]


def _away(client: Client) -> list[Json]:
    """Hosts and zones that cannot be read, each once."""
    zones = client.get("/v1/zones")["zones"]
    away = {(zone["provider"], zone["zone"]): zone for zone in zones if zone.get("no_contact_since")}
    names = ("provider", "zone", "detail", "no_contact_since")
    return [{name: zone[name] for name in names} for zone in away.values()]


def _no_contact(zone: Json) -> str:
    lasted = duration(max(0.0, time.time() - (epoch(zone["no_contact_since"]) or 0.0)))
    place, why = safe(f"{zone['zone']} of {zone['provider']}"), safe(zone["detail"])
    return f"none with {place} for {lasted}: {why}. Its runs wait for it; nothing is ended or started for that"


def patrol_line(summary: Json, needing: list[str]) -> str:
    """The whole state in one line."""
    needs = "needs you: " + ", ".join(map(safe, needing)) if needing else "no run needs you"
    return f"{views.summary_line(summary)} · {needs}"


@click.command()
@click.option("--env-file", metavar="FILE", help="Check this environment file; needs no supervisor.")
@click.option("--config", "file", metavar="FILE", help="Check this TOML file of settings; needs no supervisor.")
@click.option("--here", is_flag=True, help="Check in this process, even if a supervisor runs.")
@click.option("--no-alert-test", is_flag=True, help="Send no test message to the alert address.")
@target_options
@json_flag
@json_option
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    *,
    env_file: str | None,
    file: str | None,
    here: bool,
    no_alert_test: bool,
    target: Target,
    form: str,
) -> None:
    """Check this computer, the cloud, the alert address and stray machines; every problem has a fix.

    The running supervisor makes the checks; without one, or with --env-file, --config or --here, this process does. The
    alert address gets a test message, marked as such. Exit 0: all passed, 1: warnings, 2: failures.
    """
    apart = bool(env_file or file or here)
    if target.named_url and apart:
        raise click.UsageError("--url needs a supervisor; --env-file, --config and --here use none.")
    if apart:
        report = _report_here(file, env_file, target, not no_alert_test, DEADLINE_S)
    else:
        report = _report(target, not no_alert_test)
    if form == "json":
        click.echo(json_text(report))
    else:
        _show(report["checks"], report.get("groups") or {})
    ctx.exit(EXITS.get(report["worst"], 2))


def _report(target: Target, alert_test: bool) -> Json:
    """The supervisor's report. Where it does not respond, or refuses us, a check that says so, and the report of this
    process; not for an address that the user gave, because that may be another computer."""
    began = time.monotonic()
    try:
        client = target.client()
        client.timeout_s = LIVE_S
        _require_live(client)
        client.timeout_s = RESPONSE_S
        return dict(client.get("/v1/doctor", alert_test="true" if alert_test else None))
    except exits.CliError as error:
        away = isinstance(error, exits.Unreachable)
        elsewhere = bool(target.named_url or os.environ.get("SPOT_URL"))
        if elsewhere and not away:
            raise
        fix = (error.hints[0] if error.hints else "spot up").removeprefix("start it: ")
        check = {"group": "local", "name": "supervisor", "result": "fail", "fact": error.text, "fix": fix}
        checks = [{**check, "cause": AWAY if away else REFUSES}]
        if not elsewhere:
            left_s = max(LEAST_S, DEADLINE_S - (time.monotonic() - began))
            checks += _report_here(None, None, target, alert_test, left_s)["checks"]
        return {"worst": "fail", "checks": checks}
    except SpotError:  # refused settings, which name the address
        return _report_here(None, None, target, alert_test, DEADLINE_S)


def _require_live(client: Client) -> None:
    """Raises Unreachable. Any response will do, an error too."""
    try:
        client.get("/livez")
    except exits.Unreachable:
        raise
    except exits.CliError:
        return


def _report_here(file: str | None, env_file: str | None, target: Target, alert_test: bool, deadline_s: float) -> Json:
    from supervisor.cli.server.server import examine_here

    if not (file or env_file):
        file, env_file = os.environ.get("SPOT_CONFIG"), os.environ.get("SPOT_ENV_FILE")
    return examine_here({"data_dir": target.data_dir}, file, env_file, alert_test, deadline_s)


def _show(checks: list[Json], titles: Json) -> None:
    """The checks; where there are several groups, with headings and counts."""
    groups = list(dict.fromkeys(check["group"] for check in checks))
    width = max([NAME_WIDTH, *(len(check["name"]) for check in checks)])
    for group in groups:
        if len(groups) > 1:
            click.echo(click.style(HEADINGS.get(group) or safe(titles.get(group, group)), bold=True))
        for check in checks:
            if check["group"] == group:
                _show_check(check, width)
        if len(groups) > 1:
            click.echo()
    if len(groups) > 1:
        count = Counter(check["result"] for check in checks)
        parts = [f"{count['ok']} passed"]
        parts += [
            f"{count[result]} {word}"
            for result, word in (("warn", "with a warning"), ("fail", "failed"))
            if count[result]
        ]
        click.echo(", ".join(parts))


def _show_check(check: Json, width: int) -> None:
    show(check_lines(check["result"], f"{safe(check['name']):<{width}} {safe(check['fact'])}", " " * (width + 3)))
    show(check_advice(check))
