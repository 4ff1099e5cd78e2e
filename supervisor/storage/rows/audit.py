"""One log line for every change that somebody asked for, written when it is committed and never otherwise.

The history is the audit; this is for those who collect logs. What was asked for is an event that names its request:
whoever makes it, it passes through here. Texts and values stay in the history: they may be anybody's words.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from supervisor.domain.events import Event
from supervisor.storage.engine.statements import Session
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)


def log_later(session: Session, new: Sequence[Event], run_id: str = "", owner: str = "") -> None:
    """`run_id`, `owner`: "" for what is about the supervisor itself."""
    for event in new:
        if "request_id" in event.data:
            session.committed.append(partial(_log, event, run_id, owner))


def _log(event: Event, run_id: str, owner: str) -> None:
    LOG.info(
        "Asked for and committed.",
        extra={
            telemetry.ACTION: "audit",
            telemetry.EVENT: str(event.kind),
            telemetry.ACTOR: event.actor,
            telemetry.OWNER: owner,
            telemetry.RUN_ID: run_id,
            telemetry.REQUEST_ID: event.data["request_id"],
            telemetry.TOKEN_ID: event.data.get("token_id", ""),
        },
    )
