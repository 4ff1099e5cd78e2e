"""Stories of random weather over Google Cloud: runs, misfortunes of every kind in any order, then calm.

A story comes from its seed alone. After it every run that nobody stopped completes, what was stopped stays stopped
until a person resumes it, and no machine of ours is left. What must hold meanwhile stands in weather_watch.
"""

from __future__ import annotations

import random
from pathlib import Path

from supervisor.domain.causes import Cause
from supervisor.domain.errors import SpotError
from supervisor.domain.machines import RUN_LABEL, SUPERVISOR_LABEL
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.ports.provider import ProviderUnavailable
from supervisor.ports.store import StoreDown
from supervisor.services.runs.resume import ResumeRequest, resume
from tests.acceptance import weather_machines, weather_network, weather_people  # noqa: F401  their deeds
from tests.acceptance.weather import Weather
from tests.acceptance.weather_house import WeatherHouse
from tests.acceptance.weather_watch import Watch
from tests.cloud.cloud import ZONES
from tests.fakes.callers import OPS
from tests.scenarios.play import history
from tests.scenarios.sim_plan import Plan

RUNS = ("alpha", "beta", "gamma", "delta", "epsilon")
# Ends after which a person looks, and resumes.
A_PERSON_GOES_ON = (Cause.NO_PROGRESS, Cause.MACHINE_DELETED, Cause.RESULTS_UNVERIFIED)
PAUSES_S = (1.0, 3.0, 10.0, 30.0, 60.0, 200.0, 400.0)  # between two misfortunes
AFTER_H = 8  # of calm


def live(seed: int, folder: Path, misfortunes: int = 25) -> Watch:
    """Raises AssertionError with the story and its history."""
    chance = random.Random(seed)
    runs = RUNS[: chance.randint(2, len(RUNS))]
    house = WeatherHouse(folder, seed, notice_s=chance.choice((0, 120)))
    told: list[str] = []
    try:
        weather = Weather(house, runs, chance)
        watch = Watch(weather)
        _begin(weather, watch)
        for _ in range(misfortunes):
            _wait(weather, chance.choice(PAUSES_S))
            told.append(f"{house.now() - began(house):8.1f} s  {_strike(weather)}")
        _calm(weather)
        told.append(f"{house.now() - began(house):8.1f} s  calm")
        _all_complete(weather)
        watch.at_the_end()
        assert not house.faults.seen, f"errors: {house.faults.seen}"
        return watch
    except AssertionError as error:
        lines = "\n".join(told)
        raise AssertionError(f"seed {seed}: {error}\n{lines}\n{history(house)}") from None
    finally:
        house.close()


def began(house: WeatherHouse) -> float:
    return house.now() - house.clock.monotonic() + 1000.0


def _begin(weather: Weather, watch: Watch) -> None:
    house, chance = weather.house, weather.chance
    weather.stranger("by-hand", ZONES[0], {})
    weather.stranger("of-another", ZONES[1], {SUPERVISOR_LABEL: "another", RUN_LABEL: "alpha"})
    weather.stranger("spot-00000000-a1-t1", ZONES[2], {RUN_LABEL: "alpha"})
    for run_id in weather.runs:
        plan = Plan(
            steps=chance.choice((300, 2000, 6000)), checkpoint=chance.choice((50, 200)), push=chance.random() < 0.3,
            boot=chance.choice((5.0, 150.0)), save=chance.choice((1.0, 40.0)), after=chance.choice(("ended", "stays")),
        )  # fmt: skip
        limits = {"max_attempts": 1000, "machine_max_s": chance.choice((3600, 86400))}
        house.submit(run_id, plan, limits=limits)
    house.look = watch.look


def _wait(weather: Weather, seconds: float) -> None:
    """In pieces, so that what ends meanwhile ends in time."""
    end = weather.now + seconds
    while weather.now < end:
        weather.house.run_for(min(30.0, end - weather.now))
        weather.pass_by()


def _strike(weather: Weather) -> str:
    """A misfortune that finds nothing to strike, or is refused, does not happen."""
    try:
        return weather.strike() or "-"
    except (SpotError, StoreUnavailable, StoreDown, ProviderUnavailable, AttributeError) as error:
        return f"- {type(error).__name__}"


def _calm(weather: Weather) -> None:
    house, compute = weather.house, weather.house.compute
    for _, end in weather.undo:
        end()
    weather.undo.clear()
    compute.calm()
    compute.restock()
    compute.raise_quota()
    for zone in ZONES:
        compute.reachable(zone)
    compute._denied.clear()
    compute.create_s, compute.fail_s, compute.delete_s, compute.stop_s = 4.0, 2.0, 3.0, 3.0
    house.storage.calm()
    house.agents_access.blocked = house.rows.down = False
    for agent in house.agents:
        agent.silent = agent.mute = False
        agent.go_on()
    house.start()
    weather.blind = {"": weather.now + 300.0}


def _all_complete(weather: Weather) -> None:
    """What was stopped stays so for half an hour; then a person resumes it, and everything that was given up."""
    house = weather.house
    house.run_for(1800.0)
    for run_id in weather.stopped:
        assert _found(weather, run_id).terminal, f"1: {_end(_found(weather, run_id))} though it was stopped"
    for _ in range(AFTER_H):
        runs = [_found(weather, run_id) for run_id in weather.runs]
        if all(run.settled and run.status == Status.COMPLETED for run in runs):
            break
        for run in runs:
            assert run.status != Status.FAILED or run.cause in A_PERSON_GOES_ON, f"1: {_end(run)}"
            if run.status in (Status.FAILED, Status.STOPPED):
                weather.stopped.pop(run.run_id, None)
                resume(house.parts, run.run_id, ResumeRequest(OPS))
        house.run_for(3600.0)
    left = [run for run in runs if not (run.settled and run.status == Status.COMPLETED)]
    assert not left, "1: " + "; ".join(map(_end, left))
    assert not weather.ours(), f"3: machines are left: {[one.name for one in weather.ours()]}"


def _found(weather: Weather, run_id: str) -> Run:
    run = weather.house.parts.store.find(run_id)
    assert run is not None, f"1: {run_id} is lost"
    return run


def _end(run: Run) -> str:
    return f"{run.run_id} is {run.status}, settled={run.settled} ({run.cause}: {run.detail}; {run.hold})"
