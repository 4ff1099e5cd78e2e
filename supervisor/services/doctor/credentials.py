"""The doctor's checks of credentials: the secrets of the live runs, and the alert address with its signing secret.

Secrets: whether a file with the right mode can be read at all, and whether each secret of a live run can be read now.
The lines contain names, never values. The alert address gets one message that is marked as a test.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.domain.status import ACTIVE
from supervisor.ports.notifier import DeliveryFailed
from supervisor.ports.provider import Provider, ProviderUnavailable
from supervisor.ports.store import RunFilter, StoreDown
from supervisor.services.parts import Parts

ALERTS = "alerts"  # group of lines
TIMEOUT_S = 3.0
RUNS_READ = 1000  # the newest live runs
PAGE = 200
SHOWN = 6

Wanted = tuple[str, str, str, str]  # run id, name of the secret, provider of the run, reference


def secrets_line(parts: Parts, data_dir: Path) -> Finding:
    """Raises nothing."""
    provider = parts.providers[parts.own_provider]
    on_this_computer = provider.traits.shares_computer
    try:
        trouble = _probe(provider, data_dir) if on_this_computer else ""
        wanted = list(_wanted(parts))
        reasons = _reasons(parts, wanted)
    except (OSError, ProviderUnavailable, StoreDown) as error:
        return Finding("secrets", WARN, "not checked", str(error), "see the lines about the database and the disk")
    if trouble:
        fix = f"check the folder {data_dir}"
        return Finding("secrets", WARN, "a secret's file cannot be read", trouble, fix)
    bad = [f"{name} of {run_id}: {why}" for run_id, name, place, ref in wanted if (why := reasons[place, ref])]
    if bad:
        fact = f"{len(bad)} of {len(wanted)} secrets of live runs cannot be read, so their next launch is refused"
        return Finding("secrets", WARN, fact, "; ".join(bad[:SHOWN]), "fix them; waiting runs then continue")
    if not wanted:
        readable = "a secret's file can be read; " if on_this_computer else ""
        return Finding("secrets", OK, f"{readable}no live run names a secret")
    names = sorted({name for _, name, _, _ in wanted})
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return Finding("secrets", OK, f"all secrets of live runs can be read: {', '.join(names[:SHOWN])}{more}")


def _reasons(parts: Parts, wanted: Iterable[Wanted]) -> dict[tuple[str, str], str]:
    """(provider, reference) -> why its machines cannot read it; "" = they can. Raises ProviderUnavailable."""
    references: dict[str, set[str]] = {parts.own_provider: set()}
    for _, _, place, reference in wanted:
        references.setdefault(place, set()).add(reference)
    return {
        (place, reference): why
        for place, own in references.items()
        for reference, why in parts.providers[place].check_secrets(own).items()
    }


def _wanted(parts: Parts) -> Iterator[Wanted]:
    live, read = RunFilter(statuses=tuple(sorted(ACTIVE))), 0
    before: int | None = None
    while read < RUNS_READ:
        page = parts.store.page(live, before, PAGE)
        for run in page.runs:
            if run.provider in parts.providers:
                references = parts.store.spec(run.key).get("secrets", {})
                yield from ((run.run_id, name, run.provider, ref) for name, ref in references.items())
        read += len(page.runs)
        before = page.next_key
        if before is None:
            return


def _probe(provider: Provider, data_dir: Path) -> str:
    """Why a file with the right mode cannot be read; "" = it can be read. The file exists for this call only."""
    path = data_dir.resolve() / f".doctor-{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_hex(16).encode())
        reference = f"file:{path}"
        return provider.check_secrets([reference])[reference]
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)


class AlertWay(Protocol):
    def send_test(self, now: float, timeout_s: float = ...) -> None:
        """Raises DeliveryFailed, whose text contains no address."""
        ...


@dataclass(frozen=True, slots=True)
class Alerts:
    """`shown`: the part of the address that may be shown. `way` None: the address cannot be used, `trouble` says
    why."""

    shown: str
    way: AlertWay | None = None
    trouble: str = ""


def alerts_line(alerts: Alerts | None, test: bool, now: float) -> Finding:
    """`alerts` None: no address is set. Without `test` nothing is sent."""
    if alerts is None:
        return _finding(OK, "no alert_url: announcements go to the log and to the webhooks of `spot webhook ls`")
    if alerts.way is None:
        return _finding(FAIL, f"{alerts.shown} cannot be used", alerts.trouble, "fix alert_secret, then restart")
    if not test:
        return _finding(OK, f"{alerts.shown} is set; not tested")
    try:
        alerts.way.send_test(now, TIMEOUT_S)
    except DeliveryFailed as error:
        return _finding(FAIL, f"{alerts.shown} did not accept a test message", str(error), _fix(error))
    return _finding(OK, f"{alerts.shown} accepted a test message")


def _fix(error: DeliveryFailed) -> str:
    if error.status in (404, 410):
        return "make a new webhook at the receiver and set alert_url to its address"
    if error.status in (401, 403):
        return "set alert_secret to the receiver's own secret, then restart"
    if error.permanent:
        return "set alert_url to the final address: it must respond with 2xx and not redirect"
    if str(error).startswith("no such host"):
        return "correct the host name in alert_url"
    return "start the receiver, or set alert_url to one that is running; check that this computer reaches it"


def _finding(result: str, fact: str, cause: str = "", fix: str = "") -> Finding:
    return Finding("alerts", result, fact, cause, fix, ALERTS)
