"""What the doctor is told of a set-up before it asks anybody: the settings in words, the alert address, the adapters.

Values of settings that are credentials are not among them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import OK, WARN, Check, Finding
from supervisor.providers.kinds import PROVIDERS
from supervisor.services.doctor.credentials import Alerts
from supervisor.services.doctor.doctor import HERE, Surroundings
from supervisor.settings import alerts as settings_alerts
from supervisor.settings import loading as settings_of
from supervisor.settings.loading import Settings
from supervisor.storage.engine.data_folder import database_file, readable_by_others
from supervisor.wiring import adapters as adapters_of
from supervisor.wiring.adapters import Adapters
from supervisor.wiring.settings import traits_of

SHOWN = 4
# What a warning of the settings says of a line that nobody reads; the others only tell how a value is carried over.
UNREAD = ("ignored", "has no effect")


def surroundings(settings: Settings, adapters: Adapters, sender: str) -> Surroundings:
    """`sender`: the supervisor's id; "" = not known yet."""
    several = list(adapters.opened.values())
    groups = groups_of(settings)
    cards = next((one.cards.cards for one in several if one.cards is not None), tuple)
    return Surroundings(
        settings.data_dir,
        adapters.agent,
        cards,
        max(one.promised_cards for one in several),
        lambda: [
            in_group(check, opened.provider.traits.group, groups[name][0])
            for name, opened in adapters.opened.items()
            for check in opened.checks()
        ],
        settings.log_chunk_s,
        settings.public_url != "" or any(one.server_file is not None for one in several),
        settings_lines(settings),
        alerts(settings, sender),
        {group: title for group, title in groups.values() if group != HERE},
    )


Group = tuple[str, str]  # its word, and its title


def groups_of(settings: Settings) -> dict[str, Group]:
    """Provider -> the group of the lines about it; what is rented first, for its lines tell of a remote store, too.
    Those that share a kind have a group each."""
    traits = {name: PROVIDERS[section.kind].traits for name, section in settings.sections.items()}
    shared = Counter(each.group for each in traits.values())
    order = sorted(traits.items(), key=lambda item: not item[1].rented)
    return {
        name: (f"{each.group} {name}", f"{each.title} ({name})") if shared[each.group] > 1 else (each.group, each.title)
        for name, each in order
    }


def in_group(check: Check, before: str, now: str) -> Check:
    """The check, and the lines of its answer, in another group than before."""
    if before == now:
        return check

    def ask() -> list[Finding]:
        return [replace(finding, group=now) if finding.group == before else finding for finding in check.ask()]

    return replace(check, ask=ask, group=now if check.group == before else check.group)


def settings_lines(settings: Settings) -> tuple[Finding, ...]:
    """What counts here, and what was written and does not."""
    unread = [told for told in settings.warnings if any(word in told for word in UNREAD)]
    meanings = [
        PROVIDERS[section.kind].meaning(section.values, settings.store_url, settings.default_image)
        for section in settings.sections.values()
    ]
    fact, more_lines = meanings[0]
    if len(meanings) > 1:
        named = zip(settings.sections, meanings, strict=True)
        fact = "; ".join(f"{name}: {meaning}" for name, (meaning, _) in named)
        more_lines = tuple(line for _, lines in meanings for line in lines)
    line = Finding("settings", OK, fact)
    if unread:
        more = f" and {len(unread) - SHOWN} more" if len(unread) > SHOWN else ""
        fix = "correct these lines or take them out; spot config show --origin tells what counts"
        line = Finding("settings", WARN, fact, "; ".join(unread[:SHOWN]) + more, fix)
    return line, _timeouts(settings), _privacy(settings), *more_lines


def alerts(settings: Settings, sender: str) -> Alerts | None:
    """With a sender of its own: the loop's serves one thread."""
    shown = settings_alerts.shown("alert_url", settings.alert_url)
    try:
        way = adapters_of.alerts(settings, sender)
    except SettingsRefused as error:
        return Alerts(shown, trouble=error.detail)
    return None if way is None else Alerts(shown, way)


def _privacy(settings: Settings) -> Finding:
    try:
        names = readable_by_others(settings.data_dir, database_file(settings.database_url))
    except OSError as error:
        return Finding("privacy", WARN, f"{settings.data_dir} cannot be looked at", str(error), "ls -la on it")
    if not names:
        return Finding("privacy", OK, f"others can read none of the supervisor's files in {settings.data_dir}")
    fact = f"others can read {', '.join(names)} in {settings.data_dir}"
    cause = "commands, environments and logs of runs stand there; the next start of the supervisor closes them"
    return Finding("privacy", WARN, fact, cause, f"chmod -R go-rwx {settings.data_dir}")


def _timeouts(settings: Settings) -> Finding:
    """Pairs that contradict each other are refused with the settings: these fit together."""
    s = settings
    wait = settings_of.gpu_timeout_s(s, traits_of(s))
    gpu = f"a machine may wait {wait:g} s for its GPU and " if wait else "a machine may "
    fact = (
        f"{gpu}boot for {s.boot_timeout_s:g} s; stalled after {s.stall_polls} looks x {s.poll_interval_s:g} s = "
        f"{s.stall_polls * s.poll_interval_s:g} s without progress; silent after {s.silence_s:g} s"
    )
    return Finding("timeouts", OK, fact)
