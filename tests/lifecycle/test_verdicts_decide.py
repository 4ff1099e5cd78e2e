"""What a verdict changes: the record of a machine that went away, old errors, known errors, and what happens once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from supervisor.contract import heartbeat
from supervisor.contract.beat_telemetry import Cgroup, Gpus, Telemetry, encode
from supervisor.contract.heartbeat import FINISHED, Beat, Exit
from supervisor.contract.signs import Signs
from supervisor.contract.signs import encode as encode_signs
from supervisor.domain.attempt import Pulse
from supervisor.domain.causes import KNOWN_ERROR, Cause, Kind, rule_for
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Verdict, Where
from supervisor.domain.events import EventKind, announced
from supervisor.domain.machines import MachineRecord, MachineState, Offer
from supervisor.domain.observation import NOT_READ, Observation, Part, Seen, World
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Files, Run
from supervisor.domain.status import Status
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.lifecycle.ending.exits import end_in, stall_of
from supervisor.lifecycle.ending.retrying import conditions, larger_shapes
from supervisor.lifecycle.offers.choosing import NoOffer, choose
from supervisor.wording.attempt import counts_text
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, beat_of, machine_of, place, pulse, run_in

AGENT_AT = NOW - 40_000
LIVE = attempt(agent_at=AGENT_AT, running_at=AGENT_AT, training_at=AGENT_AT)
FREED_TEXT = "The disk was full: the agent removed 3 files of `scratch` (5.0 kB)."
KEY_ERROR = Exit(1, None, False, 36_000.0, "KeyError: 'x'", oom_kills=0)


def last_beat(end: Exit | None, **fields: object) -> Beat:
    return beat_of(LIVE, 12, FINISHED, exit=end, up_s=39_990.0)._replace(**fields)  # type: ignore[arg-type]


def running(**fields: object) -> Run:
    return run_in(Status.RUNNING, attempt=LIVE, pulse=pulse(step=900, up_s=39_980.0), **fields)


def record(cause: Cause, at: float | None, state: MachineState = MachineState.ENDED) -> Observation:
    return Observation(machine=Seen(machine_of(LIVE, state=state, record=MachineRecord(cause, "its end", at))))


def cause_of(beat: Beat, obs: Observation | None = None, before: Pulse | None = None) -> Cause:
    end = end_in(running(), beat, obs or Observation(), WORLD, before)
    assert end is not None
    return end.cause


# --- the record of the machine ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [Cause.PREEMPTED, Cause.HOST_ERROR, Cause.MACHINE_DELETED, Cause.TIME_LIMIT])
def test_the_record_of_a_machine_that_went_away_wins_over_the_exit_it_caused(cause: Cause) -> None:
    broken = Exit(1, None, False, 900.0, "ConnectionResetError: [Errno 104] Connection reset by peer", oom_kills=0)
    assert cause_of(last_beat(broken), record(cause, NOW - 5)) == cause
    assert cause_of(last_beat(broken), record(cause, None)) == cause
    assert cause_of(last_beat(broken)) == Cause.USER_ERROR


def test_a_command_that_ended_clearly_before_keeps_its_own_cause() -> None:
    ended_at = AGENT_AT + 39_990.0
    assert cause_of(last_beat(KEY_ERROR), record(Cause.PREEMPTED, ended_at + 61)) == Cause.USER_ERROR
    assert cause_of(last_beat(KEY_ERROR), record(Cause.PREEMPTED, ended_at + 59)) == Cause.PREEMPTED


def test_a_machine_that_is_only_in_doubt_does_not_excuse_an_error() -> None:
    doubt = record(Cause.HOST_ERROR, NOW, MachineState.UP)
    assert cause_of(last_beat(KEY_ERROR), doubt) == Cause.USER_ERROR
    assert cause_of(last_beat(Exit(None, 9, False, 40.0)), doubt) == Cause.HOST_ERROR


# --- exits ------------------------------------------------------------------------------------------------------------


def test_127_after_hours_of_work_is_an_exit_of_the_command() -> None:
    late = Exit(127, None, False, 10_800.0, "bash: evaluate.sh: not found")
    assert cause_of(last_beat(late, step=900)) == Cause.USER_ERROR
    soon = late._replace(ran_s=0.4)
    assert cause_of(last_beat(soon)._replace(step=None)) == Cause.COMMAND_NOT_FOUND


def test_an_error_of_a_card_long_ago_did_not_end_the_command() -> None:
    """Xid 94 in hour 1, steps for nine hours, then a KeyError: telemetry alone repeats the last Xid for ever."""
    telemetry = encode(Telemetry(gpus=Gpus(last_xid=(95.0,))))
    signs = encode_signs(Signs(xids=((0, 95, 3600.0),), error="KeyError: 'x'"))
    before = replace(pulse(step=900), up_s=39_980.0, progress_at=NOW - 30, telemetry=telemetry)
    assert cause_of(last_beat(KEY_ERROR, step=901, telemetry=telemetry, signs=signs), None, before) == Cause.USER_ERROR
    soon = encode_signs(Signs(xids=((0, 95, 39_970.0),), error="KeyError: 'x'"))
    assert cause_of(last_beat(KEY_ERROR, step=901, telemetry=telemetry, signs=soon), None, before) == Cause.GPU_FAULT
    assert cause_of(last_beat(KEY_ERROR, step=901, telemetry=telemetry), None, before) == Cause.GPU_FAULT, "no time"


def test_a_caught_error_of_memory_is_not_the_cause_of_a_later_one() -> None:
    line = "torch.OutOfMemoryError: CUDA out of memory"
    end = Exit(1, None, False, 900.0, line, oom_kills=0)
    assert cause_of(last_beat(end)) == Cause.GPU_OOM
    assert cause_of(last_beat(end, signs=encode_signs(Signs(error="KeyError: 'x'")))) == Cause.USER_ERROR


def test_a_stall_on_a_card_with_an_old_error_is_a_stall() -> None:
    beat = beat_of(LIVE, 13, step=900, up_s=39_990.0)
    old = encode_signs(Signs(xids=((0, 79, 100.0),)))
    run = replace(running(), pulse=pulse(step=900, up_s=39_990.0, progress_at=NOW - 900))
    assert stall_of(run, beat._replace(signs=old), Observation(), "no step for 900 s").cause == Cause.STALLED
    new = encode_signs(Signs(xids=((0, 79, 39_200.0),)))
    assert stall_of(run, beat._replace(signs=new), Observation(), "no step for 900 s").cause == Cause.GPU_FAULT


@pytest.mark.parametrize(
    "words", ["docker: Error response from daemon: unknown or invalid runtime name: nvidia.", "unknown flag: --gpuz"]
)
def test_a_runtime_that_refuses_our_own_arguments_makes_no_tour_of_the_zones(words: str) -> None:
    for word in (heartbeat.NO_START, heartbeat.NO_GPU):
        end = end_in(running(), last_beat(None, left=word, message=f"docker: {words}"), Observation(), WORLD)
        assert end is not None
        assert end.cause == Cause.LAUNCH_REJECTED
        assert end_attempt(running(), end, WORLD, NOW).run.status == Status.FAILED
    plain = last_beat(None, left=heartbeat.NO_GPU, message="0 of 1 GPUs can be opened")
    assert cause_of(plain) == Cause.GPU_UNAVAILABLE


# --- what follows -----------------------------------------------------------------------------------------------------


def after(run: Run, beat: Beat, world: World = WORLD) -> Run:
    end = end_in(run, beat, Observation(), world)
    assert end is not None
    return end_attempt(run, end, world, NOW).run


def again(run: Run) -> Run:
    """Its next attempt runs."""
    return replace(run, status=Status.RUNNING, attempt=LIVE, pulse=pulse(step=900, up_s=39_980.0))


def test_an_end_that_no_beat_reports_has_a_verdict_too() -> None:
    for cause, rule in ((Cause.PREEMPTED, "RECORD.preempted"), (Cause.AGENT_LOST, "OWN.agent_lost")):
        run = end_attempt(running(), End(cause, "its words"), WORLD, NOW).run
        assert run.attempt is not None
        verdict = run.attempt.verdict
        assert verdict is not None
        assert (verdict.rule, verdict.sentence) == (rule, "its words")


def test_the_verdict_is_kept_with_the_attempt() -> None:
    run = after(running(), last_beat(Exit(None, 9, False, 40.0, oom_kills=0)))
    assert run.attempt is not None
    verdict = run.attempt.verdict
    assert verdict is not None
    assert (verdict.rule, verdict.cause, verdict.retry) == ("U3.killed", Cause.KILLED, Retry.FREE_SAME)


def test_a_certain_kill_is_free_once_for_each_newest_checkpoint() -> None:
    killed = last_beat(Exit(None, 9, False, 40.0, oom_kills=0))
    run = after(running(), killed)
    assert (run.status, run.counters.counted) == (Status.RECOVERING, 0)
    assert counts_text(run) == "Does not count as a failure"
    second = after(again(run), killed)
    assert (second.asks, second.counters.counted) == (True, 0)
    newer = replace(again(run), pulse=pulse(step=950, checkpoint_step=940))
    assert (after(newer, killed).status, after(newer, killed).counters.counted) == (Status.RECOVERING, 0)
    unread = after(running(), last_beat(Exit(None, 9, False, 40.0)))
    assert unread.counters.counted == 1, "it may have been the kernel"


def test_free_reboots_without_progress_end_the_run() -> None:
    run, reboot = running(), End(Cause.HOST_REBOOTED, "its computer was rebooted")
    preempted = End(Cause.PREEMPTED, "taken")
    for end in (reboot, preempted, reboot):
        run = again(end_attempt(run, end, WORLD, NOW).run)
    over = end_attempt(run, reboot, WORLD, NOW).run
    assert (over.status, over.cause) == (Status.FAILED, Cause.NO_PROGRESS)
    newer = replace(run, pulse=pulse(step=950, checkpoint_step=940))
    assert end_attempt(newer, reboot, WORLD, NOW).run.status == Status.RECOVERING


SMALL = place("a")
OOM = last_beat(Exit(None, 9, False, 40.0, oom_kills=1))


def with_shapes(*offers: tuple[str, float | None]) -> tuple[Run, World]:
    made = tuple(Offer(replace(SMALL, shape=shape), 0.1, price) for shape, price in offers)
    policy = Policy(zones=("a",), shapes=tuple(shape for shape, _ in offers))
    return running(policy=policy), World(Knobs("s"), offers={"gce": made})


def test_the_same_memory_is_never_tried_again() -> None:
    assert after(running(), OOM).status == Status.FAILED
    for price in (0.1, None):
        run, world = with_shapes(("g2-standard-8", 0.2), ("small", price))
        assert not larger_shapes(run, world, NOW)
        assert after(run, OOM, world).status == Status.FAILED


def test_a_larger_shape_of_its_own_is_tried_once() -> None:
    run, world = with_shapes(("g2-standard-8", 0.2), ("small", 0.1), ("large", 0.4))
    next_run = after(run, OOM, world)
    assert (next_run.status, next_run.counters.counted) == (Status.RECOVERING, 1)
    assert counts_text(next_run) == "Failure 1 of 10"
    offer = choose(next_run, world, NOW)
    assert isinstance(offer, Offer)
    assert offer.placement.shape == "large"
    assert after(again(next_run), OOM, world).status == Status.FAILED


def test_a_preemption_hours_later_does_not_lead_back_to_the_shape_that_was_too_small() -> None:
    run, world = with_shapes(("g2-standard-8", 0.2), ("small", 0.1), ("large", 0.4))
    later = NOW + 9000
    on_large = again(after(run, OOM, world))
    preempted = end_attempt(on_large, End(Cause.PREEMPTED, "taken"), world, later).run
    offer = choose(preempted, world, later)
    assert isinstance(offer, Offer)
    assert offer.placement.shape == "large"
    no_large = replace(world, offers={"gce": [each for each in world.offers["gce"] if each.placement.shape != "large"]})
    waits = choose(preempted, no_large, later)
    assert isinstance(waits, NoOffer)
    assert waits.cause == Cause.HOST_OOM
    assert waits.until is not None
    assert waits.until > later


def test_a_kill_of_the_kernel_hours_ago_explains_no_error_of_a_command_whose_agent_sends_no_signs() -> None:
    """Broken variant: the run of an older agent failed as host_oom, and was not repeated from its newer checkpoint."""
    saved = replace(running(), pulse=pulse(step=950, checkpoint_step=940))
    run = after(saved, last_beat(KEY_ERROR._replace(oom_kills=1)))
    assert (run.status, run.cause) == (Status.RECOVERING, Cause.USER_ERROR)
    worker = "RuntimeError: DataLoader worker (pid 5) is killed by signal: Killed."
    assert after(saved, last_beat(KEY_ERROR._replace(oom_kills=1, last_line=worker))).cause == Cause.HOST_OOM


def test_a_provider_that_gives_more_memory_repeats() -> None:
    world = replace(WORLD, memory_grows=frozenset({"gce"}))
    run = after(running(), OOM, world)
    assert (run.status, counts_text(run)) == (Status.RECOVERING, "Failure 1 of 10")


GROWS = replace(WORLD, memory_grows=frozenset({"gce"}), warnings_s={"gce": 120.0})
READ = encode(Telemetry(cgroup=Cgroup(memory_bytes=59.5 * 2**30)))


@pytest.mark.parametrize(
    ("measured", "telemetry", "used", "words"),
    [
        (62 * 2.0**30, READ, 62 * 2.0**30, "the 62 GiB that the platform measured"),
        (None, READ, 59.5 * 2**30, "the 59.5 GiB that its agent read last"),
        (None, "", None, "the settings gave this one; nobody has measured what it used"),
    ],
)
def test_more_memory_says_by_which_figure(
    measured: float | None, telemetry: str, used: float | None, words: str
) -> None:
    run = replace(running(), pulse=pulse(step=900, up_s=39_980.0, telemetry=telemetry))
    decision = end_attempt(run, End(Cause.HOST_OOM, "OUT_OF_MEMORY", memory_bytes=measured), GROWS, NOW)
    [event] = [each for each in decision.events if each.kind == EventKind.REPAIRED]
    assert event.text == f"The next machine gets at least a fifth more memory than {words}."
    assert decision.run.counters.memory_bytes == used
    later = end_attempt(again(decision.run), End(Cause.PREEMPTED, "taken"), GROWS, NOW + 9)
    assert later.run.counters.memory_bytes == used, "the next machine needs it too"
    assert not [each for each in later.events if each.kind == EventKind.REPAIRED]


@pytest.mark.parametrize(
    ("cause", "known_s", "save_s", "why"),
    [
        (Cause.TIME_LIMIT, None, 20.0, "the time limit cut this one off"),
        (Cause.PREEMPTED, None, 95.0, "a checkpoint takes 1 min 35 s"),
        (Cause.PREEMPTED, 60.0, 95.0, "a checkpoint takes 1 min 35 s"),
        (Cause.PREEMPTED, None, 28.0, ""),  # 119 s: the usual 120 s are enough
        (Cause.PREEMPTED, 95.0, 95.0, ""),  # this one was warned so early already
        (Cause.PREEMPTED, None, None, ""),
        (Cause.PREEMPTED, 4000.0, 9000.0, ""),  # a save of more than an hour makes no warning longer
    ],
)
def test_a_machine_that_needs_more_time_to_save_is_warned_earlier(
    cause: Cause, known_s: float | None, save_s: float | None, why: str
) -> None:
    """Broken variant: each end said so again, or only the time limit did."""
    run = replace(running(files=Files(checkpoint_s=known_s)), pulse=pulse(step=900, up_s=39_980.0, save_s=save_s))
    texts = [each.text for each in end_attempt(run, End(cause, "over"), GROWS, NOW).events if "warned" in each.text]
    assert texts == ([f"The next machine is warned earlier before its end, because {why}."] if why else [])
    elsewhere = end_attempt(run, End(cause, "over"), WORLD, NOW).events
    assert not any("warned" in each.text for each in elsewhere), "whose warnings do not change"


def test_code_that_did_not_arrive_is_delivered_again_once() -> None:
    beat = last_beat(None, left=heartbeat.NO_CODE, message="the code bundle has another hash")
    run = after(running(), beat)
    assert (run.status, run.cause, run.counters.counted) == (Status.RECOVERING, Cause.LAUNCH_REJECTED, 1)
    assert counts_text(run) == "Failure 1 of 10"
    assert after(again(run), beat).status == Status.FAILED


def test_an_error_that_a_repeat_meets_again_is_not_repeated_for_money() -> None:
    saved = replace(running(), pulse=pulse(step=950, checkpoint_step=940))
    missing = Exit(1, None, False, 900.0, "ModuleNotFoundError: No module named 'timm'")
    assert after(saved, last_beat(missing)).status == Status.FAILED
    assert after(saved, last_beat(KEY_ERROR)).status == Status.RECOVERING
    assert after(saved, last_beat(missing._replace(retry_named=True))).status == Status.RECOVERING


FULL = Exit(1, None, False, 900.0, "OSError: [Errno 28] No space left on device", oom_kills=0)


def full(files: int, freed_bytes: int, disk_full: str = "") -> Beat:
    """The last beat after a full disk and its repair."""
    return last_beat(FULL._replace(disk_full=disk_full), signs=encode_signs(Signs(repaired=(files, freed_bytes))))


def test_a_full_disk_that_has_space_again_is_repeated_once_at_a_step() -> None:
    run = after(running(), full(3, 5000))
    assert (run.status, run.cause, run.counters.counted) == (Status.RECOVERING, Cause.DISK_FULL, 1)
    assert after(again(run), full(3, 5000)).asks
    newer = replace(again(run), files=replace(run.files, checkpoint_step=940))
    assert after(newer, full(3, 5000)).status == Status.RECOVERING, "at another step"
    assert after(replace(running(), last_failure=run.last_failure), full(3, 5000)).status == Status.RECOVERING
    assert run.attempt is not None
    assert run.attempt.verdict is not None
    [remedy] = [remedy for remedy in run.attempt.verdict.remedies if remedy.word == "prune_scratch"]
    assert (remedy.text, remedy.ours) == ("the agent removed 3 files of `scratch` (5.0 kB)", True)


def test_a_full_disk_of_which_nothing_was_freed_asks() -> None:
    assert after(running(), last_beat(FULL)).asks
    assert after(running(), full(0, 0)).asks
    assert after(running(), full(7, 0)).asks, "empty files"
    by_inodes = "scratch: 0 of 500 inodes are free, and 64 MiB"
    assert after(running(), full(7, 0, by_inodes)).status == Status.RECOVERING
    other = last_beat(KEY_ERROR, signs=encode_signs(Signs(repaired=(3, 5000), error="KeyError: 'x'")))
    assert after(running(), other).status == Status.FAILED, "the end of something else is no full disk"


def test_a_repair_is_an_event_that_is_announced_nowhere() -> None:
    end = end_in(running(), full(3, 5000), Observation(), WORLD)
    assert end is not None
    first, *others = end_attempt(running(), end, WORLD, NOW).events
    assert (first.kind, first.text) == (EventKind.REPAIRED, FREED_TEXT)
    assert (first.data["files"], first.data["bytes"], announced(first)) == (3, 5000, None)
    assert [event.kind for event in others if event.kind == EventKind.REPAIRED] == []
    nothing = replace(end, repaired=(0, 0))
    assert EventKind.REPAIRED not in {event.kind for event in end_attempt(running(), nothing, WORLD, NOW).events}


# --- what is not known adds nothing -----------------------------------------------------------------------------------

GUESS = Verdict("X", Certainty.HINT, None, Where.UNKNOWN, None, Retry.FREE_SAME, "")


@pytest.mark.parametrize("cause", Cause)
def test_without_a_verdict_no_end_is_milder_or_repeated_more(cause: Cause) -> None:
    run = running()
    plain = rule_for(cause, False, False, conditions(run, None, None, WORLD, NOW))
    for verdict in (GUESS, replace(GUESS, cause=cause)):
        assert rule_for(cause, False, False, conditions(run, verdict, None, WORLD, NOW)) == plain
    likely = replace(GUESS, cause=cause, certainty=Certainty.LIKELY, retry=Retry.NEVER)
    likely_rule = rule_for(cause, False, False, conditions(run, likely, None, WORLD, NOW))
    asks = (cause, likely_rule.kind) == (Cause.DISK_FULL, Kind.ASK)
    same = (likely_rule.kind, likely_rule.counts, likely_rule.then) == (plain.kind, plain.counts, plain.then)
    assert same or asks
    assert plain.kind == Kind.FINAL or not plain.only_if
    end = End(cause, "it ended")
    if plain.kind != Kind.PACED:
        after_end = end_attempt(run, end, WORLD, NOW).run
        assert after_end.status in (Status.FAILED, Status.RECOVERING) or (cause == Cause.DISK_FULL and after_end.asks)


def test_known_errors_only_end_what_the_user_did_not_name() -> None:
    assert rule_for(Cause.USER_ERROR, True, False, {KNOWN_ERROR}).kind == Kind.FINAL
    known = replace(GUESS, cause=Cause.USER_ERROR, retry=Retry.NEVER, goes_on=False)
    for certainty in Certainty:
        holds = conditions(running(), replace(known, certainty=certainty), None, WORLD, NOW)
        assert (KNOWN_ERROR in holds) == (certainty != Certainty.HINT)
    for passing in ({"retry": Retry.ONCE_IDENTICAL}, {"goes_on": None}):
        verdict = replace(known, certainty=Certainty.LIKELY, **passing)
        assert KNOWN_ERROR not in conditions(running(), verdict, None, WORLD, NOW)
    assert rule_for(Cause.USER_ERROR, True, True, ()).kind == Kind.USER


def without_age(beat: Beat, part: Part[object]) -> Beat:
    """Broken: as if no time of an Xid were known."""
    del part
    return beat._replace(signs="")


@pytest.mark.parametrize("broken", [without_age])
def test_broken_variants_are_found(broken: Callable[[Beat, Part[object]], Beat]) -> None:
    telemetry = encode(Telemetry(gpus=Gpus(last_xid=(95.0,))))
    signs = encode_signs(Signs(xids=((0, 95, 3600.0),), error="KeyError: 'x'"))
    before = replace(pulse(step=900), up_s=39_980.0, telemetry=telemetry)
    beat = last_beat(KEY_ERROR, step=901, telemetry=telemetry, signs=signs)
    assert cause_of(beat, None, before) != cause_of(broken(beat, NOT_READ), None, before)
