"""What surrounds the services: for the doctor the settings in words, the alert address and the adapters' checks; for
plans and for the door a launch, made again.

Values of settings that are credentials are not included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from supervisor.domain.attempt import Try
from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import OK, WARN, Check, Finding
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ReachableStore
from supervisor.ports.provider import LaunchRequest
from supervisor.providers.kinds import PROVIDERS
from supervisor.reconciler.acting.launches import Paces, whole_request
from supervisor.services.access.claims import Door, Rebuild
from supervisor.services.doctor.credentials import Alerts
from supervisor.services.doctor.doctor import HERE, Surroundings
from supervisor.services.parts import Parts
from supervisor.services.plan.spec_view import Preview
from supervisor.services.runs.heartbeat import BeatInbox
from supervisor.services.runs.policy import Spec
from supervisor.settings import credentials
from supervisor.settings import loading as settings_of
from supervisor.settings.loading import Settings
from supervisor.storage.engine.data_folder import database_file, readable_by_others
from supervisor.wiring import outlets
from supervisor.wiring.adapters import Adapters
from supervisor.wiring.settings import groups_of, traits_of

SHOWN = 4
SHOWN_NONCE = "(made at the launch)"
# The words of warnings about settings without effect; other warnings explain how a value is carried over.
UNUSED = ("ignored", "has no effect")


def surroundings(settings: Settings, adapters: Adapters, sender: str) -> Surroundings:
    """`sender`: the supervisor's id; "" = not known yet."""
    opened, groups = list(adapters.opened.values()), groups_of(settings)
    return Surroundings(
        data_dir=settings.data_dir,
        agent_bundle=adapters.agent,
        cards=next((each.cards.cards for each in opened if each.cards is not None), tuple),
        gpus_promised=max(each.promised_cards for each in opened),
        checks=lambda: [
            in_group(check, each.provider.traits.group, groups[name][0])
            for name, each in adapters.opened.items()
            for check in each.checks()
        ],
        log_chunk_s=settings.machines.log_chunk_s,
        pushed=settings.machines.public_url != "" or any(each.server_file is not None for each in opened),
        settings=settings_lines(settings),
        alerts=alerts(settings, sender),
        groups={group: title for group, title in groups.values() if group != HERE},
    )


def in_group(check: Check, before: str, now: str) -> Check:
    """The check and its lines, moved to another group."""
    if before == now:
        return check

    def ask() -> list[Finding]:
        return [replace(finding, group=now) if finding.group == before else finding for finding in check.ask()]

    return replace(check, ask=ask, group=now if check.group == before else check.group)


def settings_lines(settings: Settings) -> tuple[Finding, ...]:
    """The valid settings, and the ones without effect."""
    unused = [warning for warning in settings.warnings if any(word in warning for word in UNUSED)]
    meanings = [
        PROVIDERS[section.kind].meaning(section.values, settings.store_url, settings.machines.default_image)
        for section in settings.sections.values()
    ]
    fact, more_lines = meanings[0]
    if len(meanings) > 1:
        by_name = zip(settings.sections, meanings, strict=True)
        fact = "; ".join(f"{name}: {meaning}" for name, (meaning, _) in by_name)
        more_lines = tuple(line for _, lines in meanings for line in lines)
    line = Finding("settings", OK, fact)
    if unused:
        more = f" and {len(unused) - SHOWN} more" if len(unused) > SHOWN else ""
        fix = "correct or remove these lines; spot config show --origin shows the valid settings"
        line = Finding("settings", WARN, fact, "; ".join(unused[:SHOWN]) + more, fix)
    return line, _timeouts(settings), _privacy(settings), *more_lines


def alerts(settings: Settings, sender: str) -> Alerts | None:
    """With its own sender, because the loop's sender is for one thread."""
    shown = credentials.shown("alert_url", settings.alerts.alert_url)
    try:
        way = outlets.alert_way(settings, sender)
    except SettingsRefused as error:
        return Alerts(shown, trouble=error.detail)
    return None if way is None else Alerts(shown, way)


def _privacy(settings: Settings) -> Finding:
    try:
        names = readable_by_others(settings.data_dir, database_file(settings.database_url))
    except OSError as error:
        return Finding("privacy", WARN, f"{settings.data_dir} cannot be read", str(error), "ls -la on it")
    if not names:
        return Finding("privacy", OK, f"other users can read none of the supervisor's files in {settings.data_dir}")
    fact = f"other users can read {', '.join(names)} in {settings.data_dir}"
    cause = "they contain commands, environments and logs of runs; the next start of the supervisor makes them private"
    return Finding("privacy", WARN, fact, cause, f"chmod -R go-rwx {settings.data_dir}")


def _timeouts(settings: Settings) -> Finding:
    """Contradicting pairs are refused with the settings, so these values fit together."""
    stall, poll_s = settings.stall, settings.knobs.poll_interval_s
    wait = settings_of.gpu_timeout_s(settings, traits_of(settings))
    gpu = f"a machine may wait {wait:g} s for its GPU and " if wait else "a machine may "
    fact = (
        f"{gpu}boot for {stall.boot_timeout_s:g} s; stalled after {stall.polls} polls x {poll_s:g} s = "
        f"{stall.polls * poll_s:g} s without progress; silent after {stall.silence_s:g} s"
    )
    return Finding("timeouts", OK, fact)


# --- launches, made again ---------------------------------------------------------------------------------------------


def rebuild_of(parts: Parts, paces: Mapping[str, Paces]) -> Rebuild:
    """The request of a launch, made again."""

    def rebuild(run: Run, try_: Try, spec: Spec, nonce: str) -> LaunchRequest:
        base = parts.store.bases.find(run.policy.base) if run.policy.base else None
        own = paces[try_.placement.provider]
        return whole_request(run, try_, spec, base, nonce=nonce, supervisor_id=parts.store.supervisor_id, paces=own)

    return rebuild


def preview_of(parts: Parts, paces: Mapping[str, Paces]) -> Preview:
    """What a launch would send, except for the nonce, which the launch itself makes."""
    rebuild = rebuild_of(parts, paces)
    return lambda run, try_, spec: parts.platform.preview(rebuild(run, try_, spec, SHOWN_NONCE))


def door_of(
    settings: Settings,
    parts: Parts,
    adapters: Adapters,
    inbox: BeatInbox,
    *,
    paces: Mapping[str, Paces],
    reachable: ReachableStore | None,
) -> Door | None:
    book, url = adapters.claims, settings.machines.public_url.rstrip("/")
    if book is None or not url:
        return None
    book.pushed = inbox.newest
    return Door(parts, book, rebuild_of(parts, paces), url, adapters.agent, reachable)
