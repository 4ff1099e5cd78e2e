"""python -m tests.paper: `spot` with one more kind of provider in the list. One line registers it."""

from __future__ import annotations

from supervisor.cli.main import main
from supervisor.providers.kinds import PROVIDERS
from tests.paper import provider as paper

PROVIDERS["paper"] = paper.KIND

if __name__ == "__main__":
    main()
