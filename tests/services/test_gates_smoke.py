"""The smoke of a run in gate G2: how it ended, for which spec and code, and for how long it counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.run import SmokeRun
from supervisor.domain.status import Status
from supervisor.services.runs import smoked
from supervisor.services.views.formats import time_text
from tests.services.bed import COMMAND, Bed
from tests.services.test_gates import shown, states, verdict


def smoke_of(bed: Bed, **fields: Any) -> SmokeRun:
    """Two steps, then one more, an hour before the submit."""
    smoke = SmokeRun(bed.clock.now() - 3600, "laptop", "python train.py 2", "", "", (0, 0), 2, 3)
    return replace(smoke, **fields)


def smoke_verdicts(bed: Bed) -> dict[str, tuple[str, str, str]]:
    gates = shown(bed)["gates"][2]
    items = {item["check"]: item for item in gates["verdicts"]}
    return {name: (items[name]["state"], items[name]["fact"], items[name]["by"]) for name in smoked.OF_SMOKE}


def test_a_run_without_a_smoke_says_so(bed: Bed) -> None:
    bed.submit("digits-7")
    none_ran = ("unknown", "no smoke was run", "supervisor")
    assert smoke_verdicts(bed) == dict.fromkeys(smoked.OF_SMOKE, none_ran)


def test_the_smoke_of_the_submit_is_shown_with_its_time_and_its_computer(bed: Bed) -> None:
    bed.submit("digits-7", smoke=smoke_of(bed))
    assert smoke_verdicts(bed) == {
        "smoke": ("pass", "the smoke command ended with exit 0", "laptop"),
        "smoke_first": ("pass", "the smoke ran before anything was rented", "laptop"),
        "resumes": ("pass", "the first start reached step 2; the second began at step 3", "laptop"),
    }
    gates = shown(bed)
    assert states(gates)["G2"] == "passed"
    [at] = {item["at"] for item in gates["gates"][2]["verdicts"] if item["check"] == "smoke"}
    assert at == time_text(bed.clock.now() - 3600)


@pytest.mark.parametrize(
    ("fields", "fact"),
    [
        ({"second_from": None}, "the first start reached step 2; the second began at step 2"),
        ({"first_step": 5, "second_from": 4}, "the first start reached step 4; the second began at step 4"),
    ],
    ids=["nothing was left to do", "the last step was not saved"],
)
def test_what_the_computer_of_the_user_accepted_passes(bed: Bed, fields: dict[str, Any], fact: str) -> None:
    bed.submit("digits-7", smoke=smoke_of(bed, **fields))
    assert smoke_verdicts(bed)["resumes"][:2] == ("pass", fact)


def test_a_smoke_without_steps_claims_no_resume(bed: Bed) -> None:
    bed.submit("digits-7", smoke=smoke_of(bed, first_step=None, second_from=None))
    assert smoke_verdicts(bed)["resumes"][:2] == ("unknown", "the smoke reported no step")
    assert smoke_verdicts(bed)["smoke"][0] == "pass"


def test_a_smoke_counts_for_its_own_spec_and_code_and_while_it_is_young(bed: Bed) -> None:
    bed.submit("digits-7", smoke=smoke_of(bed))
    bed.change("digits-7", status=Status.FAILED, settled=True)
    bed.submit("digits-7", {**COMMAND, "labels": {"a": "b"}}, replace_spec=True)
    assert smoke_verdicts(bed)["smoke"][:2] == ("unknown", "the smoke ran with another code or another spec")
    bed.submit("old", smoke=smoke_of(bed, at=bed.clock.now() - 8 * 86_400.0))
    assert verdict(shown(bed, "old"), "smoke") == ("unknown", "the smoke was 8 d old when the run began")
    bed.submit("other", smoke=smoke_of(bed, code="c0de" * 16))
    assert verdict(shown(bed, "other"), "smoke")[0] == "unknown"


def test_a_smoke_stays_good_while_its_run_goes_on(bed: Bed) -> None:
    bed.submit("digits-7", smoke=smoke_of(bed))
    bed.train("digits-7")
    bed.clock.advance(20 * 86_400.0)
    assert smoke_verdicts(bed)["smoke"][0] == "pass"


def test_a_repeat_of_a_live_run_keeps_the_smoke_of_its_submit(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.submit("digits-7", smoke=smoke_of(bed))
    assert bed.run("digits-7").smoke is None
    bed.change("digits-7", status=Status.FAILED, settled=True)
    bed.submit("digits-7", smoke=smoke_of(bed))
    assert bed.run("digits-7").smoke is not None


def test_a_judge_that_takes_any_smoke_for_the_runs_own_is_caught(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant."""
    monkeypatch.setattr(smoked, "spec_sha256", lambda spec: "any")
    with pytest.raises(AssertionError):
        test_a_smoke_counts_for_its_own_spec_and_code_and_while_it_is_young(bed)
