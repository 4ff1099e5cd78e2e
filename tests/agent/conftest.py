"""The agent's archive, built once, and a machine for each test that asks for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.providers.agent_bundle import write_agent
from tests.agent.machine_rig import Rig


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_agent(tmp_path_factory.mktemp("agent") / "agent.pyz")


@pytest.fixture
def rig(tmp_path: Path, archive: Path) -> Iterator[Rig]:
    found = Rig(tmp_path, archive)
    try:
        yield found
    finally:
        found.close()
