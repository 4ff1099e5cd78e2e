"""serial: the console of a run's machine, while it lives, as it was kept, or as the cloud's log service kept it.

Following asks for what comes after an offset, so that nothing comes twice, and says what the platform has dropped
between two questions. When the machine is gone it goes on with that of the next attempt.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar, cast

import click

from supervisor.cli import exits, output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import Problem
from supervisor.cli.finding import TERMINAL, choose_run
from supervisor.cli.options import duration_s, run_argument, server_options
from supervisor.cli.output import rfc3339_ago, safe, safe_log

F = TypeVar("F", bound=Callable[..., Any])
POLL_S = 2.0
LINES, LINES_MAX = 200, 100_000
LINE_BYTES = 320  # of one line, when the room for N of them is guessed
BYTES, BYTES_MAX = 65_536, 1_048_576
ARCHIVE_MAX = 10_000  # lines of one answer of the log service


def archive_options(command: F) -> F:
    """--cloud-logging and its --since; the command gets `archive`: None = not asked for, else the moment that --since
    says ("" = none was said)."""

    @wraps(command)
    def with_archive(*args: Any, cloud_logging: bool, since: float | None, **kwargs: Any) -> Any:
        if since is not None and not cloud_logging:
            raise click.UsageError("--since goes with --cloud-logging; LINES says how much is shown otherwise.")
        if cloud_logging and kwargs["follow"]:
            raise click.UsageError("--cloud-logging shows what was kept; it cannot be followed with -f.")
        moment = "" if since is None else rfc3339_ago(since)
        return command(*args, archive=moment if cloud_logging else None, **kwargs)

    kept = "What Cloud Logging kept: also of a machine that is gone."
    age = "With --cloud-logging: within this time, such as 1h (default: since the machine was asked for)."
    decorated: Any = click.option("--since", type=duration_s, metavar="AGE", help=age)(with_archive)
    return cast(F, click.option("--cloud-logging", is_flag=True, help=kept)(decorated))


@click.command()
@run_argument
@click.argument("count", metavar="[LINES]", required=False)
@click.option("-a", "--attempt", type=click.IntRange(min=1), metavar="N", help="This attempt (default: the newest).")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(1, LINES_MAX),
    default=LINES,
    show_default=True,
    help="At most so many; the same as LINES.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows, with the next attempt's machine too.")
@archive_options
@server_options
@click.pass_context
def serial(
    ctx: click.Context,
    /,
    *,
    client: Client,
    run_id: str | None,
    count: str | None,
    attempt: int | None,
    lines: int,
    follow: bool,
    archive: str | None,
) -> None:
    """Print the end of what a machine wrote to its console: the boot, the driver, the container.

    `spot serial 200` prints 200 lines of the chosen run: no run's name begins with a digit."""
    if count is None and run_id is not None and run_id.isdigit():
        run_id, count = None, run_id
    wanted = lines if count is None else _number(count)
    name = choose_run(client, run_id)
    if follow:
        ctx.exit(Follower(client, name, attempt).follow(wanted))
    if archive is not None:
        _print_end(_archived(client, name, attempt, wanted, archive), wanted)
        return
    answer = _shown(client, name, attempt, wanted)
    _print_end(answer, wanted)
    if answer.get("source") == "kept":
        _hint(answer)


def _number(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) <= LINES_MAX:
        raise click.UsageError(f"LINES is a number from 1 to {LINES_MAX}.")
    return int(text)


def _shown(client: Client, name: str, attempt: int | None, wanted: int) -> Json:
    """200 lines are 200 lines, also where they are long: what did not fit is asked for once more, with all the room."""
    room = min(max(BYTES, wanted * LINE_BYTES), BYTES_MAX)

    def ask(limit: int | None) -> Json:
        return dict(client.get(run_path(name, "console"), attempt=attempt, limit=limit))

    answer = ask(room if room > BYTES else None)
    text = answer["text"]
    # The first line of a full room may have lost its beginning, so it does not count.
    if room < BYTES_MAX and len(text.encode()) >= room and len(text.splitlines()) <= wanted:
        answer = ask(BYTES_MAX)
    _head(answer, "now" if answer["live"] else "as it was kept")
    return answer


def _archived(client: Client, name: str, attempt: int | None, wanted: int, since: str) -> Json:
    answer: Json = client.get(
        run_path(name, "console"),
        attempt=attempt,
        source="cloud_logging",
        lines=min(wanted, ARCHIVE_MAX),
        since=since or None,
    )
    _head(answer, "from Cloud Logging")
    return answer


@dataclass
class Follower:
    """Where we are: the attempt (None = the newest that there is) and the offset in its console. `stay`: this attempt
    only. `machine`: whose console was shown last."""

    client: Client
    run_id: str
    attempt: int | None
    offset: int = -BYTES
    machine: str = ""
    last_note: str = ""
    stay: bool = field(init=False)

    def __post_init__(self) -> None:
        self.stay = self.attempt is not None

    def follow(self, wanted: int) -> int:
        """The exit code."""
        try:
            while True:
                answer = self._ask()
                if answer is not None:
                    self._print(answer, wanted)
                more = answer is not None and (answer["live"] or answer["text"])
                if not more and self._over(answer):
                    return exits.OK
                if answer is None or not answer["text"]:
                    time.sleep(POLL_S)
        except KeyboardInterrupt:
            output.note(f"\nDetached from the console of {self.run_id}; the run goes on.")
            return exits.DETACHED

    def _ask(self) -> Json | None:
        """None: there is no machine yet, and that is no reason to leave."""
        where = run_path(self.run_id, "console")
        try:
            answer: Json = self.client.patiently(
                lambda: self.client.get(where, attempt=self.attempt, after=self.offset), output.note
            )
        except Problem as problem:
            if problem.code != "EVIDENCE_NOT_FOUND" or self.stay:
                raise
            self._say(problem.text)
            return None
        return answer

    def _print(self, answer: Json, wanted: int) -> None:
        if answer["machine"] != self.machine:
            self.attempt, self.machine = answer["attempt"], answer["machine"]
            self._begin(answer, wanted)
        else:
            if answer["lost_bytes"]:
                lost = f"{answer['lost_bytes']} bytes in between are lost: the platform keeps only the newest"
                output.note(f"--- {lost} ---")
                _hint(answer)
            _print(answer["text"])
        self.offset = answer["next_offset"]

    def _begin(self, answer: Json, wanted: int) -> None:
        """The first words of this machine, or the last ones where it is gone."""
        if answer["live"]:
            _head(answer, "now")
            text = answer["text"]
            _print(_last(text, wanted) + ("\n" if text.endswith("\n") else ""))
            return
        try:
            _print_end(_shown(self.client, self.run_id, self.attempt, wanted), wanted)
        except Problem as problem:
            if problem.code != "EVIDENCE_NOT_FOUND":
                raise
            output.note(safe(problem.text))

    def _over(self, answer: Json | None) -> bool:
        """There is no machine, or it is gone: nothing more will come, or the next attempt has one."""
        run: Json = self.client.patiently(lambda: self.client.get(run_path(self.run_id)), output.note)
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
        self._say(f"{answer['machine']} is gone; waiting for the next attempt's machine.")
        return False

    def _say(self, text: str) -> None:
        """Once."""
        if text != self.last_note:
            output.note(f"--- {safe(text)} ---")
        self.last_note = text


def _head(answer: Json, state: str) -> None:
    where = f"{safe(answer['machine'])} in {safe(answer['zone'])}"
    output.note(f"--- {where}, attempt {answer['attempt']}, {state} ---")


def _hint(answer: Json) -> None:
    """Where more of it may be."""
    if answer.get("log_service"):
        command = f"spot serial {answer['run_id']} -a {answer['attempt']} --cloud-logging"
        output.note(f"{safe(answer['log_service'])} may have more: {safe(command)}")


def _last(text: str, wanted: int) -> str:
    return "\n".join(text.splitlines()[-wanted:])


def _print_end(answer: Json, wanted: int) -> None:
    _print(_last(answer["text"], wanted) + "\n")


def _print(text: str) -> None:
    click.echo(safe_log(text) if sys.stdout.isatty() else text, nl=False)
    sys.stdout.flush()
