"""The same bed as the use cases have, with pages in front of it."""

import pytest

from supervisor.api.wire.deps import Services, with_tokens
from supervisor.api.wire.rates import Rates
from supervisor.domain.callers import LOCAL, Scope
from supervisor.services.access.tokens import TokenRequest, create
from tests.dashboard.looking import Looking
from tests.services.bed import Bed
from tests.services.conftest import any_bed, bed

__all__ = ["any_bed", "asked", "bed", "looking", "token"]


@pytest.fixture
def looking(bed: Bed) -> Looking:
    """Nobody is asked who he is."""
    return Looking(bed.services)


@pytest.fixture
def token(bed: Bed) -> str:
    wish = TokenRequest(name="eve", owner="eve", scopes=frozenset({Scope.ADMIN}))
    return str(create(bed.parts, wish, LOCAL)["token"])


@pytest.fixture
def asked(bed: Bed) -> Services:
    return with_tokens(bed.services, Rates(0.0, 0.0))
