"""up and down: the supervisor of this computer without a terminal of its own.

`up` starts `spot serve` in a session of its own, with its output in DATA_DIR/serve.log, and returns when it answers.
`down` ends exactly the process that serves the data folder, by its pid and its start, and says what goes on without it.
Both are safe to repeat.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import AUTH, FAILED, TIMEOUT, CliError
from supervisor.cli.finding import active_statuses, client_for
from supervisor.cli.output import safe
from supervisor.cli.server.server import serve_options, settings_options
from supervisor.settings.serving_process import ServingProcess, serving, starting
from supervisor.wiring import settings as wired

READY_S = 60.0
ENDED_S = 30.0
LOOK_S = 0.05
LOG = "serve.log"
LOG_MAX_BYTES = 10_000_000  # a longer log is put aside at the next start, in place of the one before
LAST_LINES = 6
SHOWN = 5


@click.command()
@serve_options
def up(file: str | None, env_file: str | None, **flags: object) -> None:
    """Start the supervisor in the background, and wait until it is ready. Its log: serve.log in the data folder.

    It stays until `spot down`, or until the computer restarts. As a service that comes back by itself:
    docs/operations.md.
    """
    settings = wired.load(flags, file=file, env_file=env_file)
    log = settings.data_dir / LOG
    process = serving(settings.data_dir) or starting(settings.data_dir)
    child = None
    began = time.monotonic()
    if process is None:
        child = start_serving(serve_command(file, env_file, settings.data_dir, flags), log)
    elif serving(settings.data_dir) is not None:
        click.echo(f"The supervisor runs already: {_address(settings.data_dir)} (pid {process.pid})")
        return
    wait_until_ready(settings.data_dir, child, log)
    _tell_ready(settings.data_dir, log, time.monotonic() - began)


def serve_command(file: str | None, env_file: str | None, data_dir: Path, flags: dict[str, object]) -> list[str]:
    """`serve` with the options that were given here. -P: modules that lie in this folder are not ours."""
    words = [sys.executable, "-P", "-m", "supervisor", "serve", "--data-dir", str(data_dir)]
    for option, path in (("--config", file), ("--env-file", env_file)):
        words += [] if path is None else [option, os.path.abspath(path)]
    for name, value in flags.items():
        if value is None or name == "data_dir":
            continue
        option = "--" + name.replace("_", "-")
        words += [option] if value is True else [option, str(value)]
    return words


def start_serving(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """In a session of its own: neither Ctrl-C nor the end of this terminal reaches it."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if log.is_file() and log.stat().st_size > LOG_MAX_BYTES:
            os.replace(log, log.with_name(f"{LOG}.1"))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(log, flags, 0o600), "ab") as sink:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
            )
    except OSError as error:
        raise CliError(f"{log} cannot be written: {error.strerror}.", FAILED, "FILE_UNWRITABLE") from None
    return child


def wait_until_ready(data_dir: Path, child: subprocess.Popen[bytes] | None, log: Path) -> None:
    """`child` None: somebody else has started it. Raises CliError where it ended, or is not ready in time."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        process = serving(data_dir)
        ready = process is not None and (child is None or process.pid == child.pid)
        if ready and _answers(data_dir):
            if child is not None:
                child.returncode = 0  # it outlives us: Popen must not warn of that
            return
        gone = starting(data_dir) is None and process is None
        if gone if child is None else child.poll() is not None:
            raise _failed(log)
        time.sleep(LOOK_S)
    if child is not None:
        child.returncode = 0
    text = f"The supervisor runs, but is not ready after {READY_S:g} s."
    raise CliError(text, TIMEOUT, "NOT_READY", ("see why: spot health", f"its log: {log}"))


def _failed(log: Path) -> CliError:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
    except OSError:
        lines = []
    said = tuple(safe(line) for line in lines)
    return CliError(
        "The supervisor could not be started. The end of its log:", FAILED, "START_FAILED", (*said, f"all of it: {log}")
    )


def _answers(data_dir: Path) -> bool:
    try:
        client = _client(data_dir)
        client.timeout_s = LOOK_S * 20
        return client.send("GET", "/readyz", accept=503).status == 200
    except CliError as error:
        return error.exit_code == AUTH  # it answers; what it thinks of our token is told by the next command


def _client(data_dir: Path) -> Client:
    """Of the supervisor that serves this folder, whatever SPOT_URL names."""
    return client_for(None, str(data_dir), None, None)


def _address(data_dir: Path) -> str:
    return _client(data_dir).url


def _tell_ready(data_dir: Path, log: Path, took_s: float) -> None:
    process = serving(data_dir)
    url = _address(data_dir)
    click.echo(f"Supervisor ready after {took_s:.1f} s: {url} (pid {process.pid if process else '?'})")
    click.echo("It stays running when this terminal is closed, until `spot down` or a restart of the computer.")
    click.echo(f"  log        {log}")
    click.echo(f"  dashboard  {url}/ui/runs")
    output.suggest("spot submit --run-id my-run --code . -- python train.py")


@click.command()
@settings_options
def down(file: str | None, env_file: str | None, **flags: str | None) -> None:
    """End the supervisor of this computer. Trainings go on without it; the next `spot up` finds them again."""
    settings = wired.load(flags, file=file, env_file=env_file)
    process = serving(settings.data_dir) or starting(settings.data_dir)
    if process is None:
        click.echo(f"No supervisor of {settings.data_dir} is running.")
        return
    live = _live_runs(settings.data_dir)
    _end(process)
    click.echo(f"The supervisor of {settings.data_dir} has ended (pid {process.pid}).")
    click.echo(_what_goes_on(live))


def _live_runs(data_dir: Path) -> list[Json] | None:
    """None where the supervisor did not say."""
    try:
        client = _client(data_dir)
        client.timeout_s = 5.0
        runs: list[Json] = client.get("/v1/runs", status=active_statuses(), page_size=1000)["runs"]
        return runs
    except CliError:
        return None


def _end(process: ServingProcess) -> None:
    try:
        process.send(signal.SIGTERM)
    except PermissionError:
        text = f"The supervisor (pid {process.pid}) belongs to another user."
        raise CliError(text, AUTH, "NOT_ALLOWED", (f"sudo kill {process.pid}",)) from None
    until = time.monotonic() + ENDED_S
    while process.lives():
        if time.monotonic() > until:
            text = f"The supervisor (pid {process.pid}) was asked to end and still runs after {ENDED_S:g} s."
            raise CliError(
                text, TIMEOUT, "STILL_RUNNING", ("wait, or end it now: no run is lost by it", f"kill -9 {process.pid}")
            )
        time.sleep(LOOK_S)


def _what_goes_on(live: list[Json] | None) -> str:
    if live is None:
        return "Trainings that were running go on; `spot up` finds them again."
    if not live:
        return "No run was active."
    names = ", ".join(safe(run["run_id"]) for run in live[:SHOWN]) + (", …" if len(live) > SHOWN else "")
    active = "1 run stays active" if len(live) == 1 else f"{len(live)} runs stay active"
    training = any(run.get("machine_id") for run in live)
    on = "Trainings go on without the supervisor" if training else "No training has begun"
    return f"{active} ({names}). {on}, and nothing that ends is started again until `spot up`."
