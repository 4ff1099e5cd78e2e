"""Times in a query: which texts are accepted."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from supervisor.api.shapes.parameters import Moment

READ = TypeAdapter(Moment | None).validate_python


@pytest.mark.parametrize(
    "text", ["2026-01-31T12:00:00Z", "2026-01-31t12:00:00.123456z", "2026-01-31T12:00:00+02:00", "2026-01-31 12:00:00Z"]
)
def test_times_as_rfc_3339_has_them(text: str) -> None:
    assert READ(text) is not None


@pytest.mark.parametrize(
    "text", ["0.5", "0", "1769860800", "-1", "2026-01-31", "2026-01-31T12:00:00", "2026-02-30T12:00:00Z", "", "now"]
)
def test_numbers_and_halves_of_times_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        READ(text)
