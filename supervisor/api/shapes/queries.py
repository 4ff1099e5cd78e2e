"""The query of a submit: whether it is meant, or only asked about.

The query of a log: which part of it, or a text to look for; ways to say where it begins exclude each other.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from supervisor.api.shapes.bodies import NoParameters
from supervisor.domain.errors import InvalidRequest
from supervisor.services.logs.logs import Part

# name -> parameters beside which it has no meaning
APART = {
    "line": ("offset", "tail"),
    "tail": ("offset", "line", "lines", "q"),
    "limit": ("q",),
    "lines": ("q",),
}
# name -> the parameter without which it has no meaning
NEEDS = {"before": "tail", "ignore_case": "q"}
BYTE = Field(ge=0, le=2**62)


class LogParameters(NoParameters):
    attempt: Annotated[int, Field(ge=1, le=10**9)] | None = None
    offset: Annotated[int, BYTE] = 0
    limit: Annotated[int, Field(ge=1, le=1_048_576, description="bytes of text at most")] = 262_144
    line: Annotated[
        Annotated[int, Field(ge=1, le=2**62)] | None,
        Field(description="From the beginning of this line on; the first is 1."),
    ] = None
    tail: Annotated[
        Annotated[int, Field(ge=1, le=10_000)] | None, Field(description="The last so many lines.")
    ] = None
    before: Annotated[
        Annotated[int, BYTE] | None, Field(description="With tail: the last lines before this byte.")
    ] = None
    lines: Annotated[int, Field(ge=1, le=10_000)] | None = None
    q: Annotated[
        Annotated[str, StringConstraints(pattern=r"^[^\x00-\x08\x0a-\x1f]+$", max_length=200)] | None,
        Field(description="Lines in which this text stands, from offset or line on, instead of text."),
    ] = None
    ignore_case: Annotated[bool, Field(description="With q: upper and lower case are the same.")] = False

    @property
    def part(self) -> Part:
        """Raises InvalidRequest."""
        given = self.given
        errors = [
            (f"?{name}", f"has no meaning beside {other}")
            for name, others in APART.items()
            for other in others
            if {name, other} <= given
        ]
        errors += [
            (f"?{name}", f"has no meaning without {needed}")
            for name, needed in NEEDS.items()
            if name in given and needed not in given
        ]
        if errors:
            told = "; ".join(f"{pointer} {reason}" for pointer, reason in errors[:3])
            raise InvalidRequest(f"The query is refused: {told}.", {"count": len(errors)}, errors)
        return Part(self.offset, self.limit, self.line, self.tail, self.before, self.lines)


class SubmitParameters(NoParameters):
    """`validate_only`: tell the plan, and do nothing of it. `code_follows`, in a plan: the code bundle is stored with
    the submit itself, so it need not be there now."""

    validate_only: bool = False
    code_follows: bool = False

    @model_validator(mode="after")
    def _follows(self) -> SubmitParameters:
        if self.code_follows and not self.validate_only:
            raise ValueError("code_follows has a meaning with validate_only alone")
        return self
