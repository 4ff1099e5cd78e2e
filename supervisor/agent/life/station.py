"""Everything that the agent of one machine works with, made once and handed around: the store, the parts, the threads.

`look` is the one place where the time, the notice and the other reasons to end are looked at; it is called by the
main thread in every wait, so that no duty can hide one.

A `Loop` is a thread that repeats one step at its own pace, at once when it is woken, and once more at the end if asked
to. A step that fails unexpectedly is logged and repeated: an error in one duty must not end the training or the others.
In its last round it is repeated only LAST_TRIES times: nobody is helped by an end that never comes.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Mapping, Optional, Tuple

from supervisor.agent.checkpoints.folder import CheckpointFolder, Renames
from supervisor.agent.checkpoints.keeping import CheckpointDuty, CheckpointSaver, Hooks, Results
from supervisor.agent.checkpoints.moments import Moments, ResultsFolder, Taker
from supervisor.agent.checkpoints.pruning import Pruner
from supervisor.agent.checkpoints.resultsaver import ResultsSaver
from supervisor.agent.facts.evidence import Evidence
from supervisor.agent.facts.noted import FactsDuty
from supervisor.agent.life.beats import PushedBeats, StoredBeats
from supervisor.agent.machine.command import Training, Unfit, Workplace
from supervisor.agent.machine.folder import Job, MachineFolder
from supervisor.agent.machine.gpus import GpuReader, names_of
from supervisor.agent.machine.masking import Masker
from supervisor.agent.machine.processes import Identity
from supervisor.agent.machine.vitals import OwnCgroup, Vitals, readers_of
from supervisor.agent.store.gcs import GcsStore
from supervisor.agent.store.googleapi import MetadataServer, PreemptionWatch
from supervisor.agent.store.reach import BatonKeeper, Patience, Reach, WatchedStore, why_lost
from supervisor.agent.watch.ends import POINTER_S, Attention, Ending, SteppedLog
from supervisor.agent.watch.output import LogDuty, LogShipper, Progress
from supervisor.agent.watch.situation import Situation, StallWatch
from supervisor.contract.stores.folder import FolderStore
from supervisor.contract.stores.promise import ObjectStore

AFTER_ERROR_S = 5.0
LAST_TRIES, LAST_PAUSE_S = 3, 1.0


def open_store(job: Job, authorities: Optional[str] = None) -> ObjectStore:
    """ValueError for a URL that this agent has no store for. Touches nothing yet."""
    if job.store_url.startswith("gs:"):
        # Only a machine on the supervisor's own computer is told of a file there.
        shares_computer = job.server_file is not None
        return GcsStore.at(job.store_url, job.storage_endpoint, authorities, shares_computer=shares_computer)
    return FolderStore.at(job.store_url)


class Loop:
    """`step` gives the seconds until it is due again, None when this loop's work is over for good. `tell` gets the
    text of an unexpected error, "" once a step succeeds again."""

    def __init__(
        self, name: str, step: Callable[[], Optional[float]], tell: Callable[[str], None] = lambda text: None
    ) -> None:
        self._name, self._step, self._tell = name, step, tell
        self._last_tries: Optional[int] = None  # None: not its last round
        self._failing = False
        self._wake = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Do the next step at once."""
        self._wake.set()

    def finish(self) -> None:
        """The last round: do the next step at once, and end after it even when it keeps failing unexpectedly."""
        self._last_tries = LAST_TRIES
        self._wake.set()

    def stop(self, wait_s: float = 0.0) -> None:
        """No further step begins. One that is under way may outlast `wait_s`; it dies with the process."""
        self._stop = True
        self._wake.set()
        if wait_s > 0 and self._thread.is_alive():
            self._thread.join(wait_s)

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop:
            self._wake.clear()
            wait_s = self._once()
            if wait_s is None:
                return
            self._wake.wait(wait_s)

    def _once(self) -> Optional[float]:
        try:
            wait_s = self._step()
        except Exception as error:  # noqa: BLE001 - any error, see above
            _log.exception("%s: an unexpected error", self._name)
            self._failing = True
            self._tell("%s: unexpected %s: %s" % (self._name, type(error).__name__, error))
            return self._after_error()
        if self._failing:
            self._failing = False
            self._tell("")
        return wait_s

    def _after_error(self) -> Optional[float]:
        if self._last_tries is None:
            return AFTER_ERROR_S
        self._last_tries -= 1
        return LAST_PAUSE_S if self._last_tries > 0 else None


_log = logging.getLogger("agent")


class Station:
    """The parts, not yet started. Each loop is a thread: one that hangs or waits must not hold up the others, nor the
    main thread, which supervises."""

    # Until when results may be saved at an end that has no time limit of its own; None = there is no such end.
    keep_until: Optional[float] = None

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
        """`unfit`: why the command will not be started, where that is known already."""
        self.folder, self.job, self.machine_id = folder, job, identity.machine_id
        self.secrets, self.masker, self.unfit = secrets, Masker(secrets), unfit
        self.holder = (job.launch_id, identity.machine_id)
        self.reach = Reach()
        self.store: ObjectStore = WatchedStore(store, self.reach)
        self.keeper = BatonKeeper(self.store, job.run_id)
        self.attention = Attention(job, self.reach, time.monotonic, folder.notice_s)
        self.situation = Situation(job, identity, self.masker)
        self.training, self.stepped_log = Training(), SteppedLog(folder.output)
        self.progress = Progress(folder.progress, self.situation.tell, time.monotonic, job.steps_from_zero)
        self.renames = Renames(folder.checkpoints)
        self.results_folder = ResultsFolder(folder.results)
        self.results = self._results()
        self.moment_loop = self._loop("moments", self.results.moments.step)
        self.entries = CheckpointFolder(
            folder.checkpoints, job.rest_s, self.results.moments.renamed, self.results.moments.at_rest
        )
        self.saver = self._saver()
        self.checkpoint_duty = CheckpointDuty(self.saver, self.entries, self.attention, self.why_lost)
        shipper = LogShipper(self.store, job.run_id, job.attempt, folder.output, self.masker)
        self.log_duty = LogDuty(shipper, job.log_chunk_s, self.attention, lambda: self.situation.now.phase)
        self.pushed, self.stored = self._beat_ways()
        self.evidence = Evidence(
            job, folder, self.store, self.masker, self.situation, self.training, self.attention,
            OwnCgroup().oom_kills,
        )  # fmt: skip
        stalls = StallWatch(job, self.situation, self.evidence.stalled, time.monotonic)
        self.stall_loop = self._loop("stalls", stalls.step)
        self.facts_duty = FactsDuty(job, self.store, folder.output, self.masker, self.attention)
        self.facts_loop = self._loop("facts", self.facts_duty.step)
        self.gpus = GpuReader(names_of(job), bad=folder.tell_bad_gpus)
        readers = readers_of(folder, self.gpus, lambda: self.training.pid)
        vitals = Vitals(readers, self.situation.note, job.beat_push_s)
        self.situation.carry(vitals.fresh)
        self.vitals_loop = self._loop("vitals", vitals.step)
        self.preemption_loop = self._preemption_loop()
        self.push_loop = self._loop("push", self.pushed.step)
        self.store_loop = self._loop("store", self.stored.step)
        self.checkpoint_loop = self._loop("checkpoints", self.checkpoint_duty.step)
        self.log_loop = self._loop("log", self.log_duty.step)
        for loop in (self.push_loop, self.store_loop, self.log_loop):
            self.situation.on_urgent(loop.wake)
        self.workplace: Optional[Workplace] = None  # None until the command is about to start
        self._notice_told = False

    def _beat_ways(self) -> Tuple[PushedBeats, StoredBeats]:
        pushed = PushedBeats(
            self.job,
            self.situation,
            self.attention,
            reach=self.reach,
            follow=self.log_duty.follow,
            authorities=self.folder.authorities,
        )
        stored = StoredBeats(
            self.job,
            self.machine_id,
            self.store,
            keeper=self.keeper,
            situation=self.situation,
            attention=self.attention,
        )
        return pushed, stored

    def look(self) -> Optional[Ending]:
        """Look around; None = go on. Main thread only."""
        ending = self.attention.look()
        if self.attention.notice_left_s is not None and not self._notice_told:
            self._notice_told = True
            _log.info("preemption notice: %.1f s are left", self.attention.notice_left_s)
            self.situation.tell(notice_s=round(self.attention.notice_left_s, 1))
        return ending

    def why_lost(self) -> str:
        """The beat's word for a change of the baton that was refused."""
        return why_lost(self.keeper, *self.holder)

    def patience(self, gives_up: Callable[[], bool]) -> Patience:
        return Patience(gives_up, lambda text: self.situation.note("waiting", text))

    def told_to_end(self) -> bool:
        """Before the command runs: any reason to end ends the waiting. Main thread only."""
        return self.look() is not None

    def saving_over(self) -> bool:
        """After the command: uploads go on until their time is over. Main thread only."""
        self.look()
        return self.attention.writing_over()

    def _loop(self, name: str, step: Callable[[], Optional[float]]) -> Loop:
        return Loop(name, step, lambda text: self.situation.note("error in " + name, text))

    def _preemption_loop(self) -> Optional[Loop]:
        """None where nobody but the provider knows of one."""
        if self.job.notice_from != "gce":
            return None
        watch = PreemptionWatch(MetadataServer(), self.folder, self.job.notice_s)
        return self._loop("preemption", watch.step)

    def _saver(self) -> CheckpointSaver:
        job = self.job
        return CheckpointSaver(
            Pruner(self.store, job.run_id, job.attempt, job.keep, lambda now: self.situation.tell(pruned=now)),
            self.keeper,
            self.holder,
            place=(job.run_id, job.attempt, self.folder.staging),
            patience=Patience(self.attention.writing_over, lambda text: self.situation.note("saving", text)),
            hooks=Hooks(
                self.progress.step_of, lambda text: self.situation.note("checkpoint", text), self._checkpoint_moved
            ),
            masker=self.masker,
            results=self.results,
        )

    def _results(self) -> Results:
        job, attention = self.job, self.attention
        taker = Taker(self.results_folder, self.folder.moments, int(job.results_save_max_mb * 1e6))

        def saving(text: str) -> None:
            self.situation.note("saving", text)

        saver = ResultsSaver(
            self.store,
            (job.run_id, job.launch_id, self.folder.incoming),
            taker,
            patience=Patience(lambda: self._looked_over(attention.writing_over, POINTER_S), saving),
            hurry=Patience(lambda: self._looked_over(attention.results_over, 0.0), saving),
            note=lambda text: self.situation.note("saved results", text),
            masker=self.masker,
        )
        return Results(Moments(self.renames, taker), saver)

    def _looked_over(self, over: Callable[[], bool], more_s: float) -> bool:
        """For every thread. Looks around itself: the main thread is the one that waits, at an end."""
        self.attention.look()
        late = self.keep_until is not None and time.monotonic() >= self.keep_until + more_s
        return late or over()

    def _checkpoint_moved(self, step: int) -> None:
        self.progress.saved(step)
        self.situation.tell(checkpoint_step=step)
