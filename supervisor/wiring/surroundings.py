"""What the doctor is told of a set-up before it asks anybody: the settings in words, the alert address, the adapters.

Values of settings that are credentials are not among them.
"""

from __future__ import annotations

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import OK, WARN, Finding
from supervisor.services.doctor.alerts import Alerts
from supervisor.services.doctor.doctor import Surroundings
from supervisor.settings import alerts as settings_alerts
from supervisor.settings import loading as settings_of
from supervisor.settings.gce import GCE, LOCAL
from supervisor.settings.loading import Settings
from supervisor.storage.engine.folder_lock import database_file, readable_by_others
from supervisor.wiring import adapters as adapters_of
from supervisor.wiring.adapters import Adapters

SHOWN = 4
# What a warning of the settings says of a line that nobody reads; the others only tell how a value is carried over.
UNREAD = ("ignored", "has no effect")


def surroundings(settings: Settings, adapters: Adapters, sender: str) -> Surroundings:
    """`sender`: the supervisor's id; "" = not known yet."""
    promised = max(settings.local_gpus.values(), default=0) if settings.provider == LOCAL else 0
    return Surroundings(
        settings.data_dir,
        adapters.agent,
        adapters.cards.cards if adapters.cards is not None else tuple,
        promised,
        adapters.checks,
        settings.log_chunk_s,
        settings.public_url != "" or adapters.server_file is not None,
        settings_lines(settings),
        alerts(settings, sender),
    )


def settings_lines(settings: Settings) -> tuple[Finding, ...]:
    """What counts here, and what was written and does not."""
    unread = [told for told in settings.warnings if any(word in told for word in UNREAD)]
    fact = _meant(settings)
    line = Finding("settings", OK, fact)
    if unread:
        more = f" and {len(unread) - SHOWN} more" if len(unread) > SHOWN else ""
        fix = "correct these lines or take them out; spot config show --origin tells what counts"
        line = Finding("settings", WARN, fact, "; ".join(unread[:SHOWN]) + more, fix)
    places = (_privacy(settings),) + ((_places(settings),) if settings.provider == LOCAL else ())
    return line, _timeouts(settings), *places


def alerts(settings: Settings, sender: str) -> Alerts | None:
    """With a sender of its own: the loop's serves one thread."""
    shown = settings_alerts.shown("alert_url", settings.alert_url)
    try:
        way = adapters_of.alerts(settings, sender)
    except SettingsRefused as error:
        return Alerts(shown, trouble=error.detail)
    return None if way is None else Alerts(shown, way)


def _meant(settings: Settings) -> str:
    if settings.provider != GCE:
        zones = ", ".join(settings.local_zones)
        return f"machines are on this computer ({zones}); objects in {settings.store_url}"
    zones, shapes = ", ".join(settings.gce_zones), ", ".join(settings.gce_shapes.values())
    regions = ", ".join(dict.fromkeys(zone.rpartition("-")[0] for zone in settings.gce_zones))
    account = (
        "the project's own" if settings.gce_service_account == "default" else settings.gce_service_account
    )
    return (
        f"project {settings.gce_project}; {regions} ({zones}); {shapes}; account {account}; bucket "
        f"{settings.store_url}; image {settings.default_image or 'as each run names it'}"
    )


def _privacy(settings: Settings) -> Finding:
    try:
        names = readable_by_others(settings.data_dir, database_file(settings.database_url))
    except OSError as error:
        return Finding(
            "privacy", WARN, f"{settings.data_dir} cannot be looked at", str(error), "ls -la on it"
        )
    if not names:
        return Finding(
            "privacy", OK, f"others can read none of the supervisor's files in {settings.data_dir}"
        )
    fact = f"others can read {', '.join(names)} in {settings.data_dir}"
    cause = (
        "commands, environments and logs of runs stand there; the next start of the supervisor closes them"
    )
    return Finding("privacy", WARN, fact, cause, f"chmod -R go-rwx {settings.data_dir}")


def _places(settings: Settings) -> Finding:
    most, why = adapters_of.most_machines(settings)
    places = sum(settings.local_capacity.values()) if most is None else most
    return Finding("places", OK, f"{places} trainings at once ({why}); more of them wait as queued")


def _timeouts(settings: Settings) -> Finding:
    """Pairs that contradict each other are refused with the settings: these fit together."""
    s = settings
    wait = settings_of.gpu_timeout_s(s, s.provider)
    gpu = f"a machine may wait {wait:g} s for its GPU and " if wait else "a machine may "
    fact = (
        f"{gpu}boot for {s.boot_timeout_s:g} s; stalled after {s.stall_polls} looks x {s.poll_interval_s:g} s = "
        f"{s.stall_polls * s.poll_interval_s:g} s without progress; silent after {s.silence_s:g} s"
    )
    return Finding("timeouts", OK, fact)
