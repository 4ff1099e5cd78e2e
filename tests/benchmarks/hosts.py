"""How long a listing of 200 hosts by SSH takes, and what it costs: each host has five runs. The connections are real;
the hosts are one asyncssh server in a process of its own, which answers at once."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from supervisor.ports.opening import no_hook
from supervisor.providers.ssh.meters import SshMeters
from supervisor.providers.ssh.provider import SshProvider
from supervisor.providers.ssh.settings import SshSettings
from supervisor.remote.connections import Connections
from tests.benchmarks import scene
from tests.benchmarks.row import Bench, Figure, Row, Size

HOSTS, RUNS_OF_HOST, TICK_S = 200, 5, 30.0


def listing(size: Size) -> Mapping[str, Figure]:
    hosts = HOSTS if size.seconds >= 10 else 20
    with scene.folder() as folder, _server(folder) as port:
        names = tuple(f"gpu{number}" for number in range(hosts))
        config = folder / "ssh_config"
        lines = (f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n  User bench\n" for name in names)
        config.write_text("".join(lines))
        agent = folder / "agent.pyz"
        agent.write_bytes(b"an archive")
        connections = Connections(config, folder / "known_hosts")
        s = SshSettings(ssh_hosts=names)
        meters = SshMeters(s, no_hook)
        provider = SshProvider("lab", s, connections, lambda: agent, meters=meters, on="2026-11-25", store_url="")
        try:
            began = time.perf_counter()
            first = provider.machines()
            connect_s = time.perf_counter() - began
            if len(first.machines) != hosts * RUNS_OF_HOST or first.unreachable:
                raise AssertionError(f"{len(first.machines)} machines, {len(first.unreachable)} hosts not read")
            waited, spent = [], []
            for _ in range(size.times):
                began, cpu = time.perf_counter(), time.process_time()
                provider.machines()
                waited.append(time.perf_counter() - began)
                spent.append(time.process_time() - cpu)
        finally:
            connections.close()
    note = {"hosts": hosts, "runs": hosts * RUNS_OF_HOST, "first_s": round(connect_s, 2)}
    return {
        "hosts_listing_s": Figure(statistics.median(waited), note=note),
        "hosts_listing_core_pct": Figure(100.0 * statistics.median(spent) / TICK_S, note=note),
    }


@contextmanager
def _server(folder: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "tests.benchmarks.hosts_server", str(folder), str(RUNS_OF_HOST)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


BENCHES = (Bench(listing, (Row("hosts_listing_s", "s", target=3.0), Row("hosts_listing_core_pct", "%", target=10.0))),)
