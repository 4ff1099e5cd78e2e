"""The object store: durable objects with generations, in a folder or in a bucket.

The port itself is in contract/stores/promise.py, because the agent uses it too.
"""

from __future__ import annotations

from supervisor.contract.stores.promise import (
    ABSENT,
    MAX_KEY_BYTES,
    MAX_METADATA_BYTES,
    MAX_PAGE,
    IsKnown,
    ObjectInfo,
    ObjectMissing,
    ObjectReader,
    ObjectStore,
    Page,
    PreconditionFailed,
    StoreForbidden,
    StoreFull,
    StoreMissing,
    StoreUnavailable,
)

__all__ = [
    "ABSENT",
    "MAX_KEY_BYTES",
    "MAX_METADATA_BYTES",
    "MAX_PAGE",
    "IsKnown",
    "ObjectInfo",
    "ObjectMissing",
    "ObjectReader",
    "ObjectStore",
    "Page",
    "PreconditionFailed",
    "StoreForbidden",
    "StoreFull",
    "StoreMissing",
    "StoreUnavailable",
]
