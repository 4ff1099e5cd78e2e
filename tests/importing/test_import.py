"""An old run becomes a stopped run of ours, with checkpoint, history and spec; the old run is not changed."""

from __future__ import annotations

import json

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.domain.errors import Unavailable
from supervisor.domain.status import Status
from supervisor.reconciler.acting import batonwork
from supervisor.services.migration.importing import SOURCE
from tests.importing.conftest import BUCKET, URL, Import
from tests.importing.oldrunner import BEST, COMMAND, IMAGE, LAST, OLD_ID


def the_baton(imports: Import, run_id: str = OLD_ID) -> batons.Baton:
    return batons.decode(imports.bed.objects.get(runfiles.baton(run_id))[0])


def test_the_old_run_is_there_stopped_with_its_checkpoint(imports: Import) -> None:
    imports.lay()
    before = imports.snapshot()
    answer = imports()
    run = imports.bed.run(OLD_ID)
    assert (imports.status, run.status, run.settled, run.generation) == (201, Status.STOPPED, True, 1)
    assert answer["run"]["status_text"].startswith(f"Imported from {URL} at ")
    assert answer["run"]["status_text"].endswith(f"resume with `spot resume {OLD_ID}`.")
    assert (answer["run"]["cost"]["known"], answer["old_state"], answer["step"]) == (False, "STOPPED", None)
    pointer, (best,) = the_baton(imports).checkpoint, the_baton(imports).best
    assert pointer is not None
    assert imports.bed.objects.get(pointer.prefix + "last.pt")[0] == LAST
    assert imports.bed.objects.get(best.prefix + "best.pt")[0] == BEST
    assert pointer.prefix == f"runs/{OLD_ID}/checkpoints/0-a0/"
    assert imports.snapshot() == before


def test_the_spec_comes_from_the_old_runs_files(imports: Import) -> None:
    imports.lay()
    answer = imports()
    assert imports.bed.store.spec(imports.bed.run(OLD_ID).key) == answer["spec"]
    assert answer["spec"] == {
        "command": COMMAND,
        "image": IMAGE,
        "env": {"EPOCHS": "30"},
        "limits": {"max_runtime_s": 172800.0},
        "labels": {SOURCE: URL},
    }
    left = " ".join(answer["left_out"])
    for word in (
        "machine_type",
        "gpu_type",
        "zone:",
        "fallback_zones",
        "WANDB_API_KEY may be a secret",
        "results/: 1 file",
    ):
        assert word in left
    assert "0123456789abcdef" not in json.dumps(answer)


def test_its_history_can_be_read(imports: Import) -> None:
    imports.lay()
    answer = imports()
    events = imports.bed.store.events(OLD_ID, 0, 100)
    texts = [stored.event.text for stored in events]
    assert (
        texts[0]
        == f"Imported from {URL} by ops: the old run was STOPPED; last.pt, its step is unknown and counts as 0."
    )
    assert (
        "Machine 0 of the older runner: rav-chexpert-1a2b3c4d-r0 in us-east1-c, 2026-02-27 01:05 UTC, for 2 h 19 min, "
        'ended by preempted ("preemption_detected").' in texts
    )
    assert any(text.startswith("Machine 1 of") and text.endswith("ended by unknown.") for text in texts)
    assert "Older runner, 2026-02-27 03:24 UTC: RUNNING → PREEMPTED, by vm: preemption_detected." in texts
    assert len(texts) == answer["events"] == 1 + 2 + 5, "repetitions in state.json are left out"
    assert events[1].event.data["source"] in {f"{BUCKET}/{key}" for key, _, _ in imports.snapshot()}


def test_a_resume_continues_from_last_pt(imports: Import) -> None:
    imports.lay(heartbeat_json=b'{"phase": "running", "step": 4200}')
    answer = imports()
    assert answer["step"] == 4200
    assert imports.bed.run(OLD_ID).files.checkpoint_step == 4200
    imports.bed.resume(OLD_ID)
    run = imports.bed.run(OLD_ID)
    assert (run.status, run.generation, run.files.checkpoint_step) == (Status.PENDING, 2, 4200)
    batonwork.raise_next(imports.bed.objects, run, "2.1.1", True, "sup")
    after = the_baton(imports)
    assert after.checkpoint is not None
    assert (after.generation, after.closed, after.checkpoint.step) == (2, None, 4200)
    assert after.checkpoint.files[0].size == len(LAST)


def test_no_agent_may_write_before_a_resume(imports: Import) -> None:
    imports.lay()
    imports()
    with pytest.raises(batons.BatonRefused, match="imported"):
        batons.raise_next(the_baton(imports), "1.1.1", "n", True)


def test_twice_is_once(imports: Import) -> None:
    imports.lay()
    imports()
    objects = [info.key for page in imports.bed.objects.pages("") for info in page.objects]
    count = len(imports.bed.store.events(OLD_ID, 0, 100))
    answer = imports()
    assert (imports.status, answer["run"]["run_id"]) == (200, OLD_ID)
    assert [info.key for page in imports.bed.objects.pages("") for info in page.objects] == objects
    assert len(imports.bed.store.events(OLD_ID, 0, 100)) == count


@pytest.mark.parametrize("kept", [1, 2, 3], ids=["after best.pt", "after last.pt", "after the baton"])
def test_an_interrupted_import_is_finished_by_repeating_it(
    imports: Import, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """The process dies after so many writes to our store; existing copies are reused."""
    imports.lay()
    store, done = imports.bed.objects, [0]

    def dying(write):  # type: ignore[no-untyped-def]
        def wrapped(*args, **more):  # type: ignore[no-untyped-def]
            if done[0] == kept:
                raise KeyboardInterrupt
            done[0] += 1
            return write(*args, **more)

        return wrapped

    with monkeypatch.context() as patched:
        patched.setattr(store, "put", dying(store.put))
        patched.setattr(store, "put_file", dying(store.put_file))
        if kept == 3:
            patched.setattr(imports.bed.store, "begin", lambda now: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            imports()
    assert imports.bed.store.find(OLD_ID) is None
    assert imports()["run"]["status"] == "stopped"
    keys = [info.key for page in store.pages("") for info in page.objects]
    folder = f"runs/{OLD_ID}/"
    assert keys == [
        folder + name for name in ("baton.json", "checkpoints/0-a0/last.pt", "checkpoints/best-0-a0/best.pt")
    ]


def test_a_checkpoint_that_changed_since_an_interrupted_import_gets_its_own_name(imports: Import) -> None:
    imports.lay()
    imports.bed.objects.put(f"runs/{OLD_ID}/checkpoints/0-a0/last.pt", b"an older one")
    imports()
    pointer = the_baton(imports).checkpoint
    assert pointer is not None
    assert pointer.prefix == f"runs/{OLD_ID}/checkpoints/0-a0.2/"


def test_a_wrong_copy_is_detected(imports: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    imports.lay()
    read = imports.bed.objects.read
    monkeypatch.setattr(imports.bed.objects, "read", lambda key, *more: (piece[:-1] for piece in read(key, *more)))
    with pytest.raises(Unavailable, match=r"The stored copy of best\.pt differs"):
        imports()
    assert imports.bed.store.find(OLD_ID) is None


def test_a_dry_run_does_nothing(imports: Import) -> None:
    imports.lay()
    answer = imports(dry_run=True)
    assert (imports.status, answer["run"], answer["files"][0]["size"]) == (200, None, len(LAST))
    assert imports.bed.store.find(OLD_ID) is None
    assert [page.objects for page in imports.bed.objects.pages("")] == [()]


def test_the_same_store_means_another_name(imports: Import) -> None:
    imports.lay()
    imports.bed.objects.url = BUCKET
    answer = imports(dry_run=True)
    assert answer["run_id"] == f"{OLD_ID}-imported"
    assert answer["warnings"][-1] == f"It is called {OLD_ID}-imported here."


@pytest.mark.parametrize(
    ("old_id", "made"),
    [("RAV_Run.7", "rav-run-7"), ("20260227", "run-20260227"), ("x" * 90, "x" * 63), ("ü run", "run")],
)
def test_a_name_that_we_cannot_have_is_made_into_one(imports: Import, old_id: str, made: str) -> None:
    imports.lay(old_id)
    assert imports(f"{BUCKET}/runs/{old_id}", dry_run=True)["run_id"] == made


def test_the_next_import_deletes_leftovers_of_a_killed_one(imports: Import) -> None:
    imports.lay()
    scratch = imports.parts.elsewhere.scratch
    assert scratch is not None
    for name in (OLD_ID, "another-run", "one-under-way"):
        (scratch / name).mkdir(parents=True)
        (scratch / name / "import-x").write_bytes(b"half")
    imports.parts.elsewhere.busy.add("one-under-way")
    imports()
    assert [path.name for path in scratch.iterdir()] == ["one-under-way"]


def test_a_supervisor_that_sees_no_cloud_says_so(imports: Import) -> None:
    imports.lay()
    assert "This supervisor sees no machines of Google Cloud" in imports(dry_run=True)["warnings"][0]
