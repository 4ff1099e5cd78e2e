"""The older runner's quick reference, line by line, as `spot` commands on the tests' cloud: a real supervisor, Google's
API over HTTP, machines that come up and are told of by beats; what each command prints is held against its shape.

One supervisor serves the whole transcript (quick_reference.py).
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli import main
from supervisor.cli.runs import fleet
from tests.acceptance.cloud_story import DURATIONS, PACE
from tests.acceptance.daemon import Daemon
from tests.acceptance.old_commands import OLD
from tests.acceptance.quick_reference import RUN, TRANSCRIPT, World
from tests.cloud.cloud import Cloud


@pytest.fixture
def world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    cloud = Cloud()
    daemon = Daemon(folder / "data", {**PACE, **cloud.environment()})
    try:
        for name, value in {**DURATIONS, "preempted_stop_s": 0.5}.items():
            setattr(cloud.compute, name, value)
        daemon.start()
        for name, value in daemon.for_cli().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr(fleet, "POLL_S", 0.3)
        yield World(cloud, daemon, folder)
    finally:
        daemon.close()
        cloud.close()


def typed(world: World, line: str) -> tuple[int, str, str]:
    """(exit code, output, remarks) of a command line, in this process."""
    names = {"FILE": str(world.file), "CODE": str(world.code), "OLD.env": str(world.old_file)}
    words = [names.get(word, word) for word in line.split()]
    assert words.pop(0) == "spot"
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run(words)
    return code, out.getvalue(), err.getvalue()


def unmatched(shape: tuple[str, ...], lines: list[str]) -> str:
    """The first pattern that no line after the one before's matches; "" = all match, in order."""
    rest = iter(lines)
    for pattern in shape:
        if not any(re.search(pattern, line) for line in rest):
            return pattern
    return ""


def test_the_quick_reference_of_the_older_runner(world: World) -> None:
    for row in TRANSCRIPT:
        row.before(world)
        code, out, err = typed(world, row.new)
        told = f"{row.old}\n$ {row.new}\n{out}{err}\n{world.daemon.log()}"
        assert code == row.code, told
        assert unmatched(row.shape, out.splitlines()) == "", told
        assert row.lines in (None, len(out.splitlines())), told
    stopped = {run_id for run_id, _ in world.deleted}
    assert {RUN, "fresh-1", "other-1"} <= stopped
    assert [run_id for run_id, marked in world.deleted if not marked] == [], "deleted before its .stop was written"


def test_every_old_command_is_in_the_transcript() -> None:
    assert [old for old in OLD if old not in {row.old for row in TRANSCRIPT}] == []


def test_a_line_that_is_missing_or_out_of_order_would_be_seen() -> None:
    assert unmatched(("a", "b"), ["x a", "y b"]) == ""
    assert unmatched(("b", "a"), ["x a", "y b"]) == "a"
    assert unmatched(("c",), ["x a", "y b"]) == "c"
