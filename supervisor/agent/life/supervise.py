"""One attempt: claim the baton, restore, run the command, watch it, leave. Each step has its own file; this one
connects them.

TERM to the agent requests a stop, or is the notice of its platform. The signal handler itself writes the stop file and
passes TERM on to the command's group; it does not wait for the next check. KILL follows when the grace is over. An
error of the agent's own ends the command too. A store that does not respond decides nothing: the agent waits and pushes
its beats.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import time
from contextlib import suppress
from types import FrameType
from typing import Optional

from supervisor.agent.checkpoints.checkpointsaver import Restorer
from supervisor.agent.facts.start import mount_kind
from supervisor.agent.life.drilling import Drilling
from supervisor.agent.life.leaving import Leaving
from supervisor.agent.life.parts import Parts, open_store
from supervisor.agent.life.setup import Setup, SetupFailed
from supervisor.agent.life.trackers import mlflow_run, tracker_env
from supervisor.agent.machine import gpus
from supervisor.agent.machine.command import NotStarted, Unfit, fetch_code, prepare
from supervisor.agent.machine.downloads import Downloads, hub_folder
from supervisor.agent.machine.folder import open_own
from supervisor.agent.machine.nvml import driver_version
from supervisor.agent.store.access import GaveUp, Retrier, StandDown, claim, read_orders
from supervisor.agent.watch.ends import SIGNAL, TERM, Ending
from supervisor.contract import heartbeat
from supervisor.contract.baton import BatonRefused, Pointer, take_back
from supervisor.contract.stores.promise import ObjectStore

# Between two checks of the command: long trainings are checked less often. A notice is seen within 0.2 s all the same.
TICK_S, TICK_MAX_S, TICK_SHARE = 0.05, 0.19, 0.005
REPORTS_MAX_S = 0.4  # the same between two readings of its reports
STAY_CHECK_S = 0.5
DISK_FULL = 1  # exit code; the text beside it says more
_log = logging.getLogger("agent")


class Supervision:
    _end_requested = False

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._leaving = Leaving(parts)
        self._drilling = Drilling(parts, self._launch, self._read_reports)

    def run(self) -> None:
        """The whole attempt; returns when there is nothing left to do on this machine."""
        signal.signal(signal.SIGTERM, self._on_term)
        if self._parts.job.notice_from == SIGNAL:
            signal.signal(signal.SIGUSR1, self._on_warning)
        self._parts.vitals_loop.start()
        self._parts.push_loop.start()
        if self._parts.preemption_loop is not None:
            self._parts.preemption_loop.start()
        self._run_attempt()
        self._stay()

    def _run_attempt(self) -> None:
        parts = self._parts
        try:
            try:
                self._begin()
                self._watch()
            except StandDown as refused:
                _log.info("this agent must not run (%s)", refused.left)
                parts.end_reasons.add(refused.left, may_write=False)
            except BatonRefused as refused:
                _log.info("another agent got the baton: %s", refused)
                parts.end_reasons.add(parts.keeper.lost_reason(), may_write=False)
            except GaveUp:
                _log.info("there was a reason to end while the command did not run")
            except Unfit as unfit:
                self._leaving.unfit(unfit.left, str(unfit))
                return
            except SetupFailed as error:
                self._leaving.setup_failed(error.end)
                return
            except NotStarted as error:
                self._leaving.not_started(error.code, str(error))
                return
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._leaving.not_started(DISK_FULL, "this machine's disk is full: %s" % error)
                return
            parts.end_orders()
            self._leaving.leave()
        except Exception as error:
            self._leaving.report_own_error(error)
            raise
        finally:
            self._kill_command()

    def _begin(self) -> None:
        """Up to the command's start. Raises StandDown, BatonRefused, GaveUp, Unfit, SetupFailed, NotStarted,
        OSError."""
        parts, job = self._parts, self._parts.job
        retrier = parts.retrier(parts.must_end)
        # Before the claim: the present holder may continue until this machine can compute.
        cuda_problem = self._cuda_problem() if job.gpus and parts.unfit is None else ""
        if job.relaunched:
            retrier.call("taking the baton back", parts.keeper.change, take_back)
        baton = claim(parts.keeper, retrier, lambda text: parts.beat_state.note("claim", text))
        _log.info("holding the baton as %s", parts.machine_id)
        if job.relaunched and baton.drill is not None:
            self._drilling.ignore(baton.drill.number)
        parts.beat_state.update(phase=heartbeat.RESTORE)
        parts.store_loop.start()
        if parts.unfit is not None:
            raise parts.unfit
        # A training that was promised GPUs never starts with fewer.
        gpu_problem = gpus.missing_text(job.gpus, parts.gpus, parts.must_end) if job.gpus else ""
        if gpu_problem or cuda_problem:
            raise Unfit(heartbeat.NO_GPU, gpu_problem or cuda_problem)
        if job.code is not None:
            fetch_code(parts.store, job.code, parts.folder.code, retrier)
            self._change_code(retrier)
        self._download(retrier)
        Setup(parts).run()
        parts.beat_state.update(phase=heartbeat.RESTORE)
        restorer = Restorer(
            parts.store, parts.keeper, folder=parts.folder.checkpoints, retrier=retrier, reject=parts.reject
        )
        pointer = restorer.restore(baton)
        parts.results.saver.restore(None if pointer is None else pointer.results)
        parts.saver.clean(retrier.call("reading the baton", parts.keeper.read))
        self._start(pointer)

    def _change_code(self, retrier: Retrier) -> None:
        """As it was changed since the submit. Raises Unfit, GaveUp, OSError."""
        parts = self._parts
        shutil.rmtree(parts.folder.synced, ignore_errors=True)
        for path in (parts.folder.synced, parts.folder.unpacked):  # an earlier command may have put anything there
            with suppress(FileNotFoundError):
                os.unlink(path)
        os.makedirs(parts.folder.synced)
        with open(parts.folder.unpacked, "wb", opener=open_own):
            pass  # its time is what counts
        orders, _ = retrier.call("reading the orders", read_orders, parts.store, parts.job.run_id)
        if orders.synced is not None and parts.orders.sync is not None:
            parts.orders.sync.begin(retrier)
            parts.facts_duty.more = parts.orders.sync.facts()

    def _download(self, retrier: Retrier) -> None:
        """The files of `stage`. Raises GaveUp, NotStarted, OSError."""
        parts, folder = self._parts, self._parts.folder

        def open_bucket(url: str) -> ObjectStore:
            return open_store(parts.job._replace(store_url=url), folder.authorities)

        Downloads(parts.job, folder, open_bucket, retrier, lambda text: parts.beat_state.note("stage", text)).fetch()

    def _cuda_problem(self) -> str:
        parts = self._parts
        return gpus.cuda_problem(parts.must_end, lambda text: parts.beat_state.note("cuda", text), driver_version)

    def _start(self, pointer: Optional[Pointer]) -> None:
        parts = self._parts
        step = None if pointer is None else pointer.step
        _log.info("starting the command, %s", "from zero" if step is None else "resumed from step %d" % step)
        parts.entries.ignore_present()
        parts.results.snapshots.clear()
        parts.notes.restored(step)
        parts.resume.restored(pointer, parts.folder.checkpoints, mount_kind(parts.folder.checkpoints))
        parts.series.resumed_from = step
        self._launch(step, first=True)
        workplace = parts.workplace
        assert workplace is not None
        parts.beat_state.update(phase=heartbeat.TRAINING, resumed_from=step, checkpoint_step=step)
        parts.snapshot_loop.start()
        parts.checkpoint_loop.start()
        parts.log_loop.start()
        parts.series_loop.start()
        parts.hits_loop.start()
        parts.facts_duty.begin(workplace.cwd, workplace.env)
        parts.facts_loop.start()
        parts.stall_loop.start()

    def _launch(self, step: Optional[int], first: bool = False) -> None:
        """Start the command, in the folders as they are now, resumed from that step. Raises NotStarted, OSError."""
        parts, job, folder = self._parts, self._parts.job, self._parts.folder
        parts.progress.saved(step)
        parts.saved_at = time.monotonic()
        workplace = parts.workplace = prepare(job, folder, parts.secrets, step)
        hub = hub_folder(job)
        if hub is not None:
            workplace.env.setdefault("HF_HOME", hub)
        workplace.env.update(tracker_env(workplace.env, job, folder, step))
        workplace.env.update(mlflow_run(workplace.env, job, workplace.cwd))
        workplace.env.update(parts.status_door.open(workplace.env))
        if first:
            parts.scratch_base = os.path.realpath(workplace.cwd)  # before the command can put a link in its place
            parts.surroundings.before(workplace.cwd, workplace.env)
        parts.saving.begin()
        parts.training.start(job.command, workplace.cwd, workplace.env, folder.output)

    def _watch(self) -> None:
        """Until the command has ended, and no drill starts it again. Raises what a drill raises."""
        parts = self._parts
        reports_due = 0.0
        while parts.training.pid is not None and (not parts.training.poll() or self._drilling.goes_on()):
            ending = parts.check_end()
            if ending is not None:
                self._end_command(ending)
            else:
                self._drilling.step()
            tick_s = TICK_S if ending is not None else max(TICK_S, TICK_SHARE * parts.training.ran_s)
            now = time.monotonic()
            if now >= reports_due:
                self._read_reports()
                reports_due = now + min(REPORTS_MAX_S, tick_s)
            time.sleep(min(TICK_MAX_S, tick_s))
        self._read_reports()
        parts.progress.drain()
        parts.log_watch.note_step(parts.progress.step)

    def _read_reports(self) -> None:
        parts = self._parts
        ignored = parts.progress.ignored
        parts.log_watch.note_step(parts.progress.step)
        parts.progress.poll()
        parts.status_door.poll()
        for report in parts.status_door.reports():
            parts.progress.add(report)
        parts.saving.look()
        if parts.resume.must_end:
            parts.end_reasons.add(heartbeat.RESUME_IGNORED)
        if parts.progress.ignored != ignored:
            parts.beat_state.note("progress", "%d lines of the progress file make no sense" % parts.progress.ignored)

    def _stay(self) -> None:
        """Where the machine is kept for a person: until its release, which kills us, or until its own time is over."""
        parts, job = self._parts, self._parts.job
        end = parts.beat_state.now.exit
        if end is None or parts.end_reasons.ending is not None:
            return
        if job.stays_after_success if end.work_done else job.stays_after_failure:
            _log.info("the work is over; the machine is kept")
            while parts.end_reasons.machine_stays():
                time.sleep(STAY_CHECK_S)

    def _end_command(self, ending: Ending) -> None:
        training = self._parts.training
        if not self._end_requested:
            self._end_requested = True
            _log.info("ending the command: %s", ending.reason)
            if ending.reason != heartbeat.RESUME_IGNORED:  # it must save nothing more, so it is killed at once
                self._request_end(ending.reason)
        if time.monotonic() >= ending.kill_at and signal.SIGKILL not in training.sent:
            _log.info("the command is still running: KILL")
            training.signal(signal.SIGKILL)

    def _on_term(self, number: int, frame: Optional[FrameType]) -> None:
        """No locks and no logging here: the main thread may be inside either."""
        self._parts.end_reasons.term_received = True
        if not self._end_requested:
            self._request_end(heartbeat.NOTICED if self._parts.job.notice_from == TERM else heartbeat.STOPPED)

    def _on_warning(self, number: int, frame: Optional[FrameType]) -> None:
        self._parts.end_reasons.warned = True  # the next check ends the command

    def _request_end(self, reason: str) -> None:
        """The file before TERM: a library with a TERM handler of its own (Lightning) leaves at the end of the step, and
        its training saves there only if it finds the file. Runs in the signal handler too."""
        parts = self._parts
        parts.folder.write_stop_file(reason)
        if signal.SIGTERM not in parts.training.sent:
            parts.training.signal(signal.SIGTERM)

    def _kill_command(self) -> None:
        """It still runs only after an error of our own."""
        training = self._parts.training
        self._parts.end_orders()
        if training.pid is not None and not training.poll():
            training.signal(signal.SIGKILL)
