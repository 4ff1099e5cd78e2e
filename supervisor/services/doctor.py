"""Doctor: what a person would check first. Each line has a fact, a cause and the cure.

The checks write and delete one small object and commit one empty transaction; nothing else is changed. What only the
cloud knows is asked by the adapters' own checks (`Surroundings.checks`).
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from supervisor.domain.cards import Card
from supervisor.domain.errors import SchemaMismatch
from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.lifecycle.figures import gib_text
from supervisor.ports.objectstore import ABSENT, ObjectMissing, PreconditionFailed, StoreUnavailable
from supervisor.ports.provider import ProviderUnavailable
from supervisor.ports.store import StoreDown
from supervisor.services.beat_cost import beat_cost
from supervisor.services.doctor_secrets import secrets_told
from supervisor.services.health import LoopView, readiness
from supervisor.services.parts import Parts
from supervisor.services.run_view import Json

DISK_WARN_BYTES, DISK_FAIL_BYTES = 5 * 10**9, 500 * 10**6
INODES_WARN, INODES_FAIL = 100_000, 5_000
COMMIT_WARN_MS = 100.0
SKEW_WARN_S, SKEW_FAIL_S = 5.0, 60.0
PROBE = "doctor/probe"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`agent_bundle`: the file that machines are started with; None = this installation carries none. `cards` reads
    the GPUs of this computer (ProviderUnavailable); `gpus_promised`: the most that a shape promises, 0 = none does.
    `checks`: what the adapters want to have looked at; raises nothing. `pushed`: machines reach the supervisor."""

    data_dir: Path
    agent_bundle: Path | None
    cards: Callable[[], Sequence[Card]] = tuple
    gpus_promised: int = 0
    checks: Callable[[], Sequence[Finding]] = tuple
    log_chunk_s: float = 300.0
    pushed: bool = True


def examine(parts: Parts, around: Surroundings, loop: LoopView) -> Json:
    """Every check, in order; `worst` is the worst result among them. May block for a few seconds; raises nothing."""
    checks: list[Callable[[], Finding]] = [
        _python,
        lambda: _disk(around.data_dir),
        lambda: _inodes(around.data_dir),
        lambda: _commit(parts),
        lambda: _objects(parts),
        lambda: _clock(parts),
        lambda: _agent(around.agent_bundle),
        lambda: _cells(parts),
        lambda: _secrets(parts, around.data_dir),
    ]
    if around.gpus_promised:
        checks.append(lambda: _gpus(around))
    found = [check() for check in checks]
    found += [
        Finding(
            check.name,
            OK if check.ok else FAIL,
            check.fact,
            "" if check.ok else "the loop is not running",
            "",
        )
        for check in readiness(parts, loop)
        if check.name in ("lease", "tick")
    ]
    found += around.checks()
    if _in_bucket(parts):
        found.append(_beats_cost(parts, around))
    worst = max((finding.result for finding in found), key=(OK, WARN, FAIL).index)
    return {"worst": worst, "checks": [asdict(finding) for finding in found]}


def _in_bucket(parts: Parts) -> bool:
    """A store whose requests cost money."""
    return parts.objects.url.startswith("gs://")


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", OK, f"Python {version} at {sys.executable}")


def _disk(data_dir: Path) -> Finding:
    try:
        free = shutil.disk_usage(data_dir).free
    except OSError as error:
        return Finding("disk", FAIL, f"{data_dir} cannot be read", str(error), f"ls -ld {data_dir}")
    result = FAIL if free < DISK_FAIL_BYTES else WARN if free < DISK_WARN_BYTES else OK
    fact = f"{gib_text(free)} GiB free at {data_dir}"
    if result == OK:
        return Finding("disk", OK, fact)
    return Finding("disk", result, fact, "checkpoints and the database need room", f"du -sh {data_dir}/*")


def _inodes(data_dir: Path) -> Finding:
    try:
        stats = os.statvfs(data_dir)
    except OSError as error:
        return Finding("inodes", FAIL, f"{data_dir} cannot be read", str(error), f"ls -ld {data_dir}")
    if stats.f_files == 0:
        return Finding("inodes", OK, "this file system has no limit on files")
    result = FAIL if stats.f_favail < INODES_FAIL else WARN if stats.f_favail < INODES_WARN else OK
    fact = f"{stats.f_favail:,} files can still be made at {data_dir}"
    cause = "" if result == OK else "a disk dies on inodes before bytes"
    return Finding("inodes", result, fact, cause, "" if result == OK else f"df -i {data_dir}")


def _commit(parts: Parts) -> Finding:
    started = parts.clock.monotonic()
    try:
        parts.store.check()
    except SchemaMismatch as error:
        return Finding(
            "database", FAIL, error.detail, "another version of the supervisor made it", "spot migrate"
        )
    except StoreDown as error:
        return Finding(
            "database", FAIL, "a write did not commit", str(error), "check the disk, then the database's log"
        )
    took_ms = (parts.clock.monotonic() - started) * 1000
    fact = f"schema at head, a write committed to the disk in {took_ms:.1f} ms"
    if took_ms <= COMMIT_WARN_MS:
        return Finding("database", OK, fact)
    return Finding(
        "database", WARN, fact, "the disk is slow or busy", "move the data folder to a faster disk"
    )


def _objects(parts: Parts) -> Finding:
    """Write, read back, delete: each request touches its own object, so two doctors do not meet."""
    where = _objects_told(parts)
    return replace(where, group="google") if _in_bucket(parts) else where


def _objects_told(parts: Parts) -> Finding:
    key, url = f"{PROBE}-{secrets.token_hex(8)}", parts.objects.url
    guarded = False
    try:
        parts.objects.put(key, b"probe")
        content, _ = parts.objects.get(key)
        try:
            parts.objects.delete(key, if_generation=ABSENT)
        except PreconditionFailed:
            guarded = True
        parts.objects.delete(key)
    except (StoreUnavailable, ObjectMissing) as error:
        fix = "check the folder and its disk"
        if _in_bucket(parts):
            fix = "see the lines about Google below"
        return Finding("objects", FAIL, f"{url} cannot be used", str(error), fix)
    if content != b"probe":
        return Finding("objects", FAIL, f"{url} gave other bytes than were written", "damaged storage", "")
    if not guarded:
        cause = "it ignores conditions on generations, so two agents could write over each other"
        return Finding("objects", FAIL, f"{url} deleted what it should have kept", cause, "use another store")
    return Finding("objects", OK, f"{url} can be written, read and deleted, and keeps conditions")


def _beats_cost(parts: Parts, around: Surroundings) -> Finding:
    knobs = parts.knobs
    cost = beat_cost(knobs.beat_store_s, around.log_chunk_s, knobs.poll_interval_s, knobs.stop_poll_s)
    fact = (
        f"a run that trains for a month costs ${cost.beats_usd:.2f} for beats (one stored every "
        f"{knobs.beat_store_s:g} s) and ${cost.logs_usd:.2f} for log chunks; the supervisor's looks cost "
        f"${cost.looks_usd:.2f} a month for up to 1,000 live runs together"
    )
    if around.pushed:
        fact += f"; pushed beats (every {knobs.beat_push_s:g} s) cost nothing"
    return Finding("beats cost", OK, fact, group="google")


def _clock(parts: Parts) -> Finding:
    """Ages of beats are taken from the store's clock; ours is compared with it."""
    try:
        page = next(iter(parts.objects.pages("doctor/", 1)))
    except (StoreUnavailable, StopIteration):
        return Finding("clock", WARN, "not compared", "the object store gave no time", "")
    skew_s = abs(page.server_time - parts.clock.now())
    result = FAIL if skew_s > SKEW_FAIL_S else WARN if skew_s > SKEW_WARN_S else OK
    fact = f"differs from the store's clock by {skew_s:.1f} s"
    if result == OK:
        return Finding("clock", OK, fact)
    return Finding(
        "clock", result, fact, "this computer's clock or the store's is wrong", "timedatectl status"
    )


def _agent(bundle: Path | None) -> Finding:
    if bundle is not None and bundle.is_file():
        return Finding("agent", OK, f"{bundle.name}, {bundle.stat().st_size / 1000:.0f} kB")
    return Finding(
        "agent", FAIL, "the agent's bundle is missing", "this checkout has not built it", "make agent"
    )


def _gpus(around: Surroundings) -> Finding:
    """Each card and who has it. One that a stranger holds is not given to any machine."""
    try:
        cards = around.cards()
    except ProviderUnavailable as error:
        return Finding("gpus", FAIL, "the GPUs cannot be read", str(error), "nvidia-smi")
    fact = "; ".join(f"GPU {card.index} ({card.name}) is {card.holder or 'free'}" for card in cards)
    if len(cards) < around.gpus_promised:
        cause = f"a shape promises {around.gpus_promised}, and this computer has {len(cards)}"
        return Finding("gpus", FAIL, fact or "no GPU was found", cause, "set local_gpus to what is there")
    if any(card.holder and not card.ours for card in cards):
        return Finding("gpus", WARN, fact, "what others hold is not given out, and runs wait", "nvidia-smi")
    return Finding("gpus", OK, fact)


def _cells(parts: Parts) -> Finding:
    """Runs whose machines only another supervisor can see, and nobody is that supervisor now."""
    try:
        alone = parts.store.leaderless()
    except StoreDown as error:
        return Finding("cells", WARN, "not read", str(error), "")
    if not alone:
        return Finding("cells", OK, "every run that is not over has a leader")
    named = "; ".join(f"{count} of cell {cell!r}" for cell, count in sorted(alone.items()))
    return Finding(
        "cells",
        WARN,
        f"runs without a leader: {named}",
        "the supervisor of their machines does not run",
        "start it again with its own data folder",
    )


def _secrets(parts: Parts, data_dir: Path) -> Finding:
    fact, cause, fix, well = secrets_told(parts, data_dir)
    return Finding("secrets", OK if well else WARN, fact, cause, fix)
