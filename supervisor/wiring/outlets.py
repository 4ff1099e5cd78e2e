"""Outlets of announcements: the log, the webhooks, and the alert address of the settings, which is a webhook too.

The guard checks the address of each webhook. The alert address is trusted, because an administrator has set it.
"""

from __future__ import annotations

from supervisor.domain.errors import SettingsRefused
from supervisor.notifiers.guard import Guard
from supervisor.notifiers.log import LogNotifier
from supervisor.notifiers.webhook import WebhookCourier, WebhookNotifier
from supervisor.ports.clock import Clock
from supervisor.ports.notifier import SETTINGS_ID, WEBHOOKS, Endpoint, Form, Notification, Target
from supervisor.ports.store import Store
from supervisor.reconciler.delivering.announcer import Announcer
from supervisor.reconciler.delivering.delivering import Delivering
from supervisor.reconciler.leader import Leader
from supervisor.settings import access as settings_access
from supervisor.settings import credentials
from supervisor.settings.loading import Settings

# The channels of an announcement: each has its own row in the outbox.
CHANNELS = (LogNotifier.name, WEBHOOKS)
OWNER = "local"


def alert_way(settings: Settings, sender: str) -> WebhookNotifier | None:
    """The sender of messages to the alert address; None = no address is set. Raises SettingsRefused."""
    url, secret = settings.alerts.alert_url, settings.alerts.alert_secret
    if not url:
        return None
    try:
        return WebhookNotifier(url, credentials.secret_of("alert_secret", secret), sender)
    except ValueError as error:
        raise SettingsRefused(f"alert_secret: {error}", {"name": "alert_secret"}) from None


def alert_target(settings: Settings) -> Target | None:
    """The target of alert_url; None = it is not set. Raises SettingsRefused."""
    way = alert_way(settings, "")
    return None if way is None else way.target


def send_hook(sender: str, url: str, secret: str, message: Notification) -> int:
    """One message to an address that an administrator has set, signed where there is a secret. Raises
    DeliveryFailed."""
    target = Target(url, Form.STANDARD, (secret,) if secret else (), trusted=True)
    return WebhookCourier(sender).send(target, [message])


def courier_of(settings: Settings, store: Store) -> WebhookCourier:
    guard = Guard(settings.alerts.webhook_allow_hosts)
    return WebhookCourier(store.supervisor_id, guard, run_page=settings_access.run_page(settings.access))


def announcer_of(settings: Settings, store: Store, clock: Clock, leader: Leader, shared: bool) -> Announcer:
    """Not started. Raises SettingsRefused."""
    target = alert_target(settings)
    delivering = Delivering(store, courier_of(settings, store), clock, leader.lease, target)
    log = LogNotifier()
    own = None if target is None else _endpoint(settings, target, clock.now())
    return Announcer(store, {log.name: log}, clock, leader, delivering, shared, own)


def _endpoint(settings: Settings, target: Target, now: float) -> Endpoint:
    """The alert address as a webhook."""
    shown = credentials.shown("alert_url", settings.alerts.alert_url)
    note = "alert_url of the settings"
    return Endpoint(SETTINGS_ID, OWNER, True, target.form, shown, (), (), note, now, "settings")
