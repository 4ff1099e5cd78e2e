"""serve, backup, migrate and config: the commands that run inside the supervisor instead of sending it requests.

The composition root is imported only when the settings are valid, so that a refusal comes at once.
"""

from __future__ import annotations

import gc
import logging
import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click

from supervisor.cli.exits import CliError
from supervisor.cli.options import F, add_options, json_option, settings_file_options
from supervisor.cli.output import json_text, show_warnings, terminal_columns
from supervisor.cli.output import show as show_lines
from supervisor.domain.errors import SpotError, Unavailable
from supervisor.domain.machines import Offer
from supervisor.settings import credentials
from supervisor.settings import loading as settings_of
from supervisor.settings.loading import Settings
from supervisor.settings.sections import SECTIONS
from supervisor.settings.serving_process import announced
from supervisor.wiring import settings as wired

LOG = logging.getLogger("supervisor.cli.server.server")
VALUE_WIDTH = 21  # so that 80 columns show what follows a value
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*@")


def settings_options(command: F) -> F:
    """The sources of the settings; the command gets `file`, `env_file` and the settings by name."""
    return add_options(
        settings_file_options(command),
        click.option("--data-dir", metavar="DIR", help="Data folder (default: the XDG state folder)."),
        click.option("--database-url", metavar="URL", help="Database (default: SQLite in the data folder)."),
        click.option("--store-url", metavar="URL", help="Object store (default: a folder in the data folder)."),
    )


def serve_options(command: F) -> F:
    """Every option of serve; `up` passes them on."""
    insecure = "Require no token; on loopback only."
    command = add_options(
        command,
        click.option("--host", metavar="HOST", help="Address to listen on (127.0.0.1)."),
        click.option("--port", metavar="PORT", help="Port to listen on (8787); 0 = any free port."),
        click.option("--insecure-loopback", is_flag=True, default=None, help=insecure),
        click.option("--poll-interval-s", metavar="S", help="Seconds between two ticks (30)."),
        click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error (info)."),
        click.option("--log-format", metavar="FORM", help="plain or json (plain)."),
    )
    return settings_options(command)


@click.command()
@serve_options
@click.option(
    "--start-over", is_flag=True, help="Create a new database beside a data folder or store of another supervisor."
)
def serve(file: str | None, env_file: str | None, start_over: bool, **options: object) -> None:
    """Run the supervisor on this computer until SIGTERM or Ctrl-C. Running trainings continue when it ends.

    Every other setting is an environment variable or a line of the TOML file: `spot config show` lists them.
    """
    settings = wired.load(options, file=file, env_file=env_file)
    _begin_log(settings)
    before = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with announced(settings.data_dir):
            # Takes most of a second, during which a submit may come. Imports make no garbage worth a pass.
            gc.disable()
            from supervisor.wiring import bootstrap

            code = bootstrap.serve(settings, start_over)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    raise click.exceptions.Exit(code)


def _leave(number: int, frame: FrameType | None) -> None:
    """SIGTERM and SIGINT unwind the stack, so that everything open is closed. Also after the HTTP server has caught a
    signal: it sends it again when it has ended, and the default action would kill the process while it closes."""
    raise SystemExit(0)


def _begin_log(settings: Settings) -> None:
    from supervisor.telemetry import logs as telemetry

    telemetry.configure(settings.log.log_level, settings.log.log_format)
    for warning in settings.warnings:
        LOG.warning(warning, extra={telemetry.ACTION: "settings_warning"})


@click.command()
@settings_options
def migrate(file: str | None, env_file: str | None, **options: str | None) -> None:
    """Upgrade the database to the schema of this version. Stop the supervisor first."""
    settings = wired.load(options, file=file, env_file=env_file)
    _begin_log(settings)
    from supervisor.wiring import bootstrap

    bootstrap.migrate(settings)
    click.echo("The database has the schema of this version.")


@click.command()
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@settings_options
def backup(target: Path, file: str | None, env_file: str | None, **options: str | None) -> None:
    """Copy the SQLite database to FILE while the supervisor runs. To restore it: docs/operations.md."""
    settings = wired.load(options, file=file, env_file=env_file)
    from supervisor.wiring import bootstrap

    try:
        size_bytes = bootstrap.backup(settings, target.absolute())
    except Unavailable as error:
        raise CliError(str(error), code=error.code) from None
    except OSError as error:
        raise CliError(f"{target} cannot be written: {error.strerror}", code="FILE_UNWRITABLE") from None
    click.echo(f"{target}: {size_bytes / 1e6:.1f} MB, whole and checked. Keep it where only you can read it.")


def examine_here(
    options: dict[str, object], file: str | None, env_file: str | None, alert_test: bool, deadline_s: float
) -> dict[str, Any]:
    """The doctor's report on these settings, made in this process. Refused settings are a check, too. `deadline_s`
    counts from now, because the user also waits while the libraries load, for more than a second."""
    began = time.monotonic()
    from supervisor.telemetry import logs as telemetry

    telemetry.configure("error", "plain")
    try:
        settings = wired.load(options, file=file, env_file=env_file)
    except SpotError as error:
        fix = "correct the settings; spot config show --origin shows where each value comes from"
        check = {"group": "local", "name": "settings", "result": "fail", "fact": "refused"}
        return {"worst": "fail", "checks": [{**check, "cause": str(error), "fix": fix}]}
    from supervisor.wiring import examining

    return dict(examining.examine(settings, alert_test, deadline_s - (time.monotonic() - began)))


def diagnosed(name: str, log: bytes, documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The verdict of the rules on files, as `spot why` shows it."""
    from supervisor.wiring import explaining

    return explaining.diagnosed(name, log, documents)


def rules_of_causes() -> dict[str, list[dict[str, Any]]]:
    """Cause -> the rules that give it, in their order."""
    from supervisor.wiring import explaining

    return explaining.rules_of_causes()


def trial_offers(settings: Settings) -> tuple[Offer, ...]:
    """Where a trial may rent its machine, and for how much. Raises SpotError."""
    from supervisor.wiring import trial_cloud

    return trial_cloud.offers(settings)


def remove_trial(settings: Settings, report: Callable[[str], None]) -> tuple[int, int]:
    """Delete what is left of a trial: (machines, objects). Raises SpotError."""
    from supervisor.wiring import trial_cloud

    return trial_cloud.remove(settings, report)


@click.group()
def config() -> None:
    """The settings of the supervisor."""


@config.command()
@settings_options
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@json_option
def show(origin: bool, form: str, file: str | None, env_file: str | None, **options: str | None) -> None:
    """Show every setting as `spot serve` would read it here and now."""
    settings = wired.load(options, file=file, env_file=env_file)
    show_warnings(settings.warnings)
    values = {name: _value_of(settings, name) for name in settings.origins}
    if form == "json":
        rows = {name: {"value": value, "origin": settings.origins[name]} for name, value in values.items()}
        click.echo(json_text(rows if origin else values, 2))
        return
    source = settings.origins.__getitem__ if origin else _variable
    lines = [(name, _value_text(value), source(name)) for name, value in values.items()]
    show_lines(_table([("SETTING", "VALUE", "ORIGIN" if origin else "ENVIRONMENT"), *lines]))


def _variable(name: str) -> str:
    """The environment variable; a key of a section of the file has none."""
    return "" if name.startswith(SECTIONS) else settings_of.env_name(name)


def _table(rows: list[tuple[str, str, str]]) -> list[str]:
    """A value is never cut, so this is no output.Table: at a terminal a long value pushes only its own line."""
    limit = None if terminal_columns() is None else VALUE_WIDTH
    first = max(len(name) for name, _, _ in rows)
    second = max(len(value) for _, value, _ in rows if limit is None or len(value) <= limit)
    return [f"{name:<{first}}  {value:<{second}}  {source}".rstrip() for name, value, source in rows]


def _value_of(settings: Settings, name: str) -> object:
    """A JSON value without the password of a URL and without whole credentials."""
    value = settings.value(name)
    if isinstance(value, Path):
        return str(value)
    if name in credentials.SECRET:
        return credentials.shown(name, value)
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
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(f"{key}={_part_text(part)}" for key, part in value.items()) or "none"
    return str(value)


def _part_text(part: object) -> str:
    return "/".join(f"{number:g}" for number in part) if isinstance(part, tuple | list) else str(part)
