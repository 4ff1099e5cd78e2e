"""logs and events: what the command wrote, and what happened to a run.

The log is read attempt by attempt, in pieces by byte offset, so that nothing comes twice. Events come as the supervisor
wrote them down and as the cloud recorded them, in one time line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import click

from supervisor.cli import exits, output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import Problem, Unreachable
from supervisor.cli.finding import TERMINAL, choose_run
from supervisor.cli.options import duration_s, output_option, run_argument, server_options
from supervisor.cli.output import rfc3339_ago, safe, safe_log
from supervisor.cli.views import runs as views
from supervisor.domain.events import ROUTINE

POLL_S = 1.0


@click.command()
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows, through all following attempts.")
@click.option(
    "-a", "--attempt", type=click.IntRange(min=1), metavar="N", help="This attempt only (default: the newest)."
)
@click.option("-n", "--lines", type=click.IntRange(1, 10_000), metavar="N", help="Only the last N lines of it.")
@server_options
@click.pass_context
def logs(
    ctx: click.Context, /, *, client: Client, run_id: str | None, follow: bool, attempt: int | None, lines: int | None
) -> None:
    """Print the log of an attempt."""
    name = choose_run(client, run_id)
    reader = LogReader(client, name, attempt, lines)
    try:
        while reader.print_more() or (follow and not reader.over(attempt is not None)):
            if not reader.more:
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        output.note(f"\nDetached from the log of {name}; the run goes on.")
        ctx.exit(exits.DETACHED)
    if reader.attempt is None:
        output.note(f"{name} has no log yet.")


@dataclass
class LogReader:
    """Where we are: attempt (None = none had begun yet) and byte offset. `more`: the last answer left text unread."""

    client: Client
    run_id: str
    attempt: int | None
    tail: int | None = None  # begin with so many last lines; None = with the first byte
    offset: int = 0
    more: bool = False
    complete: bool = False

    def print_more(self) -> bool:
        """Print the next piece; True while there is text that can be read at once."""
        answer: Json = self.client.patiently(self._ask, output.note)
        if self.attempt is None and answer["attempt"] is not None:
            self.attempt = answer["attempt"]
        self.offset = answer["next_offset"]
        self.complete = bool(answer["complete"])
        # A piece that ends within a character leaves its bytes for later: only a moved offset is progress.
        self.more = bool(answer["text"]) and self.offset < answer["size"]
        text = answer["text"]
        click.echo(safe_log(text) if sys.stdout.isatty() else text, nl=False)
        sys.stdout.flush()
        return self.more

    def _ask(self) -> Json:
        path = run_path(self.run_id, "logs")
        if self.tail is not None:
            answer: Json = self.client.get(path, attempt=self.attempt, tail=self.tail)
            self.tail = None if answer["attempt"] is not None else self.tail
            return answer
        return dict(self.client.get(path, attempt=self.attempt, offset=self.offset))

    def over(self, one_attempt: bool) -> bool:
        """True when nothing more will come; steps on to the next attempt where there is one."""
        if self.attempt is not None and (not self.complete or one_attempt):
            return self.complete
        run: Json = self.client.patiently(lambda: self.client.get(run_path(self.run_id)), output.note)
        newest = run.get("attempt") or 0
        if self.attempt is not None and newest > self.attempt:
            self.attempt, self.offset, self.complete = self.attempt + 1, 0, False
            output.note(f"--- attempt {self.attempt} ---")
            return False
        return run["status"] in TERMINAL


PAGE = 1000


@click.command()
@run_argument
@click.option("--since", type=duration_s, metavar="AGE", help="Only events within this time, such as 24h.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new events of ours until the run ends.")
@click.option(
    "--cloud/--no-cloud",
    default=True,
    show_default=True,
    help="With what the cloud itself recorded of the run's machines.",
)
@click.option("--all", "everything", is_flag=True, help="Also what is routine, such as removed checkpoints.")
@output_option
@server_options
@click.pass_context
def events(
    ctx: click.Context,
    /,
    *,
    client: Client,
    form: str,
    run_id: str | None,
    since: float | None,
    follow: bool,
    cloud: bool,
    everything: bool,
) -> None:
    """Print what happened to a run: when, in which attempt, and why; the cloud's own events among ours."""
    name = choose_run(client, run_id)
    reader = EventReader(client, name, form, None if since is None else rfc3339_ago(since), cloud, everything)
    try:
        while True:
            # The run first: events of its end are written with its status.
            over = not follow or client.patiently(lambda: client.get(run_path(name)), output.note)["status"] in TERMINAL
            reader.read()
            if over:
                break
            reader.wait()
    except KeyboardInterrupt:
        output.note(f"\nDetached from the events of {name}; the run goes on.")
        ctx.exit(exits.DETACHED)
    if form == "json":
        output.emit({"events": reader.events}, reader.events, form, "id")


@dataclass
class EventReader:
    """`after`: the last of our events that was read. `since`: of the first look, as the API writes times. `cloud`: the
    first look asks for the cloud's own events too. `everything`: with what is routine, which programs
    always get."""

    client: Client
    run_id: str
    form: str
    since: str | None
    cloud: bool
    everything: bool = False
    after: int = 0
    events: list[Json] = field(default_factory=list)

    def read(self) -> None:
        """Everything that is there now and was not printed yet."""
        while True:
            page = self.client.get(
                run_path(self.run_id, "events"),
                after=self.after,
                limit=PAGE,
                since=self.since,
                cloud="true" if self.cloud else None,
            )
            self.events += page["events"]
            self._print(page)
            own = [event["id"] for event in page["events"] if event["id"] is not None]
            self.after = own[-1] if own else self.after
            self.since = None
            if page["complete"] or not own:
                self.cloud = False
                return

    def wait(self) -> None:
        """Until the supervisor tells of another event; no longer than POLL_S where it cannot."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self.after)}
        try:
            with self.client.stream(run_path(self.run_id, "events"), headers) as answer:
                if answer.headers.get_content_type() == "text/event-stream" and _tells(answer):
                    return
        except (Unreachable, Problem):
            pass  # whoever reads next says so, and waits
        time.sleep(POLL_S)

    def _print(self, page: Json) -> None:
        if page.get("cloud_unread"):
            output.note(f"The cloud's own events could not be read: {safe(page['cloud_unread'])}")
        if self.since is not None and not page["complete"]:
            output.note(f"Only the newest {PAGE} events of this time are shown.")
        if self.form == "json":
            return
        named = [event for event in page["events"] if self.form != "name" or event["id"] is not None]
        if output.emit(None, named, self.form, "id"):
            return
        for event in named:
            if event["kind"] in ROUTINE and not self.everything:
                continue
            click.echo("\n".join(views.event_lines(event)))


def _tells(stream: Iterable[bytes]) -> bool:
    """True at the next event; False where the stream has ended, or has lost the place from which it should go on."""
    for line in stream:
        if line.startswith(b"event: reset"):
            return False
        if line.startswith(b"data:"):
            return True
    return False
