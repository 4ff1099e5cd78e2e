"""One tick over a thousand runs in a Kubernetes cluster: its requests to the API, and its CPU.

The cluster is in this process, so that its work is not counted; the supervisor is a child (kubernetes_tick_house.py),
which ticks once for each line. Each run has a Job and a pod of the size of real ones.
"""

from __future__ import annotations

import copy
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervisor.domain import machines
from supervisor.domain.machines import Placement
from supervisor.domain.run import Run
from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.settings.loading import Settings
from tests.benchmarks import scene
from tests.benchmarks.row import Bench, Figure, Row, Size
from tests.kubernetes.api import NAMESPACE
from tests.kubernetes.cluster import SPOT, Cluster
from tests.kubernetes.kinds import JOB, POD
from tests.kubernetes.objects import Object
from tests.kubernetes.verbs import Target

RUNS, KIND = 1000, "kubernetes"


def ticking(size: Size) -> Mapping[str, Figure]:
    count = RUNS if size.seconds >= 10 else 100
    cluster = Cluster()
    cluster.api.checks = False
    try:
        with scene.folder() as folder:
            environ = _environment(folder, cluster)
            _crowd(scene.settings_for(folder / "data", **environ), cluster, count)
            ticks = _ticks(folder / "data", environ, cluster, count, size.times)
    finally:
        cluster.close()
    cpu = [tick["cpu_s"] for tick in ticks[1:]]
    note = {"runs": count, "first_s": round(ticks[0]["cpu_s"], 3), "least_s": round(min(cpu), 3)}
    return {
        "kubernetes_tick_requests": Figure(max(tick["requests"] for tick in ticks), note={"runs": count}),
        "kubernetes_tick_cpu_s": Figure(statistics.median(cpu), note=note),
    }


def _environment(folder: Path, cluster: Cluster) -> dict[str, str]:
    return {
        "SPOT_PROVIDER": KIND,
        "SPOT_KUBERNETES_KUBECONFIG": str(cluster.kubeconfig(folder)),
        "SPOT_KUBERNETES_POOLS": f"spot={SPOT}=true",
        "SPOT_KUBERNETES_CLAIM": "checkpoints",
        "SPOT_KUBERNETES_CLAIM_MOUNT": str(folder),
        "SPOT_STORE_URL": f"file://{folder}/objects",
    }


def _crowd(settings: Settings, cluster: Cluster, count: int) -> None:
    """Running runs with a Job and a pod each."""
    now = time.time()
    with scene.opened(settings) as store:
        ours, cell = store.supervisor_id, machines.cell(KIND, KIND, settings.store_url)
        runs = [_in_cluster(scene.running(name, cell, ours, "spot", now, provider=KIND)) for name in scene.names(count)]
        _objects(cluster, runs, ours)
        scene.insert(store, runs, [{}] * count)
    FilesystemStore.create(FilesystemStore.at(settings.store_url).root)


def _in_cluster(run: Run) -> Run:
    place = Placement(KIND, KIND, "spot", "cpu", True)
    assert run.try_ is not None
    assert run.attempt is not None
    attempt = replace(run.attempt, placement=place, machine_id=str(uuid.uuid4()))
    return replace(run, try_=replace(run.try_, placement=place), attempt=attempt)


def _objects(cluster: Cluster, runs: list[Run], ours: str) -> None:
    job, pod = _first(cluster)
    for run in runs:
        assert run.attempt is not None
        name, uid = run.attempt.machine_name, run.attempt.machine_id
        labels = {
            machines.RUNNER_LABEL: "spot", machines.SUPERVISOR_LABEL: ours, machines.RUN_LABEL: run.run_id,
            machines.ATTEMPT_LABEL: "1", machines.LAUNCH_LABEL: scene.LAUNCH, "spot-machine": name,
            "spot-zone": "spot", "spot-shape": "cpu",
        }  # fmt: skip
        each = copy.deepcopy(job)
        each["metadata"].update(name=name, uid=uid, labels=labels)
        cluster.objects.add(JOB, NAMESPACE, each)
        its = copy.deepcopy(pod)
        its["metadata"].update(name=f"{name}-abcde", uid=str(uuid.uuid4()), labels=labels)
        its["metadata"]["ownerReferences"][0].update(name=name, uid=uid)
        cluster.objects.add(POD, NAMESPACE, its)


def _first(cluster: Cluster) -> tuple[Object, Object]:
    """A Job of the size of a machine's, and its pod, which runs; both are removed again."""
    container = {
        "name": "training", "image": f"registry.example/train@sha256:{'a' * 64}", "command": ["/bin/sh", "start.sh"],
        "env": [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(7)],
        "volumeMounts": [{"name": f"v{number}", "mountPath": f"/v/{number}"} for number in range(5)],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "20Gi"}},
    }  # fmt: skip
    volumes = [{"name": f"v{number}", "emptyDir": {"sizeLimit": "20Gi"}} for number in range(5)]
    template = {"spec": {"restartPolicy": "Never", "containers": [container], "volumes": volumes}}
    body = {"metadata": {"name": "first"}, "spec": {"backoffLimit": 0, "template": template}}
    job = cluster.api.verbs.admit(Target(JOB, NAMESPACE), body)
    cluster.step()
    (pod,) = cluster.pods()
    cluster.objects.remove(JOB, job)
    cluster.objects.remove(POD, pod)
    return job, pod


def _ticks(
    data_dir: Path, environ: Mapping[str, str], cluster: Cluster, count: int, times: int
) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.benchmarks.kubernetes_tick_house", str(data_dir), str(count)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
    ticks = []
    with subprocess.Popen(
        command, env={**kept, **environ}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for _ in range(times + 1):
                before = len(cluster.api.requests)
                process.stdin.write("tick\n")
                process.stdin.flush()
                tick = json.loads(process.stdout.readline())
                ticks.append({**tick, "requests": len(cluster.api.requests) - before})
        finally:
            process.kill()
    return ticks


BENCHES = (
    Bench(
        ticking,
        (Row("kubernetes_tick_requests", "requests", target=4.0), Row("kubernetes_tick_cpu_s", "s of CPU", target=1.0)),
    ),
)
