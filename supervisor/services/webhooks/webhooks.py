"""Webhooks: their owners add, change, show, test and remove them.

The address is a credential of its receiver, so only its host is shown. The signing secret is in one response only, the
one that created it. The courier's guard checks the address now and at every delivery. Each change is an event.
"""

from __future__ import annotations

import base64
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from urllib.parse import urlsplit

from typing_extensions import TypedDict

from supervisor.domain.callers import Caller
from supervisor.domain.errors import Conflict, Forbidden, TooManyWebhooks, UrlRefused, WebhookNotFound
from supervisor.domain.events import EventKind
from supervisor.ports.notifier import BY_PERSON, SETTINGS_ID, DeliveryFailed, Endpoint, Form, Secret, Target
from supervisor.services.parts import Parts, ask_together
from supervisor.services.runs.changing import Raced, retry_races
from supervisor.services.views import formats

MOST = 20  # of one owner
SECRET_BYTES = 32
OLD_SECRET_S = 24 * 3600.0  # how long the previous secret also signs
TEST_S = 10.0
LOOK_UP_S = 5.0
OUTSIDE_MAX = 8  # requests that wait for a receiver or a name server: each occupies a thread of the API
WEBHOOK_ID = re.compile(r"wh-[0-9a-f]{12}")

_at_once = threading.BoundedSemaphore(OUTSIDE_MAX)

Random = Callable[[int], bytes]
UpdateEndpoint = Callable[[Endpoint, float], Endpoint]


class WebhookShown(TypedDict):
    """`url`: its host only. `failing_since` null: the receiver accepted the last message, or none was sent.
    `old_secret_until`: until then the previous secret signs too."""

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
    """`secret`: signs its messages. Only this response contains it; null where the form has no signature."""

    secret: str | None


class WebhookList(TypedDict):
    """In order of creation."""

    webhooks: list[WebhookShown]


class WebhookTested(TypedDict):
    """`status`: of the receiver's response, null = there was none. `detail`: why the message was not accepted."""

    delivered: bool
    status: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """`form` None: follows from the address's host. `kinds` (): the default kinds of the form."""

    url: str
    form: Form | None = None
    kinds: tuple[str, ...] = ()
    everything: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class WebhookChange:
    """None = unchanged."""

    url: str | None = None
    kinds: tuple[str, ...] | None = None
    everything: bool | None = None
    note: str | None = None
    enabled: bool | None = None


def add(parts: Parts, request: WebhookRequest, caller: Caller, random: Random = secrets.token_bytes) -> WebhookMade:
    """The new webhook with its `secret`, null for a form without signature. Raises UrlRefused, Forbidden,
    TooManyWebhooks, Conflict, StoreDown."""
    _check(parts, request.url, request.everything, caller)
    now, form = parts.clock.now(), request.form or parts.courier.form_of(request.url)
    text = None if form.chat else _secret(random)
    made = Endpoint(
        id=f"wh-{random(6).hex()}",
        owner=caller.owner,
        everything=request.everything,
        form=form,
        url=request.url,
        secrets=() if text is None else (Secret(text),),
        kinds=request.kinds,
        note=request.note,
        created_at=now,
        created_by=caller.actor,
    )
    sentence = f"Webhook {made.id} to {shown_url(made)} was added by {caller.actor}."
    event = caller.event(EventKind.WEBHOOK_ADDED, sentence, {**_facts(made), **_values(made)})
    if not parts.store.endpoints.add(made, event, MOST, now):
        raise TooManyWebhooks(f"{caller.owner} has {MOST} webhooks; `spot webhook rm` removes one.", {"most": MOST})
    return {**webhook_json(made, now), "secret": text}


def listing(parts: Parts, caller: Caller) -> WebhookList:
    """The caller's webhooks in order of creation; all webhooks for an administrator. Raises StoreDown."""
    now, owner = parts.clock.now(), None if caller.admin else caller.owner
    endpoints = parts.store.endpoints.of_owner(owner)
    return {"webhooks": [webhook_json(endpoint, now) for endpoint in endpoints if _shown_to(caller, endpoint)]}


def show(parts: Parts, webhook_id: str, caller: Caller) -> WebhookShown:
    """Raises WebhookNotFound, StoreDown."""
    return webhook_json(find(parts, webhook_id, caller), parts.clock.now())


def change(parts: Parts, webhook_id: str, wanted: WebhookChange, caller: Caller) -> WebhookShown:
    """The changed webhook. Raises WebhookNotFound, UrlRefused, Forbidden, Conflict, StoreDown."""
    if wanted.url is not None or wanted.everything:
        before = find(parts, webhook_id, caller)
        _check(parts, wanted.url, bool(wanted.everything) and not before.everything, caller)

    def update(endpoint: Endpoint, now: float) -> Endpoint:
        values = {name: getattr(wanted, name) for name in ("url", "kinds", "everything", "note")}
        after = replace(endpoint, **{name: value for name, value in values.items() if value is not None})
        if wanted.enabled is True:
            return replace(after, disabled_at=None, disabled_why="")
        if wanted.enabled is False and endpoint.disabled_at is None:
            return replace(after, disabled_at=now, disabled_why=BY_PERSON)
        return after

    return webhook_json(_changed(parts, webhook_id, update, "was changed", caller), parts.clock.now())


def rotate(parts: Parts, webhook_id: str, caller: Caller, random: Random = secrets.token_bytes) -> WebhookMade:
    """A new secret; the previous one also signs for a day. Raises WebhookNotFound, Conflict, StoreDown."""
    text = _secret(random)

    def update(endpoint: Endpoint, now: float) -> Endpoint:
        if endpoint.form.chat:
            why = f"{endpoint.id} is {endpoint.form}: its messages are not signed."
            raise Conflict(why, {"webhook_id": endpoint.id})
        old = tuple(Secret(secret.text, now + OLD_SECRET_S) for secret in endpoint.secrets if secret.until is None)
        return replace(endpoint, secrets=(Secret(text), *old))

    done = _changed(parts, webhook_id, update, "got a new secret", caller)
    return {**webhook_json(done, parts.clock.now()), "secret": text}


def remove(parts: Parts, webhook_id: str, caller: Caller) -> WebhookShown:
    """The removed webhook. Its deliveries are removed too. Raises WebhookNotFound, Conflict, StoreDown."""
    endpoint, now = _own(parts, webhook_id, caller), parts.clock.now()
    sentence = f"Webhook {endpoint.id} to {shown_url(endpoint)} was removed by {caller.actor}."
    event = caller.event(EventKind.WEBHOOK_REMOVED, sentence, _facts(endpoint))
    if not parts.store.endpoints.remove(endpoint.id, event, now):
        raise _not_found()
    return webhook_json(endpoint, now)


def try_out(parts: Parts, webhook_id: str, caller: Caller) -> WebhookTested:
    """Send one message marked as a test, even to a disabled webhook. Raises WebhookNotFound, Conflict, StoreDown."""
    endpoint, now = _own(parts, webhook_id, caller), parts.clock.now()
    target = Target(endpoint.url, endpoint.form, endpoint.secrets_at(now))
    try:
        with _outside():
            status: int | None = parts.courier.send_test(target, now, TEST_S)
    except DeliveryFailed as error:
        return {"delivered": False, "status": error.status, "detail": str(error)}
    return {"delivered": True, "status": status, "detail": ""}


def find(parts: Parts, webhook_id: str, caller: Caller) -> Endpoint:
    """Raises WebhookNotFound, with the same text for a missing webhook and for another owner's."""
    is_id = webhook_id == SETTINGS_ID or WEBHOOK_ID.fullmatch(webhook_id)
    endpoint = parts.store.endpoints.find(webhook_id) if is_id else None
    if endpoint is None or not _shown_to(caller, endpoint):
        raise _not_found()
    return endpoint


def _shown_to(caller: Caller, endpoint: Endpoint) -> bool:
    """A webhook for everything shows runs of all owners, in its deliveries and at whatever address it gets. So only
    administrators may see it, whoever created it."""
    return caller.admin or (caller.owns(endpoint.owner) and not endpoint.everything)


def shown_url(endpoint: Endpoint) -> str:
    """The part of the address that may be shown."""
    parts = urlsplit(endpoint.url)
    return f"{parts.scheme}://{parts.netloc}/***"


def webhook_json(endpoint: Endpoint, now: float) -> WebhookShown:
    old = [secret.until for secret in endpoint.secrets if secret.until is not None and secret.until > now]
    return {
        "webhook_id": endpoint.id,
        "url": shown_url(endpoint),
        "form": str(endpoint.form),
        "owner": endpoint.owner,
        "everything": endpoint.everything,
        "kinds": list(endpoint.kinds),
        "note": endpoint.note,
        "enabled": endpoint.disabled_at is None,
        "disabled_at": formats.maybe_time(endpoint.disabled_at),
        "disabled_why": endpoint.disabled_why,
        "failing_since": formats.maybe_time(endpoint.failing_since),
        "old_secret_until": formats.maybe_time(max(old, default=None)),
        "created_at": formats.time_text(endpoint.created_at),
        "created_by": endpoint.created_by,
    }


def _changed(parts: Parts, webhook_id: str, update: UpdateEndpoint, what: str, caller: Caller) -> Endpoint:
    text = f"{webhook_id} kept changing; nothing was done. Retry."
    error = Conflict(text, {"webhook_id": webhook_id})
    return retry_races(error, _change, parts, webhook_id, update, what, caller)


def _change(parts: Parts, webhook_id: str, update: UpdateEndpoint, what: str, caller: Caller) -> Endpoint:
    endpoint, now = _own(parts, webhook_id, caller), parts.clock.now()
    after = update(endpoint, now)
    if after == endpoint:
        return endpoint
    sentence = f"Webhook {endpoint.id} {what} by {caller.actor}."
    # The names of all changed fields, even where the values are secret.
    names = [item.name for item in fields(Endpoint) if getattr(endpoint, item.name) != getattr(after, item.name)]
    facts = {**_facts(endpoint), "fields": names}
    event = caller.changed(EventKind.WEBHOOK_CHANGED, sentence, _values(endpoint), _values(after), facts)
    if not parts.store.endpoints.change(endpoint, after, event, now):
        raise Raced
    return parts.store.endpoints.find(endpoint.id) or after


def _own(parts: Parts, webhook_id: str, caller: Caller) -> Endpoint:
    """A webhook that may be changed here. Raises WebhookNotFound, Conflict."""
    endpoint = find(parts, webhook_id, caller)
    if endpoint.id == SETTINGS_ID:
        raise Conflict("This is the alert_url of the settings: change it there and restart. `spot doctor` tests it.")
    return endpoint


def _check(parts: Parts, url: str | None, everything: bool, caller: Caller) -> None:
    if everything and not caller.admin:
        raise Forbidden("Only an administrator's webhook may receive everything. Leave `everything` out.")
    why = "" if url is None else _why_refused(parts, url)
    if why:
        raise UrlRefused(f"This address cannot be used: {why}.", errors=(("#/url", why),))


def _why_refused(parts: Parts, url: str) -> str:
    """A slow name server must not occupy the API's threads."""
    with _outside():
        answer = ask_together({"url": lambda: parts.courier.why_refused(url)}, LOOK_UP_S)["url"]
    if answer.error is not None:
        raise answer.error
    return "its host could not be looked up in time" if answer.late else str(answer.value)


@contextmanager
def _outside() -> Iterator[None]:
    """Raises Conflict."""
    if not _at_once.acquire(blocking=False):
        raise Conflict("Other addresses are being tried and do not respond. Retry in a few seconds.")
    try:
        yield
    finally:
        _at_once.release()


def _values(endpoint: Endpoint) -> Mapping[str, object]:
    """The values that a change may touch, without secrets."""
    return {
        "url": shown_url(endpoint),
        "kinds": list(endpoint.kinds),
        "everything": endpoint.everything,
        "note": endpoint.note,
        "enabled": endpoint.disabled_at is None,
    }


def _facts(endpoint: Endpoint) -> Mapping[str, object]:
    return {"webhook_id": endpoint.id, "owner": endpoint.owner, "form": str(endpoint.form)}


def _secret(random: Random) -> str:
    return "whsec_" + base64.b64encode(random(SECRET_BYTES)).decode()


def _not_found() -> WebhookNotFound:
    return WebhookNotFound("There is no webhook with this id. `spot webhook ls` lists the webhooks.")
