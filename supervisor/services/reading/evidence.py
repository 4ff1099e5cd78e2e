"""The evidence of one attempt, as it is kept in the object store.

The facts of a run: what was asked for, what each attempt ran on, and where attempts differ.

The console of a machine: what it says now while it lives, afterwards the tail that was kept of it.

A machine that boots has nothing else to say: no log, no beat of the training. Read straight from the provider, one call
for each question of a person; the loop never waits for it. Whoever follows it asks for what comes after an offset; the
platform keeps only the newest megabyte, so what was lost between two questions is said. The platform's own log service
may have more: also of machines that are gone.
"""

from __future__ import annotations

import codecs

from supervisor.contract import runfiles
from supervisor.domain.attempt import Attempt
from supervisor.domain.errors import EvidenceNotFound, NotSupportedHere, Unavailable
from supervisor.domain.run import Run
from supervisor.lifecycle.evidence import attempt_evidence as evidence
from supervisor.lifecycle.evidence import facts as known_facts
from supervisor.ports.objectstore import ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.ports.platform import ConsolePart
from supervisor.ports.provider import MachineMissing, NotSupported, ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.services.reading.queries import Queries
from supervisor.services.runs.purge import refuse_purged
from supervisor.services.runs.spec_secrets import shown_spec
from supervisor.services.views.run_view import Json
from supervisor.wording.figures import clip


def show_facts(parts: Parts, queries: Queries, run_id: str) -> Json:
    """`facts` of an attempt: as its agent wrote them, null when it wrote none (yet). Only the newest ones carry the
    list of packages, the others its hash. Raises NotFound, StoreUnavailable."""
    run = queries.find(run_id)
    spec = shown_spec(parts.store.spec(run.key))
    attempts = parts.store.attempts(run.key)[-known_facts.ATTEMPTS_READ :]
    facts_of = [_read(parts.objects, run.run_id, attempt.number) for attempt in attempts]
    newest = max((at for at, facts in enumerate(facts_of) if facts is not None), default=None)
    return {
        "run_id": run.run_id,
        "spec": spec,
        "command": spec["command"],
        "code": spec.get("code"),
        "image": spec.get("image"),
        "attempts": [
            {
                "attempt": attempt.number,
                "generation": attempt.generation,
                "cause": attempt.cause,
                "facts": facts if at == newest or facts is None else _without_packages(facts),
            }
            for at, (attempt, facts) in enumerate(zip(attempts, facts_of, strict=True))
        ],
        "differs": known_facts.differences(
            [(attempt.number, facts) for attempt, facts in zip(attempts, facts_of, strict=True)]
        ),
    }


def _without_packages(facts: Json) -> Json:
    return {name: value for name, value in facts.items() if name != "packages"}


def _read(objects: ObjectStore, run_id: str, attempt: int) -> Json | None:
    try:
        chunks = objects.read(runfiles.facts(run_id, attempt), 0, known_facts.MAX_BYTES + 1)
        return known_facts.parse(b"".join(chunks))
    except ObjectMissing:
        return None


def show_evidence(parts: Parts, queries: Queries, run_id: str, number: str) -> Json:
    """`number`: of the attempt. Raises NotFound, EvidenceNotFound (which says whether it will come), FilesPurged,
    Unavailable."""
    run = queries.find(run_id)
    attempt = _attempt(parts, run, number)
    try:
        key = runfiles.evidence(run.run_id, attempt.number)
        raw = b"".join(parts.objects.read(key, 0, evidence.MAX_BYTES + 1))
    except ObjectMissing:
        refuse_purged(run, attempt)
        raise EvidenceNotFound(_why(run, attempt), {"run_id": run_id, "attempt": attempt.number}) from None
    except StoreUnavailable as error:
        raise Unavailable(f"The evidence of {run.run_id} cannot be read now. Try again.", {"run_id": run_id}) from error
    document = evidence.read(raw)
    if document is None:
        raise EvidenceNotFound(
            f"The evidence of attempt {attempt.number} of {run.run_id} is in the store, but damaged.",
            {"run_id": run_id, "attempt": attempt.number},
        )
    return document


def _attempt(parts: Parts, run: Run, number: str) -> Attempt:
    for attempt in parts.store.attempts(run.key):
        if str(attempt.number) == number:
            return attempt
    raise EvidenceNotFound(f"{run.run_id} has no attempt {clip(number, 20)}.", {"run_id": run.run_id})


def _why(run: Run, attempt: Attempt) -> str:
    if attempt.ended_at is None:
        return f"Attempt {attempt.number} of {run.run_id} is not over: its evidence is kept when it ends."
    if run.settled:
        return f"No evidence of attempt {attempt.number} of {run.run_id} was kept, and none will come."
    return (
        f"The evidence of attempt {attempt.number} of {run.run_id} is not kept yet: ask again in a moment; what is "
        f"missed now is made up for when the run ends."
    )


MAX_BYTES = 65_536
MACHINE, KEPT, CLOUD_LOGGING = "machine", "kept", "cloud_logging"  # where a console was read


def show_console(parts: Parts, queries: Queries, run_id: str, number: int | None, limit: int = MAX_BYTES) -> Json:
    """The end of it, at most `limit` bytes. `number`: of the attempt, None = the newest. Raises NotFound,
    EvidenceNotFound (nothing was said, or kept), FilesPurged, Unavailable."""
    run = queries.find(run_id)
    attempt = _attempt_of_console(parts, run, number)
    text = _live(parts, run, attempt, limit)
    live = bool(text)
    if not live:
        refuse_purged(run, attempt)
        text = _kept(parts, run, attempt, limit)
    answer = _console_json(parts, run, attempt, text.decode("utf-8", "replace"), MACHINE if live else KEPT)
    return {**answer, "live": live}


def follow_console(
    parts: Parts, queries: Queries, run_id: str, *, number: int | None, after: int, limit: int = MAX_BYTES
) -> Json:
    """What came after this offset; negative: so many of the last bytes. `live` False: the machine is gone, nothing more
    will come. `lost_bytes`: the platform has dropped so many between `after` and `start`. Raises NotFound,
    EvidenceNotFound (no such attempt), NotSupportedHere, Unavailable."""
    run = queries.find(run_id)
    attempt = _attempt_of_console(parts, run, number)
    part = _part(parts, run, attempt, after, limit)
    live = part is not None or _may_write(parts, run, attempt)
    begin = max(after, 0)
    content, start, end = (part.content, part.start, part.end) if part is not None else (b"", begin, begin)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(content)
    answer = _console_json(parts, run, attempt, text, MACHINE)
    return {
        **answer,
        "live": live,
        "start": start,
        "next_offset": end - len(decoder.getstate()[0]),
        "lost_bytes": start - after if 0 <= after < start else 0,
    }


def archived_console(
    parts: Parts, queries: Queries, run_id: str, *, number: int | None, since: float | None, lines: int
) -> Json:
    """The newest lines that the platform's log service kept since then (epoch seconds, None = since the machine was
    asked for). Raises NotFound, EvidenceNotFound (it has none), NotSupportedHere, Unavailable."""
    run = queries.find(run_id)
    attempt = _attempt_of_console(parts, run, number)
    what = {"run_id": run.run_id, "attempt": attempt.number}
    _need_own(parts, run, attempt)
    # A moment beside our era has no name in the log service's language; before the machine there was nothing.
    begin = attempt.requested_at if since is None else min(max(since, 0.0), parts.clock.now())
    try:
        kept = parts.platform.console_archive(attempt.ref, begin, lines)
    except NotSupported as error:
        raise NotSupportedHere(f"There is no such log of {attempt.machine_name}: {error}.", what) from error
    except ProviderUnavailable as error:
        raise Unavailable(f"The log service's console of {attempt.machine_name}: {error}.", what) from error
    if not kept:
        raise EvidenceNotFound(
            f"{parts.platform.log_service} has nothing of the console of {attempt.machine_name} in this time. It has "
            f"only {parts.traits(attempt.placement.provider).log_keeps or 'some machines'}, and is a little late.",
            what,
        )
    answer = _console_json(parts, run, attempt, kept.decode("utf-8", "replace"), CLOUD_LOGGING)
    return {**answer, "live": False}


def _console_json(parts: Parts, run: Run, attempt: Attempt, text: str, source: str) -> Json:
    return {
        "run_id": run.run_id,
        "attempt": attempt.number,
        "machine": attempt.machine_name,
        "zone": attempt.placement.zone,
        "text": text,
        "source": source,
        "log_service": parts.platform.log_service or None,
    }


def _attempt_of_console(parts: Parts, run: Run, number: int | None) -> Attempt:
    wanted = number if number is not None else run.attempt.number if run.attempt is not None else None
    for attempt in parts.store.attempts(run.key):
        if attempt.number == wanted:
            return attempt
    what = "no machine yet" if number is None else f"no attempt {number}"
    raise EvidenceNotFound(f"{run.run_id} has {what}.", {"run_id": run.run_id})


def _may_write(parts: Parts, run: Run, attempt: Attempt) -> bool:
    """Its machine is there as far as we know, and ours to ask."""
    return _is_own(parts, run, attempt) and attempt.gone_at is None and not run.settled


def _is_own(parts: Parts, run: Run, attempt: Attempt) -> bool:
    return parts.cells.get(attempt.placement.provider) == run.cell


def _need_own(parts: Parts, run: Run, attempt: Attempt) -> None:
    if not _is_own(parts, run, attempt):
        raise NotSupportedHere(
            f"The machines of {run.run_id} belong to another supervisor's place. Ask that supervisor.",
            {"run_id": run.run_id},
        )


def _live(parts: Parts, run: Run, attempt: Attempt, limit: int) -> bytes:
    """Empty: the machine is gone, not ours to ask, or says nothing."""
    if attempt.gone_at is not None or not _is_own(parts, run, attempt):
        return b""
    try:
        return parts.providers[attempt.placement.provider].console(attempt.ref, limit)
    except (MachineMissing, NotSupported):
        return b""
    except ProviderUnavailable as error:
        raise Unavailable(
            f"The console of {attempt.machine_name} cannot be read now. Try again.", {"run_id": run.run_id}
        ) from error


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
        raise Unavailable(
            f"The console of {attempt.machine_name} cannot be read now. Try again.", {"run_id": run.run_id}
        ) from error


def _kept(parts: Parts, run: Run, attempt: Attempt, limit: int) -> bytes:
    try:
        kept = b"".join(parts.objects.read(runfiles.console(run.run_id, attempt.number), 0, MAX_BYTES))
    except ObjectMissing:
        gone = attempt.gone_at is not None
        command = f"spot serial {run.run_id} -a {attempt.number} --cloud-logging"
        service = parts.platform.log_service
        more = f" {service} may have it: {command}" if gone and service else ""
        ended = "was kept" if gone else "is there yet"
        raise EvidenceNotFound(
            f"Nothing of the console of attempt {attempt.number} of {run.run_id} {ended}.{more}",
            {"run_id": run.run_id, "attempt": attempt.number},
        ) from None
    except StoreUnavailable as error:
        raise Unavailable(
            f"The console of {run.run_id} cannot be read now. Try again.", {"run_id": run.run_id}
        ) from error
    return kept[-limit:]
