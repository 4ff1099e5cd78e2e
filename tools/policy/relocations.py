"""One run on the zones of 2,104 measured rounds: the production choice of zones, its memory and its cool-downs.

A round says, for each zone, whether a spot machine could be had. A zone without one is down for the 10 minutes of the
round: it refuses each request, and takes back a machine that runs there. The run holds one machine for
the whole time and requests the next one as the supervisor would: `choose`, the lessons of refusals and losses, and what
own calls teach. Nothing of these rules is repeated here.

`without`: the rounds that the run spent without a machine from their first to their last second, as a share; where all
zones are down, no rule can do better. `without_s`: the same in seconds, with the time of refused requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Call, Offer, OfferKey, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import CreateFailed, World
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.offers.choosing import choose
from supervisor.lifecycle.offers.lessons import after_loss, lessons_of, without_failures
from supervisor.lifecycle.rungs.survival import CALLS_READ, outlooks
from tools.policy import traces
from tools.policy.traces import TICK_S, Zone

ANSWER_S = 15.0  # of a create call that is refused
OUTLOOK_EVERY_S = 120.0  # as the reconciler reads them
BEGIN = 1_760_000_000.0  # any time; only differences count
PROVIDER, SHAPE = "cloud", "a3-highgpu-1g"
WITHOUT_SHARE = {"us-central1": 0.0043, "us": 0.0}  # the most that may be spent without a machine
CALLS_PER_RELOCATION = 1.5


@dataclass(frozen=True, slots=True)
class Replayed:
    """`relocations`: machines that were lost. `calls`: create calls after the first machine."""

    rounds: int
    without_rounds: int
    without_s: float
    calls: int
    relocations: int

    @property
    def without(self) -> float:
        return self.without_rounds / self.rounds

    @property
    def calls_per_relocation(self) -> float:
        return self.calls / max(1, self.relocations)


def replay(zones: Sequence[Zone]) -> Replayed:
    """One run through all rounds."""
    story = _Story({zone.name: zone.up for zone in zones})
    rounds = len(zones[0].up)
    for number in range(rounds):
        story.play(number)
    return Replayed(rounds, story.without_rounds, story.without_s, story.calls - 1, story.relocations)


class Memory:
    """What the supervisor remembers of zones: their records, and what own calls teach. Their prices count as equal."""

    def __init__(self, zones: Iterable[str], reads: int = CALLS_READ) -> None:
        """The order of the zones is the order of the settings. `reads`: so many of the last calls count."""
        offers = tuple(Offer(place_of(zone), 2.37, 11.0, minimum_s=60.0) for zone in zones)
        self.world = World(Knobs("s"), offers={PROVIDER: offers}, races=frozenset({PROVIDER}))
        self.calls: list[Call] = []
        self.reads, self.read_at = reads, 0.0

    def read(self, now: float) -> None:
        """Before a decision."""
        if now - self.read_at >= OUTLOOK_EVERY_S:
            self.read_at = now
            self.world = replace(self.world, outlooks=outlooks(self.calls[-self.reads :], now))
        self.world = replace(self.world, judged={}, choices=None)

    def obtained(self, place: Placement, now: float, until: float | None = None) -> None:
        """`until`: when its user stops the machine."""
        self.calls.append(Call(offer_key(place), now, obtained=True, ended_at=until))
        record = self.world.zones.get(offer_key(place))
        self._learn([(offer_key(place), without_failures(record) if record is not None else None)])

    def refused(self, place: Placement, now: float, *, is_second: bool = False) -> None:
        self.calls.append(Call(offer_key(place), now, obtained=False))
        failed = CreateFailed("1.1.1", Cause.NO_CAPACITY, "ZONE_RESOURCE_POOL_EXHAUSTED")
        self._learn(lessons_of(failed, place, self.world, now, is_second=is_second))

    def lost(self, zone: str, now: float) -> None:
        """The machine of the last call."""
        self.calls[-1] = replace(self.calls[-1], ended_at=now, lost=True)
        self._learn(after_loss(place_of(zone), self.world, now))

    def ended(self, now: float) -> None:
        """The machine of the last call was given back."""
        self.calls[-1] = replace(self.calls[-1], ended_at=now)

    def _learn(self, lessons: Iterable[tuple[OfferKey, ZoneRecord | None]]) -> None:
        zones = dict(self.world.zones)
        for key, record in lessons:
            if record is None:
                zones.pop(key, None)
            else:
                zones[key] = record
        self.world = replace(self.world, zones=zones)


@dataclass
class _Story:
    zones: dict[str, tuple[bool, ...]]
    calls: int = 0
    relocations: int = 0
    without_rounds: int = 0
    without_s: float = 0.0
    run: Run = field(init=False)
    memory: Memory = field(init=False)
    held: str | None = None

    def __post_init__(self) -> None:
        policy = Policy(spot=True)
        self.run = Run(1, "replay", "me", "cell", PROVIDER, 1, Status.RECOVERING, policy, BEGIN, BEGIN, BEGIN)
        self.memory = Memory(self.zones)

    def play(self, number: int) -> None:
        start = BEGIN + number * TICK_S
        end, now = start + TICK_S, start
        if self.held is not None and not self.zones[self.held][number]:
            self.memory.lost(self.held, now)
            self.run = replace(self.run, avoid_zone=self.held)
            self.held, self.relocations = None, self.relocations + 1
        while self.held is None and now < end:
            now = self._request(number, now)
        self.without_rounds += self.held is None
        self.without_s += min(now, end) - start

    def _request(self, number: int, now: float) -> float:
        """One decision; when the next one is due."""
        self.memory.read(now)
        choice = choose(self.run, self.memory.world, now)
        if not isinstance(choice, Offer):
            return max(now + 1.0, choice.until or now)
        place = choice.placement
        self.calls += 1
        if self.zones[place.zone][number]:
            self.held = place.zone
            self.memory.obtained(place, now)
            return now
        self.memory.refused(place, now + ANSWER_S)
        return now + ANSWER_S


def place_of(zone: str) -> Placement:
    return Placement(PROVIDER, zone.rpartition("-")[0], zone, SHAPE, True)


def report() -> tuple[list[str], list[str]]:
    """The lines of `make policy` about the choice of zones, and the targets that are missed."""
    lines, missed = [], []
    for prefix, most in WITHOUT_SHARE.items():
        zones = [zone for zone in traces.zones() if zone.name.startswith(f"{prefix}-")]
        result = replay(zones)
        calls = result.calls_per_relocation
        lines.append(
            f"{len(zones)} zones of {prefix}, one run for {result.rounds:,} rounds: {result.without:.2%} of them "
            f"without a machine, {calls:.2f} create calls per relocation ({result.calls} for {result.relocations})"
        )
        if round(result.without, 4) > most:
            missed.append(
                f"{prefix} is {result.without - most:.2%} of the time longer without a machine than {most:.2%}"
            )
        if calls > CALLS_PER_RELOCATION:
            missed.append(f"{prefix} makes {calls:.2f} create calls per relocation, {CALLS_PER_RELOCATION} at most")
    return lines, missed
