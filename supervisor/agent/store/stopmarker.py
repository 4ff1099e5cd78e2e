"""The .stop marker: its existence is the message, its object generation says which stop it was.

A marker whose generation a resume has used up is ignored everywhere (RULES section 5).
"""

from __future__ import annotations

from typing import Optional

from supervisor.agent.store.reach import Store
from supervisor.contract import runfiles
from supervisor.contract.stores.errors import ObjectMissing


def fresh_marker(store: Store, run_id: str, *consumed: Optional[str]) -> Optional[str]:
    """The marker's generation, None when there is none or it is one of `consumed`. StoreUnavailable."""
    try:
        generation = store.stat(runfiles.stop_marker(run_id)).generation
    except ObjectMissing:
        return None
    return None if generation in consumed else generation
