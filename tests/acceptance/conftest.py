"""Stories in virtual time have their databases in memory, as the scenarios do."""

from tests.scenarios.conftest import folder

__all__ = ["folder"]
