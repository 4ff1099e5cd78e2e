"""Random stories: four trainings, failures of every kind in any order, then none. All runs must complete.

A story is a list of lines in the language of the scenarios, made from a seed. A failing story shows its lines, which
can be copied into a file.
"""

from __future__ import annotations

import random
from pathlib import Path

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.domain.causes import Cause
from supervisor.domain.errors import SpotError
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ObjectMissing, StoreUnavailable
from supervisor.ports.provider import MachineMissing
from supervisor.ports.store import RunFilter, StoreDown
from supervisor.services.runs.resume import ResumeRequest, resume
from tests.fakes.callers import OPS
from tests.properties import examples
from tests.scenarios.play import VERBS, history
from tests.scenarios.script import ScenarioError, line_of
from tests.scenarios.stage import Settings, Stage

RUNS = ("alpha", "beta", "gamma", "delta")
GROUP = "sweep"
# A step takes a second. The last ones outlive the failures, which come for an hour and a half.
STEPS = (600, 6000, examples(12000, 30000))
CALM = (
    "cloud capacity-takes 0s", "cloud capacity", "cloud readable", "cloud release-takes 0s", "cloud mortal",
    "store up", "store current",
    "store not-full", "store lose-responses 0", "database up", "supervisor restart",
)  # fmt: skip


MISFORTUNES = (
    "cloud preempt {run} notice=30s", "cloud preempt {run} notice=2min", "cloud preempt {run}",
    "cloud kill {run}", "cloud host-error {run}", "cloud reboot {run}", "cloud ends {run}",
    "cloud capacity-takes 50s", "cloud capacity-takes 0s",
    "cloud stockout a", "cloud stockout a b c", "cloud quota b", "cloud capacity",
    "cloud unreachable", "cloud unreachable a", "cloud readable", "cloud lose-response times=2",
    "cloud lose-response none=yes times=3", "cloud lies", "cloud reject", "cloud release-takes 90s",
    "agent {run} hung", "agent {run} silent", "agent {run} dies", "agent {run} mute",
    "agent {run} hangs lock", "agent {run} late cpu",
    "agent {run} talks", "agent {run} trains", "agent {run} notice 100s", 'agent {run} exits "signal 9:"',
    "store down", "store down supervisor", "store down agents", "store up", "store stale", "store current",
    "store lose-responses 2", "database down", "database up",
    "supervisor restart", "supervisor kill", "supervisor start",
    "supervisor dies before-next", "supervisor dies before-create", "supervisor dies after-create",
    "supervisor loses-lease", "supervisor lease-ends", "supervisor takes-lease", "supervisor race-stop {run}",
    "clock +1h", "clock -1h", "forge {run} nonce", "forge {run} absurd", "forge {run} older",
    "cloud delete {run}", "cloud immortal {run}", "cloud mortal", "cloud expire {run}", "store full", "store not-full",
    "stop {run}", "marker {run}", "resume {run}",
)  # fmt: skip


# Ends after which a user resumes the run.
USER_RESUMES = (Cause.NO_PROGRESS, Cause.MACHINE_DELETED, Cause.RESULTS_UNVERIFIED)


def misfortune(chance: random.Random) -> str:
    return chance.choice(MISFORTUNES).format(run=chance.choice(RUNS))


def story(seed: int, misfortunes: int, limit: int | None = None) -> list[str]:
    chance = random.Random(seed)
    more = "max_attempts=1000" + ("" if limit is None else f" group={GROUP} max_parallel={limit}")
    lines = [
        f"submit {run} zones=a,b,c steps={chance.choice(STEPS)} checkpoint={chance.choice((50, 200))} "
        f"push={chance.choice(('yes', 'no'))} boot={chance.choice(('5s', '4min'))} "
        f"after={chance.choice(('gone', 'ended', 'stays'))} save={chance.choice(('1s', '40s'))} {more}"
        for run in RUNS
    ]
    for _ in range(misfortunes):
        lines += [f"wait {chance.choice((1, 5, 20, 60, 300, 900))}s", misfortune(chance)]
    return lines


def live(seed: int, folder: Path, misfortunes: int = 25, limit: int | None = None) -> None:
    """`limit`: the runs are one group with this limit. Raises AssertionError with the story's lines and history."""
    stage = Stage(folder, Settings(overlap=1e9))
    played: list[str] = []
    newest: dict[str, int] = {}
    try:
        for text in story(seed, misfortunes, limit):
            played.append(text)
            _do(stage, text)
            stage.groups.clear()  # a platform that lies has machines that no row knows: here the rows are counted
            _pointers_only_grow(stage, newest)
            _limit_holds(stage, limit)
        played += ["# calm"]
        for text in CALM:
            _do(stage, text)
        for agent in stage.agents:
            agent.silent = agent.mute = False
            agent.go_on()
        stage.provider.drop_scripted_responses()
        _all_complete(stage)
        _pointers_only_grow(stage, newest)
    except AssertionError as error:
        lines = "\n".join(played)
        raise AssertionError(f"seed {seed}: {error}\n{lines}\n{history(stage)}") from None
    finally:
        stage.close()


def _limit_holds(stage: Stage, limit: int | None) -> None:
    runs = stage.all_rows(RunFilter(group=GROUP)) if limit is not None else ()
    holders = [run.run_id for run in runs if run.has_machine]
    assert limit is None or len(holders) <= limit, f"{', '.join(holders)} have a machine, the limit is {limit}"


def _do(stage: Stage, text: str) -> None:
    """A failure without a target, such as a machine that does not exist, is skipped."""
    line = line_of(0, text)
    if line.verb == "supervisor" and stage.supervisor is None and line.words[0] not in ("start", "restart"):
        return
    try:
        VERBS[line.verb](stage, line)
    except (ScenarioError, SpotError, MachineMissing, StoreUnavailable, StoreDown, KeyError):
        if line.verb in ("submit", "wait"):
            raise


def _pointers_only_grow(stage: Stage, newest: dict[str, int]) -> None:
    """Only the newest holder writes: no pointer is ever replaced by an older checkpoint."""
    for run in RUNS:
        try:
            baton = batons.decode(stage.objects.get(runfiles.baton(run))[0])
        except ObjectMissing:
            continue
        step = -1 if baton.checkpoint is None else baton.checkpoint.step
        assert step >= newest.get(run, -1), f"the pointer of {run} went back to {step} from {newest[run]}"
        newest[run] = step


def _all_complete(stage: Stage) -> None:
    """Within two weeks without failures, in which a user resumes the runs that ended to save money."""
    for _ in range(336):
        stage.run_for(3600.0)
        runs = [stage.parts.store.find(run) for run in RUNS]
        if all(run.settled and run.status == Status.COMPLETED for run in runs):
            break
        for run in runs:
            assert run.status != Status.FAILED or run.cause in USER_RESUMES, _end(run)
            if run.status in (Status.FAILED, Status.STOPPED):
                resume(stage.parts, run.run_id, ResumeRequest(OPS))
    assert all(run.settled and run.status == Status.COMPLETED for run in runs), "; ".join(map(_end, runs))
    assert not stage.machines(), f"machines are left: {[machine.name for machine in stage.machines()]}"
    assert not stage.faults.seen, f"errors: {stage.faults.seen}"
    stage.check_ledgers()


def _end(run: Run) -> str:
    return f"{run.run_id} is {run.status}, settled={run.settled} ({run.cause}: {run.detail}; {run.hold})"
