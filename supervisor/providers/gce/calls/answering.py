"""Whatever of Google's could not be read is no answer, and no absence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.calls.errors import ApiError


@contextmanager
def clear_answers(what: str, advice: str = "") -> Iterator[None]:
    """ApiError comes out as ProviderUnavailable, with what was to be read."""
    try:
        yield
    except ApiError as error:
        raise ProviderUnavailable(f"{what}: {error}{advice}") from error
