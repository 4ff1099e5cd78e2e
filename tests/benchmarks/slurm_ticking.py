"""One tick over a thousand running jobs of a Slurm cluster: its commands, and what it costs this computer.

The real tick, provider and stores; Slurm's commands are scripts that print what Slurm 22.05 prints: about 100 fields of
each job. Their own CPU is not counted. Half of the beats are new, as at the usual paces.

    python -m tests.benchmarks.slurm_ticking DATA_DIR JOBS TICKS
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from supervisor.domain.machines import Placement, cell
from supervisor.domain.run import Run
from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.providers.slurm.cluster import Commands
from supervisor.reconciler.system_clock import EventWake
from supervisor.settings.loading import Settings
from supervisor.storage.store import SqlStore
from supervisor.wiring import application as wired
from supervisor.wiring import bootstrap
from tests.benchmarks import beat_writer, scene
from tests.benchmarks.row import Bench, Figure, Row, Size
from tests.benchmarks.tick_house import Hand, MovedClock

JOBS, QUICK_JOBS = 1000, 100
COMMANDS = 4
LONGEST_S = 300.0
OTHERS = {f"field_{number}": "some text" for number in range(95)}
CONFIG = "ClusterName = lab\nSLURM_VERSION = 22.05.8\nJobCompType = jobcomp/filetxt\nKillWait = 30 sec\n"
PARTITION = "PartitionName=spot MaxTime=2-00:00:00 GraceTime=60 PreemptMode=REQUEUE State=UP TotalNodes=64\n"
PRINTS = '#!/bin/sh\ncase "$*" in *partition*) exec cat {folder}/partition;; *) exec cat {folder}/{name};; esac\n'


def ticking(size: Size) -> Mapping[str, Figure]:
    jobs = JOBS if size.seconds >= 10 else QUICK_JOBS
    with scene.folder() as folder:
        command = [sys.executable, "-m", "tests.benchmarks.slurm_ticking", str(folder), str(jobs), str(size.times)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=LONGEST_S)
    told = json.loads(done.stdout)
    first, ticks = told[0], told[1:]
    note = {"jobs": jobs, "first_s": round(first["cpu_s"], 3)}
    most = max(tick["commands"] for tick in told)
    return {
        "slurm_tick_commands": Figure(most, target=COMMANDS, note={"jobs": jobs, "usual": ticks[-1]["commands"]}),
        "slurm_tick_cpu_s": Figure(statistics.median(tick["cpu_s"] for tick in ticks), note=note),
    }


def measure(data_dir: Path, count: int, ticks: int) -> list[dict[str, float]]:
    bin_dir = _programs(data_dir)
    os.environ["PATH"] = f"{bin_dir}:{os.environ['PATH']}"
    store_url = f"file://{data_dir}/objects"
    settings = scene.settings_for(
        data_dir,
        SPOT_PROVIDER="slurm",
        SPOT_SLURM_FOLDER=str(data_dir / "shared"),
        SPOT_SLURM_PARTITIONS="spot",
        SPOT_STORE_URL=store_url,
    )
    FilesystemStore.create(FilesystemStore.at(store_url).root)
    _crowd(settings, count, bin_dir)
    made = Counter[str]()
    _count(made)
    clock = MovedClock()
    wired.SystemClock = lambda: clock  # type: ignore[misc,assignment]
    bootstrap.tune_interpreter()
    found = []
    with contextlib.ExitStack() as opened:
        store = opened.enter_context(scene.opened(settings))
        writers = [opened.enter_context(beat_writer.writer(data_dir / "objects", each)) for each in (count, count // 2)]
        hand = Hand(wired.build(settings, store, wired.Wakes(EventWake(), EventWake())), store, clock)
        for number in range(ticks + 1):
            writers[min(number, 1)].write(number + 2)
            made.clear()
            found.append({**hand.run(), "commands": made.total()})
            listed = sum(run.pulse is not None and run.pulse.sequence == number + 2 for run in hand.tick.runs.values())
            assert listed == (count if number == 0 else count // 2), f"{listed} runs have the new beat"
        hand.tick.actor.close()
        hand.tick.readers.close()
    return found


def _programs(data_dir: Path) -> Path:
    folder = data_dir / "bin"
    folder.mkdir()
    (folder / "partition").write_text(PARTITION)
    (folder / "config").write_text(CONFIG)
    for program, name in (("squeue", "queue"), ("scontrol", "config"), ("sbatch", "none"), ("scancel", "none")):
        (folder / program).write_text(PRINTS.format(folder=folder, name=name))
        (folder / program).chmod(0o700)
    return folder


def _crowd(settings: Settings, count: int, bin_dir: Path) -> None:
    now = time.time()
    with scene.opened(settings) as store:
        runs = [_run(store, number, run_id, settings, now) for number, run_id in enumerate(scene.names(count))]
        scene.insert(store, runs, [{}] * count)
    jobs = []
    for number, run in enumerate(runs):
        attempt = run.attempt
        assert attempt is not None
        machine = attempt.machine_name
        (settings.data_dir / "shared" / "machines" / machine).mkdir(parents=True)
        job_name = f"{machine}:{store.supervisor_id}:{run.run_id}:{scene.LAUNCH}:spot"
        own = {"job_id": number + 1, "name": job_name, "job_state": "RUNNING", "submit_time": 1, "restart_cnt": 0}
        jobs.append({**OTHERS, **own})
    (bin_dir / "queue").write_text(json.dumps({"errors": [], "jobs": jobs}, indent=2))


def _run(store: SqlStore, number: int, run_id: str, settings: Settings, now: float) -> Run:
    own_cell = cell("slurm", "slurm", settings.store_url)
    run = scene.running(run_id, own_cell, store.supervisor_id, "spot", now, provider="slurm")
    place = Placement("slurm", "slurm", "spot", "cpu", True)
    assert run.try_ is not None
    assert run.attempt is not None
    attempt = replace(run.attempt, machine_id=f"{number + 1}.0", placement=place)
    return replace(run, try_=replace(run.try_, placement=place), attempt=attempt)


def _count(made: Counter[str]) -> None:
    run = Commands.run

    def counted(self: Commands, *words: str, timeout_s: float = LONGEST_S) -> str:
        made[words[0]] += 1
        return run(self, *words, timeout_s=timeout_s)

    Commands.run = counted  # type: ignore[method-assign]


BENCHES = (Bench(ticking, (Row("slurm_tick_commands", "commands"), Row("slurm_tick_cpu_s", "s of CPU", target=1.0))),)


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
