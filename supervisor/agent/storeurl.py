"""From the store's URL in job.json to the one implementation that can reach it."""

from __future__ import annotations

from supervisor.agent.reach import Store
from supervisor.agent.stores.folder import FolderStore


def open_store(url: str) -> Store:
    """ValueError for a URL that this agent has no store for. Touches nothing yet."""
    return FolderStore.at(url)
