"""Everything that the agent of one machine works with, created once and shared: the store, the parts, the threads.

`check_end` is the one place that checks the time, the notice and the other reasons to end. The main thread calls it in
every wait, so that no other work can hide one.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

from supervisor.agent.checkpoints.checkpointsaver import CheckpointDuty, CheckpointSaver, Hooks, Results
from supervisor.agent.checkpoints.folder import Candidate, CheckpointFolder, Renames
from supervisor.agent.checkpoints.pruning import Pruner
from supervisor.agent.checkpoints.resultsaver import ResultsSaver
from supervisor.agent.checkpoints.snapshots import ResultsFolder, Snapshots, SnapshotTaker
from supervisor.agent.facts.attempt_facts import FactsDuty
from supervisor.agent.facts.evidence import Evidence
from supervisor.agent.facts.looks import Surroundings
from supervisor.agent.life.beats import OrdersLook, PushedBeats, Rest, StoredBeats
from supervisor.agent.life.loops import Loop
from supervisor.agent.machine.cgroup import OomWatch, OwnCgroup, host_io_pressure
from supervisor.agent.machine.command import Training, Unfit, Workplace
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.gpus import GpuReader, gpu_names
from supervisor.agent.machine.job import Job
from supervisor.agent.machine.masking import Masker
from supervisor.agent.machine.processes import Identity, ProcessTree, is_of_machine
from supervisor.agent.machine.vitals import Vitals, readers_of
from supervisor.agent.store.access import BatonKeeper, Contact, Retrier, WatchedStore
from supervisor.agent.store.googleapi import MetadataServer
from supervisor.agent.watch.beat_state import BeatState
from supervisor.agent.watch.ends import POINTER_S, Ending, EndReasons, PreemptionWatch
from supervisor.agent.watch.hang import HangWatch, Sources
from supervisor.agent.watch.logwatch import LogWatch
from supervisor.agent.watch.metrics import MetricWatch
from supervisor.agent.watch.motion import Counters, read_counters
from supervisor.agent.watch.notes import Notes, Seen
from supervisor.agent.watch.output import LogDuty, LogShipper, Progress
from supervisor.agent.watch.resumecheck import ResumeCheck
from supervisor.agent.watch.saving import SaveClock
from supervisor.agent.watch.series import MetricSeries, SeriesDuty
from supervisor.agent.watch.slow import SlowWatch
from supervisor.agent.watch.trainerstatus import StatusDoor
from supervisor.contract import heartbeat
from supervisor.contract.stores.folder import FolderStore
from supervisor.contract.stores.promise import ObjectStore

if TYPE_CHECKING:
    from supervisor.agent.life.orders import OrdersDuty
    from supervisor.agent.store.door.client import DoorPass

GPU_AGE_PACES = 3.0  # figures of cards that are older are unread: the driver may hang
_log = logging.getLogger("agent")


def open_store(job: Job, authorities: Optional[str] = None, pass_file: str = "") -> ObjectStore:
    """`pass_file`: what a door wants to see. ValueError for a URL that this agent has no store for. Touches nothing
    yet."""
    if job.store_url.startswith("door:"):
        from supervisor.agent.store.door.store import DoorStore  # late, as the next one

        return DoorStore.at(job.store_url, pass_file, authorities)
    if job.store_url.startswith("gs:"):
        from supervisor.agent.store.gcs import GcsStore  # late: other agents start without it

        # Only a machine on the supervisor's own computer has a server file.
        shares_computer = job.server_file is not None or job.own_login
        return GcsStore.at(job.store_url, job.storage_endpoint, authorities, shares_computer=shares_computer)
    return FolderStore.at(job.store_url)


class Parts:
    """The parts, not yet started. Each loop is a thread: one that hangs or waits must not block the others, nor the
    main thread, which supervises."""

    # Until when results may be saved at an end that has no time limit of its own; None = there is no such end.
    save_results_until: Optional[float] = None
    # None until the command is about to start.
    workplace: Optional[Workplace] = None
    saved_at = 0.0  # monotonic: when the newest checkpoint was safe, or the command was started from it
    ordered_drill = 0  # the number of the newest drill that was ordered
    scratch_base: Optional[str] = None  # its working folder, without links
    _notice_logged = False
    _orders: Optional[OrdersDuty] = None

    def __init__(
        self,
        folder: MachineFolder,
        job: Job,
        identity: Identity,
        *,
        store: ObjectStore,
        secrets: Mapping[str, str],
        unfit: Optional[Unfit] = None,
    ) -> None:
        """`unfit`: why the command will not be started, if that is known already."""
        self.folder, self.job, self.machine_id = folder, job, identity.machine_id
        self.secrets, self.masker, self.unfit = secrets, Masker(secrets), unfit
        self.contact = Contact()
        self.door_pass: Optional[DoorPass] = getattr(store, "door_pass", None)
        self.store: ObjectStore = WatchedStore(store, self.contact)
        self.keeper = BatonKeeper(self.store, job.run_id, job.launch_id, identity.machine_id)
        self.end_reasons = EndReasons(job, self.contact, time.monotonic, folder.notice_s)
        self.beat_state = BeatState(job, identity, self.masker)
        if job.shows_beats:
            self.beat_state.show = lambda beat: folder.write_beat(heartbeat.encode_within(beat, heartbeat.MAX_BYTES))
        self.training = Training()
        self.log_watch = LogWatch(folder.output, self.masker, self.beat_state.up_s)
        self.metrics = MetricWatch(job.watch or {}, self.beat_state.up_s, self.masker)
        self.series = MetricSeries(self.beat_state.up_s, self.masker)
        self.series_duty = SeriesDuty(job, self.store, self.series, self.end_reasons)
        self.progress = self._progress()
        self.notes = Notes(lambda: self.training.ran_s, self._seen)
        self.renames = Renames(folder.checkpoints)
        self.results_folder = ResultsFolder(folder.results)
        self.results = self._results()
        snapshots = self.results.snapshots
        self.entries = CheckpointFolder(folder.checkpoints, job.rest_s, snapshots.renamed, snapshots.at_rest)
        self.saver = self._saver()
        self.checkpoint_duty = CheckpointDuty(self.saver, self.entries, self.end_reasons, self.keeper)
        shipper = LogShipper(self.store, job.run_id, job.attempt, folder.output, self.masker)
        self.log_duty = LogDuty(shipper, job.log_chunk_s, self.end_reasons, lambda: self.beat_state.now.phase)
        self._make_beats()
        self.gpus = GpuReader(gpu_names(job), monotonic=self.beat_state.up_s, bad=folder.write_bad_gpus)
        self.surroundings = self._surroundings()
        self.evidence = Evidence(
            job,
            folder,
            store=self.store,
            masker=self.masker,
            beat_state=self.beat_state,
            training=self.training,
            end_reasons=self.end_reasons,
            surroundings=self.surroundings,
        )
        self.evidence.words = self.log_watch.part
        self.facts_duty = FactsDuty(job, self.store, folder.output, self.masker, self.end_reasons)
        self._make_loops()

    def _make_beats(self) -> None:
        job, orders = self.job, OrdersLook(self.store, self.job, self._carry_out_orders)
        rest = Rest(job.beat_store_s)
        self.pushed = PushedBeats(
            job,
            self.beat_state,
            self.end_reasons,
            contact=self.contact,
            follow=self._follow,
            ordered=orders.named,
            authorities=self.folder.authorities,
            door_pass=self.door_pass,
        )
        self.pushed.acknowledged = rest.acknowledged
        self.stored = StoredBeats(
            job,
            self.store,
            keeper=self.keeper,
            beat_state=self.beat_state,
            end_reasons=self.end_reasons,
            orders=orders,
            rest=rest,
        )

    def _progress(self) -> Progress:
        job = self.job
        self.resume = ResumeCheck(job.on_resume_ignored, lambda: self.training.ran_s, lambda: self.progress.total)
        hazard = job.hazard if job.notice_from else 0.0  # whoever preempts machines announces it
        self.saving = SaveClock(self.folder.save_due, hazard, lambda: self.entries.seen_at)
        progress = Progress(
            self.folder.progress,
            self.beat_state.update,
            time.monotonic,
            self.job.steps_from_zero,
            metrics=self.metrics,
            series=self.series,
        )
        progress.follow(self.resume.add)
        progress.follow(self.saving.add)
        return progress

    def _surroundings(self) -> Surroundings:
        marker = self.folder.marker
        oom = OomWatch(OwnCgroup(), self.beat_state.up_s, lambda pid: is_of_machine(pid, marker))
        return Surroundings(self.job, self.folder, gpus=self.gpus, oom=oom, training=self.training)

    def _make_loops(self) -> None:
        job, folder = self.job, self.folder
        tree, group = ProcessTree(lambda: self.training.pid), OwnCgroup()
        slow = SlowWatch(
            job.slow_s,
            self.beat_state,
            look=lambda wanted: self.surroundings.work(tree.last_pids, group, wanted),
            host_io=host_io_pressure,
            monotonic=time.monotonic,
        )
        readers = readers_of(folder, self.gpus, lambda: self.training.pid, self.surroundings.oom.read, tree)
        vitals = Vitals(readers, self.beat_state.note, job.beat_push_s, then=slow.add)
        self.beat_state.add_vitals(vitals.fresh)
        self.beat_state.add_guess(lambda: self.log_watch.guess)
        self.beat_state.add_signs(lambda: {**self._more_signs(), **slow.signs()})
        self.evidence.windows = slow.part
        sources = Sources(
            counters=self._counters,
            dumps=self.evidence.dumps,
            keep=self.evidence.stalled,
            report=lambda hang, moves: self.beat_state.sign(hang=hang, moves=moves),
            carried_s=self.evidence.usual_before_s,
        )
        stalls = HangWatch(job, self.beat_state, sources, time.monotonic)
        self.evidence.usual_s = lambda: stalls.usual_s
        self.stored.order_drill = self._order_drill
        self.status_door = StatusDoor(folder.status_token, lambda: os.path.exists(folder.stopping))
        self.snapshot_loop = self._loop("moments", self.results.snapshots.step)
        self.stall_loop = self._loop("stalls", stalls.step)
        self.facts_loop = self._loop("facts", self.facts_duty.step)
        self.vitals_loop = self._loop("vitals", vitals.step)
        self.push_loop = self._loop("push", self.pushed.step)
        if self.door_pass is not None:
            self.door_pass.on_refused = self.push_loop.wake
        self.store_loop = self._loop("store", self.stored.step)
        self.stored.wake = self.store_loop.wake
        self.checkpoint_loop = self._loop("checkpoints", self.checkpoint_duty.step)
        self.log_loop = self._loop("log", self.log_duty.step)
        self.series_loop = self._loop("metrics", self.series_duty.step)
        self.hits_loop = self._loop("hits", self.log_watch.step)
        self.orders_loop = self._loop("orders", lambda: self.orders.step())  # noqa: PLW0108 - late
        self.preemption_loop: Optional[Loop] = None  # None: only the provider can announce a preemption
        if job.notice_from == "gce":
            watch = PreemptionWatch(MetadataServer(), folder, job.notice_s)
            self.preemption_loop = self._loop("preemption", watch.step)
        for loop in (self.push_loop, self.store_loop, self.log_loop):
            self.beat_state.on_urgent(loop.wake)

    def _more_signs(self) -> Mapping[str, Any]:
        return {**self.surroundings.signs(), **self.metrics.signs(), **self.notes.signs()}

    def _seen(self) -> Seen:
        keeps_metrics = self.metrics.has_any or self.facts_duty.has_tracker
        return Seen(
            self.progress.first_step,
            self.log_watch.shows_losses,
            keeps_metrics,
            self.resume.ignored,
            self.saving.notes(),
        )

    def _counters(self) -> Counters:
        folder, tree = self.folder, ProcessTree(lambda: self.training.pid)
        gpus = self.gpus.latest(max_age_s=GPU_AGE_PACES * self.job.beat_push_s)
        return read_counters(tree.pids(), (folder.checkpoints, folder.results), folder.output, gpus)

    def check_end(self) -> Optional[Ending]:
        """Check for reasons to end; None = continue. Main thread only."""
        ending = self.end_reasons.check()
        if self.end_reasons.notice_left_s is not None and not self._notice_logged:
            self._notice_logged = True
            _log.info("preemption notice: %.1f s are left", self.end_reasons.notice_left_s)
            self.beat_state.update(notice_s=round(self.end_reasons.notice_left_s, 1))
        return ending

    def retrier(self, gives_up: Callable[[], bool]) -> Retrier:
        return Retrier(gives_up, lambda text: self.beat_state.note("waiting", text))

    def reject(self, step: int, text: str) -> None:
        """This checkpoint is not restored; `text` says why."""
        self.beat_state.note("restore", text)
        self.beat_state.update(rejected_checkpoint=step)
        self.notes.rejected(step, text)

    def must_end(self) -> bool:
        """Before the command runs: any reason to end ends the waiting. Main thread only."""
        return self.check_end() is not None

    def uploads_over(self) -> bool:
        """After the command: uploads continue until their time is over. Main thread only."""
        self.check_end()
        return self.end_reasons.uploads_over()

    def _follow(self, followed: bool) -> None:
        if followed != self.log_duty.followed:
            self.log_duty.follow(followed)
            self.log_loop.wake()

    @property
    def orders(self) -> OrdersDuty:
        if self._orders is None:
            from supervisor.agent.life.orders import OrdersDuty  # late: most runs never have orders

            self._orders = OrdersDuty(self)
        return self._orders

    @property
    def code_tree(self) -> str:
        """Hash of all files of the code where it was changed since the submit; "" = it is the bundle."""
        return "" if self._orders is None or self._orders.sync is None else self._orders.sync.tree

    def end_orders(self) -> None:
        """Commands beside the training end with it."""
        self.orders_loop.stop()
        if self._orders is not None:
            self._orders.commands.end()

    def _carry_out_orders(self) -> bool:
        """False: the command is not there yet. One thread at a time."""
        if self.hits_loop.started:
            self.orders.changed = True
            (self.orders_loop.wake if self.orders_loop.started else self.orders_loop.start)()
        return self.hits_loop.started

    def _loop(self, name: str, step: Callable[[], Optional[float]]) -> Loop:
        return Loop(name, step, lambda text: self.beat_state.note("error in " + name, text))

    def _saver(self) -> CheckpointSaver:
        job = self.job
        return CheckpointSaver(
            Pruner(self.store, job.run_id, job.attempt, job.keep, lambda now: self.beat_state.update(pruned=now)),
            self.keeper,
            place=(job.run_id, job.attempt, self.folder.staging),
            retrier=Retrier(self.end_reasons.uploads_over, lambda text: self.beat_state.note("saving", text)),
            hooks=Hooks(
                self.progress.step_of,
                lambda text: self.beat_state.note("checkpoint", text),
                self._checkpoint_moved,
                self._checkpoint_took,
                self.notes.staged,
                self._held,
                lambda: self.resume.reported,
            ),
            masker=self.masker,
            results=self.results,
        )

    def _results(self) -> Results:
        job = self.job
        taker = SnapshotTaker(self.results_folder, self.folder.moments, int(job.results_save_max_mb * 1e6))

        def retrier(reserve_s: float) -> Retrier:
            return Retrier(lambda: self._results_over(reserve_s), lambda text: self.beat_state.note("saving", text))

        saver = ResultsSaver(
            self.store,
            (job.run_id, job.launch_id, self.folder.incoming),
            taker,
            retrier=retrier(0.0),
            hurry=retrier(POINTER_S),
            note=lambda text: self.beat_state.note("saved results", text),
            masker=self.masker,
        )
        return Results(Snapshots(self.renames, taker), saver)

    def _results_over(self, reserve_s: float) -> bool:
        """For every thread. It checks for reasons itself, because at an end the main thread is the one that waits.
        `reserve_s`: time that is kept for moving the baton."""
        self.end_reasons.check()
        until = self.save_results_until
        late = until is not None and time.monotonic() >= until + POINTER_S - reserve_s
        return late or self.end_reasons.uploads_over(reserve_s)

    def _held(self, candidate: Candidate) -> Optional[str]:
        started_over = self.resume.held()
        if started_over:
            return started_over
        step, is_announced = self.progress.step_of(candidate.name), self.progress.announces(candidate.name)
        return self.metrics.held(step, None if is_announced else candidate.changed_at)

    def _order_drill(self, number: int) -> None:
        self.ordered_drill = number

    def _checkpoint_moved(self, step: int) -> None:
        self.saved_at = time.monotonic()
        self.progress.saved(step)
        self.beat_state.update(checkpoint_step=step)
        self.series_duty.saved()
        self.series_loop.wake()

    def _checkpoint_took(self, seconds: float) -> None:
        longest_s = max(seconds, self.beat_state.now.save_s or 0.0)
        self.beat_state.update(save_s=round(longest_s, 1))
        self.notes.saved(seconds)
        self.saving.took(seconds)
