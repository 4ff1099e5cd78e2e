"""Doctor's look at secrets: can references be read at all, and can those of the live runs be read now. Names only."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from supervisor.domain.status import ACTIVE
from supervisor.ports.provider import Provider, ProviderUnavailable
from supervisor.ports.store import RunFilter, StoreDown
from supervisor.services.parts import Parts

RUNS_READ = 1000  # of the live ones, the newest
SHOWN = 6
LIVE = tuple(sorted(ACTIVE))

Wanted = tuple[str, str, str]  # run id, name of the secret, reference


def secrets_told(parts: Parts, data_dir: Path) -> tuple[str, str, str, bool]:
    """(fact, cause, fix, all is well). Raises nothing; no text holds a value."""
    provider = parts.providers[parts.own_provider]
    on_this_computer = provider.traits.shares_computer
    try:
        probe = _probe(provider, data_dir) if on_this_computer else ""
        wanted = list(_wanted(parts))
        told = provider.check_secrets({reference for _, _, reference in wanted})
    except (OSError, ProviderUnavailable, StoreDown) as error:
        return "not checked", str(error), "see the lines about the database and the disk", False
    if probe:
        return "a secret's file cannot be read", probe, f"check the folder {data_dir}", False
    bad = [(run_id, name, told[reference]) for run_id, name, reference in wanted if told[reference]]
    if bad:
        causes = "; ".join(f"{name} of {run_id}: {why}" for run_id, name, why in bad[:SHOWN])
        fact = f"{len(bad)} of {len(wanted)} secrets of live runs cannot be read, so their next launch is refused"
        return fact, causes, "mend them; waiting runs then go on by themselves", False
    if not wanted:
        readable = "a secret's file can be read; " if on_this_computer else ""
        return f"{readable}no live run names a secret", "", "", True
    names = sorted({name for _, name, _ in wanted})
    shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    return f"all secrets of live runs can be read: {shown}", "", "", True


def _wanted(parts: Parts) -> Iterator[Wanted]:
    before: int | None = None
    read = 0
    while read < RUNS_READ:
        page = parts.store.page(RunFilter(statuses=LIVE), before, 200)
        for run in page.runs:
            if run.provider == parts.own_provider:
                spec = parts.store.spec(run.key)
                yield from ((run.run_id, name, ref) for name, ref in spec.get("secrets", {}).items())
        read += len(page.runs)
        before = page.next_key
        if before is None:
            return


def _probe(provider: Provider, data_dir: Path) -> str:
    """Why a file of the right mode cannot be read; "" = it can. The file lives for this call only."""
    path = data_dir.resolve() / f".doctor-{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_hex(16).encode())
        reference = f"file:{path}"
        return provider.check_secrets([reference])[reference]
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)
