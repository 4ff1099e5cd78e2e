"""A day with a living run: changed code, a command beside the training, its files, and the next attempt."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.cli.exits import CONFLICT
from tests.acceptance.daemon import QUICK, Daemon
from tests.cli.conftest import Ended
from tests.cli.test_pack import write
from tests.forked import Forked
from tests.waiting import wait_for

RUN = "live-1"
TRAINING = """
import time
import spot_progress
seen = None
for step in range(10**6):
    value = open("value.txt").read().strip()
    if value != seen:
        print("value", value, flush=True)
    seen = value
    spot_progress.report(step)
    time.sleep(0.05)
"""


@pytest.fixture
def daemon(clean: Path) -> Iterator[Daemon]:
    served = Daemon(clean / "data", QUICK)
    try:
        served.start()
        yield served
    finally:
        served.close()


class Desk:
    """A person with a folder, and a run of it."""

    def __init__(self, daemon: Daemon, run_cli: Callable[..., Ended], folder: Path) -> None:
        self._run_cli, self._here = run_cli, ("--data-dir", str(daemon.data_dir))
        self.daemon, self.notes = daemon, folder / "sync.log"
        self.notes.touch()
        files = {"train.py": TRAINING, "value.txt": "first", "lib/old.py": "1", ".env": "KEY=1"}
        self.mine = write(folder / "mine", files)

    def spot(self, *words: str) -> Ended:
        names = 2 if words[0] == "dev" else 1
        return self._run_cli(*words[:names], *self._here, *words[names:])

    def sees(self, text: str, attempt: int = 1) -> None:
        """The training has printed it."""
        wait_for(lambda: text in self.spot("logs", RUN, "-a", str(attempt)).out, 60, text)

    def watch(self) -> Forked:
        command = ["sync", *self._here, RUN, str(self.mine), "--watch"]
        return Forked("supervisor", command, self.daemon.environ, self.notes)

    def is_told(self, text: str) -> None:
        wait_for(lambda: text in self.notes.read_text(), 60, text)


@pytest.fixture
def desk(daemon: Daemon, run_cli: Callable[..., Ended], clean: Path) -> Desk:
    made = Desk(daemon, run_cli, clean)
    submitted = made.spot("submit", "--run-id", RUN, "--code", str(made.mine), "--", sys.executable, "train.py")
    assert submitted.code == 0, submitted.err
    assert "left out: .env (a file of secrets)" in submitted.err
    made.sees("value first")
    return made


def test_a_day_with_a_living_run(desk: Desk) -> None:
    watching = desk.watch()
    try:
        desk.is_told("watching")
        write(desk.mine, {"value.txt": "second", "lib/new.py": "1"})
        (desk.mine / "lib/old.py").unlink()
        desk.sees("value second")
        desk.is_told("is on the machine of attempt 1")
        commands_run(desk)
    finally:
        watching.send_signal(signal.SIGINT)
        watching.wait(30)
    assert "Left." in desk.notes.read_text()
    the_next_attempt_begins_with_the_newest_code(desk)
    an_ended_run_refuses(desk)


def commands_run(desk: Desk) -> None:
    listed = desk.spot("exec", RUN, "--", "sh", "-c", "ls -a lib; cat .env; echo mine > own.txt; exit 3")
    assert (listed.code, listed.out.split()[:3]) == (3, [".", "..", "new.py"]), listed
    assert "No such file" in listed.out, ".env stayed here"
    assert "Command sent by" in desk.spot("events", RUN).out
    assert "own.txt" in desk.spot("sync", RUN, str(desk.mine), "--back").lines
    assert (desk.mine / "own.txt").read_text() == "mine\n"


def the_next_attempt_begins_with_the_newest_code(desk: Desk) -> None:
    write(desk.mine, {"value.txt": "third"})
    assert desk.spot("sync", RUN, str(desk.mine)).code == 0
    desk.sees("value third")
    assert desk.spot("dev", "preempt", "--notice", "0", RUN).code == 0
    desk.sees("value third", attempt=2)
    second = desk.spot("logs", RUN, "-a", "2").out
    assert "value first" not in second
    assert second.startswith("spot: sync 1: ")
    revisions = desk.spot("sync", RUN, "--list").lines
    assert revisions[1].startswith("attempt 1: began with revision 0, now ")
    assert revisions[2] == "attempt 2: began with revision " + revisions[0].split()[1]


def an_ended_run_refuses(desk: Desk) -> None:
    assert desk.spot("stop", RUN).code == 0
    wait_for(lambda: desk.daemon.run(RUN)["status"] == "stopped", 60, "the end")
    for command in (("exec", RUN, "--", "true"), ("sync", RUN, str(desk.mine), "--back"), ("shell", RUN)):
        assert desk.spot(*command).code == CONFLICT
    write(desk.mine, {"value.txt": "fourth"})
    assert desk.spot("sync", RUN, str(desk.mine)).code == CONFLICT
