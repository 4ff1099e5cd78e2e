"""The doctor's look at what the supervisor keeps: the database, the object store, its clock, and who leads."""

from __future__ import annotations

import secrets

from supervisor.domain.errors import SchemaMismatch
from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.domain.policies import Knobs
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ABSENT, ObjectMissing, ObjectStore, PreconditionFailed, StoreUnavailable
from supervisor.ports.store import Store, StoreDown
from supervisor.services.reading.cost import beat_cost
from supervisor.services.reading.health import full_disk

COMMIT_WARN_MS, TRIES = 100.0, 3
SKEW_WARN_S, SKEW_FAIL_S = 5.0, 60.0
PROBE = "doctor/probe"


def in_bucket(objects: ObjectStore) -> bool:
    """A store whose requests cost money."""
    return not objects.url.startswith("file:")


def database(store: Store, clock: Clock) -> Finding:
    took_ms = float("inf")
    try:
        for _ in range(TRIES):  # once may be slow for another reason, such as all the other checks
            started = clock.monotonic()
            store.check()
            took_ms = min((clock.monotonic() - started) * 1000, took_ms)
            if took_ms <= COMMIT_WARN_MS:
                break
    except SchemaMismatch as error:
        return old_schema(error)
    except StoreDown as error:
        return unwritten(error)
    fact = f"schema at head, a write committed to the disk in {took_ms:.1f} ms"
    if took_ms <= COMMIT_WARN_MS:
        return Finding("database", OK, fact)
    cause = "the disk is slow or busy; each change of a run waits so long"
    return Finding("database", WARN, fact, cause, "move the data folder to a faster disk")


def old_schema(error: SchemaMismatch) -> Finding:
    return Finding("database", FAIL, error.detail, "another version of the supervisor made it", "spot migrate")


def unwritten(error: StoreDown) -> Finding:
    fix = "check the disk, then the database's log"
    said = str(error).lower()
    if full_disk(error):
        fix = "make room on the disk: df -h shows it"
    elif "readonly" in said or "read-only" in said or "permission" in said:
        fix = "give the supervisor's user the right to write there: ls -l shows whose the files are"
    return Finding("database", FAIL, "a write did not commit", str(error), fix)


def objects_line(objects: ObjectStore, group: str = "local", title: str = "") -> Finding:
    """Write, read back, delete: each request touches its own object, so two doctors do not meet. `group`, `title`: of
    the lines that tell more of a remote store."""
    key, url = f"{PROBE}-{secrets.token_hex(8)}", objects.url
    fix = f"see the lines about {title} below" if title else "check the folder and its disk"
    guarded = False
    try:
        objects.put(key, b"probe")
        content, _ = objects.get(key)
        try:
            objects.delete(key, if_generation=ABSENT)
        except PreconditionFailed:
            guarded = True
        objects.delete(key)
    except (StoreUnavailable, ObjectMissing) as error:
        if guarded or not isinstance(error, ObjectMissing):
            return Finding("objects", FAIL, f"{url} cannot be used", str(error), fix, group)
        content = b"probe"  # deleted against its condition: told below
    if content != b"probe":
        cause, fix = "damaged storage", "use another store: set store_url"
        return Finding("objects", FAIL, f"{url} gave other bytes than were written", cause, fix, group)
    if not guarded:
        cause = "it ignores conditions on generations, so two agents could write over each other"
        fix = "use another store: a bucket of Cloud Storage itself, or a folder; is STORAGE_EMULATOR_HOST set?"
        return Finding("objects", FAIL, f"{url} deleted what it should have kept", cause, fix, group)
    fact = f"{url} can be written, read and deleted, and keeps conditions"
    return Finding("objects", OK, fact, group=group)


def clock_line(objects: ObjectStore, clock: Clock) -> Finding:
    """Ages of beats are taken from the store's clock; ours is compared with it."""
    try:
        page = next(iter(objects.pages("doctor/", 1)))
    except (StoreUnavailable, StopIteration):
        cause = "the object store gave no time"
        return Finding("clock", WARN, "not compared", cause, "see the line about objects")
    skew_s = abs(page.server_time - clock.wall())
    result = FAIL if skew_s > SKEW_FAIL_S else WARN if skew_s > SKEW_WARN_S else OK
    fact = f"differs from the store's clock by {skew_s:.1f} s"
    if result == OK:
        return Finding("clock", OK, fact)
    cause = "this computer's clock or the store's is wrong"
    return Finding("clock", result, fact, cause, "sudo timedatectl set-ntp true; then timedatectl status")


def cells(store: Store) -> Finding:
    """Runs whose machines only another supervisor can see, and nobody is that supervisor now."""
    try:
        alone = store.leaderless()
    except StoreDown as error:
        return Finding("cells", WARN, "not read", str(error), "see the line about the database")
    if not alone:
        return Finding("cells", OK, "every run that is not over has a leader")
    named = "; ".join(f"{count} of cell {cell!r}" for cell, count in sorted(alone.items()))
    cause = "the supervisor of their machines does not run"
    fix = "start it again with its own data folder: spot serve"
    return Finding("cells", WARN, f"runs without a leader: {named}", cause, fix)


def beats_cost(knobs: Knobs, log_chunk_s: float, pushed: bool, group: str) -> Finding:
    cost = beat_cost(knobs.beat_store_s, log_chunk_s, knobs.poll_interval_s, knobs.stop_poll_s)
    fact = (
        f"a run that trains for a month costs ${cost.beats_usd:.2f} for beats (one stored every "
        f"{knobs.beat_store_s:g} s) and ${cost.logs_usd:.2f} for log chunks; the supervisor's looks cost "
        f"${cost.looks_usd:.2f} a month for up to 1,000 live runs together"
    )
    if pushed:
        fact += f"; pushed beats (every {knobs.beat_push_s:g} s) cost nothing"
    return Finding("beats cost", OK, fact, group=group)
