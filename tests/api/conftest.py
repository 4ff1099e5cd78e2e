"""The bed of the services' tests, with a client in front."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.api.listening import QUICK, Serving, serving
from tests.services.bed import Bed, Client
from tests.services.conftest import any_bed, bed

__all__ = ["any_bed", "bed", "client", "served"]


@pytest.fixture
def client(bed: Bed) -> Client:
    return Client(bed.services)


@pytest.fixture
def served(bed: Bed) -> Iterator[Serving]:
    """A real server, with quick paces for streams."""
    with serving(replace(bed.services, streams=QUICK)) as one:
        yield one
