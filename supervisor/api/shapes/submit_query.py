"""The query of a submit: whether it is meant, or only asked about."""

from __future__ import annotations

from pydantic import model_validator

from supervisor.api.shapes.bodies import NoParameters


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
