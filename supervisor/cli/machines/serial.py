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
        answer = _kept(client, name, attempt, wanted)
        _print_end(answer, wanted)
        if answer.get("source") == "kept":
            _hint(answer)


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

    answer = read(limit if limit > BYTES else None)
    text = answer["text"]
    # The first line of a full response may have lost its beginning, so it does not count.
    if limit < BYTES_MAX and len(text.encode()) >= limit and len(text.splitlines()) <= wanted:
        answer = read(BYTES_MAX)
    _head(answer, "now" if answer["live"] else "as it was kept")
    return answer


def _archived(client: Client, name: str, attempt: int | None, wanted: int, since: str | None) -> Json:
    lines = min(wanted, ARCHIVE_MAX)
    answer: Json = client.get(
        run_path(name, "console"), attempt=attempt, source="cloud_logging", lines=lines, since=since
    )
    _head(answer, "from Cloud Logging")
    return answer


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
            answer = self._read()
            if answer is not None:
                self._print(answer, wanted)
            more = answer is not None and (answer["live"] or answer["text"])
            if not more and self._over(answer):
                return
            if answer is None or not answer["text"]:
                time.sleep(POLL_S)

    def _read(self) -> Json | None:
        """None: there is no machine yet."""
        path = run_path(self.run_id, "console")
        try:
            answer: Json = self.client.patiently(lambda: self.client.get(path, attempt=self.attempt, after=self.offset))
        except Problem as problem:
            if problem.code != "EVIDENCE_NOT_FOUND" or self.stay:
                raise
            self._note(problem.text)
            return None
        return answer

    def _print(self, answer: Json, wanted: int) -> None:
        if answer["machine"] != self.machine:
            self.attempt, self.machine = answer["attempt"], answer["machine"]
            self._begin(answer, wanted)
        else:
            if answer["lost_bytes"]:
                output.note(f"--- {answer['lost_bytes']} bytes are lost: the platform keeps only the newest ---")
                _hint(answer)
            show_log(answer["text"])
        self.offset = answer["next_offset"]

    def _begin(self, answer: Json, wanted: int) -> None:
        """The end of what a machine has written so far, or of what was kept of a machine that is gone."""
        if answer["live"]:
            _head(answer, "now")
            text = answer["text"]
            show_log(_last(text, wanted) + ("\n" if text.endswith("\n") else ""))
            return
        try:
            _print_end(_kept(self.client, self.run_id, self.attempt, wanted), wanted)
        except Problem as problem:
            if problem.code != "EVIDENCE_NOT_FOUND":
                raise
            output.note(safe(problem.text))

    def _over(self, answer: Json | None) -> bool:
        """Without a live machine: no more will come. Steps to the next attempt where it has a machine."""
        run = self.client.run(self.run_id)
        newest = run.get("attempt") or 0
        if answer is None:
            return run["status"] in TERMINAL
        if not self.stay and newest > answer["attempt"]:
            self.attempt, self.offset = answer["attempt"] + 1, 0
            return False
        if self.stay or run["status"] in TERMINAL:
            output.note(f"--- {safe(answer['machine'])} is gone ---")
            _hint(answer)
            return True
        self._note(f"{answer['machine']} is gone; waiting for the machine of the next attempt.")
        return False

    def _note(self, text: str) -> None:
        """Once, not at each poll."""
        if text != self.last_note:
            output.note(f"--- {safe(text)} ---")
        self.last_note = text


def _head(answer: Json, state: str) -> None:
    machine = f"{safe(answer['machine'])} in {safe(answer['zone'])}"
    output.note(f"--- {machine}, attempt {answer['attempt']}, {state} ---")


def _hint(answer: Json) -> None:
    """Where more of the console may be."""
    if answer.get("log_service"):
        command = f"spot serial {answer['run_id']} -a {answer['attempt']} --cloud-logging"
        output.note(f"{safe(answer['log_service'])} may have more: {safe(command)}")


def _last(text: str, wanted: int) -> str:
    return "\n".join(text.splitlines()[-wanted:])


def _print_end(answer: Json, wanted: int) -> None:
    show_log(_last(answer["text"], wanted) + "\n")
