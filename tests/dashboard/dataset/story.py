"""One run, step by step: each step is a row as the loop would have left it, with its events and its time.

A story keeps its own time, which only goes forward; `steps` are written later, those of all runs in the order of their
times, so that the history reads as it would have been written. Points of its series are taken on the way.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from supervisor.contract.beat_telemetry import Cgroup, Disk, Gpus, Telemetry, Tree, encode
from supervisor.contract.heartbeat import Exit
from supervisor.contract.identifiers import launch_id, machine_name, nonce_hash
from supervisor.domain.attempt import Attempt, Pulse, Retiring, Try
from supervisor.domain.causes import Cause, rule_for
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Offer
from supervisor.domain.run import Outcome, Run, StopRequest, Waiting, attempt_cost_usd, on_demand_usd
from supervisor.domain.status import Status
from supervisor.wording.attempt import ended_text
from supervisor.wording.figures import count_text
from supervisor.wording.run import status_text

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
POINT_S, COARSE_S = 60.0, 600.0  # points older than a day are thinned out
GIB = 1024.0**3
BIG = {"g2-standard-8": 23_034.0, "a2-highgpu-1g": 40_960.0, "a3-highgpu-1g": 81_559.0}  # MiB of each card


@dataclass(frozen=True, slots=True)
class Step:
    at: float
    run: Run  # without the key and the version that the database gives
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Point:
    at: float
    attempt: int
    pulse: Pulse


@dataclass(frozen=True, slots=True)
class Pace:
    """Of a training that reports steps. `metrics`: name -> (at the beginning, where it tends to)."""

    steps_per_s: float
    total: int
    every: int = 200  # steps between two checkpoints
    metrics: Mapping[str, tuple[float, float]] | None = None


class Story:
    """`offers`: by (zone, shape, spot). `begins_at`: when it was submitted. `now`: when all stories end."""

    def __init__(
        self, first: Run, spec: Mapping[str, Any], actor: str, offers: Mapping[Any, Offer], now: float
    ) -> None:
        self.run, self.spec, self.offers, self.now = first, spec, offers, now
        self.at = first.created_at
        self.steps: list[Step] = []
        self.points: list[Point] = []
        self.pace: Pace | None = None
        self._random = random.Random(zlib.crc32(first.run_id.encode()))
        self.tell(EventKind.SUBMITTED, f"Submitted by {actor}.", actor)

    # --- what a story is made of --------------------------------------------------------------------------------------

    def tell(self, kind: EventKind, text: str, actor: str = "supervisor", **data: object) -> Story:
        """An event, with the row as it is now."""
        self.steps.append(Step(self.at, self.run, (Event(kind, text, actor, data),)))
        return self

    def becomes(self, status: Status | None = None, **fields: Any) -> Story:
        if status is not None and status != self.run.status:
            fields = {"status_since": self.at, **fields}
        self.run = replace(self.run, **({} if status is None else {"status": status}), **fields)
        return self

    def wait(self, seconds: float) -> Story:
        self.at = min(self.now, self.at + seconds)
        return self

    def until_ago(self, seconds: float) -> Story:
        """On to the moment so long before the end of all stories."""
        assert self.now - seconds >= self.at, f"{self.run.run_id}: that is over"
        self.at = self.now - seconds
        return self

    # --- machines -----------------------------------------------------------------------------------------------------

    def ask(self, zone: str, spot: bool = True) -> Story:
        run, number = self.run, self.run.counters.attempts + 1
        before = run.try_.number if run.try_ is not None and run.try_.attempt == number else 0
        offer = self.offers[zone, run.policy.shapes[0], spot]
        name = machine_name("spot", "a11ce", run.run_id, number, before + 1)
        try_ = Try(
            number, before + 1, launch_id(run.generation, number, before + 1), name, offer.placement, self.at,
            offer.price_usd_per_h, offer.on_demand_usd_per_h, nonce_hash(name),
        )  # fmt: skip
        counters = replace(run.counters, tries=run.counters.tries + 1)
        self.becomes(Status.LAUNCHING, try_=try_, counters=counters, next_at=None, cause=None, detail="")
        market = "spot" if spot else "on-demand"
        text = f"Requesting {offer.placement.shape} {market} in {zone} (attempt {number}, try {before + 1})."
        return self.tell(EventKind.LAUNCHING, text, zone=zone, launch_id=try_.launch_id)

    def refused(self, cause: Cause, detail: str, after_s: float = 7.0) -> Story:
        """The create call brought no machine."""
        self.wait(after_s)
        assert self.run.try_ is not None
        since = self.run.waiting.since if self.run.waiting.since is not None else self.at
        over = replace(self.run.try_, ended_at=self.at, outcome=cause, detail=detail)
        self.becomes(Status.WAITING, try_=over, cause=cause, detail=detail, waiting=Waiting(since=since))
        zone = over.placement.zone
        self.tell(EventKind.TRY_FAILED, f"No machine in {zone}: {detail}.", cause=cause, zone=zone)
        if since == self.at:
            self.tell(EventKind.WAITING, f"Waiting: {cause}. {detail}. Nothing is billed.", cause=cause)
        return self

    def obtain(self, after_s: float = 14.0) -> Story:
        self.wait(after_s)
        run, try_ = self.run, self.run.try_
        assert try_ is not None
        attempt = Attempt(
            try_.attempt, run.generation, try_.launch_id, try_.machine_name, self._machine_id(), try_.placement,
            try_.requested_at, self.at, try_.price_usd_per_h, try_.on_demand_usd_per_h,
        )  # fmt: skip
        counters = replace(run.counters, attempts=try_.attempt)
        self.becomes(attempt=attempt, counters=counters, waiting=Waiting(since=None))
        text = f"Attempt {attempt.number} has its machine {attempt.machine_name} in {attempt.placement.zone}."
        return self.tell(EventKind.OBTAINED, text, machine=attempt.machine_name)

    def start(self, boot_s: float = 96.0, restore_s: float = 11.0) -> Story:
        """The machine boots, pulls its image, restores and trains."""
        attempt, began = self._attempt, self.run.files.checkpoint_step
        running = self.at + boot_s
        self.wait(boot_s + restore_s)
        told = replace(
            attempt, up_at=attempt.started_at + boot_s / 4, pull_at=attempt.started_at + boot_s / 2,
            pulled_at=running - 4.0, running_at=running, training_at=self.at, step_from=began,
        )  # fmt: skip
        self.becomes(Status.RUNNING, attempt=told)
        zone = attempt.placement.zone
        if attempt.number == 1:
            return self.tell(EventKind.STARTED, f"Training in {zone}.", zone=zone)
        resumed = "" if began is None else f", resumed from step {count_text(began)}"
        return self.tell(EventKind.RECOVERED, f"Training again in {zone}{resumed}.", zone=zone, step_from=began)

    def train(self, seconds: float | None = None, pace: Pace | None = None) -> Story:
        """So long, or until the end of all stories. A checkpoint is kept now and then."""
        self.pace = pace or self.pace
        began, end = self.at, self.now if seconds is None else min(self.now, self.at + seconds)
        at = began
        while at < end:
            step_s = POINT_S if self.now - at < DAY_S else COARSE_S
            at = min(end, at + step_s)
            self.points.append(Point(at, self._attempt.number, self._pulse(at, began)))
        self.at = end
        step = self._step(end, began)
        if step is not None and self.pace is not None:
            kept = max(step // self.pace.every * self.pace.every, self.run.files.checkpoint_step or 0) or None
            attempt = replace(self._attempt, step_last=step, step_kept=kept)
            files = replace(self.run.files, checkpoint_step=kept)
            self.becomes(attempt=attempt, files=files, reported=True)
        return self.becomes(pulse=self.points[-1].pulse)

    def lose(self, cause: Cause, evidence: str, end: Exit | None = None, status: Status = Status.RECOVERING) -> Story:
        """The attempt is over, and so is its machine."""
        run, before = self.run, self._attempt
        attempt = replace(
            before, ended_at=self.at, gone_at=self.at, cause=cause, evidence=evidence, exit=end,
            readings=(f"beats: last one 9 s old; machines: {evidence}",),
        )  # fmt: skip
        newer = (attempt.step_kept or 0) > (attempt.step_from or 0)
        rule, counters = rule_for(cause, newer), run.counters
        counters = replace(
            counters,
            preemptions=counters.preemptions + (cause is Cause.PREEMPTED),
            counted=counters.counted + rule.counts,
            no_progress=0 if newer else counters.no_progress + rule.no_progress,
        )
        assert run.try_ is not None
        self.becomes(
            status, attempt=attempt, counters=counters, try_=replace(run.try_, ended_at=self.at), cause=cause,
            avoid_zone=attempt.placement.zone if rule.avoid_zone else "", down_since=self.at,
            training_s=run.training_s + (self.at - (attempt.training_at or self.at)),
            money=replace(
                run.money,
                cost_usd=run.money.cost_usd + (attempt_cost_usd(attempt, self.at) or 0.0),
                on_demand_usd=run.money.on_demand_usd + on_demand_usd(attempt, self.at),
            ),

        )  # fmt: skip
        text = f"Attempt {attempt.number} in {attempt.placement.zone} ended as {cause}: {evidence}."
        return self.tell(
            EventKind.ATTEMPT_ENDED, text, cause=cause, zone=attempt.placement.zone,
            status_text=ended_text(attempt, self.at) + ".",
        )  # fmt: skip

    def life(self, zone: str, trains_s: float, cause: Cause, evidence: str, pause_s: float = 12.0) -> Story:
        """A whole attempt, from the request to its loss."""
        return self.wait(pause_s).ask(zone).obtain().start().train(trains_s).lose(cause, evidence)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def save(self, saves_s: float = 40.0, **data: object) -> Story:
        """The command has ended well; what it left is saved."""
        self.becomes(Status.FINISHING).tell(EventKind.FINISHING, "The command ended with code 0.", **data)
        return self.wait(saves_s)

    def verified(self, files: int, size_bytes: int, sha256: str, missing: tuple[str, ...] = ()) -> Story:
        outcome = Outcome(sha256, files, size_bytes, self.at, self._attempt.step_last, missing)
        text = f"Results verified: {files} files." if not missing else f"Missing: {', '.join(missing)}."
        return self.becomes(files=replace(self.run.files, outcome=outcome)).tell(
            EventKind.RESULTS_VERIFIED, text, files=files
        )

    def over(self, status: Status, cause: Cause, detail: str = "", **fields: Any) -> Story:
        """The run is over and nothing of it is left."""
        self.becomes(status, cause=cause, detail=detail, settled=True, next_at=None, retiring=(), **fields)
        return self.tell(EventKind(str(status)), status_text(self.run, self.at), cause=cause)

    def asked_to_stop(self, actor: str, source: str = "api") -> Story:
        who = "a .stop marker" if source == "marker" else actor
        self.becomes(stop=StopRequest(actor, self.at, source=source))
        return self.tell(EventKind.STOP_REQUESTED, f"Stop requested by {who}.", actor)

    def keeps_machine(self, until: float, note: str) -> Story:
        """The attempt is over, its machine still there and billed."""
        ended = replace(self._attempt, gone_at=None)
        held = Retiring(ended.ref, ended.launch_id, self.at, until, note)
        return self.becomes(attempt=ended, retiring=(held,))

    # --- beats --------------------------------------------------------------------------------------------------------

    def beats(self, **fields: Any) -> Story:
        """What the newest beat says beside the pace of the story."""
        attempt, now = self._attempt, self.now
        begun = attempt.training_at or attempt.running_at or now
        blank = Pulse(attempt.launch_id, 9, "training", begun, now - 8, telemetry=self._telemetry(now))
        known = self.run.pulse
        old = known if known is not None and known.launch_id == attempt.launch_id else blank
        return self.becomes(pulse=replace(old, **{"beat_at": now - 6, **fields}))

    @property
    def _attempt(self) -> Attempt:
        assert self.run.attempt is not None
        return self.run.attempt

    def _machine_id(self) -> str:
        return str(4_000_000_000_000_000_000 + self._random.randrange(10**18))

    def _step(self, at: float, began: float) -> int | None:
        if self.pace is None:
            return None
        first = self.run.files.checkpoint_step or 0
        return min(self.pace.total, first + int((at - began) * self.pace.steps_per_s))

    def _pulse(self, at: float, began: float) -> Pulse:
        attempt, step, pace = self._attempt, self._step(at, began), self.pace
        sequence = int((at - began) // 10) + 1
        if step is None or pace is None:
            return Pulse(attempt.launch_id, sequence, "training", began, at - 6, telemetry=self._telemetry(at))
        metrics = {name: self._metric(step / pace.total, *ends) for name, ends in (pace.metrics or {}).items()}
        return Pulse(
            launch_id=attempt.launch_id,
            sequence=sequence,
            phase="training",
            phase_since=began,
            beat_at=at - 8,
            step=step,
            total=pace.total,
            checkpoint_step=step // pace.every * pace.every or None,
            first_progress_at=began + 5,
            progress_at=at - 8,
            steps_per_s=round(pace.steps_per_s * self._random.uniform(0.96, 1.03), 3),
            metrics=metrics,
            telemetry=self._telemetry(at),
        )

    def _metric(self, share: float, first: float, last: float) -> float:
        """Quickly at the beginning, slowly in the end, with the noise of a training."""
        figure = last + (first - last) / (1.0 + 14.0 * share)
        return round(figure + (first - last) * self._random.gauss(0.0, 0.012), 5)

    def _telemetry(self, at: float) -> str:
        place, draw = self._attempt.placement, self._random
        memory = BIG.get(place.shape, 23_034.0)
        busy = 8.0 if draw.random() < 0.04 else draw.uniform(88.0, 99.0)
        gpus = Gpus(
            (round(busy),), (round(memory * draw.uniform(0.80, 0.86)),), (memory,), (1980.0,), (1995.0,),
            (round(draw.uniform(61.0, 70.0), 1),), (72.0,), (round(draw.uniform(63.0, 71.0)),), (0.0,), (0.0,),
        )  # fmt: skip
        age_s = at - self._attempt.started_at
        disk = Disk(max(9.0, 71.0 - age_s / 9000.0) * GIB, 98.0 * GIB, 6_400_000.0, 6_553_600.0)
        group = Cgroup(draw.uniform(17.0, 19.5) * GIB, 32.0 * GIB, 0.0, 8.0, 12.0, 1.5, 0.2, 0.9)
        tree = Tree(9.0, 74.0, 18.2 * GIB, 5.0, 0.0, 0.0, 0.0)
        return encode(Telemetry(gpus, group, disk, None, None, tree, age_s, 4.0e6 + age_s * 900.0))
