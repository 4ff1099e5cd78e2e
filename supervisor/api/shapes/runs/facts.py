"""The shape of the answer that tells the facts of a run."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from supervisor.api.shapes.answers import CAUSE, Answer

FACTS = (
    "As the agent wrote them: a fact that is missing was not found out, null was found out: there is none."
)


class ChangedPackage(Answer):
    was: str
    is_: str = Field(alias="is")


class DifferingPackages(Answer):
    """Lines as `pip freeze` writes them, 20 at most in all; `left_out` counts the others."""

    changed: list[ChangedPackage]
    added: list[str]
    removed: list[str]
    left_out: int


class DifferingFact(Answer):
    """`against`: the attempt before it whose facts are known. `packages` null: only the hashes are known to differ."""

    attempt: int
    against: int
    fact: str
    was: str | None
    is_: str | None = Field(alias="is")
    packages: DifferingPackages | None


class AttemptFacts(Answer):
    attempt: int
    generation: int
    cause: str | None = Field(description=CAUSE)
    facts: dict[str, Any] | None = Field(description=FACTS)


class RunFacts(Answer):
    """What a paper needs. The 200 newest attempts are told."""

    run_id: str
    spec: dict[str, Any]
    command: str | list[str]
    code: str | None
    image: str | None
    attempts: list[AttemptFacts]
    differs: list[DifferingFact]
