"""The doctor's look at the alert address: one test message, marked as such, and what its receiver said to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from supervisor.domain.findings import FAIL, OK, Finding
from supervisor.ports.notifier import DeliveryFailed

GROUP = "alerts"
TIMEOUT_S = 3.0


class AlertWay(Protocol):
    def send_test(self, now: float, timeout_s: float = ...) -> None:
        """Raises DeliveryFailed, whose text holds no address."""
        ...


@dataclass(frozen=True, slots=True)
class Alerts:
    """`shown`: the address as it may be shown. `way` None: it cannot be used, and `trouble` says why."""

    shown: str
    way: AlertWay | None = None
    trouble: str = ""


def alerts_line(alerts: Alerts | None, test: bool, now: float) -> Finding:
    """`alerts` None: no address is set. Without `test` nothing is sent."""
    if alerts is None:
        return _finding(OK, "no alert_url: announcements go to the log and to the webhooks of `spot webhook ls`")
    if alerts.way is None:
        return _finding(FAIL, f"{alerts.shown} cannot be used", alerts.trouble, "mend alert_secret, then start again")
    if not test:
        return _finding(OK, f"{alerts.shown} is set; not tried")
    try:
        alerts.way.send_test(now, TIMEOUT_S)
    except DeliveryFailed as error:
        return _finding(FAIL, f"{alerts.shown} did not take a test message", str(error), _fix(error))
    return _finding(OK, f"{alerts.shown} took a test message")


def _fix(error: DeliveryFailed) -> str:
    if error.status in (404, 410):
        return "make a new webhook at the receiver and set alert_url to its address"
    if error.status in (401, 403):
        return "set alert_secret to the receiver's own secret, then start again"
    if error.permanent:
        return "set alert_url to the address itself: it must answer with 2xx and not send elsewhere"
    if str(error).startswith("no such host"):
        return "correct the name of the host in alert_url"
    return "start the receiver, or set alert_url to one that is there; see whether this computer reaches it"


def _finding(result: str, fact: str, cause: str = "", fix: str = "") -> Finding:
    return Finding("alerts", result, fact, cause, fix, GROUP)
