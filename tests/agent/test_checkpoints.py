"""Saving checkpoints: nothing is pointed to that was not read back, nothing is deleted that is pointed to."""

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.agent.store.access import GaveUp
from supervisor.agent.watch.output import step_in_name
from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.baton import BatonRefused, Holder
from tests.agent.checkpoint_desk import Desk
from tests.agent.desk import RUN


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_uploaded_read_back_pointed_to_in_this_order(desk: Desk) -> None:
    desk.write("step-5.pt", "five")
    desk.save()
    key = "runs/digits-7/checkpoints/5-a1/step-5.pt"
    baton = runfiles.baton(RUN)
    assert desk.store.calls == [("put_file", key), ("read", key), ("get", baton), ("put", baton)]
    pointer = desk.baton.checkpoint
    assert pointer is not None
    assert (pointer.step, pointer.files[0].name, pointer.files[0].size) == (5, "step-5.pt", 4)
    assert desk.moved == [5]


def test_an_upload_that_arrives_changed_is_repeated(desk: Desk) -> None:
    desk.store.corrupt_uploads = 2
    desk.write("step-5.pt")
    desk.save()
    assert desk.moved == [5]


def test_an_upload_that_never_arrives_is_not_pointed_to(desk: Desk) -> None:
    desk.store.corrupt_uploads = 99
    desk.write("step-5.pt")
    desk.save()
    assert desk.baton.checkpoint is None
    assert "step-5.pt differs after its upload" in desk.notes[-1]
    desk.store.corrupt_uploads = 0
    desk.write("step-6.pt")
    desk.save()
    assert desk.moved == [6]
    assert desk.notes[-1] == ""


def test_only_three_are_kept(desk: Desk) -> None:
    for step in range(1, 6):
        desk.write("step-%d.pt" % step, str(step))
        desk.save()
    assert desk.files() == ["3-a1/step-3.pt", "4-a1/step-4.pt", "5-a1/step-5.pt"]
    assert [p.step for p in desk.baton.previous] == [4, 3]


def test_what_was_overtaken_is_skipped(desk: Desk) -> None:
    desk.write("step-1.pt")
    desk.write("step-2.pt")
    desk.save()
    desk.save()
    assert desk.moved == [2]


def test_when_the_newest_cannot_be_saved_the_one_before_is(desk: Desk) -> None:
    desk.write("step-1.pt")
    desk.write("step-2.pt")
    desk.store.corrupt_uploads = 3
    desk.save()
    assert desk.moved == [1]


def test_a_name_that_is_written_again_and_again_never_overwrites_an_upload(desk: Desk) -> None:
    desk.steps["last.pt"] = 7
    for text in ("a", "bb", "ccc"):
        desk.write("last.pt", text)
        desk.save()
    assert desk.files() == ["7-a1.2/last.pt", "7-a1.3/last.pt", "7-a1/last.pt"]


def test_best_is_kept_never_pointed_to_and_replaced_by_a_better_one(desk: Desk) -> None:
    desk.steps["best.pt"] = 2
    desk.write("best.pt", "good")
    desk.write("step-2.pt")
    desk.save()
    desk.steps["best.pt"] = 8
    desk.write("best.pt", "better")
    for step in range(3, 9):
        desk.write("step-%d.pt" % step)
        desk.save()
    (kept,) = [name for name in desk.files() if "best" in name]
    assert desk.store.calm.get(runfiles.checkpoints(RUN) + kept)[0] == b"better"
    assert desk.baton.checkpoint is not None
    assert desk.baton.checkpoint.step == 8
    assert desk.baton.checkpoint.files[0].name == "step-8.pt"


def test_a_file_that_is_written_on_meanwhile_is_dropped_and_comes_again(desk: Desk) -> None:
    path = desk.path / "last.pt"
    path.write_text("half")
    desk.save()
    desk.clock.now += 10.0
    desk.before_step = lambda: path.write_text("half and more")  # after it was found at rest, before it is taken
    desk.save()
    assert desk.moved == []
    desk.before_step = lambda: None
    desk.save()
    desk.clock.now += 10.0
    desk.save()
    assert desk.moved == [0]
    pointer = desk.baton.checkpoint
    assert pointer is not None
    assert pointer.files[0].size == len("half and more")


def test_a_file_that_the_training_deletes_meanwhile_harms_nothing(desk: Desk) -> None:
    desk.write("step-1.pt")
    desk.before_step = (desk.path / "step-1.pt").unlink
    desk.save()
    assert desk.baton.checkpoint is None


def test_a_folder_is_saved_whole(desk: Desk) -> None:
    desk.write("epoch-3/model.pt", "m")
    desk.write("epoch-3/opt/state.pt".replace("opt/", "opt-"), "o")
    desk.save()
    pointer = desk.baton.checkpoint
    assert pointer is not None
    assert [entry.name for entry in pointer.files] == ["epoch-3/model.pt", "epoch-3/opt-state.pt"]


def test_an_outage_is_waited_for(desk: Desk) -> None:
    desk.store.away = True

    def back() -> None:
        desk.store.away = desk.clock.now < 4600.0

    desk.clock.on_sleep = back
    desk.write("step-1.pt")
    desk.save()
    assert desk.moved == [1]


def test_a_full_store_is_waited_for_too(desk: Desk) -> None:
    desk.store.full = True

    def room() -> None:
        desk.store.full = desk.clock.now < 1100.0

    desk.clock.on_sleep = room
    desk.write("step-1.pt")
    desk.save()
    assert desk.moved == [1]


def test_a_lost_answer_does_not_push_the_one_before_out(desk: Desk) -> None:
    desk.write("step-1.pt")
    desk.save()
    desk.write("step-2.pt")
    desk.store.lose_answers = 2  # of the upload, then of the pointer
    desk.save()
    assert [p.step for p in desk.baton.previous] == [1]
    assert desk.files() == ["1-a1/step-1.pt", "2-a1/step-2.pt"]


def test_whoever_lost_the_baton_points_to_nothing(desk: Desk) -> None:
    other = replace(desk.baton, holder=Holder(2, "1.2.1", "local:other:1:1"))
    desk.store.calm.put(runfiles.baton(RUN), rules.encode(other))
    desk.write("step-1.pt")
    with pytest.raises(BatonRefused):
        desk.save()
    assert desk.baton == other


def test_when_the_time_is_over_it_gives_up(desk: Desk, tmp_path: Path) -> None:
    desk.store.away = True
    desk.saver = desk.new_saver(tmp_path, until=1010.0)
    desk.write("step-1.pt")
    with pytest.raises(GaveUp):
        desk.save(last=True)


def test_cleaning_keeps_what_is_named_and_what_is_best(desk: Desk) -> None:
    desk.write("step-5.pt")
    desk.save()
    begins = runfiles.checkpoints(RUN)
    for name in ("4-a1/step-4.pt", "9-a0/epoch-9/model.pt", "2-a0/best.pt", "2-a0/best-model/x.pt"):
        desk.store.calm.put(begins + name, b"x")
    desk.saver.clean(desk.baton)
    assert desk.files() == ["2-a0/best-model/x.pt", "2-a0/best.pt", "5-a1/step-5.pt"]


def test_cleaning_leaves_what_a_newer_attempt_has_uploaded(desk: Desk) -> None:
    """An agent that was frozen between its look at the baton and the listing: the newcomer's upload is in flight."""
    begins = runfiles.checkpoints(RUN)
    for name in ("9-a2/step-9.pt", "best-9-a11.2/best.pt", "4-a1/step-4.pt"):
        desk.store.calm.put(begins + name, b"x")
    desk.saver.clean(desk.baton)
    assert desk.files() == ["9-a2/step-9.pt", "best-9-a11.2/best.pt"]


def test_cleaning_that_cannot_list_deletes_nothing(desk: Desk) -> None:
    desk.store.calm.put(runfiles.checkpoints(RUN) + "4-a1/step-4.pt", b"x")
    desk.store.away = True
    desk.saver.clean(desk.baton)
    assert desk.files() == ["4-a1/step-4.pt"]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-000120.npz", 120),
        ("epoch=3-step=1400.ckpt", 1400),
        ("checkpoint-500", 500),
        ("last.pt", None),
        ("v2", 2),
        ("model.h5", None),
        ("step-" + "9" * 16, None),
    ],
)
def test_the_step_in_a_name(name: str, step: "int | None") -> None:
    assert step_in_name(name) == step
