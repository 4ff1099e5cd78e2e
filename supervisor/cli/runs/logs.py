"""logs and events: what the command wrote, and what happened to a run.

A log is read attempt by attempt from a byte offset on, so that no byte comes twice. Events come as the supervisor
recorded them and as the cloud recorded them, in one time line.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import Problem, Unreachable
from supervisor.cli.finding import choose_run
from supervisor.cli.options import attempt_option, output_options, run_argument, server_options, since_option
from supervisor.cli.output import note, safe, show_log
from supervisor.cli.views import runs as views
from supervisor.domain.events import ROUTINE
from supervisor.domain.status import TERMINAL

POLL_S = 1.0
EVENTS_PAGE = 1000


@click.command()
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Continue as the log grows, through all later attempts.")
@attempt_option
@click.option("-n", "--lines", type=click.IntRange(1, 10_000), metavar="N", help="Only the last N lines.")
@server_options
def logs(*, client: Client, run_id: str | None, follow: bool, attempt: int | None, lines: int | None) -> None:
    """Print the log of an attempt."""
    name = choose_run(client, run_id)
    reader = LogReader(client, name, attempt, lines)
    with output.detaching(f"Detached from the log of {name}; the run continues."):
        while reader.print_more() or (follow and not reader.over(attempt is not None)):
            if not reader.more:
                time.sleep(POLL_S)
    if reader.attempt is None:
        note(f"{name} has no log yet.")


@dataclass
class LogReader:
    """The position in a run's logs. `attempt` None = the first has not started. `tail`: begin with so many last lines;
    None = with the first byte. `more`: the last response left text unread."""

    client: Client
    run_id: str
    attempt: int | None
    tail: int | None = None
    offset: int = 0
    more: bool = False
    complete: bool = False

    def print_more(self) -> bool:
        """Print the next piece; True while more text can be read at once."""
        piece: Json = self.client.patiently(self._read)
        if self.attempt is None:
            self.attempt = piece["attempt"]
        self.offset = piece["next_offset"]
        self.complete = bool(piece["complete"])
        # A piece that ends inside a character leaves its bytes for later: only a moved offset is progress.
        self.more = bool(piece["text"]) and self.offset < piece["size"]
        show_log(piece["text"])
        return self.more

    def _read(self) -> Json:
        place = {"offset": self.offset} if self.tail is None else {"tail": self.tail}
        piece: Json = self.client.get(run_path(self.run_id, "logs"), attempt=self.attempt, **place)
        if piece["attempt"] is not None:
            self.tail = None
        return piece

    def over(self, one_attempt: bool) -> bool:
        """True where no more will come; steps to the next attempt where there is one."""
        if self.attempt is not None and (not self.complete or one_attempt):
            return self.complete
        run = self.client.run(self.run_id)
        if self.attempt is not None and (run.get("attempt") or 0) > self.attempt:
            self.attempt, self.offset, self.complete = self.attempt + 1, 0, False
            note(f"--- attempt {self.attempt} ---")
            return False
        return run["status"] in TERMINAL


@click.command()
@run_argument
@since_option("Only events within this time, such as 24h.")
@click.option("-f", "--follow", is_flag=True, help="Continue with new events until the run ends.")
@click.option("--cloud/--no-cloud", default=True, help="With the cloud's own events of the machines (default: with).")
@click.option("--all", "everything", is_flag=True, help="Routine events too, such as removed checkpoints.")
@output_options
def events(
    *, client: Client, form: str, run_id: str | None, since: str | None, follow: bool, cloud: bool, everything: bool
) -> None:
    """Print what happened to a run, when, in which attempt and why; with the cloud's own events."""
    name = choose_run(client, run_id)
    reader = EventReader(client, name, form, since, cloud, everything)
    with output.detaching(f"Detached from the events of {name}; the run continues."):
        while True:
            # The run first: the events of its end are written with its status.
            over = not follow or client.run(name)["status"] in TERMINAL
            reader.read()
            if over:
                break
            reader.wait()
    if form == "json":
        output.emit({"events": reader.events}, reader.events, form, "id")


@dataclass
class EventReader:
    """`since` and `cloud` (ask for the cloud's events) are for the first read. `everything`: with routine events, which
    programs always get. `after`: the last of the supervisor's events that was read."""

    client: Client
    run_id: str
    form: str
    since: str | None
    cloud: bool
    everything: bool = False
    after: int = 0
    events: list[Json] = field(default_factory=list)

    def read(self) -> None:
        """Print every event that exists now and was not printed yet."""
        while True:
            page = self.client.get(
                run_path(self.run_id, "events"),
                after=self.after,
                limit=EVENTS_PAGE,
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
        """Until the supervisor streams another event; POLL_S where it cannot."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self.after)}
        try:
            with self.client.stream(run_path(self.run_id, "events"), headers) as stream:
                if stream.headers.get_content_type() == "text/event-stream" and _has_event(stream):
                    return
        except (Unreachable, Problem):
            pass  # the next read reports it and waits
        time.sleep(POLL_S)

    def _print(self, page: Json) -> None:
        if page.get("cloud_unread"):
            note(f"The cloud's own events could not be read: {safe(page['cloud_unread'])}")
        if self.since is not None and not page["complete"]:
            note(f"Only the newest {EVENTS_PAGE} events of this time are shown.")
        if self.form == "json":
            return
        records = [event for event in page["events"] if self.form != "name" or event["id"] is not None]
        if not output.emit(None, records, self.form, "id"):
            for event in records:
                if self.everything or event["kind"] not in ROUTINE:
                    output.show(views.event_lines(event))


def _has_event(stream: Iterable[bytes]) -> bool:
    """True at the next event; False where the stream ends, or has lost the place to continue from."""
    for line in stream:
        if line.startswith(b"event: reset"):
            return False
        if line.startswith(b"data:"):
            return True
    return False
