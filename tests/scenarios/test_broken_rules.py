"""The scenarios can fail: with a rule broken on purpose, the story about that rule fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.attempt import Retiring, Try
from supervisor.domain.causes import Cause, CauseRule, rule_for
from supervisor.domain.ledger import Beside
from supervisor.domain.machines import Machine
from supervisor.domain.observation import Part, World
from supervisor.domain.run import Run
from supervisor.lifecycle.breaker import Breaker
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.phases.racing import without_rival
from supervisor.lifecycle.phases.teardown import with_host_users
from supervisor.lifecycle.sweeping import SweepPlan
from tests.scenarios.play import play

HERE = Path(__file__).parent


def no_zone_is_avoided(*end: Any) -> CauseRule:
    return replace(rule_for(*end), avoid_zone=False)


def every_end_is_admitted(breaker: Breaker, count: int, *_: object) -> tuple[Breaker, int]:
    return breaker, count


def nothing_is_swept(*_: object) -> SweepPlan:
    return SweepPlan()


def marker_is_ignored(run: object, *_: object) -> object:
    return run


def silence_since_the_last_beat(_world: object, since: float, *_: object) -> float:
    return since


def no_second_signal(run: object, *_: object) -> None:
    return None


def nothing_waits(*_: object) -> bool:
    return False


def no_late_beat(run: object, _obs: object) -> tuple[object, tuple[()], bool]:
    return run, (), False


def nothing_is_only_requested(*_: object) -> bool:
    return False


def losses_are_forgotten(*_: object) -> tuple[()]:
    return ()


def reminded_in_every_tick(since: float, _last: float) -> float:
    return since


def everybody_has_a_slot(*_: object) -> tuple[list[int], list[int]]:
    return [], []


def no_beat_of_the_boot(*_: object) -> None:
    return None


def no_meter(world: object, place: object) -> None:
    return None


def what_was_done_is_over(item: Retiring, *_: object) -> str:
    return "it was done" if item.bill is not None and item.bill.done_at is not None else ""


def away_is_stopped(*_: object) -> str:
    return "nobody says otherwise"


def nobody_else(*_: object) -> tuple[str, ...]:
    return ()


def never_kept(item: Retiring, *_: object, **__: object) -> Retiring:
    return item


def forgotten_after_a_refusal(run: object, *_: object) -> tuple[object, tuple[()]]:
    return run, ()


def nobody_yields(world: World, *_: object) -> World:
    return world


def the_youngest_first(room: Any) -> int:
    return 0 if room.run is None else -room.run.key


def a_closing_host_takes_runs(world: World, *others: object) -> World:
    return replace(with_host_users(world, *others), unread=world.unread)  # type: ignore[arg-type]


def every_machine_may_write(run: Run) -> bool:
    return not run.retiring


def the_request_is_forgotten(decision: Decision, *_: object) -> Decision:
    """The loser is closed, and nobody watches what its call still makes."""
    after = without_rival(decision, *_)  # type: ignore[arg-type]
    left = tuple(item for item in after.run.retiring if item.lost_until is None)
    return replace(after, run=replace(after.run, retiring=left))


def the_first_listing_counts(item: Retiring, part: Part[Machine], now: float) -> bool:
    return False


def both_go_on(decision: Decision, *_: object) -> Decision:
    return decision


def the_usual_time(_run: object, request: Try, _obs: object, world: World, _now: float) -> float:
    """A flex-start request is given up, and another one sent, as any other request."""
    return request.requested_at + world.knobs.launch_timeout_s


@pytest.mark.parametrize(
    ("story", "rule", "broken"),
    [
        ("rules/running-platform-says-so", "supervisor.lifecycle.ending.ending.rule_for", no_zone_is_avoided),
        ("limits/breaker", "supervisor.lifecycle.breaker.admit", every_end_is_admitted),
        ("today/G-self-delete-fails", "supervisor.reconciler.acting.sweeping.sweeping.plan", nothing_is_swept),
        ("limits/marker-while-booting", "supervisor.lifecycle.phases.launching.with_marker", marker_is_ignored),
        ("limits/store-back-agents-slow",
         "supervisor.lifecycle.living.limits.watched_since", silence_since_the_last_beat),
        ("rules/running-absent-fresh-beat", "supervisor.lifecycle.ending.machines._disagree", no_second_signal),
        ("rules/awaiting-teardown-pull", "supervisor.domain.run.Run.awaits_pull", property(nothing_waits)),
        ("rules/awaiting-teardown-pull-and-approval",
         "supervisor.lifecycle.phases.teardown._needs_approval", nothing_waits),
        ("rules/awaiting-teardown-precious", "supervisor.domain.observation.World.meter_at", no_meter),
        ("rules/awaiting-teardown-host", "supervisor.lifecycle.phases.teardown._confirmed_by", what_was_done_is_over),
        ("rules/awaiting-teardown-host-by-hand", "supervisor.lifecycle.phases.teardown._confirmed_by", away_is_stopped),
        ("rules/awaiting-teardown-host-shared", "supervisor.lifecycle.phases.teardown._others", nobody_else),
        ("rules/awaiting-teardown-host-shared",
         "supervisor.reconciler.tick.with_host_users", a_closing_host_takes_runs),
        ("cloud/requested-then-refused-everywhere",
         "supervisor.lifecycle.phases.launching._is_requested", nothing_is_only_requested),
        ("cloud/zones-remember-losses", "supervisor.lifecycle.offers.ranking.lost_lately", losses_are_forgotten),
        ("cloud/boot-finds-no-gpu", "supervisor.lifecycle.phases.launching.end_in", no_beat_of_the_boot),
        ("limits/approval-reminders", "supervisor.lifecycle.events.warnings.next_reminder_at", reminded_in_every_tick),
        ("limits/limits-keep-their-grace", "supervisor.lifecycle.living.limits.KEPT_SHARE", 0.0),
        ("rules/running-ignores-its-checkpoint", "supervisor.lifecycle.living.beats.UNOPENED", "another word"),
        ("limits/no-progress-row", "supervisor.lifecycle.ending.ending.ENDS_THE_RUN", "another_word"),
        ("limits/incident", "supervisor.lifecycle.gates.places.failing_incident", no_second_signal),
        ("groups/asking-blocks-nobody", "supervisor.domain.attempt.Attempt.has_question", property(nothing_waits)),
        ("rules/running-killed-again-asks", "supervisor.domain.run.Run.asks", property(nothing_waits)),
        ("groups/a-sweep-of-six", "supervisor.lifecycle.offers.groups._without_slot", everybody_has_a_slot),
        ("groups/slots-survive-kills", "supervisor.domain.run.Run.has_machine", property(nothing_waits)),
        ("groups/after-a-chain", "supervisor.lifecycle.offers.groups._after_others", no_second_signal),
        ("groups/another-limit", "supervisor.lifecycle.offers.groups.limit_of", lambda group: 3),
        ("queue/yields-at-a-limit", "supervisor.reconciler.tick.with_room", nobody_yields),
        ("queue/yields-at-a-limit", "supervisor.lifecycle.phases.running.go_on_yielding", no_second_signal),
        ("queue/yields-for-a-quota", "supervisor.lifecycle.offers.making_room._freed", lambda *_: {}),
        ("queue/yields-for-a-quota", "supervisor.lifecycle.offers.making_room._helps", lambda *_: True),
        ("queue/yields-on-a-full-computer", "supervisor.lifecycle.offers.making_room._by_loss", the_youngest_first),
        ("queue/does-not-yield", "supervisor.lifecycle.offers.making_room.training_s", lambda *_: 1e9),
        ("queue/owners-share", "supervisor.reconciler.tick.with_limits", nobody_yields),
        ("rules/running-drilled", "supervisor.lifecycle.decide._without_order", lambda decision, now: decision),
        ("keep/same-machine", "supervisor.lifecycle.ending.ending.with_kept", never_kept),
        ("keep/stock-out-then-new", "supervisor.lifecycle.phases.placing.before_start", no_second_signal),
        ("keep/kept-too-long", "supervisor.lifecycle.ending.keeping._over", lambda *_: ""),
        ("keep/disk-full", "supervisor.lifecycle.ending.keeping.KEEPS_MACHINE", frozenset(Cause)),
        ("keep/start-refused", "supervisor.lifecycle.phases.launching.put_back", forgotten_after_a_refusal),
        ("keep/budget", "supervisor.domain.attempt.Kept.disks_usd", lambda kept, now: 0.0),
        ("races/winner-preempted", "supervisor.lifecycle.phases.launching.holder_gone", every_machine_may_write),
        ("races/first-wins", "supervisor.lifecycle.decide.without_rival", the_request_is_forgotten),
        ("races/stopped", "supervisor.lifecycle.decide.without_rival", both_go_on),
        ("races/loser-appears-late", "supervisor.lifecycle.ending.retiring._may_yet_come", the_first_listing_counts),
        ("races/second-wins", "supervisor.lifecycle.phases.launching.with_baton", both_go_on),
        ("races/second-wins", "supervisor.lifecycle.phases.launching.as_decided", lambda run, obs: (run, obs)),
        ("races/first-wins", "supervisor.lifecycle.phases.placing.rival_offer", no_second_signal),
        ("races/loser-stays", "supervisor.domain.ledger.beside_of", lambda run, now: Beside()),
        ("rungs/flex-start-granted", "supervisor.lifecycle.phases.launching._overdue_at", the_usual_time),
        ("rungs/flex-start-killed", "supervisor.lifecycle.phases.launching._overdue_at", the_usual_time),
        ("rungs/flex-start-deadline-moved",
         "supervisor.lifecycle.phases.launching.flex_wait_is_over", nothing_waits),
        ("rules/recovering-late-beat", "supervisor.lifecycle.phases.placing._with_late_beat", no_late_beat),
    ],
)  # fmt: skip
def test_a_broken_rule_breaks_its_story(
    story: str, rule: str, broken: object, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, broken)
    with pytest.raises(AssertionError):
        play(HERE / f"{story}.txt", folder)
