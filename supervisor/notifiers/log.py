"""Announcements as log lines, one each: the notifier that every supervisor has."""

from __future__ import annotations

import logging

from supervisor.ports.notifier import Notification
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)


class LogNotifier:
    """Never fails: a log cannot refuse."""

    name = "log"

    def send(self, notification: Notification) -> None:
        LOG.info(
            "%s",
            notification.text,
            extra={
                telemetry.ACTION: "notify",
                telemetry.RUN_ID: notification.run_id,
                telemetry.EVENT: notification.kind,
                telemetry.EVENT_ID: notification.event_id,
                telemetry.SEQUENCE: notification.sequence,
            },
        )
