"""Every row of the table of status sentences when a run ends, word for word, on runs built by hand.

The words are what people read at night: a change of them is a change of the product, so the tests hold them exactly.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from supervisor.contract.heartbeat import Exit
from supervisor.domain.attempt import Retiring
from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineRef
from supervisor.domain.run import Approval, Counters, Files, Money, Outcome, Person, StopRequest
from supervisor.domain.status import Status
from supervisor.wording.run import next_action, status_text
from tests.lifecycle.sample_runs import MIN, NOW, H, attempt, ended, open_try, run_in


def test_stopping_names_the_requester_and_how_long_the_save_may_take():
    run = run_in(
        Status.STOPPING, attempt=attempt(), stop=StopRequest("token ops-laptop", NOW - 12), status_since=NOW - 12
    )
    assert status_text(run, NOW) == (
        "Stop requested by token ops-laptop 12 s ago. Next: waiting for the final checkpoint (up to 1 min 48 s)."
    )


def test_stopping_for_a_limit_names_the_limit():
    stop = StopRequest("supervisor", NOW - 200, Cause.BUDGET, "limit")
    run = run_in(
        Status.STOPPING, attempt=attempt(), stop=stop, detail="$12.01 spent, budget $12.00", status_since=NOW - 200
    )
    assert status_text(run, NOW) == (
        "The budget is spent: $12.01 spent, budget $12.00; stopping since 3 min 20 s. "
        "The time for a final checkpoint is over. Next: the machine is killed and released."
    )


def test_stopping_waits_for_an_open_create_call():
    run = run_in(Status.STOPPING, try_=open_try(), stop=StopRequest("local", NOW))
    assert "a machine that it brings is deleted at once." in status_text(run, NOW)


def test_awaiting_teardown_requests_an_approval():
    end = ended(Cause.FINISHED, 60, machine_name="gpu-box", price_usd_per_h=1.2)
    outcome = Outcome("0" * 64, 3, 412_000_000, NOW, 50000)
    kept = Retiring(MachineRef("gce", "us-east1-c", "gpu-box"), "1.4.1", NOW, NOW + 2 * H)
    run = run_in(Status.AWAITING_TEARDOWN, attempt=end, files=Files(outcome=outcome), retiring=(kept,))
    assert status_text(run, NOW) == (
        "Results verified (3 files, 412 MB). gpu-box cannot be obtained again once released. It bills $1.20/h "
        "meanwhile. Next: approve its release with `spot approve digits-7`; without your decision it is released at "
        "14:00 UTC."
    )
    assert next_action(run, NOW).what == "needs you"


def test_awaiting_teardown_requests_a_pull_and_shows_the_command():
    end = ended(Cause.FINISHED, 60, machine_name="gpu-box", price_usd_per_h=1.2)
    outcome = Outcome("0" * 64, 3, 412_000_000, NOW, 50000)
    kept = Retiring(MachineRef("gce", "us-east1-c", "gpu-box"), "1.4.1", NOW, NOW + 2 * H)
    run = run_in(Status.AWAITING_TEARDOWN, attempt=end, files=Files(outcome=outcome), retiring=(kept,))
    run = replace(run, policy=replace(run.policy, require_pull=True))
    assert status_text(run, NOW) == (
        "Results verified (3 files, 412 MB). gpu-box is kept until the results are pulled. It bills $1.20/h "
        "meanwhile. Next: pull them with `spot pull digits-7`; without your decision it is released at 14:00 UTC."
    )
    both = replace(run, policy=replace(run.policy, on_success="ask"))
    assert "is kept until the results are pulled and you agree." in status_text(both, NOW)
    assert "pull them with `spot pull digits-7`, then approve its release;" in status_text(both, NOW)
    pulled = replace(both, files=Files(outcome, pulled_sha256=outcome.results_sha256))
    assert "approve its release with `spot approve digits-7`;" in status_text(pulled, NOW)


def test_finishing_says_what_is_awaited():
    run = run_in(Status.FINISHING, attempt=attempt(price_usd_per_h=None))
    assert status_text(run, NOW) == (
        "The command succeeded; its results are being saved and verified for 4 s. "
        "Next: completed once they are verified (limit 1 h)."
    )


def test_results_that_a_person_has_given_up_need_no_decision():
    given_up = Approval("ops", NOW, "m-1", "none", accept_loss="of no use")
    run = run_in(Status.FINISHING, attempt=attempt(), person=Person(why="2 of 3 files differ"), approval=given_up)
    assert status_text(run, NOW) == (
        "ops gave up the results; the machine bills $0.50/h. Next: failed on the coming tick."
    )


def test_what_is_cut_off_ends_in_its_dots_alone():
    text = status_text(run_in(Status.FINISHING, attempt=attempt(), person=Person(why="x" * 200)), NOW)
    assert text.endswith("xx…")


def test_finishing_that_needs_a_person_says_so_and_what_it_costs():
    run = run_in(Status.FINISHING, attempt=attempt(), person=Person(why="2 of 3 result files differ from the manifest"))
    text = status_text(run, NOW)
    assert "the machine bills $0.50/h" in text
    assert "`spot approve digits-7 --accept-loss REASON`" in text
    assert text.endswith("Needs you: 2 of 3 result files differ from the manifest.")
    assert next_action(run, NOW).what == "needs you"


def test_completed_sums_up():
    run = run_in(
        Status.COMPLETED, generation_at=NOW - 9 * H - 41 * MIN, status_since=NOW,
        money=Money(cost_usd=6.12, on_demand_usd=18.4),
        counters=Counters(attempts=4, preemptions=3), attempt=ended(Cause.FINISHED, 60),
        files=Files(outcome=Outcome("0" * 64, 3, 1, NOW, 50000)),
    )  # fmt: skip
    assert status_text(run, NOW) == (
        "Completed after 9 h 41 min (4 attempts, 3 preemptions), 50,000 steps, results verified. "
        "Cost $6.12, on-demand would have been $18.40."
    )
    assert next_action(run, NOW).what == "–"  # noqa: RUF001  the en dash of an empty column


def test_partial_lists_what_is_missing_and_offers_a_resume():
    outcome = Outcome("0" * 64, 3, 1, NOW, 50000, missing=("metrics.json (0 of 1)", "step 40 of 50"))
    run = run_in(
        Status.PARTIAL,
        files=Files(outcome=outcome),
        counters=Counters(attempts=1),
        money=Money(all_known=False),
        status_since=NOW,
    )
    assert status_text(run, NOW) == (
        "Finished after 4 s (1 attempt), all uploads verified, but missing: metrics.json (0 of 1), step 40 of 50. "
        "Cost unknown. Resume with `spot resume digits-7`."
    )


def test_failed_with_an_error_of_the_command_quotes_its_last_line():
    end = ended(Cause.USER_ERROR, 60, exit=Exit(1, None, False, 40.0, "KeyError: 'loss'"))
    run = run_in(Status.FAILED, cause=Cause.USER_ERROR, attempt=end, money=Money(cost_usd=0.07))
    assert status_text(run, NOW) == (
        "The command exited with code 1 after 40 s: `KeyError: 'loss'`. "
        "Not retried: the same code would fail again. Last checkpoint: none. Cost $0.07. "
        "Fix it, then `spot resume digits-7`."
    )
    # A resume would run the code that was sent.
    with_code = replace(run, policy=replace(run.policy, code="ab" * 32))
    assert status_text(with_code, NOW).endswith(
        "Submit the fixed code with `--replace-spec`, or `spot resume digits-7`."
    )


def test_a_missing_module_is_first_of_all_a_question_of_which_python_ran():
    line = "ModuleNotFoundError: No module named 'timm' (python: /opt/spot/bin/python)"
    end = ended(Cause.USER_ERROR, 60, exit=Exit(1, None, False, 4.0, line))
    run = run_in(Status.FAILED, cause=Cause.USER_ERROR, attempt=end)
    advice = "Submit it from another environment with `--replace-spec`, or install the module in this one, then"
    assert f"after 4 s: `{line}`. Not retried" in status_text(run, NOW)
    assert status_text(run, NOW).endswith(f"{advice} `spot resume digits-7`.")
    in_image = replace(run, policy=replace(run.policy, image="r/i:1"))
    assert status_text(in_image, NOW).endswith("Fix it, then `spot resume digits-7`.")


def test_failed_out_of_gpu_memory():
    run = run_in(
        Status.FAILED, cause=Cause.GPU_OOM, attempt=ended(Cause.GPU_OOM, 60, step_last=3),
        detail="tried 2.5 GiB, 0.9 GiB free of 22.5 GiB",
    )  # fmt: skip
    assert status_text(run, NOW).startswith(
        "The GPU ran out of memory at step 3: tried 2.5 GiB, 0.9 GiB free of 22.5 GiB. Not retried. "
        "Last checkpoint: none."
    )


def test_failed_without_progress_names_the_checkpoint_and_the_cause():
    run = run_in(
        Status.FAILED, cause=Cause.NO_PROGRESS, attempt=ended(Cause.HOST_OOM, 60), files=Files(checkpoint_step=11900),
        counters=Counters(no_progress=3),
    )  # fmt: skip
    assert status_text(run, NOW).startswith(
        "3 attempts in a row ended without a newer checkpoint than step 11,900 (last: host oom). Stopped to save money."
    )


def test_stopped_by_a_marker():
    at = datetime(2025, 11, 21, 3, 12, tzinfo=UTC).timestamp()
    run = run_in(
        Status.STOPPED,
        stop=StopRequest("marker", at, source="marker"),
        files=Files(checkpoint_step=8400),
        money=Money(cost_usd=0.004),
    )
    assert status_text(run, NOW) == (
        "Stopped by a .stop marker at 03:12 UTC. Cost <$0.01. "
        "Checkpoint 8,400 is kept; resume with `spot resume digits-7`."
    )


def test_a_kept_machine_is_shown_with_its_price_and_its_end():
    kept = Retiring(MachineRef("gce", "us-east1-c", "m"), "1.4.1", NOW, NOW + 2 * H, "kept")
    end = ended(Cause.USER_ERROR, 60, price_usd_per_h=1.2)
    run = run_in(Status.FAILED, cause=Cause.USER_ERROR, attempt=end, retiring=(kept,), kept_until=NOW + 2 * H)
    assert "Its machine is kept until 14:00 UTC and bills $1.20/h." in status_text(run, NOW)
    assert next_action(run, NOW).what == "release in 2 h"


@pytest.mark.parametrize("status", [Status.PENDING, Status.RECOVERING, Status.RUNNING])
def test_a_hold_is_in_the_sentence_and_replaces_the_held_action(status: Status):
    text = status_text(run_in(status, hold="object store unreadable since 02:10"), NOW)
    assert text.endswith("On hold: object store unreadable since 02:10; continues by itself when that is over.")
    assert "Next: start" not in text


def test_a_stop_is_shown_before_it_has_started():
    run = run_in(Status.RUNNING, stop=StopRequest("anna", NOW), attempt=attempt())
    assert "waiting for the final checkpoint" in status_text(run, NOW)
    hours = run_in(
        Status.RUNNING, stop=StopRequest("anna", NOW), attempt=attempt(), try_=open_try(), status_since=NOW - 2 * H
    )  # the grace begins with the stop, however long it has been running
    assert status_text(hours, NOW).endswith("Next: waiting for the final checkpoint (up to 2 min).")
    waiting = run_in(Status.WAITING, stop=StopRequest("anna", NOW), attempt=None)
    assert status_text(waiting, NOW).endswith("Next: stopped on the coming tick.")
