"""The beats of a simulated agent, pushed and stored, and what it learns then: a stop, a newer attempt, a closed run.

A change of phase, exit or notice is pushed and stored at once, everything else at its pace. Only the holder stores a
beat, with if-generation-match of its own last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor.agent.life.beats import RESTING_STEPS, OrdersLook, Rest
from supervisor.agent.store.access import left_reason, new_stop_marker, superseded
from supervisor.agent.watch.beat_state import IN_TRAINING
from supervisor.contract import baton as rules
from supervisor.contract import beat_telemetry, drill, heartbeat, runfiles
from supervisor.contract.drill import Record, Round
from supervisor.contract.heartbeat import Beat
from supervisor.contract.recent_points import EVERY_S, RecentPoint, RecentPoints
from supervisor.contract.stores.promise import ABSENT, ObjectMissing, PreconditionFailed, StoreUnavailable
from tests.scenarios.sim_plan import NEVER, NotReached

if TYPE_CHECKING:
    from tests.scenarios.sim_agent import SimAgent


class BeatSender:
    def __init__(self, agent: SimAgent, starts_at: float) -> None:
        self._agent = agent
        self.push_at = starts_at if agent.plan.push else NEVER
        self.store_at = NEVER  # until it holds the baton
        self.contact_at = starts_at
        self._sequence = 99  # the start-up script uses the numbers below
        self._generation: str | None = None
        self._stop_generation: str | None = None
        self._sent: tuple[object, ...] = ()
        self._recent, self._noted_at = RecentPoints(), 0.0
        self._rest = Rest(float(str(agent.job["beat_store_s"])), agent.reach.monotonic)
        self._rest.on_end = self._store_at_once
        self._orders = OrdersLook(agent.reach.objects, agent, lambda: True, agent.reach.monotonic)  # type: ignore[arg-type]
        self._stored_at, self._looked_at = -NEVER, 0.0
        self._consumed: str | None = None
        self._shown: tuple[object, ...] = ()  # by the last stored beat
        self._drill = (0, 0.0)  # number of the newest drill, and when it is over

    @property
    def due(self) -> float:
        return min(self.push_at, self.store_at)

    def send(self, now: float) -> None:
        agent = self._agent
        shown = (agent.shown_phase, agent.left, agent.exit, agent.notice_s(), agent.hangs_at)
        urgent, self._sent = shown != self._sent, shown
        if self.store_at < NEVER and (urgent or now >= self.store_at):
            pace_s = float(agent.job["beat_store_s"])
            rests = self._rest.allows(self._stored_at) and self._shown == self._state()
            self.store_at = now + (pace_s / RESTING_STEPS if rests else pace_s)
            if not (agent.silent or agent.mute):
                self._glance(now) if rests else self._store(now)
        if self.push_at < NEVER and (urgent or now >= self.push_at):
            self.push_at = now + float(agent.job["beat_push_s"])
            if not (agent.silent or agent.mute):
                self._push(now)

    def beat(self) -> Beat:
        agent = self._agent
        self._sequence += 1
        shows = agent.plan.reports and agent.restored
        up_s = agent.reach.monotonic() - agent.up_at
        if shows and agent.plan.carries:
            self._note(agent.progress())
        return Beat(
            run_id=agent.run_id,
            attempt=agent.attempt,
            launch_id=agent.launch_id,
            machine_id=agent.machine_id,
            boot_id="boot",
            sequence=self._sequence,
            phase=agent.shown_phase,
            nonce=str(agent.job["nonce"]),
            step=agent.progress() if shows else None,
            total=agent.plan.steps if shows else None,
            checkpoint_step=agent.pointed,
            resumed_from=agent.step_from,
            rejected_checkpoint=agent.rejected,
            steps_per_s=agent.plan.rate if shows else None,
            notice_s=agent.notice_s(),
            left=agent.left,
            stop_generation=self._stop_generation,
            exit=agent.exit,
            message=agent.note,
            pruned=agent.files.pruned,
            telemetry=_disk(agent.disk_free_pct),
            up_s=up_s,
            recent=self._recent.text(up_s),
            signs=agent.signs(),
            drill=self._drilled(),
        )

    def _drilled(self) -> str:
        """A drill of a training that loses nothing."""
        (number, over_at), step = self._drill, self._agent.step
        if not number:
            return ""
        moments = drill.TRAINING, drill.AGAIN
        if self._agent.reach.monotonic() < over_at:
            return drill.encode(Record(number, moments=moments))
        good = Round("", True, "", step, 4.0, False, step, 3.0, drill.STEPPED, step, 5.0, step + 1)
        rounds = tuple(good._replace(moment=moment) for moment in moments)
        return drill.encode(Record(number, drill.OVER, moments, rounds))

    def _note(self, step: int) -> None:
        """Note the points since the last beat, as an agent does while its training reports."""
        agent, rate = self._agent, self._agent.plan.rate
        at = max(self._noted_at + EVERY_S, agent.training_at)
        while at < agent.reach.monotonic():
            then = (agent.step_from or 0) + int(rate * (at - agent.training_at))
            self._recent.note(RecentPoint(at - agent.up_at, min(then, step), rate))
            self._noted_at, at = at, at + EVERY_S

    def _push(self, now: float) -> None:
        agent = self._agent
        try:
            response = agent.reach.push(agent.run_id, heartbeat.encode(self.beat()))
        except NotReached:
            self._rest.acknowledged(None)
            return
        self.contact_at, self.push_at = now, now + response.next_s
        self._rest.acknowledged(response.store_s)
        self._orders.named(response.orders)
        if response.stop:
            agent.leave(heartbeat.STOPPED)

    def _state(self) -> tuple[object, ...]:
        agent = self._agent
        return agent.shown_phase in IN_TRAINING, agent.left, agent.exit, agent.notice_s(), self._stop_generation

    def _store_at_once(self) -> None:
        now = self._agent.reach.monotonic()
        if self.store_at < NEVER and now - self._stored_at >= float(str(self._agent.job["beat_store_s"])):
            self.store_at = now

    def _glance(self, now: float) -> None:
        if now - self._looked_at < heartbeat.glance_s(float(str(self._agent.job["beat_store_s"]))):
            return
        self._looked_at = now
        try:
            self._read_marker(self._consumed)
            self._orders.look()
        except StoreUnavailable:
            self._stored_at = -NEVER

    def _read_marker(self, consumed: str | None) -> bool:
        agent = self._agent
        own = agent.job["stop_consumed"]
        marker = new_stop_marker(agent.reach.objects, agent.run_id, None if own is None else str(own), consumed)
        if marker is not None:
            self._stop_generation = marker
            agent.leave(heartbeat.STOPPED)
        return marker is not None

    def _store(self, now: float) -> None:
        agent, self._stored_at = self._agent, -NEVER
        try:
            baton = agent.files.keeper.read()
            verdict = rules.standing(baton, agent.launch_id, agent.machine_id, 0.0)
            if verdict != rules.MINE:
                agent.stand_down(left_reason(verdict))
                return
            self.contact_at = now
            order = baton.drill
            is_ours = order is not None and order.launch_id == agent.launch_id and agent.plan.drill > 0
            if order is not None and is_ours and order.number > self._drill[0]:
                self._drill = order.number, now + agent.plan.drill
            self._consumed, self._looked_at = baton.stop_consumed, now
            if not self._read_marker(self._consumed) and superseded(baton, agent.launch_id):
                agent.leave(heartbeat.SUPERSEDED)
            self._orders.look()
            state = self._state()
            self._put()
            if state[0]:
                self._stored_at, self._shown = now, state
        except StoreUnavailable:
            return

    def _put(self) -> None:
        objects, key = self._agent.reach.objects, runfiles.beat(self._agent.run_id)
        for _ in range(3):
            if self._generation is None:
                try:
                    self._generation = objects.stat(key).generation
                except ObjectMissing:
                    self._generation = ABSENT
            text = heartbeat.encode(self.beat())
            try:
                self._generation = objects.put(key, text, self._generation, {"beat": text.decode()}).generation
            except PreconditionFailed:
                self._generation = None
            else:
                return


def _disk(free_pct: float | None) -> str:
    if free_pct is None:
        return ""
    disk = beat_telemetry.Disk(free_bytes=free_pct * 1e9, total_bytes=100e9)
    return beat_telemetry.encode(beat_telemetry.Telemetry(checkpoints_disk=disk))
