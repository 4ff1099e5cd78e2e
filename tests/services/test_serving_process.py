"""A process is its pid and its start time: leftover files never mean another process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.settings.serving_process import (  # fmt: skip
    announced,
    began,
    process_in,
    read_record,
    serving,
    starting,
    this_process,
)


def test_this_process_lives_and_another_with_its_pid_does_not() -> None:
    mine = this_process()
    assert mine.start_ticks is not None
    assert mine.lives()
    assert process_in(mine.as_record()) == mine
    assert not replace(mine, start_ticks=mine.start_ticks + 1).lives()
    assert not replace(mine, boot_id="another").lives()


def test_only_the_very_process_is_signaled() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        record = {**this_process().as_record(), "pid": child.pid}
        other = process_in(record)
        assert other is not None
        other.send(signal.SIGKILL)
        assert child.poll() is None, "a pid that was used again"
        mine = this_process()
        ticks = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
        replace(mine, pid=child.pid, start_ticks=ticks).send(signal.SIGTERM)
        assert child.wait(30) == -signal.SIGTERM
        replace(mine, pid=child.pid, start_ticks=ticks).send(signal.SIGTERM)  # it is gone: nothing happens


def test_a_start_is_seen_until_it_listens(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert starting(folder) is None
    with announced(folder):
        assert starting(folder) == this_process()
        assert (folder / "starting.json").stat().st_mode & 0o077 == 0
        began(folder)
        assert starting(folder) is None
    with announced(folder):
        pass
    assert starting(folder) is None
    assert list(folder.iterdir()) == []


def test_a_second_start_does_not_hide_the_serving_process(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text(json.dumps(this_process().as_record()))
    assert serving(tmp_path) == this_process()
    with announced(tmp_path):
        assert starting(tmp_path) is None


@pytest.mark.parametrize("record", [{}, {"pid": 0}, {"pid": True}, {"pid": "7"}, {"pid": -1}])
def test_a_record_that_names_no_process(record: dict[str, object], tmp_path: Path) -> None:
    assert process_in(record) is None
    (tmp_path / "server.json").write_text("[")
    assert read_record(tmp_path / "server.json") == {}
    assert serving(tmp_path) is None


def test_an_older_file_holds_the_pid_alone() -> None:
    mine = process_in({"pid": os.getpid()})
    assert mine is not None
    assert mine.lives()
