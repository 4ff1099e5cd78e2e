"""The console of a machine: what it says now while it exists, afterwards the tail that was kept of it.

A machine that boots has no other output: no log, no beat of the training. Each request reads it from the provider with
one call; the loop never waits for it. A client that follows it requests the output after an offset. The platform keeps
only the newest megabyte, so the response says how much was lost between two requests. The platform's own log service
may have more, also of machines that are gone.

And how a person gets a shell there. Nothing is opened for that: the person's own login counts.
"""

from __future__ import annotations

import codecs
from typing import NotRequired

from typing_extensions import TypedDict

from supervisor.contract import runfiles
from supervisor.domain.attempt import Attempt
from supervisor.domain.errors import EvidenceNotFound, NotSupportedHere, Unavailable
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ObjectMissing, StoreUnavailable
from supervisor.ports.platform import ConsolePart
from supervisor.ports.provider import MachineMissing, NotSupported, ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.services.reading.evidence import find_attempt
from supervisor.services.reading.queries import Queries
from supervisor.services.runs.purge import refuse_purged

MAX_BYTES = 65_536
MACHINE, KEPT, CLOUD_LOGGING = "machine", "kept", "cloud_logging"  # where a console was read


class ConsoleText(TypedDict):
    """`live`: read from the machine just now; with `after` it is false once the machine is gone and nothing more
    follows. `source`: machine, kept (in the object store) or cloud_logging. `log_service`: the service that may have
    more. Offsets count bytes since the machine's boot, and exist with `after` only; go on from `next_offset`.
    `lost_bytes`: so many bytes before `start` were dropped by the platform."""

    run_id: str
    attempt: int
    machine: str
    zone: str
    live: bool
    text: str
    source: str
    log_service: str | None
    start: NotRequired[int | None]
    next_offset: NotRequired[int | None]
    lost_bytes: NotRequired[int | None]


class MachineLogin(TypedDict):
    """`command`: opens a shell there; null: the machine is the supervisor's own computer. `folder`: of the machine,
    with its output in work/output.log; null: it has none. `ssh_config`, `ssh_known_hosts`: files of the supervisor's
    computer that its own connections use; null: those of its user."""

    run_id: str
    machine: str
    zone: str
    command: str | None
    folder: str | None
    ssh_config: str | None
    ssh_known_hosts: str | None


def show_console(
    parts: Parts, queries: Queries, run_id: str, number: int | None, limit: int = MAX_BYTES
) -> ConsoleText:
    """The end of it, at most `limit` bytes. `number`: of the attempt, None = the newest. Raises NotFound,
    EvidenceNotFound (the machine said nothing, or nothing was kept), FilesPurged, Unavailable."""
    run = queries.find(run_id)
    attempt = find_attempt(parts, run, number)
    text = _live(parts, run, attempt, limit)
    if text:
        return _console_json(parts, run, attempt, text.decode("utf-8", "replace"), MACHINE, live=True)
    refuse_purged(run, attempt)
    kept = _kept(parts, run, attempt)[-limit:]
    return _console_json(parts, run, attempt, kept.decode("utf-8", "replace"), KEPT, live=False)


def follow_console(
    parts: Parts, queries: Queries, run_id: str, *, number: int | None, after: int, limit: int = MAX_BYTES
) -> ConsoleText:
    """What came after this offset; a negative one: so many of the last bytes. `live` False: the machine is gone,
    nothing more follows. Raises NotFound, EvidenceNotFound (no such attempt), NotSupportedHere, Unavailable."""
    run = queries.find(run_id)
    attempt = find_attempt(parts, run, number)
    part = _part(parts, run, attempt, after, limit)
    begin = max(after, 0)
    content, start, end = (part.content, part.start, part.end) if part is not None else (b"", begin, begin)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(content)
    live = part is not None or _may_write(parts, run, attempt)
    return {
        **_console_json(parts, run, attempt, text, MACHINE, live=live),
        "start": start,
        "next_offset": end - len(decoder.getstate()[0]),
        "lost_bytes": start - after if 0 <= after < start else 0,
    }


def archived_console(
    parts: Parts, queries: Queries, run_id: str, *, number: int | None, since: float | None, lines: int
) -> ConsoleText:
    """The newest lines that the platform's log service kept since then (epoch seconds, None = since the machine was
    requested). Raises NotFound, EvidenceNotFound (it has none), NotSupportedHere, Unavailable."""
    run = queries.find(run_id)
    attempt = find_attempt(parts, run, number)
    ids = {"run_id": run.run_id, "attempt": attempt.number}
    _need_own(parts, run, attempt)
    # The log service cannot express a time outside of our era, and before the request there was no machine.
    begin = attempt.requested_at if since is None else min(max(since, 0.0), parts.clock.now())
    try:
        kept = parts.platform.console_archive(attempt.ref, begin, lines)
    except NotSupported as error:
        raise NotSupportedHere(f"No log service has the console of {attempt.machine_name}: {error}.", ids) from error
    except ProviderUnavailable as error:
        raise Unavailable(f"The log service's console of {attempt.machine_name}: {error}.", ids) from error
    if not kept:
        raise EvidenceNotFound(
            f"{parts.platform.log_service} has nothing of the console of {attempt.machine_name} in this time. It has "
            f"only {parts.traits(attempt.placement.provider).log_keeps or 'some machines'}, and is a little late.",
            ids,
        )
    return _console_json(parts, run, attempt, kept.decode("utf-8", "replace"), CLOUD_LOGGING, live=False)


def _console_json(parts: Parts, run: Run, attempt: Attempt, text: str, source: str, *, live: bool) -> ConsoleText:
    return {
        "run_id": run.run_id,
        "attempt": attempt.number,
        "machine": attempt.machine_name,
        "zone": attempt.placement.zone,
        "live": live,
        "text": text,
        "source": source,
        "log_service": parts.platform.log_service or None,
    }


def _is_own(parts: Parts, run: Run, attempt: Attempt) -> bool:
    return parts.cells.get(attempt.placement.provider) == run.cell


def _may_write(parts: Parts, run: Run, attempt: Attempt) -> bool:
    """The machine exists as far as we know, and belongs to this supervisor."""
    return _is_own(parts, run, attempt) and attempt.gone_at is None and not run.settled


def _need_own(parts: Parts, run: Run, attempt: Attempt) -> None:
    if not _is_own(parts, run, attempt):
        raise NotSupportedHere(
            f"The machines of {run.run_id} belong to another supervisor. Ask that supervisor.", {"run_id": run.run_id}
        )


def _live(parts: Parts, run: Run, attempt: Attempt, limit: int) -> bytes:
    """Empty: the machine is gone, belongs to another supervisor, or says nothing."""
    if attempt.gone_at is not None or not _is_own(parts, run, attempt):
        return b""
    try:
        return parts.providers[attempt.placement.provider].console(attempt.ref, limit)
    except (MachineMissing, NotSupported):
        return b""
    except ProviderUnavailable as error:
        raise _unreadable(run, attempt.machine_name) from error


def _part(parts: Parts, run: Run, attempt: Attempt, after: int, limit: int) -> ConsolePart | None:
    """None: the machine has no console now: it is gone, or not up yet."""
    _need_own(parts, run, attempt)
    if not _may_write(parts, run, attempt):
        return None
    try:
        return parts.platform.console_after(attempt.ref, after, limit)
    except MachineMissing:
        return None
    except NotSupported as error:
        raise NotSupportedHere(
            f"The console of {attempt.machine_name} cannot be followed: {error}.", {"run_id": run.run_id}
        ) from error
    except ProviderUnavailable as error:
        raise _unreadable(run, attempt.machine_name) from error


def _kept(parts: Parts, run: Run, attempt: Attempt) -> bytes:
    try:
        return b"".join(parts.objects.read(runfiles.console(run.run_id, attempt.number), 0, MAX_BYTES))
    except ObjectMissing:
        what = f"Nothing of the console of attempt {attempt.number} of {run.run_id}"
        text, service = f"{what} is there yet.", parts.platform.log_service
        if attempt.gone_at is not None:
            command = f"spot serial {run.run_id} -a {attempt.number} --cloud-logging"
            text = f"{what} was kept." + (f" {service} may have it: {command}" if service else "")
        raise EvidenceNotFound(text, {"run_id": run.run_id, "attempt": attempt.number}) from None
    except StoreUnavailable as error:
        raise _unreadable(run, run.run_id) from error


def _unreadable(run: Run, name: str) -> Unavailable:
    return Unavailable(f"The console of {name} cannot be read now. Try again.", {"run_id": run.run_id})


def machine_login(parts: Parts, queries: Queries, run_id: str) -> MachineLogin:
    """Raises NotFound, EvidenceNotFound (no live machine), Unavailable."""
    run = queries.find(run_id)
    if run.live_attempt is None:
        raise EvidenceNotFound(f"{run.run_id} has no machine now.", {"run_id": run.run_id})
    ref = run.live_attempt.ref
    try:
        login = parts.platform.login(ref)
    except ProviderUnavailable as error:
        raise Unavailable(f"The machine of {run.run_id}: {error}.", {"run_id": run.run_id}) from error
    return {
        "run_id": run.run_id,
        "machine": ref.name,
        "zone": ref.zone,
        "command": login.command or None,
        "folder": login.folder or None,
        "ssh_config": login.ssh_config or None,
        "ssh_known_hosts": login.ssh_known_hosts or None,
    }
