"""The packages of tests/frameworks/requirements.txt, in an environment of their own (`make frameworks`)."""

from pathlib import Path

import pytest

from tests.agent.conftest import archive, compiled, rig

__all__ = ["archive", "compiled", "rig"]

PYTHON = Path(__file__).parents[3] / "build" / "frameworks" / "bin" / "python"


@pytest.fixture(scope="session")
def python() -> str:
    assert PYTHON.exists(), "make frameworks installs them"
    return str(PYTHON)
