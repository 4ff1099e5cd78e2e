"""The agent's archive, built once, and the fixtures: a machine, a small disk, or a bucket on loopback."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.agent.store.gcs import GcsStore
from supervisor.machinefolder.agent_archive import write_agent
from tests.agent.bench import ManualClock
from tests.agent.bucket import BUCKET, LARGE, store_at
from tests.agent.machine_rig import Rig, agent_with_bytecode
from tests.cloud.discovery import Oracle
from tests.cloud.storage import StorageFake


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_agent(tmp_path_factory.mktemp("agent") / "agent.pyz")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compiled") / "agent.pyz"
    path.write_bytes(agent_with_bytecode())
    return path


@pytest.fixture
def rig(tmp_path: Path, compiled: Path) -> Iterator[Rig]:
    made = Rig(tmp_path, compiled)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[StorageFake]:
    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    oracle, wrong = Oracle("storage"), []
    fake = StorageFake(watch=lambda request, response: wrong.extend(oracle.check(request, response)))
    fake.make_bucket(BUCKET)
    yield fake
    fake.close()
    assert not wrong, wrong


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(cloud: StorageFake, clock: ManualClock) -> Iterator[GcsStore]:
    made = store_at(cloud, clock)
    yield made
    made.close()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "model.bin"
    path.write_bytes(os.urandom(LARGE))
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """8 MiB, where this process may mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "x", folder], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("this computer lets us mount nothing")
    yield folder
    subprocess.run(["umount", folder], check=True)
