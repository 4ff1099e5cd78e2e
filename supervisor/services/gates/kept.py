"""The age of verdicts: readings of a host, and verdicts of G3 that hold over attempts. All of it is derived.

A launch on the same machine, with the same image, code and spec, that was seen to live is not tried again while its
verdict is young. Only a pass is taken over, and only where the present attempt has not been read yet: what this attempt
shows itself always counts, and an earlier failure says nothing of a new start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import Cause
from supervisor.domain.gates.checks import Gate
from supervisor.domain.gates.verdicts import Kept, Key, State, Verdict, is_young, standing, to_ask
from supervisor.services.gates.watched import Watched
from supervisor.wording.figures import age_text

Judge = Callable[[Watched], Sequence[Verdict]]
READ_ON_HOST = frozenset(
    ("memory_limit", "disk_bytes", "gpus", "inodes", "driver", "host_key", "key_login", "reachable", "store_access")
)
LOST = (Cause.ORPHANED, Cause.AGENT_LOST, Cause.BOOT_TIMEOUT)  # ends without a record of the host
CALL_S = 60.0  # a launch has ended by then, and with it the connection that started the machine
NEXT_READING = "It is read again when the host responds: spot doctor."


def with_kept(verdicts: Sequence[Verdict], watched: Watched, judge: Judge) -> list[Verdict]:
    """`judge`: the verdicts of G3 of an attempt, as its own last reading gives them."""
    if watched.attempt is None or watched.profile.host is None:
        return list(verdicts)  # a machine that the platform makes is never the same one
    kept, key = kept_of(watched, judge), key_of(watched, watched.attempt)
    open_checks = {check.id for check in to_ask(Gate.LAUNCH, kept, key, watched.now)}
    young = standing(kept.get(key, ()), watched.now)
    return [
        young[each.check]
        if each.state == State.UNKNOWN and each.check in young and each.check not in open_checks
        else each
        for each in verdicts
    ]


def kept_of(watched: Watched, judge: Judge) -> Kept:
    """What the earlier attempts of this generation were seen to pass, by the key of each."""
    kept: dict[Key, list[Verdict]] = {}
    present = 0 if watched.attempt is None else watched.attempt.number
    for attempt in watched.attempts:
        if attempt.ended_at is None or attempt.number >= present or attempt.generation != watched.run.generation:
            continue
        passed = [each for each in judge(_then(watched, attempt)) if each.state == State.PASS]
        kept.setdefault(key_of(watched, attempt), []).extend(passed)
    return kept


def key_of(watched: Watched, attempt: Attempt) -> Key:
    """The spec is the same in all attempts of a generation."""
    image = watched.run.image.digest or watched.run.policy.image
    code = attempt.code or watched.run.policy.code or ""  # its agent has not reported it yet
    return Key(attempt.placement.zone, image, code, str(attempt.generation))


def _then(watched: Watched, attempt: Attempt) -> Watched:
    """As it was at the end of this attempt. Its launch ended the connection once."""
    host = watched.profile.host
    assert host is not None
    profile = replace(watched.profile, host=replace(host, dropped_at=attempt.requested_at))
    run = replace(watched.run, attempt=attempt, pulse=None)
    return replace(watched, run=run, profile=profile, now=attempt.ended_at or watched.now)


def beats_after_drop(watched: Watched, attempt: Attempt) -> bool | None:
    """The provider ends the connection once after a launch; any other end of it proves the same."""
    host, pulse = watched.profile.host, watched.pulse
    if host is None or host.dropped_at is None or host.dropped_at < attempt.requested_at:
        return None
    if pulse is not None and pulse.sequence and pulse.beat_at > host.dropped_at:
        return True
    if attempt.ended_at is None or attempt.ended_at <= host.dropped_at:
        return None
    if attempt.cause in LOST:
        return False
    outlived = attempt.running_at is not None and attempt.ended_at - host.dropped_at > CALL_S
    return True if outlived else None


def as_read(verdict: Verdict, watched: Watched) -> Verdict:
    """A verdict that rests on a reading of the host has its time, and is unknown when that is too old. Once a machine
    works there, its agent reads too."""
    host = watched.profile.host
    if host is None or watched.attempt is not None or verdict.check not in READ_ON_HOST:
        return verdict
    read = replace(verdict, at=host.at, by=host.host)
    if is_young(read, watched.now):
        return read
    fact = f"last read {age_text(watched.now - host.at)} ago: {verdict.fact}"
    return replace(verdict, state=State.UNKNOWN, fact=fact, fix=verdict.fix or NEXT_READING)
