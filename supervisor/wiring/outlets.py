"""Where announcements go out: the log, the courier with its guard, and the endpoint that the settings name."""

from __future__ import annotations

from supervisor.notifiers.guard import Guard
from supervisor.notifiers.log import LogNotifier
from supervisor.notifiers.webhook import WebhookCourier
from supervisor.ports.clock import Clock
from supervisor.ports.notifier import SETTINGS_ID, WEBHOOKS, Endpoint, Target
from supervisor.ports.store import Store
from supervisor.reconciler.delivering.announcer import Announcer
from supervisor.reconciler.delivering.delivering import Delivering
from supervisor.reconciler.leader import Leader
from supervisor.settings import access as settings_access
from supervisor.settings import alerts as settings_alerts
from supervisor.settings.loading import Settings
from supervisor.wiring import adapters

# Where each announcement goes: it has one row in the outbox for each of these.
CHANNELS = (LogNotifier.name, WEBHOOKS)
OWNER = "local"


def courier_of(settings: Settings, store: Store) -> WebhookCourier:
    return WebhookCourier(
        store.supervisor_id, Guard(settings.webhook_allow_hosts), run_page=settings_access.run_page(settings)
    )


def announcer_of(settings: Settings, store: Store, clock: Clock, leader: Leader, shared: bool) -> Announcer:
    """Not started. Raises SettingsRefused."""
    target = own_target(settings)
    delivering = Delivering(store, courier_of(settings, store), clock, leader.lease, target)
    log = LogNotifier()
    own = None if target is None else _own(settings, target, clock.now())
    return Announcer(store, {log.name: log}, clock, leader, delivering, shared, own)


def own_target(settings: Settings) -> Target | None:
    """Where alert_url leads; None = it is not set. Raises SettingsRefused."""
    way = adapters.alerts(settings, "")
    return None if way is None else way.target


def _own(settings: Settings, target: Target, now: float) -> Endpoint:
    shown = settings_alerts.shown("alert_url", settings.alert_url)
    note = "alert_url of the settings"
    return Endpoint(SETTINGS_ID, OWNER, True, target.form, shown, (), (), note, now, "settings")
