"""Two pods as the chart configures them, as processes of this computer on a real PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.acceptance.daemon import Daemon
from tests.acceptance.replicas import checks, leading, leads, link_machines
from tests.deploy.chart import NAMESPACE, RELEASE, Rendered, mounted, rendered
from tests.waiting import wait_for

PROMISED_S = 10.0  # the lease lasts 8 s, and a follower tries every second
TRIES = 2  # a busy computer may delay one
VALUES = {
    "settings": 'provider = "local"\nstore_url = "file:///mnt/spot-store/objects"\n',
    "store": {"claim": "spot-store", "path": "/mnt/spot-store"},
}


class Pod(Daemon):
    """The server of the chart's pod. Only its address differs: loopback, and a free port."""

    def __init__(self, chart: Rendered, folder: Path, database: str) -> None:
        environ = mounted(chart, folder, {"spot-database": {"url": database}}, folder.parent / "claims")
        assert chart.server["args"] == ["serve"]
        super().__init__(Path(environ["SPOT_DATA_DIR"]), {**environ, "SPOT_HOST": "127.0.0.1"})


@pytest.fixture
def chart() -> Rendered:
    return rendered(VALUES)


@pytest.fixture
def pods(chart: Rendered, tmp_path: Path, postgres_database: str) -> Iterator[tuple[Pod, Pod]]:
    """Both serve; the first one leads."""
    both = (Pod(chart, tmp_path / "one", postgres_database), Pod(chart, tmp_path / "two", postgres_database))
    link_machines(*(pod.data_dir for pod in both))
    try:
        for pod in both:
            pod.start()
            leading(both[0])
        yield both
    finally:
        for pod in reversed(both):
            pod.close()


def test_the_probes_find_both_ready_and_others_names_are_refused(chart: Rendered, pods: tuple[Pod, Pod]) -> None:
    for pod in pods:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            get = chart.server[probe]["httpGet"]
            headers = {header["name"]: header["value"] for header in get["httpHeaders"]}
            assert _status(pod, get["path"], headers["Host"]) == 200
        for name in (RELEASE, f"{RELEASE}.{NAMESPACE}", f"{RELEASE}.{NAMESPACE}.svc.cluster.local"):
            assert _status(pod, "/livez", f"{name}:8787") == 200
        assert _status(pod, "/livez", "10.0.0.7:8787") == 400, "what a probe without our header would get"
        assert _status(pod, "/v1/runs", RELEASE) == 401, "tokens are required"


def _status(pod: Pod, path: str, host: str) -> int:
    return httpx.get(pod.url + path, headers={"Host": host}, trust_env=False, timeout=30).status_code


def test_after_a_kill_the_other_replica_leads_within_ten_seconds(pods: tuple[Pod, Pod]) -> None:
    leader, follower = pods
    took_s: list[float] = []
    while len(took_s) < TRIES:
        assert checks(follower)["lease"] == "held by another replica"
        leader.kill()
        killed_at = time.monotonic()
        wait_for(partial(leads, follower), 60, "the other replica to lead")
        took_s.append(time.monotonic() - killed_at)
        if took_s[-1] < PROMISED_S:
            break
        leader.start()
        leader, follower = follower, leader
    assert min(took_s) < PROMISED_S
    leading(follower)
