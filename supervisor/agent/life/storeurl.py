"""From the store's URL in job.json to the one implementation that can reach it."""

from __future__ import annotations

from typing import Optional

from supervisor.agent.machine.job import Job
from supervisor.agent.store.gcs import GcsStore
from supervisor.agent.store.reach import Store
from supervisor.contract.stores.folder import FolderStore


def open_store(job: Job, authorities: Optional[str] = None) -> Store:
    """ValueError for a URL that this agent has no store for. Touches nothing yet."""
    if job.store_url.startswith("gs:"):
        return GcsStore.at(job.store_url, job.storage_endpoint, authorities)
    return FolderStore.at(job.store_url)
