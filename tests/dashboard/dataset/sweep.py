"""A sweep of six cells, two machines at once: beside the thirty runs, for the page of a group."""

from __future__ import annotations

from supervisor.contract.heartbeat import Exit
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


def _cell(house: House, lr: str, seed: int) -> Story:
    name = f"{GROUP}-lr{lr.replace('.', '-')}-seed{seed}"
    given = spec(
        "resnet:2026-11", "--lr", lr, "--seed", str(seed), group=GROUP, max_parallel=2,
        labels={"lr": lr, "seed": str(seed), "team": "vision"},
    )  # fmt: skip
    return house.story(name, 3 * HOUR_S, "vision", "ops-laptop", **given)
