"""watch and wait: follow one run to its end, or all runs. Ctrl-C leaves; the runs continue.

At a terminal `watch` keeps one picture up to date. Elsewhere it prints each event as a line, and the run's sentence
when its status changes or a minute has passed: a silent log looks like a broken one.

`spot watch 60` shows the list of `spot ls` every so many seconds; without a terminal each list is printed below the
last one, with its time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime

import click

from supervisor.cli import exits, output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.finding import choose_run
from supervisor.cli.options import duration_s, output_options, run_argument, server_options
from supervisor.cli.output import bar, safe
from supervisor.cli.runs.runs import next_command, release_command, runs_and_summary
from supervisor.cli.views import runs as views
from supervisor.domain.events import ROUTINE
from supervisor.domain.status import TERMINAL
from supervisor.wording.figures import percent

RUNS_SHOWN, EVENTS_SHOWN = 50, 8
POLL_S = 1.0
REPEAT_S = 60.0  # the sentence is printed again after so long
NEEDS_YOU = "needs you"  # a next action of the API
SECONDS = click.FloatRange(0.1, 86400.0)  # between two reads
TIMEOUT = click.option("--timeout", type=duration_s, metavar="TIME", help="Give up after this time (90s, 30m; exit 8).")


@click.command()
@run_argument
@click.argument("seconds", required=False, type=SECONDS)
@TIMEOUT
@server_options
@click.pass_context
def watch(
    ctx: click.Context, /, client: Client, run_id: str | None, seconds: float | None, timeout: float | None
) -> None:
    """Follow a run until it ends or needs you (exit 9). Ctrl-C leaves; the run continues.

    `spot watch 60` shows all runs every 60 seconds, `spot watch RUN 60` one run.
    """
    if run_id is not None and not run_id[:1].isalpha():  # the id of a run begins with a letter
        if seconds is not None:
            raise click.UsageError("Write spot watch RUN SECONDS, or spot watch SECONDS for all runs.", ctx)
        watch_all(client, float(SECONDS(run_id, None, ctx)), timeout)
        return
    ctx.exit(follow_run(client, choose_run(client, run_id), timeout, seconds))


def watch_all(client: Client, every_s: float, timeout_s: float | None) -> None:
    """Show the list of runs until `timeout_s` is over, which is no failure: nothing was waited for."""
    began = time.monotonic()
    screen = _screen() if sys.stdout.isatty() else nullcontext(_print)
    with output.detaching("Left; the runs continue. To return: spot watch 60"), screen as draw:
        while True:
            lines = client.patiently(lambda: _list(client))
            draw(lines, f"{_utc()}, again in {every_s:g} s. Ctrl-C leaves; the runs continue.")
            left_s = every_s if timeout_s is None else min(every_s, began + timeout_s - time.monotonic())
            if left_s <= 0:
                return
            time.sleep(left_s)


def _list(client: Client) -> list[str]:
    runs, summary = runs_and_summary(client, RUNS_SHOWN, {})
    return [*([] if runs else ["There is no run yet."]), *views.run_lines(runs, summary)]


def _utc() -> str:
    return datetime.now(UTC).strftime("%H:%M:%S UTC")


def _print(lines: list[str], hint: str) -> None:
    output.show([_utc(), *lines, ""])
    sys.stdout.flush()


@contextmanager
def _screen() -> Iterator[Callable[[list[str], str], None]]:
    """A function that draws lines and a dim hint in place of the picture before. A picture that is too high loses lines
    above its last one."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console()

    def draw(lines: list[str], hint: str) -> None:
        height = max(3, console.size.height - 2)
        shown = [*lines[:-1][: height - 1], lines[-1]]
        live.update(Group(*map(Text.from_ansi, shown), Text(hint, style="dim")), refresh=True)

    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield draw


@click.command()
@run_argument
@TIMEOUT
@output_options
@click.pass_context
def wait(ctx: click.Context, /, client: Client, form: str, run_id: str | None, timeout: float | None) -> None:
    """Wait silently until a run ends or needs you. Exit 0: completed, 9: it needs you, 3: another end."""
    name = choose_run(client, run_id)
    run = _until_end(client, name, timeout, read=lambda: client.get(run_path(name)), show=lambda _: None)
    output.show_run(run, form)
    ctx.exit(end_code(run))


def end_code(run: Json) -> int:
    if run["status"] not in TERMINAL:
        return exits.NEEDS_PERSON
    return exits.OK if run["status"] == "completed" else exits.RUN_FAILED


def follow_run(client: Client, run_id: str, timeout_s: float | None, every_s: float | None = None) -> int:
    """Show the run until it ends, reading it every `every_s` (None = POLL_S); the exit code."""
    scene = Scene(client, run_id)
    if sys.stdout.isatty():
        with _screen() as draw:
            run = _until_end(
                client,
                run_id,
                timeout_s,
                read=scene.read,
                show=lambda _: draw(scene.picture(), "Ctrl-C leaves; the run continues."),
                every_s=every_s,
            )
        output.show(scene.picture())
    else:
        run = _until_end(client, run_id, timeout_s, read=scene.read, show=scene.print_news, every_s=every_s)
    output.suggest(next_command(run))
    return end_code(run)


def _until_end(
    client: Client,
    run_id: str,
    timeout_s: float | None,
    *,
    read: Callable[[], Json],
    show: Callable[[Json], None],
    every_s: float | None = None,
) -> Json:
    """The run once it is terminal or needs the user. Raises CliError (exit 8) at the timeout, Exit after Ctrl-C."""
    began = time.monotonic()
    commands = f"To return: spot watch {run_id}   To stop it: spot stop {run_id}"
    with output.detaching(f"Detached from {run_id}; it continues. {commands}"):
        while True:
            left_s = None if timeout_s is None else max(0.0, began + timeout_s - time.monotonic())
            run: Json = client.patiently(read, left_s)
            show(run)
            if run["status"] in TERMINAL:
                return run
            need = _need(run)
            if need:
                output.note(f"{run_id} needs you: {safe(need)}")
                return run
            if timeout_s is not None and time.monotonic() - began >= timeout_s:
                text = f"{run_id} is still {run['status']} after {timeout_s:g} s; it continues."
                raise exits.CliError(text, exits.TIMEOUT, "TIMEOUT", (f"spot watch {run_id}",))
            time.sleep(_poll_s(every_s, began, timeout_s))


def _need(run: Json) -> str:
    """What the run needs of the user; "" = nothing."""
    if run["status"] == "awaiting_teardown" and run["next_action"]["what"] == NEEDS_YOU:
        return f"its release: {release_command(run)}"
    return str(run.get("needs_person") or "")


def _poll_s(every_s: float | None, began: float, timeout_s: float | None) -> float:
    """Until the next read; a slow pace ends at the timeout."""
    if every_s is None or timeout_s is None:
        return POLL_S if every_s is None else every_s
    return max(0.0, min(every_s, began + timeout_s - time.monotonic()))


@dataclass
class Scene:
    """The followed run as it was last read. `events`: the last few; `fresh`: those of the last read."""

    client: Client
    run_id: str
    run: Json = field(default_factory=dict)
    attempts: Json = field(default_factory=dict)
    events: list[Json] = field(default_factory=list)
    fresh: list[Json] = field(default_factory=list)
    after: int = 0
    printed_status: str = ""
    printed_at: float = 0.0

    def read(self) -> Json:
        # The run before its events: an ended run has all of its events here.
        run: Json = self.client.get(run_path(self.run_id))
        self.attempts = self.client.get(run_path(self.run_id, "attempts"))
        self.fresh = self._new_events()
        self.events = [*self.events, *self.fresh][-EVENTS_SHOWN:]
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
        """Sentence, progress, attempts and last events."""
        run = self.run
        progress = run.get("progress") or {}
        done = percent(progress.get("step"), progress.get("total"))
        lines = [views.headline(run), *output.paragraph(safe(run["status_text"]))]
        if done is not None:
            lines.append(bar(done, 40))
        for part in (
            views.attempt_lines(self.attempts["attempts"]),
            views.placing_lines(self.attempts.get("next")),
            [line for event in self.events for line in views.event_lines(event)],
        ):
            lines += ["", *part] if part else []
        return lines

    def print_news(self, run: Json) -> None:
        """Without a terminal: a line for each event, and now and then the run's sentence."""
        for event in self.fresh:
            output.show(views.event_lines(event))
        if run["status"] != self.printed_status or time.monotonic() - self.printed_at >= REPEAT_S:
            click.echo(f"{output.status_mark(run['status'])}  {safe(run['status_text'])}")
            self.printed_status, self.printed_at = run["status"], time.monotonic()
        sys.stdout.flush()
