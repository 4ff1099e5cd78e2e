"""The same bed as the use cases have, with pages in front of it."""

import pytest

from tests.dashboard.looking import Looking
from tests.services.bed import Bed
from tests.services.conftest import any_bed, bed

__all__ = ["any_bed", "bed", "looking"]


@pytest.fixture
def looking(bed: Bed) -> Looking:
    """Nobody is asked who he is."""
    return Looking(bed.services)
