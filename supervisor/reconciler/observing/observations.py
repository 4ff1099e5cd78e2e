"""The observation of one run: its part of the bulk reads, and what finished actions reported. Reads nothing itself.

A late listing that does not contain a machine says that it is absent only where it is known to have been there before;
otherwise the machine is Unknown. Of several beats the highest (launch, sequence) wins the content, and the smallest age
the freshness. A stored beat counts only with the nonce of its try: anyone who may write to the store could have written
it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from supervisor.contract import runfiles
from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import nonce_hash, parse_launch_id
from supervisor.domain.attempt import Attempt, Retiring, Try
from supervisor.domain.machines import Away, Machine, MachineRef, MachineState
from supervisor.domain.observation import (
    LATE_LISTING,
    LISTING,
    NOT_READ,
    Absent,
    Observation,
    Part,
    Seen,
    Unknown,
    unless_written_off,
)
from supervisor.domain.run import Run
from supervisor.ports.store import Store
from supervisor.reconciler.observing.beats import Rejected
from supervisor.reconciler.observing.observe import Snapshot
from supervisor.reconciler.outcomes import Outcomes, Reported

PUSH, STORE, BOOT = "push", "store", "boot"  # sources of beats


class Nonces:
    """Hashes of the nonces of ended launches, read once from the database. A live try carries its own hash."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._hashes: dict[int, tuple[str, str]] = {}  # run key -> (launch id, hash)

    def hash_of(self, run: Run, launch_id: str) -> str:
        if run.try_ is not None and run.try_.launch_id == launch_id and run.try_.nonce_hash:
            return run.try_.nonce_hash
        entry = self._hashes.get(run.key)
        if entry is None or entry[0] != launch_id or not entry[1]:
            entry = self._hashes[run.key] = (launch_id, self._store.nonce_hash(run.run_id, launch_id) or "")
        return entry[1]

    def forget(self, key: int) -> None:
        self._hashes.pop(key, None)


@dataclass
class Observations:
    """Of one tick. `rejected`: stored beats without the nonce of their try."""

    snapshot: Snapshot
    outcomes: Outcomes
    nonces: Nonces
    supervisor_id: str
    now: float
    rejected: list[Rejected] = field(default_factory=list)

    def of(self, run: Run) -> Observation:
        reported, try_ = self.outcomes.of(run.key), run.try_
        beat = self.beat(run)
        machine: Part[Machine] = NOT_READ
        if try_ is not None and run.open_try is not None:
            there_at = _obtained_at(run.attempt, try_.launch_id) or _settled_at(try_, beat, self.now)
            starts = try_.on is not None and run.live_attempt is None
            machine = unless_written_off(
                self.machine(try_.ref, try_.launch_id, there_at, starts=starts), try_.launch_id, run.written_off
            )
        return Observation(
            machine=machine,
            beat=beat,
            stop=reported.stop,
            create=reported.create if try_ is None else reported.create_of(try_.launch_id),
            **self._race(run, reported),
            sent=reported.sent,
            pin=reported.pin,
            verification=reported.verification,
            verb=reported.verb,
            meter=reported.meter,
            finalised=reported.finalised,
            retiring=tuple(self._retiring(run, item) for item in run.retiring),
        )

    def _race(self, run: Run, reported: Reported) -> dict[str, Any]:
        """The parts of the second create call of an open race."""
        rival = run.open_rival
        if rival is None:
            return {}
        machine = self.machine(rival.ref, rival.launch_id, rival.requested_at)
        machine = unless_written_off(machine, rival.launch_id, run.written_off)
        return {"rival": machine, "rival_create": reported.create_of(rival.launch_id)}

    def _retiring(self, run: Run, item: Retiring) -> Part[Machine]:
        there_at = _obtained_at(item.attempt or run.attempt, item.launch_id)
        there_at = item.lost_until if there_at is None else there_at  # by then it is there, or will never be
        # A kept machine may carry the launch of a start that failed.
        launch_id = item.launch_id if item.kept is None else None
        return unless_written_off(self.machine(item.ref, launch_id, there_at), item.launch_id, run.written_off)

    # --- machines -----------------------------------------------------------------------------------------------------

    def machine(
        self, ref: MachineRef, launch_id: str | None, there_at: float | None = None, *, starts: bool = False
    ) -> Part[Machine]:
        """`there_at`: a listing that was requested later, and does not contain the machine, says that it is absent;
        None = no late listing says so. `launch_id` None: whichever launch it carries. `starts`: this launch starts a
        machine again, which carries an earlier launch until then: it is requested, whatever it does meanwhile."""
        report = self.snapshot.listings.get(ref.provider)
        if report is None:
            return Unknown(f"provider {ref.provider} is not in the settings")
        machine = report.machine(ref.zone, ref.name)
        away = self.snapshot.away.get((ref.provider, ref.zone))
        if report.listing is None and machine is None:
            return Unknown(report.problem, away)
        unread = "" if report.listing is None else report.listing.unread(ref.zone)
        if unread:  # a zone that is not offered may be unread too
            return Unknown(unread, away or Away(ref.zone, self.snapshot.began_at, unread, report.lasting))
        late_s = report.late_s
        age_s = max(0.0, self.now - self.snapshot.taken_at) + late_s
        if machine is None and late_s > 0 and (there_at is None or there_at > self.snapshot.taken_at - late_s):
            return Unknown(f"it may have appeared since the listing, which is {late_s:.0f} s old")
        if machine is None:
            return Absent(age_s, LATE_LISTING if late_s > 0 else LISTING)
        ours = machine.supervisor_id == self.supervisor_id
        if ours and starts and machine.launch_id != launch_id:
            return Seen(replace(machine, state=MachineState.ASKED), age_s, LISTING)
        if not ours or launch_id not in (None, machine.launch_id):
            return Unknown(f"a machine named {ref.name} belongs to another launch", taken=True)
        return Seen(machine, age_s, LISTING)

    # --- beats --------------------------------------------------------------------------------------------------------

    def beat(self, run: Run) -> Part[Beat]:
        """The newest beat of any source that counts."""
        snapshot, stored = self.snapshot, self.snapshot.stored.beats
        parts: list[Seen[Beat]] = []
        pushed = snapshot.pushed.get(run.run_id)
        if pushed is not None:
            parts.append(Seen(pushed[0], max(0.0, snapshot.monotonic - pushed[1]), PUSH))
        for name, source in ((run.run_id, STORE), (run.run_id + runfiles.BOOT, BOOT)):
            if name in stored:
                parts.append(Seen(stored[name].beat, stored[name].age_s, source))
        if len(parts) > 1:
            parts.sort(key=_rank, reverse=True)  # of two equal ones the first stays first
        for position, part in enumerate(parts):
            if part.source == PUSH or self._counts(run, part.value):
                return _with_smallest_age(part, parts[position + 1 :])
        return Unknown(snapshot.stored.problem) if snapshot.stored.problem else Absent(0.0, LISTING)

    def _counts(self, run: Run, beat: Beat) -> bool:
        ended = run.attempt is not None and beat.launch_id == run.attempt.launch_id
        if run.try_ is None or (beat.launch_id != run.try_.launch_id and not ended):
            # Neither of this launch nor a late one of the last attempt: no rule uses it. The second machine of a race
            # has the later launch; its beats must not hide those of the first.
            return run.rival is None or beat.launch_id != run.rival.launch_id
        if self.nonces.hash_of(run, beat.launch_id) == nonce_hash(beat.nonce):
            return True
        self.rejected.append((run.run_id, "it does not carry the nonce of its try"))
        return False


def _rank(part: Seen[Beat]) -> tuple[tuple[int, int, int], int]:
    return parse_launch_id(part.value.launch_id), part.value.sequence


def _with_smallest_age(newest: Seen[Beat], older: list[Seen[Beat]]) -> Seen[Beat]:
    """The other way of the same launch may be fresher, although its content is older. A stored beat is no older than a
    push before it, whatever the store's Date says: after a rest nothing else bounds its age."""
    ages = [part.age_s for part in older if part.source != BOOT and part.value.launch_id == newest.value.launch_id]
    return replace(newest, age_s=min(newest.age_s, *ages)) if ages else newest


def _obtained_at(attempt: Attempt | None, launch_id: str) -> float | None:
    """Since when this machine is known to have been there; None = it may never have appeared."""
    return attempt.started_at if attempt is not None and attempt.launch_id == launch_id else None


def _settled_at(try_: Try, beat: Part[Beat], now: float) -> float:
    """A listing that was requested later and does not contain the machine says that it was not there then: the request
    made none, or it appeared, sent a beat and disappeared. Without this a try at a provider that always responds late
    would stay open for ever."""
    if isinstance(beat, Seen) and beat.value.launch_id == try_.launch_id:
        return max(try_.requested_at, now - beat.age_s)
    return try_.requested_at
