"""The same bed as the use cases have, with a client in front."""

import pytest

from tests.services.bed import Bed, Client
from tests.services.conftest import any_bed, bed

__all__ = ["any_bed", "bed", "client"]


@pytest.fixture
def client(bed: Bed) -> Client:
    return Client(bed.services)
