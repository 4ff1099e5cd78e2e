"""A dropped connection ends no attempt, whatever its pattern: machines that cannot be read are Unknown, and a host that
is cut off from everything may be silent for hours."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from supervisor.contract.baton import Baton, Holder
from supervisor.contract.heartbeat import RESTORE, TRAINING, Beat
from supervisor.domain.actions import Launch, Release
from supervisor.domain.attempt import Attempt, Try
from supervisor.domain.machines import Machine, MachineState
from supervisor.domain.observation import BEATS, MACHINES, Absent, Observation, Seen, Unknown, World, machines_in
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.living import limits
from tests.lifecycle.worlds import NOW, placement
from tests.properties import examples

LAUNCH, POLL_S = "1.1.1", 30.0
DROPS_S = (30.0, 60.0, 300.0, 1200.0, 7200.0, 40_000.0)  # how long a drop lasts
MACHINE = Machine("id-1", "m-1", "zone-a", MachineState.UP, "supervisor-1", "digits", LAUNCH, NOW - 50)


def training() -> Run:
    attempt = Attempt(
        1, 1, LAUNCH, "m-1", "id-1", placement(), NOW - 60, NOW - 50, None, None,
        up_at=NOW - 40, running_at=NOW - 30, training_at=NOW - 20,
    )  # fmt: skip
    first = Try(1, 1, LAUNCH, "m-1", placement(), NOW - 60, None, None)
    return Run(
        1, "digits", "local", "local", "local", 1, Status.RUNNING, Policy(), NOW - 100, NOW - 100, NOW - 30,
        try_=first, attempt=attempt, reported=True,
    )  # fmt: skip


class Host:
    """A host by SSH. `cut_until`: its SSH connection; `offline_until`: it reaches the object store no more either."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.phase = chance, chance.choice((TRAINING, TRAINING, RESTORE))
        self.cut_until = self.offline_until = 0.0
        self.read_since = NOW - 1000
        self.sequence, self.beat_at = 1, NOW

    def tick(self, now: float) -> tuple[Observation, World]:
        if now >= self.cut_until and self.chance.random() < 0.3:
            self.cut_until = now + self.chance.choice(DROPS_S)
            if self.chance.random() < 0.5:
                # The agent is back a little later than we are: it repeats its request after a pause.
                self.offline_until = self.cut_until + self.chance.choice((0.0, 30.0, 60.0))
        is_cut = now < self.cut_until
        if not is_cut and self.read_since is None:
            self.read_since = now
        if is_cut:
            self.read_since = None
        if now >= self.offline_until:
            self.sequence, self.beat_at = self.sequence + 1, now
        beat = Beat("digits", 1, LAUNCH, "id-1", "b", self.sequence, self.phase, step=self.sequence, up_s=now - NOW)
        machine = Unknown("the host cannot be reached") if is_cut else Seen(MACHINE, 1.0, "listing")
        since = {BEATS: NOW - 1000, MACHINES: NOW - 1000}
        if self.read_since is not None:
            since[machines_in("zone-a")] = self.read_since
        world = World(
            Knobs("supervisor-1"),
            observing_since=since,
            fresh=frozenset({BEATS, MACHINES}),
            unread=frozenset({"zone-a"}) if is_cut else frozenset(),
        )
        baton = Seen(Baton("supervisor-1", 1, holder=Holder(1, LAUNCH, "id-1")), 0.0, "store")
        stop = Absent(0.0, "store")
        return Observation(machine, Seen(beat, now - self.beat_at, "store"), baton, stop), world


def play(seed: int, ticks: int = 40) -> None:
    host, run, now = Host(random.Random(seed)), training(), NOW
    for _ in range(ticks):
        # A drop may be as long as many ticks: only its first and its last ones matter.
        now = max(now + POLL_S, min(host.cut_until - POLL_S, now + host.chance.choice((POLL_S, 40_000.0))))
        obs, world = host.tick(now)
        decision = decide(run, obs, world, now)
        run = replace(decision.run, version=run.version)
        assert run.live_attempt is not None, (seed, now - NOW, run.cause, run.detail, decision.events)
        assert not [action for action in decision.actions if isinstance(action, Launch | Release)], (seed, now - NOW)


def test_no_pattern_of_drops_ends_an_attempt() -> None:
    for seed in range(examples(400, 10_000)):
        play(seed)


def silence_counts_while_the_zone_is_unread(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(limits, "seen_since", lambda attempt, world, since, now: limits.watched_since(world, since, now))


@pytest.mark.parametrize("broken", [silence_counts_while_the_zone_is_unread])
def test_a_broken_rule_is_caught(monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError, match=r"AGENT_LOST|STALLED|agent_lost|stalled|no beat"):
        test_no_pattern_of_drops_ends_an_attempt()
