"""Every row of the table of status sentences while a run goes on, word for word, on runs built by hand.

The words are what people read at night: a change of them is a change of the product, so the tests hold them exactly.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from supervisor.contract import signs
from supervisor.contract.beat_telemetry import Gpus, Telemetry, encode
from supervisor.domain.attempt import Attempt, Retiring
from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineRef
from supervisor.domain.policies import Limits, Policy
from supervisor.domain.run import Counters, Files, Run, Waiting
from supervisor.domain.status import Status
from supervisor.wording.run import next_action, status_text
from tests.lifecycle.sample_runs import MIN, NOW, ZONES, H, attempt, ended, failed_try, open_try, pulse, run_in


def test_pending_names_the_zone_and_the_coming_tick():
    run = run_in(Status.PENDING, policy=Policy(zones=("us-east1-c",)), next_at=NOW + 26)
    assert status_text(run, NOW) == "Accepted 4 s ago. Next: start in us-east1-c on the coming tick (in 26 s)."
    assert next_action(run, NOW).what == "launch in 26 s"


def test_pending_after_a_resume_names_the_generation():
    run = run_in(Status.PENDING, generation=2)
    assert status_text(run, NOW) == (
        "Resumed (generation 2) 4 s ago. Next: start in the first zone with capacity on the coming tick."
    )


def waiting(cause: Cause, detail: str = "", **fields: object) -> Run:
    since = datetime(2025, 11, 21, 2, 10, tzinfo=UTC).timestamp()
    policy = Policy(zones=ZONES, shapes=("g2-standard-8",), limits=Limits(wait_for_capacity_s=11 * H + 50 * MIN))
    run = run_in(
        Status.WAITING, cause=cause, detail=detail, policy=policy, waiting=Waiting(since=since), next_at=NOW + 200,
        try_=failed_try(cause, 6), attempt=None,
    )  # fmt: skip
    return replace(run, **fields)


def test_waiting_for_capacity_says_what_is_missing_and_when_it_gives_up():
    assert status_text(waiting(Cause.NO_CAPACITY), NOW) == (
        "No g2-standard-8 spot in us-east1-b, c, d since 02:10 UTC (6 tries, no attempt spent). Nothing is billed. "
        "Next try in 3 min 20 s; gives up at 14:00 UTC."
    )


def test_waiting_for_capacity_names_the_user_of_the_machine_where_it_is_known():
    held = "l4 needs 1 GPU, free: 0. GPU 1 is held by pid 4242 (python train.py, 11.2 GiB), which is not ours"
    assert f"(6 tries, no attempt spent): {held}. Nothing is" in status_text(waiting(Cause.NO_CAPACITY, held), NOW)
    code = "ZONE_RESOURCE_POOL_EXHAUSTED: zone us-east1-c has no g2-standard-8 now"
    assert status_text(waiting(Cause.NO_CAPACITY, code), NOW) == status_text(waiting(Cause.NO_CAPACITY), NOW)


def test_waiting_for_one_zone_names_it():
    run = waiting(Cause.NO_CAPACITY)
    run = replace(run, policy=replace(run.policy, zones=("us-east1-c",)))
    assert "Next try us-east1-c in 3 min 20 s; gives up at 14:00 UTC." in status_text(run, NOW)
    assert next_action(run, NOW) == type(next_action(run, NOW))("us-east1-c in 3 min 20 s", NOW + 200)


def test_waiting_for_quota_has_its_own_text():
    run = waiting(Cause.QUOTA, "Quota PREEMPTIBLE_NVIDIA_L4_GPUS in us-east1 is 0 of 0.", next_at=NOW + 10 * MIN)
    assert status_text(run, NOW) == (
        "Quota PREEMPTIBLE_NVIDIA_L4_GPUS in us-east1 is 0 of 0. Waiting will not help by itself: raise the quota or "
        "allow another region. Nothing is billed. Next check in 10 min; gives up at 14:00 UTC."
    )


def test_waiting_after_a_refused_request_quotes_the_platform():
    text = status_text(waiting(Cause.LAUNCH_REJECTED, "Required 'compute.instances.create' permission"), NOW)
    assert text.startswith("The request for a machine was refused: Required 'compute.instances.create' permission.")


def test_waiting_beside_an_old_machine_does_not_claim_that_nothing_is_billed():
    old = Retiring(MachineRef("gce", "us-east1-c", "m"), "1.3.1", NOW, NOW)
    text = status_text(waiting(Cause.NO_CAPACITY, retiring=(old,)), NOW)
    assert "1 old machine still to be released" in text
    assert "Nothing is billed" not in text


def test_launching_while_the_create_call_is_open():
    run = run_in(Status.LAUNCHING, try_=open_try(number=2))
    assert status_text(run, NOW) == (
        "Attempt 3 (try 2): requesting a g2-standard-8 in us-east1-c for 4 s. "
        "Next: its first heartbeat, within 25 min of its start."
    )
    assert next_action(run, NOW).what == "machine in us-east1-c"


def test_the_digest_of_a_pulled_image_leaves_room_for_the_time():
    boots = pulse("image", phase_since=NOW - 50, message=f"pulling r/i@sha256:{'ab' * 32}", launch_id="1.1.1")
    run = run_in(Status.LAUNCHING, try_=open_try(), attempt=attempt(number=1, up_at=NOW), pulse=boots)
    assert ": pulling r/i@sha256:abababababab for 50 s. " in status_text(run, NOW)


def test_launching_while_the_machine_boots_shows_the_message_of_the_agent():
    live = attempt(number=4, zone="us-east1-c", up_at=NOW - 19 * MIN)
    boots = pulse("image", phase_since=NOW - 50, message="driver installed, pulling image (4.1 GB)", launch_id="1.4.1")
    run = run_in(Status.LAUNCHING, try_=open_try(attempt_number=4), attempt=live, pulse=boots)
    assert status_text(run, NOW) == (
        "Attempt 4 boots in us-east1-c: driver installed, pulling image (4.1 GB) for 50 s. "
        "First heartbeat of the training expected within 6 min."
    )
    assert next_action(run, NOW).at == NOW + 6 * MIN


def running(**fields: object) -> Run:
    newest = pulse(step=12300, total=50000, steps_per_s=3.1, first_progress_at=NOW - 500, progress_at=NOW - 8)
    live = attempt(step_from=11900, training_at=NOW - 600, running_at=NOW - 650)
    return run_in(Status.RUNNING, **{"attempt": live, "pulse": newest, "reported": True, **fields})


def test_running_shows_step_pace_and_eta():
    assert status_text(running(), NOW) == (
        "Training at step 12,300 of 50,000 (24 %), 3.1 steps/s, ETA 3 h 22 min. Last beat 8 s ago. "
        "Attempt 4, us-east1-d, resumed from step 11,900."
    )
    assert next_action(running(), NOW).what == "ETA 3 h 22 min"


@pytest.mark.parametrize(
    ("trained_s", "fields", "words"),
    [(61, {}, "No checkpoint yet: 78 steps at risk."), (59, {}, ""), (61, {"checkpoint_step": 50}, "")],
)
def test_running_says_from_the_first_minute_on_that_nothing_is_saved(
    trained_s: float, fields: dict[str, object], words: str
) -> None:
    live = attempt(1, training_at=NOW - trained_s, running_at=NOW - 90)
    run = running(attempt=live, pulse=pulse(step=78, **fields))
    run = replace(run, pulse=replace(run.pulse, launch_id=live.launch_id))
    assert ("at risk" in status_text(run, NOW)) is bool(words)
    assert words in status_text(run, NOW)


def test_a_noticed_preemption_has_lost_nothing_while_it_saves():
    end = ended(Cause.PREEMPTED, 20 * MIN, step_last=42, step_kept=None)
    item = Retiring(MachineRef("gce", "us-east1-c", "m"), end.launch_id, NOW - 5, NOW + 145)
    run = recovering(end, files=Files(), retiring=(item,))
    assert "no checkpoint yet; saving, at most 42 steps at risk." in status_text(run, NOW)
    assert "no checkpoint yet, 42 steps lost." in status_text(run, NOW + 200), "the notice is over"


def test_running_takes_the_newer_age_of_the_beat():
    assert "Last beat 2 s ago." in status_text(running(), NOW, live_age_s=2.4)


def test_running_without_a_total_has_no_eta():
    run = running(pulse=pulse(step=7, steps_per_s=2.0))
    assert status_text(run, NOW).startswith("Training at step 7, 2.0 steps/s. Last beat")
    assert next_action(run, NOW).what == "no ETA"


def test_running_without_steps_says_how_it_is_watched():
    live = attempt(training_at=NOW - 42 * MIN)
    run = running(attempt=live, pulse=pulse(beat_at=NOW - 6), reported=False)
    assert status_text(run, NOW) == (
        "Training for 42 min; this command reports no progress, so it is watched by its beats and its motion. "
        "Last beat 6 s ago. See docs/training-contract.md to report steps in two lines."
    )


def test_a_training_that_has_just_begun_is_not_yet_sent_to_read_the_contract():
    live = attempt(training_at=NOW - 3)
    text = status_text(running(attempt=live, pulse=pulse(beat_at=NOW), reported=False), NOW)
    assert text == (
        "Training for 3 s; no step reported yet, watched by its beats and its motion. Last beat 0 s ago. "
        "Attempt 4, us-east1-d, from the beginning."
    )


def test_the_first_step_of_an_attempt_is_not_shown_before_it_is_known():
    run = running(
        attempt=attempt(step_from=None), pulse=pulse("restore", phase_since=NOW), files=Files(checkpoint_step=700)
    )
    assert status_text(run, NOW).endswith("Attempt 4, us-east1-d.")


def test_running_with_stall_polls_says_when_it_restarts():
    newest = pulse(
        step=12300, first_progress_at=NOW - 900, progress_at=NOW - 120, stall_polls=4, stall_counted_at=NOW,
        telemetry=encode(Telemetry(gpus=Gpus(util_pct=(0.0, None, 0.4)))),
    )  # fmt: skip
    run = running(pulse=newest)
    assert status_text(run, NOW) == (
        "No progress since step 12,300 for 2 min (stall poll 4 of 10). Heartbeats continue, GPU 0 %. "
        "Next: restart at poll 10 (in 3 min)."
    )
    assert next_action(run, NOW).what == "restart at poll 10"


def test_running_that_hangs_says_where_it_waits():
    hang = signs.Signs(hang=signs.Hang("network", 75.0, 12300))
    run = running(pulse=pulse(step=12300, progress_at=NOW - 75, signs=signs.encode(hang)))
    assert status_text(run, NOW) == (
        "The command hangs at step 12,300: nothing of it has moved for 1 min 15 s, and it waits for the network. "
        "Next: restart, if the next look finds the same."
    )
    assert next_action(run, NOW).what == "hangs: restart on the next look"


@pytest.mark.parametrize(
    ("slow", "text"),
    [
        (("throttled", (64.0, 0.61, 88.0)), "the GPU is throttled, at 61 % of its usual pace and 88 °C (`on_slow`)"),
        (("throttled", (64.0, 0.61, None)), "the GPU is throttled, at 61 % of its usual pace (`on_slow`)"),
        (("underfed", (99.0, 0.4, None)), "the GPU is busy (99 %) without much work (`num_workers`)"),
        (("mount", (55.0, 31.0), "nfs4"), "the data is on nfs4: IO waits 55 % of the time, GPU 31 % (`stage`)"),
        (("loader", (97.2, 41.0)), "the GPU (41 %) waits for loader workers at 97 % CPU (`num_workers`)"),
        (("small_files", (2100.0, 4096.0, None)), "many small reads: 2,100 a second of 4,096 bytes (tar shards)"),
        (("small_files", (5.0, 1e6, 230.0)), "many small files: 230 new ones a second (tar shards)"),
        (
            ("threads", (64.0, 8.0, 0.3, 4.0)),
            "64 threads share 8 cores, held back 30 % of the time (`OMP_NUM_THREADS`)",
        ),
        (("shared", (3.0 * 2**30, 0.7)), "others use 3.0 GiB of the card; the run is at 70 % of its usual pace"),
        (("download", (200.0,)), "a download stands still for 3 min 20 s"),
    ],
)
def test_running_that_is_slow_says_why_with_its_figures(slow, text):
    told = signs.encode(signs.Signs(slow=(signs.Slow(*slow),)))
    run = running(pulse=pulse(signs=told))
    assert f" Slow: {text}. " in status_text(run, NOW)
    more = signs.encode(signs.Signs(slow=(signs.Slow(*slow), signs.Slow("download", (130.0,)))))
    assert f" Slow: {text}; 1 more in `spot why`. " in status_text(running(pulse=pulse(signs=more)), NOW)
    saving = running(pulse=pulse(signs=told, phase="evaluation"))
    assert "Slow" not in status_text(saving, NOW)


def test_running_without_progress_that_moves_is_not_said_to_restart_at_a_poll():
    late = signs.encode(signs.Signs(moves=("gpu", "cpu")))
    newest = pulse(step=12300, first_progress_at=NOW - 900, progress_at=NOW - 720, stall_polls=12, signs=late)
    run = running(pulse=newest)
    assert status_text(run, NOW) == (
        "No progress since step 12,300 for 12 min (stall poll 12 of 10). "
        "It still moves (GPU, CPU), so it is not restarted before 1 h without a step."
    )
    assert next_action(run, NOW).what == "late, but it moves"


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("restore", "Restoring step 11,900 for 1 min 40 s (limit 30 min)."),
        ("checkpoint", "Saving a checkpoint at step 12,300 for 1 min 40 s (limit 15 min)."),
        ("evaluation", "Evaluating at step 12,300 for 1 min 40 s (limit 1 h)."),
        ("finishing", "The command has ended; its results are being saved for 1 min 40 s."),
    ],
)
def test_running_in_a_phase_where_silence_is_legal_names_the_phase_and_its_limit(phase: str, words: str):
    run = running(pulse=pulse(phase, step=12300, stall_polls=5), files=Files(checkpoint_step=11900))
    assert status_text(run, NOW).startswith(words)


def test_running_silent_beyond_its_limit_says_what_it_would_take_to_replace_it():
    assert "Last beat 5 min ago, limit 3 min: replaced only when a second source agrees" in status_text(
        running(), NOW, live_age_s=300
    )


def recovering(end: Attempt, **fields: object) -> Run:
    run = run_in(
        Status.RECOVERING, attempt=end, cause=end.cause, detail=end.evidence, next_at=NOW + 4,
        files=Files(checkpoint_step=12290), policy=Policy(zones=("us-east1-b", "us-east1-c")), avoid_zone="us-east1-c",
    )  # fmt: skip
    return replace(run, **fields)


def test_recovering_after_a_preemption():
    end = ended(Cause.PREEMPTED, 2 * H + 14 * MIN, step_last=12300, step_kept=12290)
    run = recovering(end)
    assert status_text(run, NOW) == (
        "Preempted in us-east1-c after 2 h 14 min; checkpoint 12,290 is saved, 10 steps lost. "
        "Does not count as a failure. Next: us-east1-b in 4 s, resume from step 12,290."
    )
    assert next_action(run, NOW).what == "launch in 4 s"


def test_recovering_after_a_preemption_shows_how_early_the_notice_came():
    end = ended(Cause.PREEMPTED, 2 * H + 14 * MIN, evidence="the machine received its preemption notice 27 s ahead")
    assert status_text(recovering(end), NOW).startswith(
        "Preempted in us-east1-c after 2 h 14 min: the machine received its preemption notice 27 s ahead; "
        "checkpoint 12,290 is saved."
    )


def test_recovering_after_a_death_without_a_record():
    end = ended(Cause.ORPHANED, 20 * MIN, step_last=12290)
    run = recovering(end, files=Files(checkpoint_step=12000), counters=Counters(counted=1))
    assert status_text(run, NOW) == (
        "The machine in us-east1-c disappeared after 20 min without a record of why, and its beats stopped; "
        "checkpoint 12,000 is saved, 290 steps lost. Failure 1 of 10. "
        "Next: us-east1-b in 4 s, resume from step 12,000."
    )


def test_recovering_after_a_silent_agent_gives_the_evidence():
    end = ended(Cause.AGENT_LOST, 20 * MIN, evidence="silent for 180 s while the store and the other runs are fresh")
    assert (
        "is up, but its agent stopped responding after 20 min: silent for 180 s while the store and the other "
        "runs are fresh; checkpoint 12,290 is saved."
    ) in status_text(recovering(end), NOW)


def test_recovering_after_a_stall_may_use_any_zone():
    end = ended(Cause.STALLED, 62 * MIN, "us-east1-d", evidence="10 polls without progress at step 12300")
    text = status_text(recovering(end, avoid_zone="", counters=Counters(counted=2)), NOW)
    assert text.startswith("Stalled in us-east1-d after 1 h 02 min: 10 polls without progress at step 12300;")
    assert text.endswith("Failure 2 of 10. Next: a new machine in 4 s, resume from step 12,290.")


def test_recovering_with_several_other_zones_names_the_one_to_avoid():
    run = recovering(ended(Cause.PREEMPTED, 60), policy=Policy(zones=ZONES))
    assert "Next: a zone other than us-east1-c in 4 s" in status_text(run, NOW)


def test_recovering_after_the_commands_own_failure_counts_that():
    end = ended(Cause.USER_ERROR, 60, step_from=10, step_kept=20)
    text = status_text(recovering(end, counters=Counters(user_failures=1, counted=4)), NOW)
    assert "Failure 1 of 3 of the command itself." in text
