"""`keep: machine` as clients see it: what a submit refuses, the list of kept machines, their deletion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.attempt import Kept, Retiring
from supervisor.domain.callers import Caller, Scope
from supervisor.domain.causes import Cause
from supervisor.domain.errors import InvalidRequest, NothingKept
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.services.machines.kept import KeptList, kept_json
from supervisor.services.machines.machines import machines_json
from supervisor.services.runs.actions import delete_kept
from supervisor.services.runs.changing import change
from supervisor.services.runs.resume import ResumeRequest, resume
from tests.fakes.callers import OPS
from tests.services.bed import COMMAND, Bed
from tests.services.declared import declared
from tests.services.test_machines import put

KEEPS = {**COMMAND, "keep": "machine"}


def keep(bed: Bed, status: Status = Status.RECOVERING, run_id: str = "digits-7", **spec: Any) -> Run:
    """Its machine m-a1 is off since a minute and kept for another hour."""
    bed.submit(run_id, {**KEEPS, **spec})
    attempt, now = bed.train(run_id).attempt, bed.clock.now()
    assert attempt is not None
    over = replace(attempt, ended_at=now - 60, stopped_at=now - 60, cause=Cause.PREEMPTED)
    kept = Kept(attempt.placement, now - 60, now - 60, 0.01)
    item = Retiring(attempt.ref, attempt.launch_id, now - 60, now + 3600, kept=kept)
    return bed.change(run_id, status=status, attempt=over, try_=None, retiring=(item,), cause=Cause.PREEMPTED)


def test_the_rule_of_the_spec_is_in_the_policy_with_its_defaults(bed: Bed) -> None:
    bed.submit("a", KEEPS)
    bed.submit("b", {**KEEPS, "keep_wait_s": 60.0, "keep_fallback": "wait", "keep_for_s": 120.0})
    rules = {name: run.policy.keep for name in "ab" if (run := bed.store.find(name)) is not None}
    assert (rules["a"].machine, rules["a"].wait_s, rules["a"].fallback, rules["a"].for_s) == (
        True,
        1200.0,
        "new",
        43200.0,
    )
    assert (rules["b"].wait_s, rules["b"].fallback, rules["b"].for_s) == (60.0, "wait", 120.0)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"on_success": "keep"}, "#/spec/on_success"),
        ({"on_success": "ask"}, "#/spec/on_success"),
        ({"on_failure": "keep"}, "#/spec/on_failure"),
        ({"require_pull": True}, "#/spec/require_pull"),
        ({"keep": "no", "keep_wait_s": 60.0}, "#/spec/keep_wait_s"),
    ],
)
def test_what_contradicts_it_is_refused_by_name(bed: Bed, fields: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        bed.submit("digits-7", {**KEEPS, **fields})
    assert [where for where, _ in refused.value.errors] == [pointer]
    assert bed.store.find("digits-7") is None


def test_a_provider_that_cannot_start_a_machine_again_refuses_it_at_the_submit(bed: Bed) -> None:
    """Broken variant: the run is accepted, and its first preemption shows that nothing was kept."""
    bed.provider.traits = replace(bed.provider.traits, keeps=False)
    with pytest.raises(InvalidRequest, match="cannot be switched off and started again") as refused:
        bed.submit("digits-7", KEEPS)
    assert [where for where, _ in refused.value.errors] == ["#/spec/keep"]
    bed.submit("digits-7", COMMAND)


def test_a_list_has_the_machines_that_are_kept_with_price_and_end(bed: Bed) -> None:
    keep(bed)
    bed.submit("other")
    bed.train("other")
    told = kept_json(bed.parts, OPS)
    declared(KeptList, told)
    (one,) = told["machines"]
    assert (one["machine"], one["run_id"], one["run_status"], one["usd_per_h"]) == (
        "m-a1",
        "digits-7",
        "recovering",
        0.01,
    )
    assert one["off_since"] is not None
    assert one["text"].startswith("Its machine is kept, off since")
    stranger = Caller("eve", "eve", frozenset({Scope.READ}))
    assert kept_json(bed.parts, stranger) == {"machines": []}


def test_the_list_of_machines_knows_it_by_its_name_and_bills_its_disks(bed: Bed) -> None:
    keep(bed)
    put(bed, "m-a1", "digits-7", launch_id="1.9.1", state="ended")  # of a start that failed
    (one,) = machines_json(bed.parts, False)["machines"]
    assert (one["use"], one["usd_per_h"], one["serves"]) == ("kept", 0.01, None)
    assert one["why"].startswith("kept for digits-7 for another")
    assert machines_json(bed.parts, False)["missing"] == []


def test_a_person_gives_it_up_once_and_a_run_that_waits_for_it_goes_on(bed: Bed) -> None:
    keep(bed, Status.WAITING)
    bed.change("digits-7", next_at=bed.clock.now() + 900)
    after = change(bed.parts, "digits-7", delete_kept(OPS))
    assert after.kept is not None
    assert after.kept[1].given_up == f"on request of {OPS.actor}"
    assert after.next_at is None
    again = change(bed.parts, "digits-7", delete_kept(OPS))
    assert bed.events("digits-7").count("machine_kept") == 1
    assert again.version == after.version


def test_nothing_is_deleted_where_the_machine_trains(bed: Bed) -> None:
    bed.submit("digits-7", KEEPS)
    bed.train("digits-7")
    with pytest.raises(NothingKept, match="in use"):
        change(bed.parts, "digits-7", delete_kept(OPS))


def test_a_resume_uses_it_again_unless_the_new_spec_keeps_none(bed: Bed) -> None:
    keep(bed, Status.STOPPED)
    after = resume(bed.parts, "digits-7", ResumeRequest(OPS)).run
    assert after.retiring[0].until > bed.clock.now()
    keep(bed, Status.STOPPED, "second")
    other = resume(bed.parts, "second", ResumeRequest(OPS, spec=dict(COMMAND), replace_spec=True)).run
    assert other.retiring[0].until <= bed.clock.now()
