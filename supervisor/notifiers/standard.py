"""The form of Standard Webhooks 1.0: the body of a message and the headers that sign it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from supervisor.domain.access.plaintext import visible, visible_in
from supervisor.ports.notifier import Notification

BODY_BYTES = 20_000  # Standard Webhooks asks for less than 20 KB
TEXT_MAX = 1900
BASE64 = "whsec_"  # what a secret begins with that goes on in base64


def body(notification: Notification) -> str:
    """JSON text; details that would make it too large are left out."""
    told = json.dumps(_plain(notification, dict(notification.data)))
    return told if len(told.encode()) < BODY_BYTES else json.dumps(_plain(notification, {}))


def headers(message_id: str, text: str, secrets: Sequence[str], at: float) -> dict[str, str]:
    """`at`: epoch seconds of this try; verifiers refuse what is older than 5 minutes. Each secret signs; without one
    nothing is signed. Raises ValueError for a `whsec_` that is not base64."""
    moment = datetime.fromtimestamp(int(at), UTC)
    told = {"webhook-id": message_id, "webhook-timestamp": str(int(at))}
    signers = [signer(secret) for secret in secrets]
    if signers:
        told["webhook-signature"] = " ".join(
            one.sign(msg_id=message_id, timestamp=moment, data=text) for one in signers
        )
    return told


def signer(secret: str) -> Any:
    """`whsec_…` as Standard Webhooks writes it; any other text is the key itself, in UTF-8. Raises ValueError."""
    from standardwebhooks import Webhook
    from standardwebhooks.webhooks import EmptyWebhookSecretError

    try:
        return Webhook(secret if secret.startswith(BASE64) else secret.encode())
    except (ValueError, EmptyWebhookSecretError):
        raise ValueError("a secret that begins with whsec_ goes on in base64") from None


def _text(notification: Notification) -> str:
    """Names the run by itself: receivers show this field alone."""
    run_id, text = notification.run_id, notification.text
    return text if not run_id or run_id in text else f"{run_id}: {text}"


def _plain(notification: Notification, details: dict[str, object]) -> dict[str, object]:
    at = datetime.fromtimestamp(notification.at, UTC).isoformat(timespec="milliseconds")
    return {
        "type": f"run.{notification.kind}" if notification.run_id else f"supervisor.{notification.kind}",
        "timestamp": at.replace("+00:00", "Z"),
        "data": {
            "run_id": notification.run_id or None,
            "kind": notification.kind,
            "text": visible(_text(notification))[:TEXT_MAX],
            "sequence": notification.sequence,
            "event_id": notification.event_id,
            "details": visible_in(details),
        },
    }
