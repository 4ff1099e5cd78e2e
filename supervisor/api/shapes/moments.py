"""Times in a query: RFC 3339 with an offset, and nothing else. The framework would take a bare number for seconds."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator

_FORM = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _as_written(value: object) -> object:
    if not isinstance(value, str) or _FORM.fullmatch(value) is None:
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_as_written)]
