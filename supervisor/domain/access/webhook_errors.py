"""What is refused of webhooks; part of the one tree of errors."""

from __future__ import annotations

from supervisor.domain.errors import Conflict, InvalidRequest, SpotError


class WebhookNotFound(SpotError):
    code = "WEBHOOK_NOT_FOUND"


class DeliveryNotFound(SpotError):
    code = "DELIVERY_NOT_FOUND"


class UrlRefused(InvalidRequest):
    """Messages may not go to this address; the text says why, and not where it leads."""

    code = "URL_REFUSED"


class TooManyWebhooks(Conflict):
    """Their owner has as many as one may have."""

    code = "TOO_MANY_WEBHOOKS"
