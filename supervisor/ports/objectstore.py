"""Durable objects with generations: the folder on disk, a bucket in a cloud.

The promise itself, with its values and errors, stands in contract/stores/promise.py: the agent relies on it too.
"""

from __future__ import annotations

from supervisor.contract.stores.promise import (
    ABSENT,
    MAX_KEY_BYTES,
    MAX_METADATA_BYTES,
    MAX_PAGE,
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
