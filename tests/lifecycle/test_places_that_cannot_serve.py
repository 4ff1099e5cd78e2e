"""A machine whose GPUs do not work: free, each offer once an hour, down the whole ladder; then a person is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract.beat_telemetry import Gpus, Telemetry, encode
from supervisor.contract.heartbeat import FINISHED, Beat, Exit
from supervisor.domain.causes import Cause
from supervisor.domain.events import announced
from supervisor.domain.machines import Offer, Placement
from supervisor.domain.observation import World
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.lifecycle.offers.choosing import NoOffer, choose, queue
from supervisor.lifecycle.phases.placing import wait
from supervisor.wording.run import status_text
from tests.lifecycle.ends import end_of
from tests.lifecycle.sample_runs import NOW, attempt, run_in

SHAPES, ZONES = ("l4", "t4"), ("a", "b")
OFFERS = tuple(
    Offer(Placement("gce", "r", zone, shape, spot), 0.1, 0.3)
    for spot in (True, False)
    for shape in SHAPES
    for zone in ZONES
)
WORLD = World(Knobs("s"), offers={"gce": OFFERS})


def new_run() -> Run:
    return run_in(Status.RUNNING, policy=Policy(zones=ZONES, shapes=SHAPES, allow_on_demand=True))


def cannot_serve(run: Run, offer: Offer, now: float, cause: Cause = Cause.GPU_UNAVAILABLE) -> Run:
    on_it = replace(run, status=Status.RUNNING, attempt=replace(attempt(), placement=offer.placement))
    return end_attempt(on_it, End(cause, "cuInit says 803"), WORLD, now).run


@pytest.mark.parametrize("cause", [Cause.GPU_UNAVAILABLE, Cause.GPU_FAULT])
def test_the_whole_ladder_is_used_each_offer_once_and_no_attempt_counts(cause: Cause) -> None:
    run, placed, now = new_run(), [], NOW
    for _ in OFFERS:
        offer = choose(run, WORLD, now)
        assert isinstance(offer, Offer)
        place = offer.placement
        placed.append((place.spot, place.shape, place.zone))
        run = cannot_serve(run, offer, now, cause)
        assert run.status == Status.RECOVERING
        assert (run.counters.counted, run.counters.no_progress, run.next_at) == (0, 0, now)
        now += 60
    assert len(set(placed)) == len(OFFERS)
    kinds = [(spot, shape) for spot, shape, _ in placed]
    assert kinds == sorted(kinds, key=lambda kind: (not kind[0], SHAPES.index(kind[1])))
    choice = choose(run, WORLD, now)
    assert isinstance(choice, NoOffer)
    assert (choice.cause, queue(run, WORLD, now)) == (cause, [])
    decision = wait(run, choice, now)
    assert announced(decision.events[0]) == "needs_person"
    assert "No zone has a working GPU" in status_text(decision.run, now)
    assert "cuInit says 803" in status_text(decision.run, now)


def test_after_an_hour_an_offer_may_serve_again() -> None:
    run = new_run()
    first = choose(run, WORLD, NOW)
    assert isinstance(first, Offer)
    run = replace(cannot_serve(run, first, NOW), avoid_zone="")
    assert choose(run, WORLD, NOW + 3599) != first
    assert choose(run, WORLD, NOW + 3601) == first
    assert choose(run, WORLD, NOW - 10) == first, "written by a wrong clock"


def telemetry_of(**cards: tuple[float | None, ...]) -> str:
    return encode(Telemetry(gpus=Gpus(util_pct=(1.0, 2.0), **cards)))


ENDED = Exit(1, None, False, 40.0, "RuntimeError: CUDA error: unspecified launch failure")
DUMPED = ENDED._replace(code=None, signal=6)


@pytest.mark.parametrize("end", [ENDED, DUMPED])
@pytest.mark.parametrize("where", ["last beat", "earlier beat"])
@pytest.mark.parametrize(
    ("telemetry", "words"),
    [
        (telemetry_of(last_xid=(None, 79.0)), "GPU 1 had Xid 79"),
        (telemetry_of(last_xid=(48.0, None)), "GPU 0 had Xid 48"),
        (telemetry_of(lost=(None, 1.0)), "GPU 1 is lost"),
    ],
)
def test_an_error_of_the_hardware_is_not_the_users(end: Exit, where: str, telemetry: str, words: str) -> None:
    beat = Beat("r", 1, "1.1.1", "m", "b", 7, FINISHED, exit=end)
    last = beat._replace(telemetry=telemetry) if where == "last beat" else beat
    end_found = end_of(last, "" if where == "last beat" else telemetry)
    assert end_found is not None
    assert end_found[0] == Cause.GPU_FAULT
    assert words in end_found[1]


@pytest.mark.parametrize("xid", [13.0, 31.0, 43.0, 45.0, 68.0])
def test_an_error_of_the_program_stays_its_own(xid: float) -> None:
    beat = Beat("r", 1, "1.1.1", "m", "b", 7, FINISHED, exit=ENDED, telemetry=telemetry_of(last_xid=(xid, None)))
    end_found = end_of(beat)
    assert end_found is not None
    assert end_found[0] == Cause.USER_ERROR
