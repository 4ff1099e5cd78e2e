"""A hang in the beat: two looks end the attempt, motion keeps it, and no tick misses it by the short way."""

from dataclasses import replace

import pytest

from supervisor.contract import signs
from supervisor.contract.heartbeat import Beat
from supervisor.contract.signs import Hang, Signs
from supervisor.domain.attempt import Pulse
from supervisor.domain.observation import Seen
from supervisor.domain.policies import Policy, StallLimits
from supervisor.domain.status import Status
from supervisor.lifecycle.living.beats import follow, hanging
from supervisor.lifecycle.phases.short_way import trains_on
from supervisor.reconciler.acting.launches import Paces, launch_request
from supervisor.wording.stalls import HANG_LOOKS, hang_in, hang_text, is_spared, late_clauses, moves_text
from tests.lifecycle.sample_runs import open_try, run_in
from tests.lifecycle.training_on import LAUNCH, MOMENTS, situations_by_chance
from tests.lifecycle.worlds import NOW

POLL_S = 30.0
AT_9 = signs.encode(Signs(hang=Hang("lock", 75.0, 9)))


def beat(sequence: int, text: str = AT_9, step: int | None = 9, phase: str = "training") -> Seen[Beat]:
    made = Beat("digits", 2, LAUNCH, "id-2", "b", sequence, phase, step=step, signs=text)
    return Seen(made, 0.0, "push")


def followed(*beats: tuple[float, Seen[Beat]]) -> Pulse:
    pulse: Pulse | None = None
    for at, seen in beats:
        pulse = follow(pulse, seen, at, POLL_S)
    assert pulse is not None
    return pulse


@pytest.mark.parametrize(
    ("beats", "looks"),
    [
        ([(0.0, beat(1))], 1),
        ([(0.0, beat(1)), (10.0, beat(2))], 1),  # not a poll later
        ([(0.0, beat(1)), (30.0, beat(2))], 2),
        ([(0.0, beat(1)), (30.0, beat(1))], 1),  # the same beat
        ([(0.0, beat(1)), (30.0, beat(2, ""))], 0),
        ([(0.0, beat(1)), (30.0, beat(2, step=10))], 0),  # an old hang in a beat that has gone on
        ([(0.0, beat(1)), (30.0, beat(2, step=None))], 0),
        ([(0.0, beat(1)), (30.0, beat(2, phase="evaluation"))], 0),
        ([(0.0, beat(1)), (30.0, beat(2, "")), (60.0, beat(3))], 1),
        ([(0.0, beat(1)), (30.0, beat(2)), (60.0, beat(3)), (90.0, beat(4))], HANG_LOOKS),
        ([(0.0, beat(1, "{")), (30.0, beat(2, "[]"))], 0),
    ],
)
def test_a_second_beat_a_poll_later_is_a_second_look(beats: list[tuple[float, Seen[Beat]]], looks: int) -> None:
    assert followed(*((NOW + at, seen) for at, seen in beats)).hang_looks == looks


def test_the_history_says_it_once() -> None:
    none, first = followed((NOW, beat(1, ""))), followed((NOW, beat(1, "")), (NOW + 5, beat(2)))
    second = follow(first, beat(3), NOW + 9, POLL_S)
    [event] = hanging(none, first)
    assert event.text.startswith(
        "The command hangs at step 9: nothing of it has moved for 1 min 15 s, and it waits for a lock."
    )
    assert event.data == {"place": "lock", "step": 9, "still_s": 75.0}
    assert hanging(first, second) == ()
    assert hanging(None, none) == ()
    assert hanging(replace(first, launch_id="1.1.1"), first) != ()


def test_the_short_way_never_skips_a_hang() -> None:
    """The broken variant: the second beat has the same signs as the first, so nothing seems to have changed."""
    import random

    taken = 0
    for run, obs, world in situations_by_chance(random.Random(3), 300):
        if trains_on(run, obs, world, NOW) is None or run.pulse is None or not isinstance(obs.beat, Seen):
            continue
        taken += 1
        text = signs.encode(Signs(hang=Hang("lock", 75.0, obs.beat.value.step)))
        now_hangs = replace(obs, beat=replace(obs.beat, value=obs.beat.value._replace(signs=text)))
        for pulse in (run.pulse, replace(run.pulse, signs=text, hang_at=MOMENTS[3], hang_looks=1)):
            newer = obs.beat.value.sequence > pulse.sequence
            assert trains_on(replace(run, pulse=pulse), now_hangs, world, NOW) is None or not newer
    assert taken > 20


def late(moves: tuple[str, ...] | None, **changes: object) -> Pulse:
    pulse = Pulse(LAUNCH, 9, "training", NOW - 900, NOW, 9, stall_polls=12, signs=signs.encode(Signs(moves=moves)))
    return replace(pulse, **changes)  # type: ignore[arg-type]


LIMITS = StallLimits()


def test_motion_spares_a_late_training_until_an_evaluation_would_be_over() -> None:
    assert is_spared(late(("cpu", "io")), LIMITS, 3600.0)
    assert not is_spared(late(("cpu", "io")), LIMITS, 3601.0)
    assert not is_spared(late(()), LIMITS, 400.0)
    assert not is_spared(late(None), LIMITS, 400.0), "an older agent says nothing: as before"
    assert not is_spared(late(("cpu",), stall_polls=9), LIMITS, 400.0)
    assert not is_spared(late(("cpu",), phase="restore"), LIMITS, 400.0)


def test_the_sentence_says_what_moves_or_where_it_waits() -> None:
    clauses = late_clauses(late(("io", "gpu")), LIMITS, 720.0)
    assert clauses == [
        "No progress since step 9 for 12 min (stall poll 12 of 10)",
        "It still moves (GPU, IO), so it is not restarted before 1 h without a step",
    ]
    hangs = late_clauses(late(None, signs=AT_9), LIMITS, 90.0)
    assert hangs[-1] == "Next: restart, if the next look finds the same"
    assert late_clauses(late(None), LIMITS, 720.0) == []
    assert (moves_text(late(None)), moves_text(late(("files", "other")))) == ("", "files")


@pytest.mark.parametrize(("place", "words"), [("input", "its input"), ("disk", "a disk"), ("odd", "does not show")])
def test_each_place_has_words(place: str, words: str) -> None:
    assert words in hang_text(Hang(place, 90.0))


def test_a_hang_without_a_step_counts_where_the_beat_has_none() -> None:
    text = signs.encode(Signs(hang=Hang("stopped", 1790.0)))
    assert hang_in(beat(1, text, step=None).value) is not None
    assert hang_in(beat(1, text).value) is None


@pytest.mark.parametrize("limits", [StallLimits(), StallLimits(quiet_s=600.0, hang=False)])
def test_the_job_tells_the_agent_whether_and_how_it_judges(limits: StallLimits) -> None:
    run = run_in(Status.PENDING, policy=Policy(stall=limits))
    paces = Paces("file:///objects", None, 10.0, 60.0, 300.0, 7200.0, 10.0, 8.0)
    job = launch_request(run, open_try(), {"command": "true"}, nonce="n", supervisor_id="s", paces=paces).job
    assert (job["hang"], job["quiet_s"], job["watch"]) == (limits.hang, limits.quiet_s, {})


def test_the_job_tells_the_agent_which_metrics_are_watched() -> None:
    spec = {"command": "true", "watch": {"loss": {"nan": "alert"}}}
    paces = Paces("file:///objects", None, 10.0, 60.0, 300.0, 7200.0, 10.0, 8.0)
    run = run_in(Status.PENDING)
    job = launch_request(run, open_try(), spec, nonce="n", supervisor_id="s", paces=paces).job
    assert job["watch"] == spec["watch"]
