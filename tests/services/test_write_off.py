"""A host is lost for good: a person writes its machine off, and the run goes on with what is here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, Holder, Home
from supervisor.domain.errors import ApprovalMismatch, NothingToApprove, Unavailable
from supervisor.services.runs.actions import WriteOffRequest, write_off
from tests.fakes.callers import OPS
from tests.services.bed import Bed

KEY = runfiles.baton("digits-7")
LOST = WriteOffRequest("id-1", "the box burned")


def at_home(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    baton = replace(batons.create("sup", 1), holder=Holder(1, "1.1.1", "id-1"))
    bed.objects.put(KEY, batons.encode(replace(baton, home=Home("local", "local-a", "digits-7-1.1.1", ready=True))))
    bed.provider.down = True


def baton_of(bed: Bed) -> Baton:
    return batons.decode(bed.objects.get(KEY)[0])


def test_the_run_is_at_home_here_again_and_its_old_agent_may_not_write(bed: Bed) -> None:
    at_home(bed)
    run = write_off(bed.parts, "digits-7", LOST, OPS)
    assert run.written_off is not None
    assert (run.written_off.actor, run.written_off.launch_id, run.written_off.reason) == ("ops", "1.1.1", LOST.reason)
    after = baton_of(bed)
    assert after.home is None
    assert after.holder is not None
    assert after.holder.left
    assert bed.events("digits-7")[-1] == "written_off"
    assert write_off(bed.parts, "digits-7", LOST, OPS) == run, "twice is once"
    assert bed.events("digits-7").count("written_off") == 1


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


def test_a_torn_baton_is_left_for_a_person(bed: Bed) -> None:
    at_home(bed)
    bed.objects.put(KEY, b"{")
    with pytest.raises(Unavailable, match="Nothing was written off"):
        write_off(bed.parts, "digits-7", LOST, OPS)
    assert bed.run("digits-7").written_off is None
