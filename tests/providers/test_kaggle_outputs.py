"""Sessions without the internet: what they begin with, and what of their output becomes the run's work. A session with
the real agent is in tests/acceptance/test_kaggle_apart.py. The store of the run dies at every write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.baton import FileEntry, Pointer
from supervisor.domain.machines import MachineState
from supervisor.objectstores import outputs as taking
from supervisor.ports.objectstore import LeftBy, NotWaitedFor, OutputLost
from supervisor.ports.provider import LaunchRejected, ProviderUnavailable
from supervisor.providers.kaggle import downloads, fetching, outputs
from supervisor.providers.kaggle.kernels import label_in, slug_of
from tests.agent.crashing_store import Crash, CrashingStore
from tests.contracts.provider_subject import ref
from tests.kaggle.service import USER
from tests.providers import test_kaggle_spoilt_outputs as spoilt
from tests.providers.kaggle_apart import NONCE, RUN, Apart, of, weights

Story = Callable[[Apart], None]


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[Apart]:
    subject = Apart(tmp_path)
    yield subject
    subject.close()


# --- one session after another ----------------------------------------------------------------------------------------


def test_its_machine_is_asked_for_until_its_output_is_here(subject: Apart) -> None:
    request = subject.begun()
    machine = of(subject, request)
    assert (machine.state, machine.queued, machine.machine_id) == (MachineState.ASKED, True, slug_of(request.name))
    assert "no stop reaches it" in machine.detail
    flags = subject.version(request).flags
    assert not flags.get("enableInternet")
    assert "kernelDataSources" not in flags
    with pytest.raises(ProviderUnavailable, match=r"nothing reaches the session.*by \d\d:\d\d.*it is lost"):
        subject.provider.release(ref(request))
    subject.kaggle.end(subject.version(request))
    assert of(subject, request).state is MachineState.ASKED
    assert subject.here(request).record is None
    beat = heartbeat.parse(subject.objects.get(runfiles.beat(RUN))[0])
    assert (beat.nonce, beat.left, beat.step) == (NONCE, heartbeat.EXPIRED, 100)
    after = subject.baton()
    assert after.checkpoint is not None
    assert after.next is not None
    assert (after.checkpoint.step, after.next.nonce) == (100, NONCE)
    assert after.holder is not None
    assert after.holder.left
    assert subject.objects.get(runfiles.log_chunk(RUN, 1, 1))[0] == b"a line of its log\n"


def test_the_next_session_begins_with_the_output_which_is_kept_until_a_newer_one_has_the_checkpoint(
    subject: Apart,
) -> None:
    first = subject.ended()
    subject.here(first)
    subject.provider.release(ref(first))
    assert subject.listed(first) is None, "its machine is gone"
    assert slug_of(first.name) in subject.kaggle.notebooks, "and its notebook is not"
    subject.provider = subject.fresh()
    second = subject.ended(2)
    assert subject.version(second).flags["kernelDataSources"] == [f"{USER}/{slug_of(first.name)}"]
    assert subject.apart.restored == [weights(100)]
    assert subject.listed(first) is None
    subject.here(second)
    assert [pointer.step for pointer in batons.pointers(subject.baton())] == [200, 100]
    subject.provider.release(ref(second))
    assert of(subject, first).state is MachineState.ENDED, "it is not needed any more"
    subject.provider.release(ref(first))
    assert list(subject.kaggle.notebooks) == [slug_of(second.name)]
    subject.change(lambda baton: batons.close(baton, "completed"))
    subject.provider = subject.fresh()
    subject.provider.release(ref(second))
    assert subject.kaggle.notebooks == {}


def test_a_release_does_not_delete_what_is_not_fetched(subject: Apart) -> None:
    request = subject.ended()
    subject.kaggle.broken_files = 1
    with pytest.raises(ProviderUnavailable, match="is not deleted yet"):
        subject.provider.release(ref(request))
    assert slug_of(request.name) in subject.kaggle.notebooks
    subject.here(request)


def test_a_checkpoint_that_lies_elsewhere_is_named(subject: Apart) -> None:
    pointer = Pointer(7, runfiles.checkpoint(RUN, 7, 1), (FileEntry("a", 1, "0" * 64),))
    subject.change(lambda baton: baton._replace(checkpoint=pointer))
    with pytest.raises(LaunchRejected, match=r"step 7\) is in no output of a notebook here"):
        subject.begun(2)
    assert subject.kaggle.pushes == 0


def test_secrets_and_a_source_that_is_too_large_are_refused(subject: Apart) -> None:
    request = replace(subject.request(), secrets={"KEY": subject.keep_secret("a value of a secret")})
    subject.change(lambda baton: batons.raise_next(baton, request.launch_id, NONCE, True))
    with pytest.raises(LaunchRejected, match="gets no secrets"):
        subject.provider.launch(request)
    assert not subject.provider.traits.secrets.read("env:KEY")
    subject.agent.write_bytes(bytes(1 << 20))
    with pytest.raises(LaunchRejected, match=r"the most here is 1,048,576"):
        subject.provider.launch(subject.request())
    assert subject.kaggle.pushes == 0


# --- somebody else was faster, and kills ------------------------------------------------------------------------------


def test_a_run_that_goes_on_elsewhere_keeps_what_it_has(subject: Apart) -> None:
    request = subject.ended()
    subject.change(lambda baton: batons.raise_next(baton, "1.2.1", "another", True))
    before = subject.files()
    assert of(subject, request).state is MachineState.ENDED
    assert subject.baton().checkpoint is None
    label = label_in(subject.version(request).source)
    assert label is not None
    output = outputs.open_output(subject.provider.api, label)
    by = LeftBy(label.supervisor_id, label.run_id, label.launch_id, slug_of(label.name))
    with pytest.raises(NotWaitedFor):
        taking.take(subject.objects, output, by, subject.folder / "parts")
    assert subject.files() == before
    subject.provider.release(ref(request))
    assert subject.kaggle.notebooks == {}


def test_a_baton_that_changes_meanwhile_is_not_overwritten(subject: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    request, put_file = subject.ended(), subject.objects.put_file

    def overtaken(*words: Any) -> Any:
        if subject.baton().next == waited_for:
            subject.change(lambda baton: batons.raise_next(baton, "1.2.1", "another", True))
        return put_file(*words)

    waited_for = subject.baton().next
    monkeypatch.setattr(subject.objects, "put_file", overtaken)
    subject.here(request)
    after = subject.baton()
    assert after.next is not None
    assert (after.next.launch_id, after.checkpoint) == ("1.2.1", None)
    assert not [info for page in subject.objects.pages(runfiles.BEATS) for info in page.objects]


def test_a_baton_that_changes_while_nothing_is_new_gets_no_beat(
    subject: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill between the baton and the beat."""
    request = subject.ended()
    subject.here(request)
    subject.objects.delete(runfiles.beat(RUN))

    def overtaken(*words: Any) -> Any:
        subject.change(lambda baton: batons.raise_next(baton, "1.2.1", "another", True))
        return merged(*words)

    merged = taking._merged
    monkeypatch.setattr(taking, "_merged", overtaken)
    subject.provider = subject.fresh()
    assert of(subject, request).state is MachineState.ASKED
    assert subject.listed(request) is None, "the other session begins with its output"
    assert not [info for page in subject.objects.pages(runfiles.BEATS) for info in page.objects]


def test_a_run_that_was_closed_takes_nothing(subject: Apart) -> None:
    request = subject.ended()
    subject.change(lambda baton: batons.close(baton, "stop_requested"))
    subject.here(request)
    assert subject.baton().checkpoint is None


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_any_write_loses_nothing_and_names_nothing_that_is_missing(subject: Apart, after: bool) -> None:
    """`after`: the change was made, and nobody heard of it."""
    request = subject.ended()
    raw = subject.objects.get(runfiles.baton(RUN))[0]
    for crash_in in range(1, 40):
        store = CrashingStore(crash_after=after)
        store.url = "memory:"  # type: ignore[attr-defined]
        store.put(runfiles.baton(RUN), raw)
        subject.objects, store.crash_in = store, crash_in
        try:
            subject.here_with(subject.fresh(), request)
        except Crash:
            pass
        else:
            break
        baton = batons.decode(store.get(runfiles.baton(RUN))[0])
        for pointer in batons.pointers(baton):
            assert all(pointer.prefix + file.name in store.objects for file in pointer.files)
        if runfiles.beat(RUN) in store.objects:
            assert baton.checkpoint is not None, "the beat comes last"
        subject.here_with(subject.fresh(), request)
        assert batons.decode(store.get(runfiles.baton(RUN))[0]).checkpoint is not None
        assert runfiles.beat(RUN) in store.objects
    assert crash_in == 5, "a log, a checkpoint, the baton, the beat"


# --- broken variants --------------------------------------------------------------------------------------------------

BROKEN: tuple[tuple[str, Any, str, Any, Story], ...] = (
    (
        "an output is written whoever is next",
        taking,
        "waits_for",
        lambda baton, supervisor_id, launch_id: True,
        test_a_run_that_goes_on_elsewhere_keeps_what_it_has,
    ),
    (
        "the first look proves that there is none",
        fetching,
        "LATE_S",
        0.0,
        spoilt.test_an_output_that_is_listed_late_counts,
    ),
    (
        "a notebook is kept for nobody",
        fetching.Outputs,
        "_is_needed",
        lambda self, label, baton: False,
        test_the_next_session_begins_with_the_output_which_is_kept_until_a_newer_one_has_the_checkpoint,
    ),
    (
        "what could not be read is absent",
        downloads,
        "ProviderUnavailable",
        OutputLost,
        spoilt.test_a_read_that_fails_is_no_missing_output,
    ),
)


@pytest.mark.parametrize(("what", "owner", "name", "broken", "story"), BROKEN, ids=[row[0] for row in BROKEN])
def test_a_broken_provider_fails_its_story(
    what: str, owner: Any, name: str, broken: Any, story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Apart(tmp_path)
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, pytest.fail.Exception, LaunchRejected)):
        story(subject)
    subject.close()
