"""serial: the serial console of a run's machine: of the live machine, as it was kept, or from the cloud's log service.

Following reads from an offset on, so that no byte comes twice, and says what the platform dropped between two reads.
When the machine is gone, it continues with the machine of the next attempt.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import Problem
from supervisor.cli.finding import choose_run
from supervisor.cli.options import attempt_option, run_argument, server_options, since_option
from supervisor.cli.output import safe, show_log
from supervisor.domain.status import TERMINAL

POLL_S = 2.0
LINES, LINES_MAX = 200, 100_000
LINE_BYTES = 320  # of one line, to guess the bytes of N lines
BYTES, BYTES_MAX = 65_536, 1_048_576
ARCHIVE_MAX = 10_000  # lines in one response of the log service


@click.command()
@run_argument
@click.argument("count", metavar="[LINES]", required=False)
@attempt_option
@click.option(
    "-n", "--lines", type=click.IntRange(1, LINES_MAX), default=LINES, metavar="N", help=f"At most N lines ({LINES})."
)
@click.option("-f", "--follow", is_flag=True, help="Continue as the console grows, and with the next attempt.")
@click.option("--cloud-logging", is_flag=True, help="What Cloud Logging kept, also of a deleted machine.")
@since_option("With --cloud-logging: within this time, such as 1h (default: since the machine was requested).")
@server_options
def serial(
    *,
    client: Client,
    run_id: str | None,
    count: str | None,
    attempt: int | None,
    lines: int,
    follow: bool,
    cloud_logging: bool,
    since: str | None,
) -> None:
    """Print the end of a machine's serial console: boot, driver, container.

    `spot serial 200` prints 200 lines: no run id begins with a digit.
    """
    if since is not None and not cloud_logging:
        raise click.UsageError("--since goes with --cloud-logging; elsewhere LINES limits the output.")
    if cloud_logging and follow:
        raise click.UsageError("--cloud-logging prints what was kept; it cannot be followed with -f.")
    if count is None and run_id is not None and run_id.isdigit():
        run_id, count = None, run_id
    wanted = lines if count is None else _number(count)
    name = choose_run(client, run_id)
    if follow:
        with output.detaching(f"Detached from the console of {name}; the run continues."):
            Follower(client, name, attempt, stay=attempt is not None).follow(wanted)
    elif cloud_logging:
        _print_end(_archived(client, name, attempt, wanted, since), wanted)
    else:
        response = _kept(client, name, attempt, wanted)
        _print_end(response, wanted)
        if response.get("source") == "kept":
            _hint(response)


def _number(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) <= LINES_MAX:
        raise click.UsageError(f"LINES is a number from 1 to {LINES_MAX}.")
    return int(text)


def _kept(client: Client, name: str, attempt: int | None, wanted: int) -> Json:
    """The console, live or kept. Where `wanted` long lines need more than the usual bytes, it is read again with the
    largest limit."""
    limit = min(max(BYTES, wanted * LINE_BYTES), BYTES_MAX)

    def read(limit: int | None) -> Json:
        return dict(client.get(run_path(name, "console"), attempt=attempt, limit=limit))

    response = read(limit if limit > BYTES else None)
    text = response["text"]
    # The first line of a full response may have lost its beginning, so it does not count.
    if limit < BYTES_MAX and len(text.encode()) >= limit and len(text.splitlines()) <= wanted:
        response = read(BYTES_MAX)
    _head(response, "now" if response["live"] else "as it was kept")
    return response


def _archived(client: Client, name: str, attempt: int | None, wanted: int, since: str | None) -> Json:
    lines = min(wanted, ARCHIVE_MAX)
    response: Json = client.get(
        run_path(name, "console"), attempt=attempt, source="cloud_logging", lines=lines, since=since
    )
    _head(response, "from Cloud Logging")
    return response


@dataclass
class Follower:
    """The position: the attempt (None = the newest) and the offset in its console. `stay`: this attempt only.
    `machine`: whose console was printed last."""

    client: Client
    run_id: str
    attempt: int | None
    stay: bool
    offset: int = -BYTES
    machine: str = ""
    last_note: str = ""

    def follow(self, wanted: int) -> None:
        """Until no more can come."""
        while True:
            response = self._read()
            if response is not None:
                self._print(response, wanted)
            more = response is not None and (response["live"] or response["text"])
            if not more and self._over(response):
                return
            if response is None or not response["text"]:
                time.sleep(POLL_S)

    def _read(self) -> Json | None:
        """None: there is no machine yet."""
        path = run_path(self.run_id, "console")
        try:
            response: Json = self.client.patiently(
                lambda: self.client.get(path, attempt=self.attempt, after=self.offset)
            )
        except Problem as problem:
            if problem.code != "EVIDENCE_NOT_FOUND" or self.stay:
                raise
            self._note(problem.text)
            return None
        return response

    def _print(self, response: Json, wanted: int) -> None:
        if response["machine"] != self.machine:
            self.attempt, self.machine = response["attempt"], response["machine"]
            self._begin(response, wanted)
        else:
            if response["lost_bytes"]:
                output.note(f"--- {response['lost_bytes']} bytes are lost: the platform keeps only the newest ---")
                _hint(response)
            show_log(response["text"])
        self.offset = response["next_offset"]

    def _begin(self, response: Json, wanted: int) -> None:
        """The end of what a machine has written so far, or of what was kept of a machine that is gone."""
        if response["live"]:
            _head(response, "now")
            text = response["text"]
            show_log(_last(text, wanted) + ("\n" if text.endswith("\n") else ""))
            return
        try:
            _print_end(_kept(self.client, self.run_id, self.attempt, wanted), wanted)
        except Problem as problem:
            if problem.code != "EVIDENCE_NOT_FOUND":
                raise
            output.note(safe(problem.text))

    def _over(self, response: Json | None) -> bool:
        """Without a live machine: no more will come. Steps to the next attempt where it has a machine."""
        run = self.client.run(self.run_id)
        newest = run.get("attempt") or 0
        if response is None:
            return run["status"] in TERMINAL
        if not self.stay and newest > response["attempt"]:
            self.attempt, self.offset = response["attempt"] + 1, 0
            return False
        if self.stay or run["status"] in TERMINAL:
            output.note(f"--- {safe(response['machine'])} is gone ---")
            _hint(response)
            return True
        self._note(f"{response['machine']} is gone; waiting for the machine of the next attempt.")
        return False

    def _note(self, text: str) -> None:
        """Once, not at each poll."""
        if text != self.last_note:
            output.note(f"--- {safe(text)} ---")
        self.last_note = text


def _head(response: Json, state: str) -> None:
    machine = f"{safe(response['machine'])} in {safe(response['zone'])}"
    output.note(f"--- {machine}, attempt {response['attempt']}, {state} ---")


def _hint(response: Json) -> None:
    """Where more of the console may be."""
    if response.get("log_service"):
        command = f"spot serial {response['run_id']} -a {response['attempt']} --cloud-logging"
        output.note(f"{safe(response['log_service'])} may have more: {safe(command)}")


def _last(text: str, wanted: int) -> str:
    return "\n".join(text.splitlines()[-wanted:])


def _print_end(response: Json, wanted: int) -> None:
    show_log(_last(response["text"], wanted) + "\n")
