"""watch and wait: follow a run to its end, or all runs. Leaving (Ctrl-C) changes nothing for the runs, and says so.

On a terminal `watch` keeps one picture up to date; elsewhere it prints each event as a line, and the sentence of the
run when its status changes or a minute has passed: a log that stays silent looks like a log that is broken.

`spot watch 60` shows all runs as `spot ls` does, read anew every so many seconds. Without a terminal each look is
printed below the last, with its time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import click

from supervisor.cli import exits, output
from supervisor.cli.client import Client, Json, pages, run_path
from supervisor.cli.finding import TERMINAL, choose_run
from supervisor.cli.options import duration_s, output_option, run_argument, server_options
from supervisor.cli.output import bar, safe
from supervisor.cli.runs.runs import next_command, release_command
from supervisor.cli.views import runs as views
from supervisor.domain.events import ROUTINE
from supervisor.wording.figures import percent

SHOWN = 50
HINT = "Ctrl-C leaves; the runs go on."


def watch_all(client: Client, every_s: float, timeout_s: float | None) -> int:
    """The exit code: 130 when the person leaves, 0 when `timeout_s` is over: nothing was waited for."""
    try:
        if sys.stdout.isatty():
            _live(client, every_s, timeout_s)
        else:
            _repeat(client, every_s, timeout_s, _print)
    except KeyboardInterrupt:
        output.note("\nLeft; the runs go on. Come back: spot watch 60")
        return exits.DETACHED
    return exits.OK


def picture(client: Client) -> list[str]:
    """The lines of `spot ls`, the newest runs first."""
    runs: list[Json] = []
    summary: Json = {}
    for page in pages(client, "/v1/runs", "runs", SHOWN):
        runs += page["runs"]
        summary = page.get("summary") or summary
    return views.run_lines(runs, summary) if runs else ["There is no run yet.", views.summary_line(summary)]


def _repeat(client: Client, every_s: float, timeout_s: float | None, show: Callable[[list[str]], None]) -> None:
    began = time.monotonic()
    while True:
        show(client.patiently(lambda: picture(client), output.note))
        left_s = every_s if timeout_s is None else min(every_s, began + timeout_s - time.monotonic())
        if left_s <= 0:
            return
        time.sleep(left_s)


def _print(lines: list[str]) -> None:
    click.echo(datetime.now(UTC).strftime("%H:%M:%S UTC"))
    output.show(lines)
    click.echo()
    sys.stdout.flush()


def _live(client: Client, every_s: float, timeout_s: float | None) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console()

    def draw(lines: list[str]) -> None:
        room = max(3, console.size.height - 2)
        at = datetime.now(UTC).strftime("%H:%M:%S UTC")
        head, last = lines[:-1][: room - 1], lines[-1]
        body = [Text.from_ansi(line) for line in [*head, last]]
        live.update(Group(*body, Text(f"{at}, again in {every_s:g} s. {HINT}", style="dim")), refresh=True)

    with Live(console=console, auto_refresh=False, transient=True) as live:
        _repeat(client, every_s, timeout_s, draw)


POLL_S = 1.0
NEEDS_YOU = "needs you"  # a next action of the API
EVERY = click.FloatRange(0.1, 86400.0)  # seconds between two looks
REPEAT_S = 60.0
EVENTS_SHOWN = 8
TIMEOUT = click.option(
    "--timeout", type=duration_s, metavar="TIME", help="Give up waiting after this time (90s, 30m, 2h; exit 8)."
)


@click.command()
@run_argument
@click.argument("seconds", required=False, type=EVERY)
@TIMEOUT
@server_options
@click.pass_context
def watch(
    ctx: click.Context, /, client: Client, run_id: str | None, seconds: float | None, timeout: float | None
) -> None:
    """Follow a run until it ends or needs you (exit 9). Ctrl-C leaves; the run goes on.

    `spot watch 60` shows all runs, read anew every 60 seconds; `spot watch RUN 60` one of them so often.
    """
    if run_id is not None and not run_id[:1].isalpha():  # a run's name begins with a letter
        ctx.exit(watch_all(client, _seconds(ctx, run_id, seconds), timeout))
    ctx.exit(follow_run(client, choose_run(client, run_id), timeout, seconds))


def _seconds(ctx: click.Context, given: str, more: float | None) -> float:
    if more is not None:
        raise click.UsageError("Write spot watch RUN SECONDS, or spot watch SECONDS for all runs.", ctx)
    return float(EVERY(given, None, ctx))


@click.command()
@run_argument
@TIMEOUT
@output_option
@server_options
@click.pass_context
def wait(ctx: click.Context, /, client: Client, form: str, run_id: str | None, timeout: float | None) -> None:
    """Wait silently until a run ends or needs you; the exit code says how: 0 completed, 9 needs you, 3 otherwise."""
    name = choose_run(client, run_id)
    run = _until_end(client, name, timeout, look=lambda: client.get(run_path(name)), show=lambda _: None)
    if run is None:
        ctx.exit(exits.DETACHED)
    if not output.emit(run, [run], form, "run_id"):
        click.echo(output.run_line(run))
    ctx.exit(end_code(run))


def end_code(run: Json) -> int:
    if run["status"] not in TERMINAL:
        return exits.NEEDS_PERSON
    return exits.OK if run["status"] == "completed" else exits.RUN_FAILED


def _person(run: Json) -> str:
    """What it waits for a person to do; "" = nothing."""
    if run["status"] == "awaiting_teardown" and run["next_action"]["what"] == NEEDS_YOU:
        return f"its release: {release_command(run)}"
    return str(run.get("needs_person") or "")


def follow_run(client: Client, run_id: str, timeout_s: float | None, every_s: float | None = None) -> int:
    """Show the run until it ends, looking every `every_s` (None = at once); the exit code."""
    scene = Scene(client, run_id)
    if sys.stdout.isatty():
        run = _follow_live(scene, timeout_s, every_s)
    else:
        run = _until_end(client, run_id, timeout_s, look=scene.look, show=Lines(scene).show, every_s=every_s)
    if run is None:
        return exits.DETACHED
    if sys.stdout.isatty():
        output.show(scene.picture())
    output.suggest(next_command(run))
    return end_code(run)


def _until_end(
    client: Client,
    run_id: str,
    timeout_s: float | None,
    *,
    look: Callable[[], Json],
    show: Callable[[Json], None],
    every_s: float | None = None,
) -> Json | None:
    """The run once it is terminal or needs a person; None when who watches left. Raises CliError (exit 8) at the
    timeout."""
    began = time.monotonic()
    try:
        while True:
            left_s = None if timeout_s is None else max(0.0, began + timeout_s - time.monotonic())
            run: Json = client.patiently(look, output.note, left_s)
            show(run)
            if run["status"] in TERMINAL:
                return run
            person = _person(run)
            if person:
                output.note(f"{run_id} needs you: {safe(person)}")
                return run
            if timeout_s is not None and time.monotonic() - began >= timeout_s:
                text = f"{run_id} is still {run['status']} after {timeout_s:g} s; it goes on."
                raise exits.CliError(text, exits.TIMEOUT, "TIMEOUT", (f"spot watch {run_id}",))
            time.sleep(_pause_s(every_s, began, timeout_s))
    except KeyboardInterrupt:
        output.note(
            f"\nDetached from {run_id}; it goes on. Come back: spot watch {run_id}   Stop it: spot stop {run_id}"
        )
        return None


def _pause_s(every_s: float | None, began: float, timeout_s: float | None) -> float:
    """Until the next look; a slow pace does not outlast the timeout."""
    if every_s is None or timeout_s is None:
        return POLL_S if every_s is None else every_s
    return max(0.0, min(every_s, began + timeout_s - time.monotonic()))


@dataclass
class Scene:
    """What is known of the followed run. `events` holds the last few; `fresh` those of the latest look."""

    client: Client
    run_id: str
    run: Json = field(default_factory=dict)
    attempts: Json = field(default_factory=dict)
    events: list[Json] = field(default_factory=list)
    fresh: list[Json] = field(default_factory=list)
    after: int = 0

    def look(self) -> Json:
        run: Json = self.client.get(run_path(self.run_id))
        self.attempts = self.client.get(run_path(self.run_id, "attempts"))
        self.fresh = self._new_events()
        self.events = [*self.events, *self.fresh][-EVENTS_SHOWN:]
        # Events were read after the run: a run that has ended has all of its events here.
        self.run = run
        return run

    def _new_events(self) -> list[Json]:
        events: list[Json] = []
        while True:
            page = self.client.get(run_path(self.run_id, "events"), after=self.after)
            events += [event for event in page["events"] if event["kind"] not in ROUTINE]
            if page["events"]:
                self.after = page["events"][-1]["id"]
            if page["complete"] or not page["events"]:
                return events

    def picture(self) -> list[str]:
        """The whole page: sentence, progress, attempts, last events."""
        run = self.run
        progress = run.get("progress") or {}
        done = percent(progress.get("step"), progress.get("total"))
        lines = [views.headline(run), *output.paragraph(safe(run["status_text"]))]
        if done is not None:
            lines.append(bar(done, 40))
        table = views.attempt_lines(self.attempts["attempts"])
        placing = views.placing_lines(self.attempts.get("next"))
        events = [line for event in self.events for line in views.event_lines(event)]
        for part in (table, placing, events):
            lines += ["", *part] if part else []
        return lines


class Lines:
    """`watch` without a terminal: one line an event, and the sentence now and then."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._status, self._said_at = scene, "", 0.0

    def show(self, run: Json) -> None:
        for event in self._scene.fresh:
            click.echo("\n".join(views.event_lines(event)))
        if run["status"] != self._status or time.monotonic() - self._said_at >= REPEAT_S:
            click.echo(f"{output.status_mark(run['status'])}  {safe(run['status_text'])}")
            self._status, self._said_at = run["status"], time.monotonic()
        sys.stdout.flush()


def _follow_live(scene: Scene, timeout_s: float | None, every_s: float | None) -> Json | None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    def draw(_: Json) -> None:
        room = max(4, console.size.height - 2)
        body = [Text.from_ansi(line) for line in scene.picture()[:room]]
        hint = Text("Ctrl-C leaves; the run goes on.", style="dim")
        live.update(Group(*body, hint), refresh=True)

    console = Console()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        return _until_end(scene.client, scene.run_id, timeout_s, look=scene.look, show=draw, every_s=every_s)
