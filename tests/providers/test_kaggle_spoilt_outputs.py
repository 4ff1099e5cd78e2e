"""Outputs of sessions without the internet that cannot be used: nothing of them counts, and the end says so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import parcel
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineState
from supervisor.ports.provider import LaunchRequest
from supervisor.providers.kaggle import downloads, fetching
from supervisor.providers.kaggle.kernels import slug_of
from tests.contracts.provider_subject import ref
from tests.kaggle.service import CANCELED, ERROR
from tests.providers.kaggle_apart import Apart, of


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[Apart]:
    subject = Apart(tmp_path)
    yield subject
    subject.close()


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


def test_an_output_that_was_missing_says_nothing_about_a_later_notebook_of_that_name(subject: Apart) -> None:
    """A person has deleted the first one."""
    request = subject.ended()
    subject.version(request).output = {}
    assert of(subject, request).state is MachineState.ASKED
    del subject.kaggle.notebooks[slug_of(request.name)]
    subject.clock.advance(fetching.LATE_S)
    subject.provider.launch(request)
    subject.step()
    subject.kaggle.end(subject.version(request))
    subject.kaggle.hidden_files = 2
    assert of(subject, request).state is MachineState.ASKED, "Kaggle lists its output later"
    subject.kaggle.hidden_files = 0
    subject.clock.advance(fetching.RETRY_S)
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


def test_an_index_whose_size_is_not_said_is_no_missing_output(subject: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    request = subject.ended()
    with monkeypatch.context() as patch:
        patch.setattr(downloads, "_whole_size", lambda status, headers: None)
        for _ in range(15):
            assert of(subject, request).state is MachineState.ASKED
            subject.clock.advance(60.0)
        assert "is not said" in of(subject, request).detail
    assert subject.here(request).record is None


@pytest.mark.parametrize(
    ("word", "message", "cause"),
    [(CANCELED, "", Cause.MACHINE_DELETED), (ERROR, "Your notebook timed out", Cause.TIME_LIMIT)],
)
def test_the_end_of_lost_work_has_kaggles_reason(subject: Apart, word: str, message: str, cause: Cause) -> None:
    request = subject.ended(word=word, message=message)
    subject.version(request).output = {}
    record = lost(subject, request).record
    assert record is not None
    assert record.cause is cause


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


def test_a_key_that_no_store_can_have(subject: Apart) -> None:
    request = spoilt(subject, lambda index: index["objects"].append(["runs/digits/logs/\udcff", 0, "0" * 64, {}]))
    assert "the index of the output cannot be used" in lost(subject, request).detail


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
