"""tools/checks/agent.py: imports that the agent's archive could not satisfy."""

from pathlib import Path

import pytest

from tools.checks.agent import check


@pytest.fixture
def house(tmp_path: Path) -> Path:
    contract = tmp_path / "supervisor" / "contract"
    contract.mkdir(parents=True)
    for name in ("baton", "heartbeat"):
        (contract / f"{name}.py").write_text("import json\nfrom supervisor.contract.identifiers import x\n")
    agent = tmp_path / "supervisor" / "agent"
    agent.mkdir()
    (agent / "main.py").write_text(
        "import os.path\nfrom supervisor.agent import loop\nfrom supervisor.contract import baton, heartbeat\n"
    )
    return tmp_path


def test_a_good_tree_passes(house: Path) -> None:
    assert check(house) == []


@pytest.mark.parametrize(
    "line",
    [
        "import httpx",
        "import supervisor.domain.run",
        "from supervisor.domain import run",
        "from supervisor import ports",
        "from supervisor.ports.store import Store",
        "from . import loop",
        "def late():\n    import yaml",
    ],
)
def test_an_import_from_outside_is_found_in_the_agent(house: Path, line: str) -> None:
    (house / "supervisor" / "agent" / "main.py").write_text(line + "\n")
    assert len(check(house)) == 1


@pytest.mark.parametrize("line", ["import httpx", "import supervisor.domain.run", "import supervisor.agent.main"])
def test_an_import_from_outside_is_found_in_the_contract(house: Path, line: str) -> None:
    (house / "supervisor" / "contract" / "baton.py").write_text(line + "\n")
    assert len(check(house)) == 1
