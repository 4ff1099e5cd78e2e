"""What happens to sessions of notebooks: a second push, a wrong accelerator, no network, used-up hours, a deletion.

Each story runs on the tests' Kaggle, whose exchanges are checked against Kaggle's own client.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineState
from supervisor.ports.provider import CapacityInUse, LaunchRejected, LaunchRequest, NoCapacity, ProviderUnavailable
from supervisor.providers.kaggle.kernels import slug_of
from tests.contracts.provider_subject import ref
from tests.kaggle.service import COMPLETE, ERROR, RUNNING, TOKEN, Notebook, Refusal, Version
from tests.providers.kaggle_subject import CAP_S, KaggleSubject


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[KaggleSubject]:
    subject = KaggleSubject(tmp_path)
    yield subject
    subject.close()


def again(request: LaunchRequest) -> LaunchRequest:
    return replace(request, repeated=True)


def listed(subject: KaggleSubject, request: LaunchRequest) -> Machine:
    machine = subject.listed(request)
    assert machine is not None
    return machine


# --- the push ---------------------------------------------------------------------------------------------------------


def test_the_next_session_of_a_run_is_not_pushed_while_one_runs(subject: KaggleSubject) -> None:
    """Kaggle would run both."""
    first, second = subject.request(), subject.request(attempt=2)
    subject.up(first)
    with pytest.raises(CapacityInUse, match=r"of this run is running, and a push would not end it.* by \d\d:\d\d"):
        subject.provider.launch(second)
    assert subject.kaggle.pushes == 1
    subject.kaggle.end(subject.version(first))
    assert subject.up(second).state is MachineState.UP


def test_a_queued_one_counts_and_one_whose_state_is_not_known_holds_every_push(subject: KaggleSubject) -> None:
    first, second = subject.request(), subject.request(attempt=2)
    subject.kaggle.queue = True
    machine = subject.provider.launch(first)
    assert (machine.state, machine.queued) == (MachineState.ASKED, True)
    with pytest.raises(CapacityInUse, match="is queued"):
        subject.provider.launch(second)
    with subject.unreadable(first), pytest.raises(ProviderUnavailable, match="may be running"):
        subject.provider.launch(subject.request(run="other"))
    assert subject.kaggle.pushes == 1


def test_a_lost_answer_of_a_push_is_adopted_also_while_the_list_is_late(subject: KaggleSubject) -> None:
    request = subject.request()
    subject.kaggle.lose_answer = subject.kaggle.late = True
    with pytest.raises(ProviderUnavailable):
        subject.provider.launch(request)
    assert subject.provider.launch(again(request)).name == request.name
    assert subject.fresh().launch(again(request)).name == request.name
    assert subject.kaggle.pushes == 1


def test_a_push_that_may_still_appear_is_not_repeated_at_once(subject: KaggleSubject) -> None:
    request = subject.request()
    subject.kaggle.refuse["SaveKernel"] = Refusal(504, "Gateway Timeout")
    with pytest.raises(ProviderUnavailable):
        subject.provider.launch(request)
    del subject.kaggle.refuse["SaveKernel"]
    with pytest.raises(ProviderUnavailable, match="may still appear"):
        subject.provider.launch(again(request))
    subject.clock.advance(91.0)
    subject.provider.launch(again(request))
    assert subject.kaggle.pushes == 1


def test_a_launch_that_waits_in_the_queue_sends_no_request(subject: KaggleSubject) -> None:
    request = subject.request()
    subject.kaggle.queue = True
    subject.provider.launch(request)
    subject.provider.machines()
    subject.kaggle.calls.clear()
    assert subject.provider.launch(again(request)).queued
    assert subject.kaggle.calls == []


def test_what_is_pushed_is_private_and_has_no_key_and_no_job(subject: KaggleSubject) -> None:
    secret = subject.keep_secret("a value of a secret")
    request = replace(subject.request(), secrets={"KEY": secret})
    subject.provider.launch(request)
    version = subject.version(request)
    flags = version.flags
    assert flags["isPrivate"]
    assert flags["enableInternet"]
    assert flags["enableGpu"]
    assert (flags["machineShape"], flags["sessionTimeoutSeconds"]) == ("NvidiaTeslaT4", CAP_S)
    assert flags["kernelExecutionType"] == "SAVE_AND_RUN_ALL"
    for word in ("secret-nonce", "a value of a secret", TOKEN, secret):
        assert word not in version.source


def test_the_limit_of_an_account_is_a_wait_and_ours_is_seen_before(subject: KaggleSubject, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    alone = KaggleSubject(tmp_path / "one", kaggle_sessions=1)
    alone.up(alone.request())
    capacity = alone.provider.machines().capacity
    assert capacity is not None
    assert capacity.zones == {"gpu": 0, "cpu": 1}
    with pytest.raises(CapacityInUse, match="kaggle_sessions"):
        alone.provider.launch(alone.request(run="other"))
    alone.close()
    subject.kaggle.push_error = "Maximum batch GPU session count of 2 reached."
    with pytest.raises(NoCapacity, match="session count of 2"):
        subject.provider.launch(subject.request())


# --- sessions that cannot work ----------------------------------------------------------------------------------------


def test_a_session_without_a_way_to_us_leaves_at_once_and_is_pushed_again_once(subject: KaggleSubject) -> None:
    """NB3: minutes, not hours."""
    request = subject.request()
    subject.sessions.network = False
    subject.provider.launch(request)
    subject.step()
    assert listed(subject, request).state is MachineState.ASKED
    subject.provider.launch(again(request))
    assert subject.kaggle.pushes == 2
    assert subject.version(request, 2).flags["machineShape"] == "NvidiaTeslaT4"
    assert subject.version(request, 2).flags["enableInternet"]
    subject.step()
    with pytest.raises(LaunchRejected, match=r"before its notebook claimed the job: .*no network to it"):
        subject.provider.launch(again(request))
    assert subject.kaggle.notebooks == {}
    assert subject.kaggle.pushes == 2


def test_the_second_push_can_be_the_good_one_and_its_own_version_is_asked_for(subject: KaggleSubject) -> None:
    request = subject.request()
    subject.sessions.network = False
    subject.provider.launch(request)
    subject.step()
    subject.sessions.network = True
    subject.provider.launch(again(request))
    subject.step()
    assert subject.version(request, 1).status == COMPLETE
    assert listed(subject, request).state is MachineState.UP
    found = subject.fresh().find(ref(request))
    assert found is not None
    assert found.state is MachineState.UP


def test_a_lost_answer_of_the_second_push_makes_no_third(subject: KaggleSubject) -> None:
    request = subject.request()
    subject.sessions.network = False
    subject.provider.launch(request)
    subject.step()
    subject.kaggle.lose_answer = True
    with pytest.raises(ProviderUnavailable):
        subject.provider.launch(again(request))
    subject.sessions.network = True
    assert subject.provider.launch(again(request)).queued
    assert subject.kaggle.pushes == 2


def test_a_session_on_the_wrong_accelerator_says_so_itself_and_the_next_push_has_the_flags(
    subject: KaggleSubject,
) -> None:
    """Its report, the beat `no_start`, is in tests/notebooks; the rule NB3.flags starts the next attempt."""
    request, following = subject.request(), subject.request(attempt=2)
    subject.up(request)
    job = subject.provider.hand_over(request).job
    assert (job["gpus"], job["gpu_model"]) == (1, "T4")
    subject.kaggle.end(subject.version(request))
    assert listed(subject, request).state is MachineState.ENDED
    subject.up(following)
    assert subject.version(following).flags["machineShape"] == "NvidiaTeslaT4"


def test_an_account_without_the_internet_is_told_what_to_verify(subject: KaggleSubject) -> None:
    request = subject.request()
    subject.kaggle.internet = False
    subject.provider.launch(request)
    subject.step()
    subject.provider.launch(again(request))
    subject.step()
    with pytest.raises(LaunchRejected, match="verify the phone number"):
        subject.provider.launch(again(request))


# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_version_that_failed_shows_kaggles_words(subject: KaggleSubject) -> None:
    request = subject.request()
    subject.up(request)
    subject.step(600.0)
    subject.provider.machines()
    subject.kaggle.end(subject.version(request), ERROR, "Your notebook tried to allocate more memory than is available")
    machine = listed(subject, request)
    assert (machine.state, machine.record) == (MachineState.ENDED, None)
    assert "tried to allocate more memory" in machine.detail


def test_an_end_near_the_cap_is_its_time_limit_and_an_early_one_is_not(subject: KaggleSubject) -> None:
    early, late = subject.request(), subject.request(run="late")
    subject.up(early)
    subject.up(late)
    subject.step(3600.0)
    subject.provider.machines()
    subject.kaggle.end(subject.version(early))
    assert listed(subject, early).record is None
    subject.step(CAP_S - 3600.0 - 10.0)
    subject.provider.machines()
    subject.step(30.0)
    record = listed(subject, late).record
    assert record is not None
    assert record.cause is Cause.TIME_LIMIT
    assert "exceeded the max allowed time" in record.detail
    assert listed(subject, early).record is None, "an end is read once"


def test_kaggles_own_cap_may_be_shorter_than_ours(subject: KaggleSubject) -> None:
    request, other = subject.request(), subject.request(run="other")
    subject.up(request)
    subject.up(other)
    subject.step(3600.0)
    subject.kaggle.end(subject.version(request), ERROR, "Timeout Exceeded")
    subject.kaggle.end(subject.version(other), ERROR, "Your notebook ran out of memory this time")
    record = listed(subject, request).record
    assert record is not None
    assert record.cause is Cause.TIME_LIMIT
    assert listed(subject, other).record is None


def test_a_notebook_that_somebody_deletes_is_a_deleted_machine(subject: KaggleSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    del subject.kaggle.notebooks[slug_of(request.name)]
    gone = listed(subject, request)
    assert gone.record is not None
    assert (gone.state, gone.record.cause) == (MachineState.ENDED, Cause.MACHINE_DELETED)
    assert subject.provider.find(ref(request, machine.machine_id)) == gone
    subject.provider.release(ref(request, machine.machine_id))
    assert subject.listed(request) is None
    assert subject.provider.find(ref(request)) is None
    assert subject.claims.made == {}


def test_a_late_list_deletes_nothing(subject: KaggleSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    subject.kaggle.late = True
    assert listed(subject, request) == machine
    subject.kaggle.refuse["GetKernel"] = Refusal(500, "Internal")
    listing = subject.provider.machines()
    assert (listing.machines, listing.unreachable) == ((), {"gpu"})


def test_the_state_of_our_version_counts_not_that_of_an_edit_by_hand(subject: KaggleSubject) -> None:
    request = subject.request()
    subject.up(request)
    book = subject.kaggle.notebooks[slug_of(request.name)]
    ours = book.versions[0]
    book.versions.append(Version(ours.source, ours.flags, 9, 2, True, status=ERROR, message="theirs"))
    assert listed(subject, request).state is MachineState.UP
    assert listed(subject, request).detail == ""


def test_a_notebook_of_the_user_is_no_machine_whatever_its_name(subject: KaggleSubject) -> None:
    source = '{"cells": [{"cell_type": "code", "source": "print(1)"}]}'
    version = Version(source, {"sessionTimeoutSeconds": 60}, 7, 1, True, status=RUNNING)
    for number in range(7):  # more than one page
        subject.kaggle.notebooks[f"spot-own-{number}"] = Notebook(number + 1, f"spot-own-{number}", [version])
    request = subject.request()
    subject.up(request)
    assert [machine.name for machine in subject.provider.machines().machines] == [request.name]
    subject.kaggle.refuse["GetKernelSessionStatus"] = Refusal(500, "Internal")
    assert subject.fresh().machines().unreachable == {"gpu"}


def test_of_a_notebook_whose_first_line_was_edited_nobody_can_tell_whose_it_is(subject: KaggleSubject) -> None:
    """It may have a session of ours: nothing is started, stopped or deleted until a person has put it right."""
    request, other = subject.request(), subject.request(run="other")
    machine = subject.up(request)
    book = subject.kaggle.notebooks[slug_of(request.name)]
    ours = book.versions[0]
    edited = replace(ours, source=ours.source.replace("# spot-supervisor: ", "# mine: "), session_id=9, number=2)
    book.versions.append(edited)
    subject.kaggle.calls.clear()
    again_started = subject.fresh()
    listing = again_started.machines()
    assert (listing.machines, listing.unreachable) == ((), {"gpu", "cpu", "tpu"})
    assert "Put that line back on Kaggle" in listing.reasons["gpu"]
    for step in (
        lambda: again_started.find(ref(request, machine.machine_id)),
        lambda: again_started.release(ref(request, machine.machine_id)),
        lambda: again_started.launch(again(request)),
        lambda: again_started.launch(other),
    ):
        with pytest.raises(ProviderUnavailable, match="nobody can tell whose session it has"):
            step()
    assert {"SaveKernel", "CancelKernelSession", "DeleteKernel"}.isdisjoint(subject.kaggle.calls)
    book.versions.append(replace(ours, session_id=10, number=3))
    assert again_started.find(ref(request)) == machine


# --- giving back ------------------------------------------------------------------------------------------------------


def test_a_session_that_said_its_id_is_cancelled_and_its_notebook_deleted(subject: KaggleSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    subject.provider.release(ref(request, machine.machine_id))
    ending = listed(subject, request)
    assert ending.state is MachineState.ENDING
    subject.provider.release(ref(request, machine.machine_id))
    subject.gone(request)
    assert subject.kaggle.calls.count("CancelKernelSession") == 1
    assert (subject.kaggle.notebooks, subject.claims.made) == ({}, {})


def test_without_its_id_a_session_cannot_be_stopped_and_says_until_when(subject: KaggleSubject) -> None:
    request = subject.request()
    subject.sessions.says_id = False
    subject.up(request)
    for _ in range(2):
        with pytest.raises(ProviderUnavailable, match=r"did not say its id.* by \d\d:\d\d.* at the latest"):
            subject.provider.release(ref(request))
    assert "CancelKernelSession" not in subject.kaggle.calls
    assert listed(subject, request).state is MachineState.UP
    subject.kaggle.end(subject.version(request))
    subject.provider.release(ref(request))
    assert subject.kaggle.notebooks == {}


def test_one_that_somebody_cancels_is_a_deleted_machine(subject: KaggleSubject) -> None:
    request = subject.request()
    subject.up(request)
    subject.kaggle.end(subject.version(request), "CANCEL_ACKNOWLEDGED")
    record = listed(subject, request).record
    assert record is not None
    assert record.cause is Cause.MACHINE_DELETED
