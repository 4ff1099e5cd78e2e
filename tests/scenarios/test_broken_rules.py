"""The scenarios bite: with a rule deliberately broken, the story that is about it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.lifecycle.offers.breaker import Breaker
from supervisor.lifecycle.sweeping import SweepPlan
from tests.scenarios.play import play

HERE = Path(__file__).parent


def nobody_is_avoided(run: object, _rule: object) -> str:
    return ""


def every_end_is_let_through(breaker: Breaker, wanted: int, *_: object) -> tuple[Breaker, int]:
    return breaker, wanted


def nothing_is_swept(*_: object) -> SweepPlan:
    return SweepPlan()


def marker_is_not_heeded(run: object, *_: object) -> object:
    return run


def silence_since_the_last_beat(_world: object, since: float, *_: object) -> float:
    return since


def no_second_signal(run: object, *_: object) -> None:
    return None


def nobody_waits(*_: object) -> bool:
    return False


def no_late_word(run: object, _obs: object) -> tuple[object, tuple[()], bool]:
    return run, (), False


def nothing_is_only_asked_for(*_: object) -> bool:
    return False


def losses_are_forgotten(*_: object) -> tuple[()]:
    return ()


def reminded_at_every_look(asked_at: float, _last: float) -> float:
    return asked_at


def no_word_of_the_boot(*_: object) -> None:
    return None


@pytest.mark.parametrize(
    ("story", "place", "broken"),
    [
        ("rules/running-platform-says-so", "supervisor.lifecycle.ending.ending._avoid", nobody_is_avoided),
        ("limits/breaker", "supervisor.reconciler.observing.worldview.breakers.admit", every_end_is_let_through),
        ("today/G-self-delete-fails", "supervisor.reconciler.acting.sweeping.sweeping.plan", nothing_is_swept),
        ("limits/marker-while-booting", "supervisor.lifecycle.phases.launching.heed_marker", marker_is_not_heeded),
        ("limits/store-back-agents-slow",
         "supervisor.lifecycle.living.liveness.watched_since", silence_since_the_last_beat),
        ("rules/running-absent-fresh-beat", "supervisor.lifecycle.ending.machines._disagree", no_second_signal),
        ("rules/awaiting-teardown-pull", "supervisor.domain.run.Run.awaits_pull", property(nobody_waits)),
        ("rules/awaiting-teardown-pull-and-approval", "supervisor.lifecycle.phases.finishing._must_ask", nobody_waits),
        ("cloud/asked-then-no-room-anywhere",
         "supervisor.lifecycle.phases.launching._asked", nothing_is_only_asked_for),
        ("cloud/zones-remember-losses", "supervisor.lifecycle.offers.choosing.lost_lately", losses_are_forgotten),
        ("cloud/boot-finds-no-gpu", "supervisor.lifecycle.phases.launching.word_of", no_word_of_the_boot),
        ("limits/approval-reminders", "supervisor.lifecycle.events.telling.next_reminder_at", reminded_at_every_look),
        ("limits/no-progress-row", "supervisor.lifecycle.ending.ending.ENDS_THE_RUN", "another_word"),
        ("rules/recovering-late-beat", "supervisor.lifecycle.phases.placing._late_beat", no_late_word),
    ],
)  # fmt: skip
def test_a_broken_rule_breaks_its_story(
    story: str, place: str, broken: object, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, broken)
    with pytest.raises(AssertionError):
        play(HERE / f"{story}.txt", folder)
