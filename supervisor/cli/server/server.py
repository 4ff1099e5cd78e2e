"""serve, backup, migrate and config: the only commands that run inside the supervisor instead of talking to one.

The composition root is imported when the settings are known to be good, so a refusal comes at once.
"""

from __future__ import annotations

import logging
import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click

from supervisor.cli.exits import CliError
from supervisor.cli.output import json_text, note, terminal_columns
from supervisor.domain.errors import SpotError, Unavailable
from supervisor.domain.machines import Offer
from supervisor.settings import alerts as settings_alerts
from supervisor.settings import loading as settings_of
from supervisor.settings.loading import Settings
from supervisor.settings.sections import SECTIONS
from supervisor.settings.serving_process import announced
from supervisor.wiring import settings as wired

F = TypeVar("F", bound=Callable[..., Any])
LOG = logging.getLogger("supervisor.cli.server.server")


def settings_options(command: F) -> F:
    """Where settings come from; used by serve, migrate and config show."""
    for option in (
        click.option(
            "--env-file", envvar="SPOT_ENV_FILE", metavar="FILE", help="SPOT_ variables, or the older runner's file."
        ),
        click.option("--config", "file", envvar="SPOT_CONFIG", metavar="FILE", help="TOML file of settings."),
        click.option("--store-url", metavar="URL", help="Object store (default: a folder in the data folder)."),
        click.option("--database-url", metavar="URL", help="Database (default: SQLite in the data folder)."),
        click.option("--data-dir", metavar="DIR", help="Data folder (default: the XDG state folder)."),
    ):
        command = option(command)
    return command


def serve_options(command: F) -> F:
    """Every option of serve; `up` hands them on."""
    insecure = "Ask nobody for a token; on loopback only."
    for option in (
        click.option("--log-format", metavar="FORM", help="plain or json (plain)."),
        click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error (info)."),
        click.option("--poll-interval-s", metavar="S", help="How often the world is looked at (30)."),
        click.option("--insecure-loopback", is_flag=True, default=None, help=insecure),
        click.option("--port", metavar="PORT", help="Port to listen on (8787); 0 = any free one."),
        click.option("--host", metavar="HOST", help="Address to listen on (127.0.0.1)."),
    ):
        command = option(command)
    return settings_options(command)


@click.command()
@serve_options
@click.option(
    "--start-over", is_flag=True, help="Make a new database beside a data folder or store of another supervisor."
)
def serve(file: str | None, env_file: str | None, start_over: bool, **flags: object) -> None:
    """Run the supervisor on this computer, until SIGTERM or Ctrl-C. Running trainings are left alone when it ends.

    Every other setting is an environment variable or a line of the TOML file: `spot config show` lists them.
    """
    settings = wired.load(flags, file=file, env_file=env_file)
    _begin_log(settings)
    before = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with announced(settings.data_dir):
            from supervisor.wiring import bootstrap  # takes a second or more, in which a submit may come

            code = bootstrap.serve(settings, start_over)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    raise click.exceptions.Exit(code)


def _leave(number: int, frame: FrameType | None) -> None:
    """SIGTERM and SIGINT unwind the stack, so that everything that was opened is closed. Also after the HTTP server has
    caught one of them: it sends it again when it has ended, and the default would kill us in the middle of closing."""
    raise SystemExit(0)


@click.command()
@settings_options
def migrate(file: str | None, env_file: str | None, **flags: str | None) -> None:
    """Bring the database to this version's schema. Stop the supervisor first."""
    settings = wired.load(flags, file=file, env_file=env_file)
    _begin_log(settings)
    from supervisor.wiring import bootstrap

    bootstrap.migrate(settings)
    click.echo("The database has this version's schema.")


@click.command()
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@settings_options
def backup(target: Path, file: str | None, env_file: str | None, **flags: str | None) -> None:
    """Copy the SQLite database to FILE, while the supervisor goes on; docs/operations.md tells how to restore it."""
    settings = wired.load(flags, file=file, env_file=env_file)
    from supervisor.wiring import bootstrap

    try:
        size_bytes = bootstrap.backup(settings, target.absolute())
    except Unavailable as error:
        raise CliError(str(error), code=error.code) from None
    except OSError as error:
        raise CliError(f"{target} cannot be written: {error.strerror}", code="FILE_UNWRITABLE") from None
    click.echo(f"{target}: {size_bytes / 1e6:.1f} MB, whole and checked. Keep it where only you can read it.")


def examine_here(
    flags: dict[str, object], file: str | None, env_file: str | None, alert_test: bool, deadline_s: float
) -> dict[str, Any]:
    """The doctor's report on these settings, made in this process. Refused settings are a line of it, too. `deadline_s`
    counts from now: loading the libraries, which takes more than a second, is time in which a person waits."""
    began = time.monotonic()
    from supervisor.telemetry import logs as telemetry

    telemetry.configure("error", "plain")
    try:
        settings = wired.load(flags, file=file, env_file=env_file)
    except SpotError as error:
        detail = str(error)
        fix = "correct the settings as told; spot config show --origin tells where each is from"
        line = {"group": "local", "name": "settings", "result": "fail", "fact": "refused", "cause": detail, "fix": fix}
        return {"worst": "fail", "checks": [line]}
    from supervisor.wiring import bootstrap

    return bootstrap.examine(settings, alert_test, deadline_s - (time.monotonic() - began))


def trial_offers(settings: Settings) -> tuple[Offer, ...]:
    """Where a trial may rent its machine, and for how much. Raises SpotError."""
    from supervisor.wiring import bootstrap

    return bootstrap.trial_offers(settings)


def remove_trial(settings: Settings, say: Callable[[str], None]) -> tuple[int, int]:
    """(machines, objects) of a trial that were still there and are gone now. Raises SpotError."""
    from supervisor.wiring import bootstrap

    return bootstrap.remove_trial(settings, say)


def _begin_log(settings: Settings) -> None:
    from supervisor.telemetry import logs as telemetry

    telemetry.configure(settings.log_level, settings.log_format)
    for warning in settings.warnings:
        LOG.warning(warning, extra={telemetry.ACTION: "settings_warning"})


VALUE_ROOM = 21  # so that a line of 80 columns shows what stands behind a value
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*@")


@click.group()
def config() -> None:
    """The settings of the supervisor."""


@config.command()
@settings_options
@click.option("--origin", is_flag=True, help="Also show where each value comes from.")
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table")
def show(origin: bool, form: str, file: str | None, env_file: str | None, **flags: str | None) -> None:
    """Show every setting as `spot serve` would see it here and now."""
    settings = wired.load(flags, file=file, env_file=env_file)
    for warning in settings.warnings:
        note(f"warning: {warning}")
    values = {name: _value_of(settings, name) for name in settings.origins}
    if form == "json":
        rows = {name: {"value": value, "origin": settings.origins[name]} for name, value in values.items()}
        click.echo(json_text(rows if origin else values, 2))
        return
    table = [("SETTING", "VALUE", "ORIGIN" if origin else "ENVIRONMENT")]
    for name, value in values.items():
        table.append((name, _value_text(value), settings.origins[name] if origin else _variable(name)))
    for line in _lines(table):
        click.echo(line)


def _variable(name: str) -> str:
    """A key of a section of the file has none."""
    return "" if name.startswith(SECTIONS) else settings_of.env_name(name)


def _lines(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """At a terminal a value that is longer than most pushes only its own line: it is never cut, and the others keep
    what stands behind them."""
    room = None if terminal_columns() is None else VALUE_ROOM
    first = max(len(name) for name, _, _ in rows)
    second = max(len(value) for _, value, _ in rows if room is None or len(value) <= room)
    return [f"{name:<{first}}  {value:<{second}}  {source}" for name, value, source in rows]


def _value_of(settings: Settings, name: str) -> object:
    """A JSON value; a password in a URL is left out, and so is what is a credential as a whole."""
    value = settings.value(name)
    if isinstance(value, Path):
        return str(value)
    if name in settings_alerts.SECRET:
        return settings_alerts.shown(name, value)
    if name.endswith("_url"):
        return _PASSWORD.sub(r"\1:***@", value)
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, dict) else value


def _value_text(value: object) -> str:
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ",".join(str(part) for part in value)
    if isinstance(value, dict):
        return ",".join(f"{key}={_pair(part)}" for key, part in value.items()) or "none"
    return str(value)


def _pair(part: object) -> str:
    return "/".join(f"{number:g}" for number in part) if isinstance(part, tuple | list) else str(part)
