"""A host is lost for good: a person writes its machine off, and the run goes on with what is here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, Holder, Home
from supervisor.domain.errors import ApprovalMismatch, NothingToApprove
from supervisor.ports.provider import Responded
from supervisor.services.runs.actions import WriteOffRequest, write_off
from tests.fakes.callers import OPS
from tests.services.bed import Bed

KEY = runfiles.baton("digits-7")
LOST = WriteOffRequest("id-1", "the box burned")


def at_home(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    baton = batons.create("sup", 1)._replace(holder=Holder(1, "1.1.1", "id-1"))
    bed.objects.put(KEY, batons.encode(baton._replace(home=Home("local", "local-a", "digits-7-1.1.1", ready=True))))
    bed.provider.down = True


def baton_of(bed: Bed) -> Baton:
    return batons.decode(bed.objects.get(KEY)[0])


def test_the_row_is_written_first_and_the_home_stays_until_the_attempt_has_ended(bed: Bed) -> None:
    at_home(bed)
    before = baton_of(bed)
    run = write_off(bed.parts, "digits-7", LOST, OPS)
    assert run.written_off is not None
    assert (run.written_off.actor, run.written_off.launch_id, run.written_off.reason) == ("ops", "1.1.1", LOST.reason)
    assert baton_of(bed) == before
    assert run.given_up == ""
    assert run.attempt is not None
    ended = replace(run, attempt=replace(run.attempt, ended_at=1.0), try_=None)
    assert ended.given_up == "1.1.1"
    later = replace(ended.attempt or run.attempt, launch_id="1.2.1")
    assert replace(ended, attempt=later).given_up == "", "it may work in the same home"
    assert bed.events("digits-7")[-1] == "written_off"
    assert write_off(bed.parts, "digits-7", LOST, OPS) == run, "twice is once"
    assert bed.events("digits-7").count("written_off") == 1


def test_a_host_that_responds_with_an_error_is_not_lost(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home(bed)

    def find(ref: object) -> None:
        raise Responded("local-a: no space left on the device")

    monkeypatch.setattr(bed.provider, "find", find)
    with pytest.raises(NothingToApprove, match="responds"):
        write_off(bed.parts, "digits-7", LOST, OPS)
    assert bed.run("digits-7").written_off is None


def test_a_machine_that_can_be_read_is_not_lost(bed: Bed) -> None:
    at_home(bed)
    bed.provider.down = False
    with pytest.raises(NothingToApprove, match="responds"):
        write_off(bed.parts, "digits-7", LOST, OPS)
    assert baton_of(bed).home is not None
    assert bed.run("digits-7").written_off is None


def test_the_request_names_the_machine_that_the_person_has_seen(bed: Bed) -> None:
    at_home(bed)
    for machine_id in ("id-2", ""):
        with pytest.raises(ApprovalMismatch):
            write_off(bed.parts, "digits-7", WriteOffRequest(machine_id, "the box burned"), OPS)
    assert baton_of(bed).home is not None


def test_a_run_without_any_machine_has_nothing_to_write_off(bed: Bed) -> None:
    bed.submit("digits-7")
    with pytest.raises(NothingToApprove, match="never had a machine"):
        write_off(bed.parts, "digits-7", WriteOffRequest("", "the box burned"), OPS)
