"""The doctor's checks of the base of a supervisor: this computer, the agent, the database, the store, the cells."""

from __future__ import annotations

import math
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from supervisor.contract.cards import Card
from supervisor.domain.errors import SchemaMismatch
from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.domain.policies import Knobs
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ABSENT, ObjectMissing, ObjectStore, PreconditionFailed, StoreUnavailable
from supervisor.ports.provider import ProviderUnavailable
from supervisor.ports.store import Store, StoreDown
from supervisor.services.reading.cost import CONTROL_USD, beat_cost, cheap_beat_s, resting_cost
from supervisor.services.reading.health import full_disk
from supervisor.wording.figures import gib_text

DISK_WARN_BYTES, DISK_FAIL_BYTES = 5 * 10**9, 500 * 10**6
INODES_WARN, INODES_FAIL = 100_000, 5_000
COMMIT_WARN_MS, COMMITS = 100.0, 3
SKEW_WARN_S, SKEW_FAIL_S = 5.0, 60.0
PROBE = "doctor/probe"


def python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", OK, f"Python {version} at {sys.executable}")


def disk(data_dir: Path) -> Finding:
    try:
        free = shutil.disk_usage(data_dir).free
    except OSError as error:
        return _unreadable("disk", data_dir, error)
    result = FAIL if free < DISK_FAIL_BYTES else WARN if free < DISK_WARN_BYTES else OK
    fact = f"{gib_text(free)} GiB free at {data_dir}"
    if result == OK:
        return Finding("disk", OK, fact)
    return Finding("disk", result, fact, "checkpoints and the database need space", f"du -sh {data_dir}/*")


def inodes(data_dir: Path) -> Finding:
    try:
        stats = os.statvfs(data_dir)
    except OSError as error:
        return _unreadable("inodes", data_dir, error)
    if stats.f_files == 0:
        return Finding("inodes", OK, "this file system has no limit on files")
    result = FAIL if stats.f_favail < INODES_FAIL else WARN if stats.f_favail < INODES_WARN else OK
    fact = f"{stats.f_favail:,} files can still be made at {data_dir}"
    if result == OK:
        return Finding("inodes", OK, fact)
    fix = f"df -i {data_dir}; du --inodes -s {data_dir}/* shows where they are"
    return Finding("inodes", result, fact, "a disk can run out of inodes before it runs out of bytes", fix)


def _unreadable(name: str, data_dir: Path, error: OSError) -> Finding:
    return Finding(name, FAIL, f"{data_dir} cannot be read", str(error), f"ls -ld {data_dir}")


def agent(bundle: Path | None) -> Finding:
    if bundle is not None and bundle.is_file():
        return Finding("agent", OK, f"{bundle.name}, {bundle.stat().st_size / 1000:.0f} kB")
    cause = "no machine can be started: this checkout has not built the agent"
    return Finding("agent", FAIL, "the agent's bundle is missing", cause, "make agent")


def gpus(read: Callable[[], Sequence[Card]], promised: int) -> Finding:
    """Each card and its holder. A card that another process holds, or that is set aside, is given to no machine."""
    try:
        cards = read()
    except ProviderUnavailable as error:
        return Finding("gpus", FAIL, "the GPUs cannot be read", str(error), "nvidia-smi")
    fact = "; ".join(f"{card.label} ({card.name or 'of unknown kind'}) is {card.state}" for card in cards)
    count = sum(card.index is not None for card in cards)
    aside = [card.uuid for card in cards if card.aside is not None]
    if count < promised and not aside:
        cause = f"a shape promises {promised}, and this computer has {count}"
        return Finding("gpus", FAIL, fact or "no GPU was found", cause, "set local_gpus to the number of cards")
    if aside:
        cause = "its driver reported it as broken: no run gets it until a person puts it back"
        return Finding("gpus", WARN, fact, cause, "; ".join(f"spot gpus --back {uuid}" for uuid in aside))
    if any(card.holder and not card.ours for card in cards):
        return Finding("gpus", WARN, fact, "cards that others hold are not used, and runs wait", "nvidia-smi")
    return Finding("gpus", OK, fact)


def in_bucket(objects: ObjectStore) -> bool:
    """A store whose requests cost money."""
    return not objects.url.startswith("file:")


def database(store: Store, clock: Clock) -> Finding:
    took_ms = float("inf")
    try:
        for _ in range(COMMITS):  # one commit may be slow for another reason, such as the other checks
            started = clock.monotonic()
            store.check()
            took_ms = min((clock.monotonic() - started) * 1000, took_ms)
            if took_ms <= COMMIT_WARN_MS:
                break
    except SchemaMismatch as error:
        return old_schema(error)
    except StoreDown as error:
        return unwritten(error)
    fact = f"schema is current, a write committed to the disk in {took_ms:.1f} ms"
    if took_ms <= COMMIT_WARN_MS:
        return Finding("database", OK, fact)
    cause = "the disk is slow or busy; each change of a run takes so long"
    return Finding("database", WARN, fact, cause, "move the data folder to a faster disk")


def old_schema(error: SchemaMismatch) -> Finding:
    return Finding("database", FAIL, error.detail, "another version of the supervisor made it", "spot migrate")


def unwritten(error: StoreDown) -> Finding:
    fix = "check the disk, then the database's log"
    text = str(error).lower()
    if full_disk(error):
        fix = "free space on the disk: df -h shows it"
    elif "readonly" in text or "read-only" in text or "permission" in text:
        fix = "give the supervisor's user write access: ls -l shows the owner of the files"
    return Finding("database", FAIL, "a write did not commit", str(error), fix)


def objects_line(objects: ObjectStore, group: str = "local", title: str = "") -> Finding:
    """Write, read back, delete an object of its own, so that two doctors do not collide. `group`, `title`: of the lines
    with more about a remote store."""
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
        content = b"probe"  # deleted against its condition: the line below says so
    if content != b"probe":
        cause, fix = "damaged storage", "use another store: set store_url"
        return Finding("objects", FAIL, f"{url} returned other bytes than were written", cause, fix, group)
    if not guarded:
        cause = "it ignores conditions on generations, so two agents could write over each other"
        fix = "use another store: a bucket of Cloud Storage itself, or a folder; is STORAGE_EMULATOR_HOST set?"
        return Finding("objects", FAIL, f"{url} deleted an object against its condition", cause, fix, group)
    fact = f"{url} can be written, read and deleted, and respects conditions"
    return Finding("objects", OK, fact, group=group)


def clock_line(objects: ObjectStore, clock: Clock) -> Finding:
    """Ages of beats come from the store's clock, so our clock is compared with it."""
    try:
        page = next(iter(objects.pages("doctor/", 1)))
    except (StoreUnavailable, StopIteration):
        cause = "the object store returned no time"
        return Finding("clock", WARN, "not compared", cause, "see the line about objects")
    skew_s = abs(page.server_time - clock.wall())
    result = FAIL if skew_s > SKEW_FAIL_S else WARN if skew_s > SKEW_WARN_S else OK
    fact = f"differs from the store's clock by {skew_s:.1f} s"
    if result == OK:
        return Finding("clock", OK, fact)
    cause = "this computer's clock or the store's is wrong"
    return Finding("clock", result, fact, cause, "sudo timedatectl set-ntp true; then timedatectl status")


def cells(store: Store) -> Finding:
    """Runs whose machines only another supervisor can see, and that supervisor does not run now."""
    try:
        alone = store.leaderless()
    except StoreDown as error:
        return Finding("cells", WARN, "not read", str(error), "see the line about the database")
    if not alone:
        return Finding("cells", OK, "every active run has a leader")
    counts = "; ".join(f"{count} of cell {cell!r}" for cell, count in sorted(alone.items()))
    cause = "the supervisor of their machines does not run"
    fix = "restart it with its own data folder: spot serve"
    return Finding("cells", WARN, f"runs without a leader: {counts}", cause, fix)


def beats_cost(knobs: Knobs, log_chunk_s: float, pushed: bool, group: str) -> Finding:
    cost = beat_cost(knobs.beat_store_s, log_chunk_s, knobs.poll_interval_s, knobs.stop_poll_s)
    fact = (
        f"a run that trains for a month costs ${cost.beats_usd:.2f} for beats (one stored every "
        f"{knobs.beat_store_s:g} s) and ${cost.logs_usd:.2f} for log chunks; the supervisor's reads cost "
        f"${cost.looks_usd:.2f} a month for up to 1,000 live runs together"
    )
    if cost.beats_usd > CONTROL_USD:
        pace = f"beat_store_s = {math.ceil(cheap_beat_s(knobs.stop_poll_s)):g}"
        fact += f"; with {pace} the beats of a run cost ${CONTROL_USD:.2f}, and a silent machine is noticed later"
    if pushed:
        low = resting_cost(knobs.beat_store_s, log_chunk_s, knobs.poll_interval_s, knobs.stop_poll_s)
        fact = (
            f"while its pushed beats (every {knobs.beat_push_s:g} s) are acknowledged, a run that trains for a month "
            f"costs ${low.beats_usd:.3f}, and the supervisor's reads ${low.looks_usd:.3f} for up to 1,000 live runs "
            f"together; without: {fact}"
        )
    return Finding("beats cost", OK, fact, group=group)
