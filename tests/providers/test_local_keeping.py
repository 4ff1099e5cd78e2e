"""A kept machine on this computer is a folder that is used again: what stays in it, and what a crash leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState
from supervisor.host.folders import Folder
from supervisor.host.starting import Agents
from supervisor.ports.provider import LaunchRejected, LaunchRequest, NoCapacity
from tests.contracts.provider_subject import ref
from tests.providers.local_machines import LocalSubject


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[LocalSubject]:
    subject = LocalSubject(tmp_path)
    yield subject
    subject.end_all()


def preempted(subject: LocalSubject) -> LaunchRequest:
    """A kept machine with some files, after a preemption; the request for the attempt after it."""
    first = subject.kept()
    subject.up(first)
    work = subject.folder(first) / "work"
    for name in ("scratch/built.o", "downloads/set.tar", "checkpoints/torn.pt", "results/half.csv"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("of attempt 1")
    (subject.folder(first) / "kept").mkdir()
    (subject.folder(first) / "kept" / "cache").write_text("of attempt 1")
    subject.provider.preempt(ref(first), 0.0)
    return subject.kept(attempt=2)


def test_its_disk_stays_and_checkpoints_and_results_come_from_the_store(subject: LocalSubject) -> None:
    """Broken variant: a torn checkpoint of the old attempt lies beside the verified one."""
    again = preempted(subject)
    subject.up_again(again)
    folder = subject.folder(again)
    left = {
        name for name in ("kept/cache", "work/scratch/built.o", "work/downloads/set.tar") if (folder / name).exists()
    }
    assert left == {"kept/cache", "work/scratch/built.o", "work/downloads/set.tar"}
    assert not (folder / "work/checkpoints/torn.pt").exists()
    assert not (folder / "work/results/half.csv").exists()
    assert json.loads((folder / "job.json").read_text())["launch_id"] == "1.2.1"


def test_a_machine_that_died_without_a_record_is_off_and_not_gone(subject: LocalSubject) -> None:
    first = subject.kept()
    subject.up(first)
    subject.provider.kill(ref(first))
    listed = subject.listed(first)
    assert listed is not None
    assert (listed.state, listed.record) == (MachineState.ENDED, None)
    later = subject.fresh(dead_kept_s=0.0)
    later.machines()
    assert subject.folder(first).exists(), "what looks forgotten is not archived: its run may want it"


@pytest.mark.parametrize("cut", ["write_json", "remove", "unlink", "start"])
def test_a_start_that_is_cut_off_anywhere_is_completed_by_the_same_launch(
    subject: LocalSubject, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    """At no point does the machine look gone, or ended for the launch that has not run there."""
    again = preempted(subject)

    class Killed(BaseException):
        pass

    def dies(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if cut == "start":
            patch.setattr(Agents, "start", dies)
        elif cut == "unlink":
            patch.setattr(Path, "unlink", dies)
        else:
            patch.setattr(f"supervisor.host.folders.{cut}", dies)
        with pytest.raises(Killed):
            subject.provider.start(again, ref(again))
    listed = subject.fresh().machines().machines
    assert [(m.name, m.state) for m in listed if m.launch_id == again.launch_id] in (
        [], [(again.name, MachineState.ASKED)],
    )  # fmt: skip
    assert [m.name for m in listed] == [again.name]
    assert subject.up_again(again).launch_id == "1.2.1"
    assert (subject.folder(again) / "kept" / "cache").exists()


def test_a_stock_out_refuses_the_start_and_leaves_everything(subject: LocalSubject) -> None:
    again = preempted(subject)
    subject.provider.stockout([again.placement.zone], None)
    with pytest.raises(NoCapacity):
        subject.provider.start(again, ref(again))
    listed = subject.listed(again)
    assert listed is not None
    assert listed.state is MachineState.ENDED
    assert listed.record is not None
    assert listed.record.cause is Cause.PREEMPTED
    assert (subject.folder(again) / "kept" / "cache").exists()


def test_a_computer_that_is_full_of_other_machines_does_not_count_one_that_is_off(tmp_path: Path) -> None:
    subject = LocalSubject(tmp_path, most=1)
    try:
        again = preempted(subject)
        assert subject.up_again(again).state is MachineState.UP
    finally:
        subject.end_all()


def test_an_agent_that_ends_at_once_refuses_the_start_and_keeps_the_disk(subject: LocalSubject) -> None:
    again = preempted(subject)
    broken = Path(subject.data_dir, "broken.py")
    broken.write_text("raise SystemExit('no such module')\n")
    subject.provider = subject.fresh(agent=broken)
    with pytest.raises(LaunchRejected, match="no such module"):
        subject.provider.start(again, ref(again))
    assert (subject.folder(again) / "kept" / "cache").exists()
    listed = subject.listed(again)
    assert listed is not None
    assert listed.state is MachineState.ASKED
    subject.provider = subject.fresh()
    later = subject.kept(attempt=3)
    assert subject.up_again(later).launch_id == "1.3.1"


def test_what_a_killed_agent_wrote_last_does_not_end_the_next_one(subject: LocalSubject) -> None:
    first = subject.kept()
    subject.up(first)
    pid = subject.pids(first)["agent"]
    subject.provider.preempt(ref(first), 3600.0)
    os.kill(pid, SIGKILL)
    subject.off(first)
    again = subject.kept(attempt=2)
    assert subject.up_again(again).record is None
    assert Folder(subject.folder(again)).notice() is None
    other = replace(subject.request(run="other"), keep=True)
    subject.up(other)
