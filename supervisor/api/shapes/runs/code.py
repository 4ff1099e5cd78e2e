"""The shapes of answers about code bundles."""

from __future__ import annotations

from supervisor.api.shapes.answers import Answer


class CodeShown(Answer):
    """`size_bytes`: of its files; `stored_bytes`: of the gzip in the object store."""

    sha256: str
    files: int
    size_bytes: int
    stored_bytes: int
