"""up and down: the supervisor of this computer, in the background.

`up` starts `spot serve` in a session of its own, with its output in DATA_DIR/serve.log, and returns when it is ready.
`down` ends exactly the process that serves the data folder, by its pid and start time, and says what continues.
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
from supervisor.cli.finding import ACTIVE_STATUSES, Target
from supervisor.cli.output import safe
from supervisor.cli.server.server import serve_options, settings_options
from supervisor.settings.serving_process import ServingProcess, serving, starting
from supervisor.wiring import settings as wired

READY_S = 60.0
ENDED_S = 30.0
POLL_S = 0.05
LOG = "serve.log"
LOG_MAX_BYTES = 10_000_000  # a longer log is renamed at the next start, over the one before
LINES_SHOWN = 6  # of the log of a failed start
RUNS_SHOWN = 5


@click.command()
@serve_options
def up(file: str | None, env_file: str | None, **options: object) -> None:
    """Start the supervisor in the background and wait until it is ready. Its log: serve.log in the data folder.

    It runs until `spot down` or a restart of the computer. To run it as a service: docs/operations.md.
    """
    settings = wired.load(options, file=file, env_file=env_file)
    folder, log = settings.data_dir, settings.data_dir / LOG
    process, child = serving(folder), None
    if process is not None:
        click.echo(f"The supervisor runs already: {client_of(folder).url} (pid {process.pid})")
        return
    began = time.monotonic()
    if starting(folder) is None:
        child = start_serving(serve_command(file, env_file, folder, options), log)
    wait_until_ready(folder, child, log)
    process, url = serving(folder), client_of(folder).url
    click.echo(
        f"Supervisor ready after {time.monotonic() - began:.1f} s: {url} (pid {process.pid if process else '?'})"
    )
    text = "It keeps running when this terminal closes, until `spot down` or a restart of the computer."
    output.show(output.paragraph(text))
    output.show([f"  log        {log}", f"  dashboard  {url}/ui/runs"])
    output.suggest("spot submit --run-id my-run --code . -- python train.py")


def serve_command(file: str | None, env_file: str | None, data_dir: Path, options: dict[str, object]) -> list[str]:
    """`spot serve` with these options. -P keeps Python from importing modules of the current folder."""
    words = [sys.executable, "-P", "-m", "supervisor", "serve", "--data-dir", str(data_dir)]
    for option, path in (("--config", file), ("--env-file", env_file)):
        words += [] if path is None else [option, os.path.abspath(path)]
    for name, value in options.items():
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
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True)
    except OSError as error:
        raise CliError(f"{log} cannot be written: {error.strerror}.", FAILED, "FILE_UNWRITABLE") from None


def wait_until_ready(data_dir: Path, child: subprocess.Popen[bytes] | None, log: Path) -> None:
    """`child` None: another command has started it. Raises CliError where it ended, or is not ready in time."""
    until = time.monotonic() + READY_S
    try:
        while time.monotonic() < until:
            process = serving(data_dir)
            if process is not None and (child is None or process.pid == child.pid) and _responds(data_dir):
                return
            ended = process is None and starting(data_dir) is None if child is None else child.poll() is not None
            if ended:
                raise _start_failed(log)
            time.sleep(POLL_S)
    finally:
        if child is not None and child.returncode is None:
            child.returncode = 0  # it outlives this command: Popen must not warn about it
    text = f"The supervisor runs, but is not ready after {READY_S:g} s."
    raise CliError(text, TIMEOUT, "NOT_READY", ("see why: spot health", f"its log: {log}"))


def _start_failed(log: Path) -> CliError:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LINES_SHOWN:]
    except OSError:
        lines = []
    text = "The supervisor did not start. The end of its log:"
    return CliError(text, FAILED, "START_FAILED", (*map(safe, lines), f"all of it: {log}"))


def _responds(data_dir: Path) -> bool:
    try:
        client = client_of(data_dir)
        client.timeout_s = POLL_S * 20
        return client.send("GET", "/readyz", accept=503).status == 200
    except CliError as error:
        return error.exit_code == AUTH  # it responds; the next command reports the refused token


def client_of(data_dir: Path) -> Client:
    """Of the supervisor that serves this folder, whatever SPOT_URL names."""
    return Target(data_dir=str(data_dir)).client()


@click.command()
@settings_options
def down(file: str | None, env_file: str | None, **options: str | None) -> None:
    """Stop the supervisor of this computer. Trainings continue; the next `spot up` finds them again."""
    folder = wired.load(options, file=file, env_file=env_file).data_dir
    process = serving(folder) or starting(folder)
    if process is None:
        click.echo(f"No supervisor of {folder} is running.")
        return
    live = _live_runs(folder)
    _end(process)
    click.echo(f"The supervisor of {folder} has ended (pid {process.pid}).")
    click.echo(_what_continues(live))


def _live_runs(data_dir: Path) -> list[Json] | None:
    """None where the supervisor did not respond."""
    try:
        client = client_of(data_dir)
        client.timeout_s = 5.0
        runs: list[Json] = client.get("/v1/runs", status=ACTIVE_STATUSES, page_size=1000)["runs"]
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
            text = f"The supervisor (pid {process.pid}) got SIGTERM and still runs after {ENDED_S:g} s."
            hints = ("wait, or kill it: no run is lost by that", f"kill -9 {process.pid}")
            raise CliError(text, TIMEOUT, "STILL_RUNNING", hints)
        time.sleep(POLL_S)


def _what_continues(live: list[Json] | None) -> str:
    if live is None:
        return "Running trainings continue; `spot up` finds them again."
    if not live:
        return "No run was active."
    names = ", ".join(safe(run["run_id"]) for run in live[:RUNS_SHOWN]) + (", …" if len(live) > RUNS_SHOWN else "")
    active = "1 run stays active" if len(live) == 1 else f"{len(live)} runs stay active"
    training = any(run.get("machine_id") for run in live)
    state = "Trainings continue without the supervisor" if training else "No training has started"
    return f"{active} ({names}). {state}, and an attempt that ends is replaced only after `spot up`."
