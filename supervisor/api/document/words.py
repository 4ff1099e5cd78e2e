"""What the document says of the API as a whole: how values are written, who may ask, and what each tag gathers."""

from __future__ import annotations

from typing import Any

from supervisor.domain.access.callers import Scope

Json = dict[str, Any]

INFO = """\
Keeps trainings alive on spot machines: submit a run, and it is placed, watched, recovered after a
preemption and completed when its results are verified.

**Growing.** Clients must accept unknown words (statuses, causes, kinds, codes) and unknown fields in
answers: both may be added at any time. Unknown fields and parameters of a request are refused.

**Values.** Names are `snake_case`. Times are RFC 3339 in UTC with `Z`. Durations and ages end in `_s` and
are seconds. Money ends in `_usd` and is a decimal with at most 6 places; prices per hour end in
`_usd_per_h`. Sizes end in `_bytes`. What is not known is `null`, never 0.

**Refusals** are `application/problem+json` (RFC 9457). `code` is stable; `errors` points into the body
(`#/spec/zones`) or names the query parameter (`?page_size`); `meta` holds every value of the text. What was
sent is never repeated.

**Repeating.** A request that was answered 429 or 503 can be repeated after `Retry-After` seconds. A submit
can be repeated with the same `Idempotency-Key`, or with a `run_id` of your choice.

**Lists** are pages: give `next_cursor` back as `cursor` until it is null. A cursor is opaque and belongs to
its filters.

**Tokens.** `Authorization: Bearer sup_…`. Each operation names the scope that it needs; `admin` includes
all. Another owner's run is answered as one that does not exist.
"""

SERVERS: list[Json] = [
    {
        "url": "http://127.0.0.1:8787",
        "description": "A supervisor of this computer, as `spot serve` starts it.",
    }
]

TAGS: list[Json] = [
    {"name": "runs", "description": "Submit runs; look at them, their history, costs and output."},
    {"name": "actions", "description": "Wishes for runs that exist: stop, resume, approve."},
    {"name": "files", "description": "What a run has left in the object store."},
    {"name": "code", "description": "Code bundles, named by their content."},
    {
        "name": "machines",
        "description": "The machines that there are now, and the release of those that serve nobody.",
    },
    {"name": "prices", "description": "What machines cost per hour."},
    {"name": "events", "description": "What has happened, as lists and as live streams."},
    {"name": "tokens", "description": "Who may ask: tokens with scopes and an owner."},
    {"name": "webhooks", "description": "Who is told: endpoints, deliveries and their replay."},
    {"name": "health", "description": "The supervisor itself: is it alive, is it fit for work, what is it."},
    {"name": "agent", "description": "For the agent beside a training, not for people."},
    {"name": "dev", "description": "Disasters on request, to see a run survive them."},
]

SECURITY_SCHEMES: Json = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of `spot token create`, or the admin token that the first start writes into the data "
        "folder. Scopes: "
        + ", ".join(f"`{scope}`" for scope in Scope)
        + ". A server on loopback that was started "
        "with `--insecure-loopback` asks for none.",
    }
}


def security(scope: Scope | None) -> list[Json]:
    """What one operation needs. An empty list: nobody is asked."""
    return [] if scope is None else [{"token": [str(scope)]}]
