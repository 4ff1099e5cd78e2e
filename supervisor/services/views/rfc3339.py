"""Times in responses: RFC 3339 in UTC with a Z, to the millisecond."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, Field

Time = Annotated[str, AfterValidator(datetime.fromisoformat), Field(json_schema_extra={"format": "date-time"})]


@lru_cache(maxsize=8192)  # a list that is read again and again shows the same times of the same runs
def text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def maybe(at: float | None) -> str | None:
    return None if at is None else text(at)
