"""Sessions without the internet: what they begin with, and what of their output becomes the run's work.

The agent's half is its own code (agent/notebook/apart.py), and the training a few changes of the baton; a session with
the real agent is in tests/acceptance/test_kaggle_apart.py. The store of the run fails or dies at every call.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.notebook import apart
from supervisor.contract import baton as batons
from supervisor.contract import heartbeat, parcel, runfiles
from supervisor.contract.baton import FileEntry, Next, Pointer
from supervisor.contract.heartbeat import Beat
from supervisor.contract.stores.folder import FolderStore
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineState
from supervisor.ports.provider import LaunchRejected, LaunchRequest, ProviderUnavailable
from supervisor.providers.kaggle import downloads, fetching, outputs
from supervisor.providers.kaggle.kernels import label_in, slug_of
from tests.agent.crashing_store import Crash, CrashingStore
from tests.contracts.provider_subject import ref
from tests.kaggle.service import COMPLETE, ERROR, USER, Kaggle, Version
from tests.providers.kaggle_subject import KaggleSubject

RUN = "digits"
NONCE = "secret-nonce"
Story = Callable[["Apart"], None]


def weights(step: int) -> bytes:
    return b"the weights of step %d" % step * 100


class Sessions:
    """Each begins with its parcel and its inputs, makes one more checkpoint, and leaves its output."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.step = folder, 0
        self.restored: list[bytes] = []
        self.kaggle: Kaggle

    def begin(self, version: Version) -> None:
        assert not version.internet
        folder = self.folder / str(version.session_id)
        inputs, output = folder / "inputs", folder / "output"
        inputs.mkdir(parents=True)
        for source in version.flags.get("kernelDataSources", ()):
            slug = source.removeprefix(f"{USER}/")
            (inputs / "notebooks" / slug).mkdir(parents=True)
            for name, content in self.kaggle.version(slug).output.items():
                assert isinstance(content, bytes)
                (inputs / "notebooks" / slug / name).write_bytes(content)
        text = re.search(r'^PARCEL = "(.*?)"', version.code, flags=re.MULTILINE)
        assert text is not None
        assert NONCE not in b64decode(text[1]).decode()
        (folder / "parcel.json").write_bytes(b64decode(text[1]))
        job = apart.job_of(str(folder / "parcel.json"), str(folder), str(inputs))
        self._train(FolderStore(folder / "store"), job)
        apart.pack(job, str(folder), str(output))
        version.output = {path.name: path.read_bytes() for path in output.iterdir()}
        version.printed = "trained"

    def _train(self, store: FolderStore, job: dict[str, Any]) -> None:
        launch_id, machine_id = job["launch_id"], job["machine_id"]
        attempt = int(launch_id.split(".")[1])
        raw, info = store.get(runfiles.baton(RUN))
        baton = batons.claim(batons.decode(raw), launch_id, machine_id, 0.0)
        if baton.checkpoint is not None:
            self.restored.append(store.get(baton.checkpoint.prefix + "last.bin")[0])
        self.step += 100
        content = weights(self.step)
        entry = FileEntry("last.bin", len(content), hashlib.sha256(content).hexdigest())
        prefix = runfiles.checkpoint(RUN, self.step, attempt)
        store.put(prefix + entry.name, content)
        store.put(runfiles.log_chunk(RUN, attempt, 1), b"a line of its log\n")
        baton = batons.move_checkpoint(baton, launch_id, machine_id, Pointer(self.step, prefix, (entry,)))
        store.put(runfiles.baton(RUN), batons.encode(batons.leave(baton, launch_id, machine_id)), info.generation)
        beat = Beat(
            RUN, attempt, launch_id, machine_id, "boot", 9, heartbeat.FINISHED, left=heartbeat.EXPIRED, step=self.step
        )
        store.put(runfiles.beat(RUN), heartbeat.encode(beat))

    def cancel(self, version: Version) -> None:
        pass


class Apart(KaggleSubject):
    """`objects`: of the run, whose baton waits for the launch of `begun`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, kaggle_internet=False)
        self.apart = Sessions(folder / "sessions")
        self.kaggle.runner, self.apart.kaggle = self.apart, self.kaggle
        self.objects.put(runfiles.baton(RUN), batons.encode(batons.create("supervisor-one", 1)))

    def baton(self) -> batons.Baton:
        return batons.decode(self.objects.get(runfiles.baton(RUN))[0])

    def change(self, change: Callable[[batons.Baton], batons.Baton]) -> None:
        raw, info = self.objects.get(runfiles.baton(RUN))
        self.objects.put(runfiles.baton(RUN), batons.encode(change(batons.decode(raw))), info.generation)

    def begun(self, attempt: int = 1) -> LaunchRequest:
        """Its session has run; nothing of it is fetched."""
        request = self.request(attempt=attempt)
        self.change(lambda baton: batons.raise_next(baton, request.launch_id, NONCE, True))
        self.provider.launch(request)
        self.step()
        return request

    def ended(self, attempt: int = 1, word: str = COMPLETE, message: str = "") -> LaunchRequest:
        request = self.begun(attempt)
        self.kaggle.end(self.version(request), word, message)
        return request

    def here_with(self, provider: Any, request: LaunchRequest) -> Machine:
        """By this provider, which may be killed."""
        self.provider = provider
        return self.here(request)

    def here(self, request: LaunchRequest) -> Machine:
        """Fetched, whatever that takes."""
        return self.eventually(
            lambda: (m := self.listed(request)) and m.state is MachineState.ENDED and m, "the end of its machine"
        )

    def files(self) -> list[str]:
        return [info.key for page in self.objects.pages(runfiles.folder(RUN)) for info in page.objects]


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[Apart]:
    subject = Apart(tmp_path)
    yield subject
    subject.close()


def of(subject: Apart, request: LaunchRequest) -> Machine:
    machine = subject.listed(request)
    assert machine is not None
    return machine


# --- one session after another ----------------------------------------------------------------------------------------


def test_its_machine_is_asked_for_until_its_output_is_here(subject: Apart) -> None:
    request = subject.begun()
    machine = of(subject, request)
    assert (machine.state, machine.queued, machine.machine_id) == (MachineState.ASKED, True, slug_of(request.name))
    assert "no stop reaches it" in machine.detail
    flags = subject.version(request).flags
    assert not flags.get("enableInternet")
    assert "kernelDataSources" not in flags
    with pytest.raises(ProviderUnavailable, match=r"nothing reaches the session.*by \d\d:\d\d.*work is lost"):
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
    with pytest.raises(LaunchRejected, match=r"1,048,576 is the most here"):
        subject.provider.launch(subject.request())
    assert subject.kaggle.pushes == 0


# --- outputs that cannot be used --------------------------------------------------------------------------------------


def spoilt(subject: Apart, change: Callable[[dict[str, Any]], None]) -> LaunchRequest:
    """A session whose index says something else."""
    request = subject.ended()
    output = subject.version(request).output
    index = json.loads(bytes(output[parcel.INDEX]))  # type: ignore[arg-type]
    change(index)
    output[parcel.INDEX] = json.dumps(index).encode()
    return request


def lost(subject: Apart, request: LaunchRequest) -> Machine:
    """Nothing of it counts, and the end says so."""
    before, files = subject.baton(), subject.files()
    machine = subject.eventually(
        lambda: subject.clock.advance(30.0) or ((m := subject.listed(request)) and m.record and m), "a lost output"
    )
    assert (subject.baton(), subject.files()) == (before, files)
    assert "its work is lost: " in machine.detail
    subject.provider.release(ref(request))
    assert subject.kaggle.notebooks == {}
    return machine


def test_a_failed_session_without_an_output_says_that_its_work_is_lost(subject: Apart) -> None:
    request = subject.ended(word=ERROR, message="Your notebook ran out of memory")
    subject.version(request).output = {}
    assert of(subject, request).state is MachineState.ASKED, "Kaggle may show it later"
    machine = lost(subject, request)
    assert machine.record is not None
    assert machine.record.cause is Cause.HOST_ERROR
    assert "ran out of memory" in machine.detail


def test_an_output_that_is_listed_late_counts(subject: Apart) -> None:
    request = subject.ended()
    subject.kaggle.hidden_files = 2
    for _ in range(4):
        assert of(subject, request).state is MachineState.ASKED
        subject.clock.advance(60.0)
    subject.kaggle.hidden_files = 0
    assert subject.here(request).record is None


def test_a_read_that_fails_is_no_missing_output(subject: Apart) -> None:
    request = subject.ended()
    subject.kaggle.broken_files = 20
    for _ in range(15):
        assert of(subject, request).state is MachineState.ASKED
        subject.clock.advance(60.0)
    assert "503" in of(subject, request).detail
    subject.kaggle.broken_files = 0
    assert subject.here(request).record is None
    assert subject.baton().checkpoint is not None


def test_an_archive_that_is_truncated(subject: Apart) -> None:
    request = subject.ended()
    output = subject.version(request).output
    output[parcel.ARCHIVE] = bytes(output[parcel.ARCHIVE])[:-10]  # type: ignore[arg-type]
    assert "bytes, and its index names" in lost(subject, request).detail


def test_an_output_of_another_launch(subject: Apart) -> None:
    request = spoilt(subject, lambda index: index.update(launch_id="1.9.1"))
    assert "the output is of launch 1.9.1" in lost(subject, request).detail


def test_an_index_that_is_larger_than_one_can_be(subject: Apart) -> None:
    request = subject.ended()
    subject.version(request).output[parcel.INDEX] = bytes(parcel.MAX_INDEX_BYTES + 1)
    assert "larger than one can be" in lost(subject, request).detail


def test_an_archive_that_claims_more_than_an_output_may_have(subject: Apart) -> None:
    request = spoilt(subject, lambda index: index["objects"].append(["runs/digits/logs/x", 10**12, "0" * 64, {}]))
    assert "more than an output may have" in lost(subject, request).detail


@pytest.mark.parametrize("key", ["runs/digits/logs/../baton.json", "runs/digits/logs//etc/passwd"])
def test_a_key_that_leads_out_of_the_runs_folder(subject: Apart, key: str) -> None:
    request = spoilt(subject, lambda index: index["objects"].append([key, 0, hashlib.sha256().hexdigest(), {}]))
    assert "no object that an agent of digits writes" in lost(subject, request).detail


def test_keys_that_no_agent_writes_are_not_copied(subject: Apart) -> None:
    """Nothing names them."""
    keys = ["runs/other/baton.json", "runs/digits/.stop", "runs/digits/orders.json", "/etc/passwd"]
    empty = hashlib.sha256().hexdigest()
    request = spoilt(subject, lambda index: index["objects"].extend([key, 0, empty, {}] for key in keys))
    subject.here(request)
    every = [info.key for page in subject.objects.pages("") for info in page.objects]
    assert not set(keys) & set(every)


def test_a_content_that_differs_from_its_hash(subject: Apart) -> None:
    request = subject.ended()
    output = subject.version(request).output
    archive = bytes(output[parcel.ARCHIVE])  # type: ignore[arg-type]
    output[parcel.ARCHIVE] = archive.replace(b"a line of its log", b"a line of my logs")
    assert "has another SHA-256" in lost(subject, request).detail


def test_a_damaged_checkpoint_leaves_the_one_before(subject: Apart) -> None:
    first = subject.ended()
    subject.here(first)
    second = subject.ended(2)
    output = subject.version(second).output
    archive = bytes(output[parcel.ARCHIVE])  # type: ignore[arg-type]
    output[parcel.ARCHIVE] = archive.replace(b"weights of step 200", b"weights of step 666")
    subject.here(second)
    newest = subject.baton().checkpoint
    assert newest is not None
    assert newest.step == 100


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
    with pytest.raises(outputs.NotNext):
        outputs.write(subject.objects, output, label, subject.folder / "parts")
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
        outputs,
        "is_waited_for",
        lambda baton, label: True,
        test_a_run_that_goes_on_elsewhere_keeps_what_it_has,
    ),
    (
        "the first look proves that there is none",
        fetching,
        "LATE_S",
        0.0,
        test_an_output_that_is_listed_late_counts,
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
        outputs.OutputLost,
        test_a_read_that_fails_is_no_missing_output,
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
