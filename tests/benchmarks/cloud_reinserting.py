"""From a machine that is taken back to the request for the next one: when the machine says so itself, and when only
Google's record tells of it.

The real supervisor, its clients warm; each run's agent is a script that says what an agent says. A notice reaches the
supervisor by push; without one, the operation is found in the next tick, and the poll interval is in the figure.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import Beat
from tests.benchmarks import house, scene
from tests.benchmarks.cloud_bed import FarCloud, far_cloud
from tests.benchmarks.row import Bench, Figure, Row, Size, percentile
from tests.waiting import wait_for

RUNS = 36
POLL_S = 2.0
NOTICE_S = 30.0
BOOT_S = 60.0

Agent = dict[str, str]


def pushed(size: Size) -> Mapping[str, Figure]:
    """One after the other; the poll interval is the usual one, and no tick is due before its time."""
    with _training(size, {}) as (cloud, daemon, agents):

        def taken(agent: Agent) -> float:
            began = time.monotonic()
            _beat(daemon, agent, 2, notice_s=NOTICE_S)
            cloud.call("compute.preempt", agent["name"], notice=False)
            return began

        return {"cloud_reinsert_push_p99_s": _figure([_took(cloud, agent, taken) for agent in agents])}


def polled(size: Size) -> Mapping[str, Figure]:
    """At any moment between two ticks."""
    chance = random.Random(7)
    with _training(size, {"SPOT_POLL_INTERVAL_S": str(POLL_S)}) as (cloud, _, agents):
        began = {}
        for agent in agents:
            time.sleep(chance.uniform(0.0, 2 * POLL_S / len(agents)))
            began[agent["run_id"]] = time.monotonic()
            cloud.call("compute.preempt", agent["name"], notice=False)
        took = [cloud.call("insert_after", run, at) - at for run, at in began.items()]
    return {"cloud_reinsert_poll_p99_s": _figure(took, target=POLL_S + 2.0, poll_s=POLL_S)}


def _took(cloud: FarCloud, agent: Agent, taken: Callable[[Agent], float]) -> float:
    began = taken(agent)
    return float(cloud.call("insert_after", agent["run_id"], began)) - began


def _figure(took: list[float], target: float | None = None, **note: Any) -> Figure:
    told = {"median_s": round(percentile(took, 0.5), 3), "preemptions": len(took), **note}
    return Figure(percentile(took, 0.99), target=target, note=told)


@contextlib.contextmanager
def _training(size: Size, environ: Mapping[str, str]) -> Iterator[tuple[FarCloud, house.TimedDaemon, list[Agent]]]:
    """Runs that train on machines of their own."""
    count = RUNS if size.times > 2 else 6
    with contextlib.ExitStack() as opened:
        cloud, folder = opened.enter_context(far_cloud()), opened.enter_context(scene.folder())
        daemon = opened.enter_context(house.plain(folder / "data", {**cloud.environment, **environ}))
        image = cloud.call("image")
        for name in scene.names(count):
            daemon.submit(name, command="python train.py", image=image)
        agents = wait_for(
            lambda: found if len(found := cloud.call("machines_of_runs")) == count else None,
            BOOT_S,
            "machines of all runs",
        )
        for agent in agents:
            _beat(daemon, agent, 1)
        wait_for(lambda: _counts(daemon) == {"running": count}, BOOT_S, "all runs to train")
        yield cloud, daemon, agents


def _counts(daemon: house.TimedDaemon) -> Any:
    return daemon.call("GET", "/v1/runs?page_size=1")["summary"]["counts"]


def _beat(daemon: house.TimedDaemon, agent: Agent, sequence: int, notice_s: float | None = None) -> None:
    """What the agent would push."""
    beat = Beat(
        agent["run_id"], 1, agent["launch_id"], agent["machine_id"], "boot-1", sequence, heartbeat.TRAINING,
        agent["nonce"], step=sequence, total=1000, notice_s=notice_s,
    )  # fmt: skip
    answer = daemon.http.post(f"{daemon.url}/v1/runs/{beat.run_id}/heartbeat", content=heartbeat.encode(beat))
    assert answer.is_success, f"the beat was refused: {answer.text}"


BENCHES = (
    Bench(pushed, (Row("cloud_reinsert_push_p99_s", "s", target=0.3),)),
    Bench(polled, (Row("cloud_reinsert_poll_p99_s", "s"),)),
)
