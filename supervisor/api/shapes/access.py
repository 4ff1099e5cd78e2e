"""What is asked and told of tokens and webhooks: who may ask, and who is told.

The text of a token and the secret of a webhook are in the answer to their making, and nowhere else; the address of a
webhook never is.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from supervisor.api.shapes.answers import Answer
from supervisor.api.shapes.bodies import Moment, NoParameters
from supervisor.api.shapes.run_spec import ONCE, WHOLE, Seconds, Strict, unique
from supervisor.domain.callers import NAME_RULE, Scope
from supervisor.domain.events import KINDS
from supervisor.domain.texts import ONE_LINE
from supervisor.ports.notifier import Form

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


DELIVERY_MAX = 2**62


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError("is not announced; docs/webhooks.md lists the kinds")
    return kind


Url = Annotated[
    str,
    StringConstraints(pattern=r"^https?://[^\x00-\x20]+$", max_length=2000),
    Field(description="Where messages go: https on the open internet, or a host that the settings allow."),
]
Kinds = Annotated[
    list[Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": sorted(KINDS)})]],
    Field(max_length=64, description="What it hears of; empty: the usual of its form.", json_schema_extra=ONCE),
    AfterValidator(unique),
]
Note = Annotated[
    str,
    StringConstraints(pattern=ONE_LINE, max_length=200),
    Field(description="For people; stands in messages about the webhook itself."),
]


class AddWebhookBody(Strict):
    """`form` null: what the address's host understands. `everything`: of all owners and of the supervisor itself; for
    administrators."""

    url: Url
    form: Annotated[Form, Field(strict=False)] | None = None
    kinds: Kinds = []
    everything: bool = False
    note: Note = ""


class ChangeWebhookBody(Strict):
    """Null or left out: stays as it is. `enabled` true also forgets that it has failed; what waited for it goes out."""

    url: Url | None = None
    kinds: Kinds | None = None
    everything: bool | None = None
    note: Note | None = None
    enabled: bool | None = None


class ReplayBody(Strict):
    """Of which time the failed deliveries are sent again; null: of the last week."""

    since: Annotated[Moment, Field(strict=False)] | None = None


class DeliveryParameters(NoParameters):
    page_size: Annotated[int, Field(ge=0, description="0 = 50; above 1000 is taken as 1000")] = 0
    cursor: Annotated[str, StringConstraints(max_length=255)] | None = None
    failed: Annotated[bool, Field(description="Only those that were given up.")] = False
    state: Annotated[
        Literal["pending", "delivered", "given_up"] | None, Field(description="Only those in this state.")
    ] = None


class WebhookShown(Answer):
    """`url`: its host only. `failing_since` null: the last message was taken, or none was sent. `old_secret_until`: so
    long the secret before the newest one signs too."""

    webhook_id: str
    url: str
    form: str
    owner: str
    everything: bool
    kinds: list[str]
    note: str
    enabled: bool
    disabled_at: str | None
    disabled_why: str
    failing_since: str | None
    old_secret_until: str | None
    created_at: str
    created_by: str


class WebhookMade(WebhookShown):
    """`secret`: what signs its messages, told this once; null where its form has no signature."""

    secret: str | None


class WebhookList(Answer):
    """In the order in which they were made."""

    webhooks: list[WebhookShown]


class WebhookTested(Answer):
    """`status`: of the receiver's answer, null = there was none; `detail` says why it was not taken."""

    delivered: bool
    status: int | None
    detail: str


class DeliveryShown(Answer):
    """`kind`: as announced. `sequence`: orders the messages of one run. `state`: pending, delivered or given_up.
    `status`: of the last answer, null = there was none."""

    delivery_id: int
    event_id: int
    run_id: str | None
    sequence: int
    kind: str
    text: str
    at: str
    state: str
    tries: int
    next_try_at: str | None
    last_try_at: str | None
    delivered_at: str | None
    status: int | None
    detail: str


class DeliveryList(Answer):
    """Newest first."""

    deliveries: list[DeliveryShown]
    next_cursor: str | None


class Replayed(Answer):
    """How many are sent again."""

    replayed: int
