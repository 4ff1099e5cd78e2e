"""A sweep of six cells, two machines at once: beside the thirty runs, for the page of a group."""

from __future__ import annotations

import math
import random

from supervisor.contract import runfiles
from supervisor.contract.heartbeat import Exit
from supervisor.contract.metric_series import Curve, Kept, Series, encode
from supervisor.domain.causes import Cause
from supervisor.domain.run import Waiting
from supervisor.domain.status import Status
from tests.dashboard.dataset.house import House
from tests.dashboard.dataset.runs_ended import completed
from tests.dashboard.dataset.runs_live import NOTICE, spec
from tests.dashboard.dataset.story import HOUR_S, MINUTE_S, Pace, Story

GROUP = "resnet-lr"
OTHERS_FIRST = f"2 runs of group {GROUP} may have a machine at once, and others come first"


def add_sweep(house: House) -> None:
    """After `fill`."""
    first, failed, second, third = (_cell(house, lr, 1) for lr in ("0.1", "0.9", "0.03", "0.01"))
    waiting = [_cell(house, lr, 2) for lr in ("0.1", "0.03")]
    pace = Pace(3.4, 30_000, 500, {"loss": (2.4, 0.31), "accuracy": (0.1, 0.91)})
    completed(first.wait(9).ask("us-east1-b").obtain().start().train(2.45 * HOUR_S, pace))
    failed.wait(11).ask("us-east1-c").obtain().start(90, 0).wait(4 * MINUTE_S)
    last = "FloatingPointError: loss is nan at step 212"
    failed.lose(Cause.USER_ERROR, f"exit code 1: {last}", Exit(1, None, False, 240.0, last))
    failed.over(Status.FAILED, Cause.USER_ERROR, last)
    second.pace = Pace(3.1, 40_000, 500, {"loss": (2.4, 0.22), "accuracy": (0.1, 0.94)})
    second.wait(9 * MINUTE_S).life("us-east1-c", 1.1 * HOUR_S, Cause.PREEMPTED, NOTICE % 30)
    second.wait(20).ask("us-east1-d").obtain().start().train()
    third.wait(2.6 * HOUR_S).ask("us-east1-b").obtain().start().train(
        pace=Pace(3.3, 30_000, 500, {"loss": (2.4, 0.4), "accuracy": (0.1, 0.88)})
    )
    for story in waiting:
        since = story.at + 4
        story.wait(4).becomes(
            Status.WAITING, cause=Cause.GROUP_LIMIT, detail=OTHERS_FIRST, waiting=Waiting(since, 0.0, ("group_limit",))
        )
    house.write([first, failed, second, third, *waiting])
    for number, (lr, loss) in enumerate((("0.1", 0.31), ("0.03", 0.22), ("0.01", 0.4))):
        _put_curves(house, f"{GROUP}-lr{lr.replace('.', '-')}-seed1", loss, random.Random(number))


def _put_curves(house: House, name: str, loss: float, chance: random.Random) -> None:
    """What the agents of this run have stored: each tenth step, noisy, with a peak now and then."""
    run = house.store.find(name)
    assert run is not None
    for attempt in house.store.attempts(run.key):
        last = attempt.step_last if attempt.ended_at is not None else run.pulse and run.pulse.step
        if attempt.training_at is None or last is None:
            continue
        start = attempt.training_at if attempt.agent_at is None else attempt.agent_at
        end, first = attempt.ended_at or house.now, attempt.step_from or 0
        curves = {metric: Curve() for metric in ("loss", "accuracy", "grad norm")}
        for step in range(first + 10, last + 1, 10):
            up_s = attempt.training_at - start + (end - attempt.training_at) * (step - first) / (last - first)
            level = loss + (2.4 - loss) * math.exp(-step / 6000)
            peak = 1.6 if chance.random() < 0.002 else 1.0
            curves["loss"].add(step, up_s, level * peak * (1 + 0.08 * chance.gauss(0, 1)))
            curves["grad norm"].add(step, up_s, 30 * math.exp(-step / 2500) + 0.02 + 0.01 * chance.random())
            if step % 1000 == 0:
                curves["accuracy"].add(step, up_s, 0.95 - level / 4)
        kept = {metric: Kept(curve.reports, tuple(curve.points)) for metric, curve in curves.items()}
        series = Series(attempt.step_from, 0, attempt.ended_at is not None, kept)
        house.objects.put(runfiles.metrics(name, attempt.number), encode(series))


def _cell(house: House, lr: str, seed: int) -> Story:
    name = f"{GROUP}-lr{lr.replace('.', '-')}-seed{seed}"
    given = spec(
        "resnet:2026-11", "--lr", lr, "--seed", str(seed), group=GROUP, max_parallel=2,
        labels={"lr": lr, "seed": str(seed), "team": "vision"},
    )  # fmt: skip
    return house.story(name, 3 * HOUR_S, "vision", "ops-laptop", **given)
