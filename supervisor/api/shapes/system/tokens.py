"""What is asked and told of tokens. The text of one is in the answer to its making, and nowhere else."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from supervisor.api.shapes.answers import Answer
from supervisor.api.shapes.run_spec import ONCE, WHOLE, Seconds, Strict, unique
from supervisor.domain.access.callers import NAME_RULE, Scope

PersonName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$"),
    Field(description=f"Stands in the history: {NAME_RULE}."),
]
SCOPES = "What the token may do; `admin` includes all."


class CreateTokenBody(Strict):
    """`owner`: whose runs it submits and sees; yours when left out. `expires_in_s` null: never. `max_active_runs` null:
    no limit."""

    name: PersonName
    owner: PersonName | None = None
    scopes: Annotated[
        list[Annotated[Scope, Field(strict=False)]],
        Field(min_length=1, max_length=8, description=SCOPES, json_schema_extra=ONCE),
        AfterValidator(unique),
    ] = [Scope.READ, Scope.WRITE]
    expires_in_s: Seconds | None = None
    max_active_runs: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] | None = None


class TokenShown(Answer):
    """`valid`: neither revoked nor expired. `last_used_at` is written once a minute; null: never used."""

    token_id: str
    name: str
    owner: str
    scopes: list[str] = Field(description=SCOPES)
    max_active_runs: int | None
    created_by: str
    valid: bool
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None


class TokenMade(TokenShown):
    """`token`: its text, told this once."""

    token: str


class TokenList(Answer):
    """Those that were not revoked first, in each part the newest first; 1000 at most."""

    tokens: list[TokenShown]
