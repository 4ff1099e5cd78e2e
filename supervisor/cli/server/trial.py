"""trial: a whole run on a real Google project, on one small Spot machine, after which nothing is left there.

A supervisor of its own (`serve`, with its data folder in DATA_DIR/trial and its own prefix in the bucket) runs one
training through boot, preemption, resume and end; trial_phases.py watches it. DATA_DIR/trial/trial.json is written
before anything else, so that the next call can remove a trial that was killed. The end is always the same: stop the
supervisor, delete its machines, then its objects, then the folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.exits import CONFLICT, DETACHED, FAILED, OK, USAGE, CliError
from supervisor.cli.options import yes_option
from supervisor.cli.output import safe
from supervisor.cli.server.background import client_of, serve_command, start_serving, wait_until_ready
from supervisor.cli.server.server import examine_here, remove_trial, settings_options, trial_offers
from supervisor.cli.server.trial_phases import PHASES, TRAINING, Phase, PhaseFailed, Report, Watch, play
from supervisor.domain.errors import SpotError
from supervisor.domain.machines import Offer
from supervisor.settings import loading as settings_of
from supervisor.settings.loading import Settings
from supervisor.settings.serving_process import serving, starting
from supervisor.wiring import settings as wired

GPU_SHAPE = "n1-standard-4+1xnvidia-tesla-t4"
CPU_SHAPE = "e2-standard-2"
TRIAL_S = 3600.0  # then the trial is given up, and Google itself ends so old a machine
USUAL_S = 1200.0
DOCTOR_S = 8.0
ENDED_S = 30.0
POLL_S = 0.1
GCE = "gce"
RUN = "trial"
NOTE = "trial.json"
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Plan:
    """`file`, `env_file`: the sources of the settings. `out`: the folder of the report."""

    file: str | None
    env_file: str | None
    settings: Settings
    shape: str
    image: str
    zones: tuple[str, ...]
    out: Path

    @property
    def folder(self) -> Path:
        return self.settings.data_dir / "trial"

    @property
    def gpu(self) -> bool:
        """Whether the machine has GPUs: added ones, or those of the series a and g."""
        return "+" in self.shape or self.shape[0] in "ag"


@click.command()
@click.option("--no-gpu", is_flag=True, help=f"A machine without GPU ({CPU_SHAPE}), which needs no GPU quota.")
@click.option("--machine", metavar="SHAPE", help=f"Another machine (default: {GPU_SHAPE}).")
@click.option("--zones", metavar="ZONE,ZONE", help="Zones to try (default: gce_zones).")
@click.option("--image", metavar="REF", help="Image with Python 3.8 or newer (default: default_image).")
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Folder of the report.")
@click.option("--clean", is_flag=True, help="Only remove what is left of a killed trial.")
@yes_option("Do not ask before money is spent.")
@settings_options
@click.pass_context
def trial(
    ctx: click.Context, /, file: str | None, env_file: str | None, clean: bool, yes: bool, **options: Any
) -> None:
    """Test a whole run on a real Google project. It costs cents, asks first, and leaves nothing there.

    The doctor, then one small Spot machine: driver, GPU, container, bucket, heartbeat, preemption, resume, deletion.
    Takes 10 to 20 minutes. The report says what failed and how to fix it; a recording holds every exchange with Google,
    without secrets. Exit 0: every phase passed.
    """
    own = {name: options.pop(name) for name in ("no_gpu", "machine", "zones", "image", "out")}
    settings = wired.load(options, file=file, env_file=env_file)
    if list(settings.sections) != [GCE]:
        raise _not_one_project(settings)
    with _alone(settings.data_dir):
        _remove_left(settings.data_dir / "trial")
        if clean:
            click.echo("Nothing is left of a trial.")
            return
        plan = _plan(file, env_file, settings, **own)
        report = _prepared(plan)
        _agree(plan, yes)
        ctx.exit(_tried(plan, report))


def _not_one_project(settings: Settings) -> CliError:
    """A trial has its own supervisor, with one provider and its own settings."""
    kinds = [section.kind for section in settings.sections.values()]
    text = "The trial is for Google Cloud, and these settings have provider = local."
    if GCE in kinds or len(kinds) > 1:
        text = "The trial needs the settings of one Google project, and these have sections of providers."
    return CliError(text, USAGE, "TRIAL_LOCAL", ("spot trial --env-file spot.env", "docs/google-cloud-setup.md"))


def _plan(
    file: str | None,
    env_file: str | None,
    settings: Settings,
    *,
    no_gpu: bool,
    machine: str | None,
    zones: str | None,
    image: str | None,
    out: Path | None,
) -> Plan:
    if no_gpu and machine:
        raise click.UsageError("Use --no-gpu or --machine, not both.")
    image = image or settings.machines.default_image
    if not image:
        hint = "spot trial --image mirror.gcr.io/library/python:3.12-slim"
        raise CliError("The trial needs an image with Python, and default_image is not set.", USAGE, hints=(hint,))
    return Plan(
        file and os.path.abspath(file),
        env_file and os.path.abspath(env_file),
        settings,
        shape=machine or (CPU_SHAPE if no_gpu else GPU_SHAPE),
        image=image,
        zones=tuple(zones.split(",")) if zones else settings.value("gce_zones"),
        out=Path(os.path.abspath(out or f"spot-trial-{datetime.now(UTC):%Y%m%d-%H%M%S}")),
    )


def _prepared(plan: Plan) -> Report:
    """The folders, the note for a call after a kill, and the settings of the trial in this environment."""
    token = secrets.token_hex(4)
    environ = _environ(plan, token)
    try:
        plan.out.mkdir(parents=True, mode=0o700)
        plan.folder.mkdir(parents=True, mode=0o700)
        note = {"file": plan.file, "env_file": plan.env_file, "environ": environ}
        draft = plan.folder / f".{NOTE}"
        draft.write_text(json.dumps(note), encoding="utf-8")
        draft.replace(plan.folder / NOTE)  # whole or not at all, because it names the machines
    except OSError as error:
        raise _unwritable(error) from None
    os.environ.update(environ)
    facts = {
        "project": plan.settings.value("gce_project"),
        "machine": plan.shape,
        "zones": plan.zones,
        "image": plan.image,
    }
    phases = [Phase(name) for name in PHASES if plan.gpu or name not in ("driver", "card")]
    return Report(plan.out, token, facts, phases)


def _unwritable(error: OSError) -> CliError:
    return CliError(f"{error.filename}: {error.strerror}.", FAILED, "FILE_UNWRITABLE")


def _environ(plan: Plan, token: str) -> dict[str, str]:
    """The trial's own settings, without alerts and without the user's disk; every other setting stays."""
    settings, folder = plan.settings, plan.folder
    own = {
        "data_dir": str(folder),
        "database_url": f"sqlite:///{folder / 'supervisor.db'}",
        "store_url": f"{settings.store_url}/spot-trial-{token}",
        "record_file": str(plan.out / "recording.jsonl"),
        "provider": GCE,
        "gce_project": settings.value("gce_project"),
        "gce_zones": ",".join(plan.zones),
        "gce_shapes": f"trial={plan.shape}",
        "default_image": plan.image,
        "host": "127.0.0.1",
        "port": "0",
        "machine_max_s": f"{TRIAL_S:g}",
        "poll_interval_s": f"{min(settings.knobs.poll_interval_s, 5.0):g}",
        "beat_store_s": f"{min(settings.knobs.beat_store_s, 10.0):g}",
        "patrol_every_s": "0",
        "gce_data_disk_read_only": "false",
    }
    empty = (
        "gce_prices", "gce_data_disk", "gce_data_disk_zone", "public_url", "dashboard_url", "alert_url", "alert_secret",
        "admin_token",
    )  # fmt: skip
    return {settings_of.env_name(name): value for name, value in {**own, **dict.fromkeys(empty, "")}.items()}


def _agree(plan: Plan, yes: bool) -> None:
    """Show the cost and ask. Raises Abort at a no; no request was sent to Google then."""
    try:
        offers = trial_offers(wired.load({}, file=plan.file, env_file=plan.env_file))
        output.show(output.paragraph(_cost_text(plan, offers)))
        output.confirm("Continue?", yes)
    except BaseException:
        shutil.rmtree(plan.folder)
        shutil.rmtree(plan.out)
        raise


def _cost_text(plan: Plan, offers: tuple[Offer, ...]) -> str:
    settings = plan.settings
    prices = [offer.price_usd_per_h for offer in offers if offer.placement.spot and offer.price_usd_per_h is not None]
    where = f"in project {settings.value('gce_project')} ({', '.join(plan.zones)})"
    what = f"One Spot machine {plan.shape} {where}, twice for some minutes."
    what += f" Its files go to {settings.store_url} and are deleted."
    if not prices:
        return f"{what} Its price is unknown (spot prices refresh); it is ended after 60 min."
    usual, most = max(prices) * USUAL_S / 3600, max(prices) * TRIAL_S / 3600
    return (
        f"{what} The machine costs up to ${max(prices):.2f}/h: about ${usual:.2f} in {USUAL_S / 60:g} min, at most"
        f" ${most:.2f}, because it is ended after {TRIAL_S / 60:g} min. Disk, address and bucket add some cents."
    )


def _tried(plan: Plan, report: Report) -> int:
    """The exit code. Whatever happens in between, nothing is left."""
    before = {number: signal.signal(number, _interrupt) for number in ENDINGS}
    code = FAILED
    try:
        _play(plan, report)
    except KeyboardInterrupt:
        code = DETACHED
        _note("\nEnding the trial and deleting what it created. Please wait.")
    except (PhaseFailed, SpotError, CliError) as error:
        if not any(phase.result == "failed" for phase in report.phases):
            _note(safe(str(error)))
    finally:
        for number in ENDINGS:
            signal.signal(number, signal.SIG_IGN)
        _leave_nothing(plan, report)
        for number, handler in before.items():
            signal.signal(number, handler)
    report.finish()
    return OK if report.ok() else code


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _play(plan: Plan, report: Report) -> None:
    until = time.monotonic() + TRIAL_S
    with report.phase("doctor") as phase:
        phase.seen = _examined(plan)
    with report.phase("supervisor") as phase:
        log = plan.out / "serve.log"
        child = start_serving(serve_command(plan.file, plan.env_file, plan.folder, {}), log)
        wait_until_ready(plan.folder, child, log)
        client = client_of(plan.folder)
        phase.seen = f"ready at {client.url}"
    watch = Watch(client, RUN, plan.out / "console.log", until)
    client.post("/v1/runs", {"run_id": RUN, "spec": _spec()})
    try:
        play(report, watch, plan.gpu)
    finally:
        report.events = watch.events()
        report.cost_usd = (watch.run.get("cost") or {}).get("usd")


def _spec() -> dict[str, Any]:
    return {
        "command": ["python3", "-c", TRAINING],
        "results": [{"path": "trial.txt"}],
        "limits": {"max_attempts": 4, "max_user_failures": 1, "wait_for_capacity_s": TRIAL_S / 2},
    }


def _examined(plan: Plan) -> str:
    """Raises PhaseFailed where a check fails: nothing is rented then."""
    checks = examine_here({}, plan.file, plan.env_file, False, DOCTOR_S)["checks"]
    failed = [check for check in checks if check["result"] == "fail"]
    if failed:
        raise PhaseFailed("\n".join(
            f"{check['name']}: {check['fact']}; {check['cause'] or ''} fix: {check['fix'] or ''}" for check in failed
        ))  # fmt: skip
    warned = [check["name"] for check in checks if check["result"] == "warn"]
    return f"{len(checks)} checks" + (f"; warnings: {', '.join(warned)}" if warned else "")


def _note(text: str) -> None:
    """The reader may be gone (a closed terminal or pipe), which must not keep anything from being removed."""
    with suppress(OSError):
        output.note(text)


@contextmanager
def _alone(data_dir: Path) -> Iterator[None]:
    """One trial of a data folder at a time: it must not remove the machines of another one as left over."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(data_dir / "trial.lock", flags, 0o600)
    except OSError as error:
        raise _unwritable(error) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = f"Another trial of {data_dir} is under way."
            raise CliError(text, CONFLICT, "TRIAL_RUNS", ("wait until it has ended",)) from None
        yield
    finally:
        os.close(lock)


def _leave_nothing(plan: Plan, report: Report) -> None:
    # With an error, the report says what is left, and the folder stays for --clean.
    with suppress(SpotError), report.phase("clean") as phase:
        phase.seen = f"{_removed(plan.folder, plan.file, plan.env_file)} deleted; nothing is left"


def _remove_left(folder: Path) -> None:
    """Remove what a killed trial has left. Raises SpotError: then it is still there."""
    try:
        note = json.loads((folder / NOTE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        shutil.rmtree(folder, ignore_errors=True)  # killed before it did anything
        return
    _note("A trial was cut off; removing what it left.")
    before = dict(os.environ)
    os.environ.update(note["environ"])
    try:
        removed = _removed(folder, note["file"], note["env_file"])
    finally:
        os.environ.clear()
        os.environ.update(before)
    _note(f"{removed} deleted.")


def _removed(folder: Path, file: str | None, env_file: str | None) -> str:
    """`1 machines and 12 objects`. The environment holds the settings of the trial. Raises SpotError."""
    _end_supervisor(folder)
    machines, objects = remove_trial(wired.load({}, file=file, env_file=env_file), _note)
    shutil.rmtree(folder)
    return f"{machines} machines and {objects} objects"


def _end_supervisor(folder: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = serving(folder) or starting(folder)
        if process is None:
            return
        process.send(number)
        until = time.monotonic() + ENDED_S
        while process.lives() and time.monotonic() < until:
            time.sleep(POLL_S)
