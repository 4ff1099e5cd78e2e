"""Whatever could not be read is no answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.local.papers import Unreadable


@contextmanager
def clear_answers(what: str) -> Iterator[None]:
    """`what` was asked for. Raises ProviderUnavailable."""
    try:
        yield
    except (OSError, Unreadable) as error:
        raise ProviderUnavailable(f"{what}: {error}") from error
