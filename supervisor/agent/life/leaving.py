"""The end of an attempt (RULES sections 1 and 7), in this order: last checkpoint and log tail, results verified (where
the work is done), `done`, the last beat with the exit record, the baton left, no process of ours still running.

Everything is tried until it is done or until its time is over. An agent that has lost the baton writes nothing.
"""

from __future__ import annotations

import json
import logging
import math
import time
from signal import SIGTERM
from typing import Optional, Set, Tuple

from supervisor.agent.facts.attempt_facts import names_python, python_of
from supervisor.agent.life.loops import Loop
from supervisor.agent.life.parts import Parts
from supervisor.agent.life.results import LoadCheck, ResultsUploader, Unverified, has_results
from supervisor.agent.machine import repairs, vitals
from supervisor.agent.machine.processes import kill_leftovers
from supervisor.agent.store.access import TRIES, GaveUp, Mismatch, Retrier
from supervisor.agent.watch import ends
from supervisor.agent.watch.beat_state import fit_text
from supervisor.agent.watch.ends import POINTER_S
from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.baton import BatonRefused, Done, FileEntry
from supervisor.contract.heartbeat import Exit
from supervisor.contract.stores.promise import PreconditionFailed, StoreUnavailable

CHECK_S = 0.05
FULL_DISK = "no_space"  # pattern of the log; a torn write alone may have another reason
KEEP_S = 60.0  # for the results at an end other than success; the supervisor waits for the exit
NAMES_LOGGED = 20
PERSON_WAIT_S = 60.0  # between tries while a person has to act
FACTS_S = 3.0  # how long the facts may still take when everything else is saved
SERIES_S = 10.0  # the same for the metrics: what is not stored then is in the beats
LAST_BEAT_S = 5.0  # for the last beat and the baton, when the time for uploads is over
_log = logging.getLogger("agent")


class Leaving:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._logged: Set[str] = set()  # lines about the names of results

    def not_started(self, code: int, text: str) -> None:
        """The command could not even be started: its log says why, and the beat carries a shell's exit code."""
        text = self._parts.masker.text(text)
        self._log_refusal(text)
        self._send_last_beat(Exit(code, None, False, 0.0, ends.last_line([text])), None)

    def setup_failed(self, end: Exit) -> None:
        """The command was not started, because its machine could not be prepared."""
        self._save_rest()
        self._send_last_beat(end, None)

    def unfit(self, left: str, text: str) -> None:
        """The command is not started on this machine; `left` is the beat's word for it."""
        self._parts.beat_state.note("unfit", text)
        self._log_refusal(text)
        self._send_last_beat(None, left)

    def _log_refusal(self, text: str) -> None:
        _log.warning("%s", text)
        self._parts.folder.add_to_output(text)
        self._parts.log_loop.start()
        self._save_rest()

    def leave(self) -> None:
        """After the command's end, or instead of its start."""
        parts = self._parts
        training, ending = parts.training, parts.check_end()
        reason = None if ending is None else ending.reason
        parts.stall_loop.stop()
        parts.evidence.observe_end(failed=reason is None and training.status not in (None, 0))
        kill_leftovers(training.pid, parts.folder.marker)
        if training.pid is None or training.status is None:
            self._send_last_beat(None, reason)
            return
        end, finished = self._judge(training.status)
        _log.info("the command has ended: %s", end)
        if finished:
            parts.beat_state.update(phase=heartbeat.FINISHING)
        else:
            self._repair(end)
        self._save_rest()
        if finished and parts.end_reasons.ending is None:
            # Before `done`: the machine may be released soon after it. Where the time is short, the results come first.
            self._store_evidence(end, None)
        if not finished and reason != heartbeat.RESUME_IGNORED:  # those of the restored moment stay the newest
            self._save_last_results()
        if finished and self._finish(end):
            self._send_last_beat(end, None)
        elif finished:
            ending = parts.end_reasons.ending
            self._send_last_beat(None, heartbeat.STOPPED if ending is None else ending.reason)
        else:
            self._send_last_beat(end, reason if training.sent else None)

    def _judge(self, status: int) -> Tuple[Exit, bool]:
        """(how the command ended, whether the work is done)."""
        parts, job = self._parts, self._parts.job
        sent, shell = parts.training.sent, isinstance(job.command, str)
        code, _ = ends.split_status(status, shell)
        end = ends.judge(
            status,
            sent=sent,
            shell=shell,
            ran_s=parts.training.ran_s,
            tail=ends.masked_tail(parts.folder.output, parts.masker),
            retry=(job.retry_exit_codes, job.retry_patterns),
            began=parts.log_watch.conclude(code, hurry=parts.end_reasons.ending is not None),
        )
        if end.last_line.startswith(heartbeat.NO_MODULE):
            end = end._replace(last_line=fit_text("%s (%s)" % (end.last_line, self._python())))
        if end.code != 0:
            disk_full = fit_text(vitals.full_disks(parts.folder.roles()))
            end = end._replace(oom_kills=parts.surroundings.oom.kills(), disk_full=disk_full)
            (pattern, line), hits = parts.log_watch.began, parts.log_watch.hits()
            parts.beat_state.sign(hits=hits, error=fit_text(line), began=pattern, **parts.surroundings.signs())
        progress = parts.progress
        reached = (progress.step, progress.total, progress.from_zero)
        finished = ends.finished(end, sent, *reached)
        if ends.failed_after_work(end, sent, *reached) and has_results(job.results, parts.results_folder):
            end, finished = end._replace(after_work=True), True
        if end.code == 0 and not finished:
            # It left on request after our TERM. "exit 0" would mean that the work is done.
            end = end._replace(code=None, signal=int(SIGTERM), sent_by_us=True)
        return end, finished

    def _repair(self, end: Exit) -> None:
        """After a full disk: remove what the run calls scratch. Before the last uploads, which need space too."""
        parts, base = self._parts, self._parts.scratch_base
        is_full = end.disk_full or parts.log_watch.began[0] == FULL_DISK
        if not is_full or base is None or not (parts.job.scratch or parts.job.stage):
            return
        repair = repairs.Repair(parts.job, parts.folder, base, parts.saver.newest)
        result = repair.run(repairs.SECONDS, lambda: parts.check_end() is not None)
        parts.evidence.repair = repair.part()
        if parts.job.scratch or result.files:
            parts.beat_state.sign(repaired=(result.files, result.freed_bytes))
        _log.info("the disk is full: %d files were removed, %d bytes", result.files, result.freed_bytes)

    def _python(self) -> str:
        """Which Python could not find the module: on a computer with several often not the intended one."""
        parts, command = self._parts, self._parts.job.command
        workplace = parts.workplace
        python = None if workplace is None else python_of(command, workplace.cwd, workplace.env)
        kind = "python" if names_python(command) else "python on its PATH"
        return parts.masker.text("%s: %s" % (kind, python or "not found"))

    def _save_rest(self) -> None:
        """The last round of the checkpoint, log and metrics threads, until the time for uploads is over. Curves that
        cannot be stored do not keep the end from the supervisor."""
        parts = self._parts
        parts.checkpoint_duty.finish()
        parts.log_duty.finish()
        parts.series_duty.finish()
        parts.facts_duty.finish()
        loops = (parts.checkpoint_loop, parts.log_loop, parts.series_loop)
        for loop in (*loops, parts.facts_loop):
            loop.finish()
        self._wait_for(parts.checkpoint_loop, parts.log_loop)
        self._wait_for(parts.series_loop, longest_s=SERIES_S)
        parts.facts_loop.stop(FACTS_S if parts.end_reasons.ending is None else 0.0)
        for loop in loops:
            loop.stop()

    def _wait_for(self, *loops: Loop, longest_s: float = math.inf) -> None:
        until = time.monotonic() + longest_s
        while not all(loop.over for loop in loops) and not self._parts.uploads_over() and time.monotonic() < until:
            time.sleep(CHECK_S)

    def _save_last_results(self) -> None:
        """The results as they are now, for people: the next attempt starts from those of its checkpoint."""
        parts = self._parts
        parts.save_results_until = time.monotonic() + KEEP_S
        until = parts.save_results_until + POINTER_S
        retrier = parts.retrier(lambda: parts.uploads_over() or time.monotonic() >= until)
        try:
            baton = retrier.call("reading the baton", parts.keeper.read)
            manifest = parts.results.saver.keep_last(baton, parts.progress.step)
            if manifest is not None:
                after = retrier.call("keeping the results", parts.keeper.change, rules.keep_results, manifest)
                parts.results.saver.prune(after)
        except (GaveUp, BatonRefused, Mismatch, StoreUnavailable) as error:
            _log.warning("the newest results were not saved: %s", error)

    def _finish(self, end: Exit) -> bool:
        """Results, then `done`. False when the time was over or the baton is not ours.

        After TRIES failures a person has to act: the beat says finished without `done`, and the machine stays with its
        files and tries again from time to time.
        """
        parts, job = self._parts, self._parts.job
        retrier = parts.retrier(parts.uploads_over)
        prefix = runfiles.results(job.run_id, job.results_generation)
        uploader = ResultsUploader(
            parts.store, parts.results_folder, prefix, retrier=retrier, masker=parts.masker, fence=self._fence
        )
        load_check = LoadCheck(parts, retrier)
        tries = 0
        try:
            while True:
                try:
                    files = self._upload(uploader, load_check, prefix)
                except Unverified as error:
                    tries += 1
                    _log.warning("results are not verified: %s", error)
                    parts.beat_state.note("results", str(error))
                    if tries == TRIES:
                        parts.beat_state.update(phase=heartbeat.FINISHED, exit=end)
                    wait_s = PERSON_WAIT_S if tries >= TRIES else float(tries)
                    parts.retrier(parts.must_end).wait("results", wait_s)
                else:
                    lost = parts.results.saver.lost_among(files, uploader.refused)
                    if self._logged:  # since the log's last round
                        retrier.call("storing the log", parts.log_duty.ship_rest)
                    self._declare_done(end, prefix, files, lost, retrier)
                    parts.beat_state.note("results", "")
                    return True
        except GaveUp:
            _log.warning("the results could not be saved in time")
        except BatonRefused as refused:
            _log.warning("this agent may not finish the work any more: %s", refused)
            parts.end_reasons.add(parts.keeper.lost_reason(), may_write=False)
        return False

    def _fence(self) -> None:
        """Raises BatonRefused when another agent holds the baton: the objects in the store are its own by now."""
        verdict = self._parts.keeper.standing(self._parts.keeper.read())
        if verdict != rules.MINE:
            raise BatonRefused("not the holder: %s" % verdict)

    def _upload(self, uploader: ResultsUploader, check: LoadCheck, prefix: str) -> Tuple[FileEntry, ...]:
        """Raises Unverified, GaveUp, BatonRefused. An unexpected error needs a person: a crash would lose the files."""
        try:
            files = uploader.upload(self._note_upload)
            self._log_names(uploader)
            check.check(prefix, files)
            return files
        except (Unverified, GaveUp, BatonRefused):
            raise
        except Exception as error:
            _log.exception("an unexpected error while saving the results")
            raise Unverified("unexpected %s: %s" % (type(error).__name__, error)) from error

    def _note_upload(self, number: int, of: int) -> None:
        self._parts.beat_state.note("results", "saving results (%d of %d)" % (number + 1, of))

    def _log_names(self, uploader: ResultsUploader) -> None:
        """In the log, which stays: results that are stored under another name, or not at all."""
        lines = ["the result %s is stored as %s" % (ascii(name), stored) for name, stored in uploader.renamed.items()]
        lines += ["the result %s is not stored: %s" % (name, why) for name, why in uploader.refused.items()]
        more = ["and %d more" % (len(lines) - NAMES_LOGGED)] if len(lines) > NAMES_LOGGED else []
        for line in [*lines[:NAMES_LOGGED], *more]:
            if line not in self._logged:
                self._logged.add(line)
                self._parts.folder.add_to_output(self._parts.masker.text(line))

    def _declare_done(
        self, end: Exit, prefix: str, files: Tuple[FileEntry, ...], lost: Tuple[str, ...], retrier: Retrier
    ) -> None:
        parts = self._parts
        done = Done(
            launch_id=parts.job.launch_id,
            prefix=prefix,
            results=files,
            step=parts.progress.step,
            total=parts.progress.total,
            training_s=round(parts.training.ran_s, 3),
            from_zero=parts.progress.from_zero,
            lost=lost,
            error=ends.words_of(end) if end.after_work else "",
        )
        retrier.call(
            "declaring the work done",
            parts.keeper.change,
            lambda baton, launch_id, machine_id: rules.finish(baton, machine_id, done),
        )
        _log.info("done: %d files of results are verified", len(files))

    def report_own_error(self, error: Exception) -> None:
        """The last beat of an agent that is about to end by an error of its own."""
        self._parts.beat_state.note("agent", "the agent failed: %s: %s" % (type(error).__name__, error))
        self._store_evidence(None, None)
        self._parts.pushed.step()
        if self._parts.store_loop.started:
            self._parts.stored.step_now()

    def _send_last_beat(self, end: Optional[Exit], left: Optional[str]) -> None:
        """The last beat, by both ways, and the baton left. Pushes continue meanwhile: a supervisor that hangs must not
        use up the rest of a notice."""
        parts = self._parts
        kill_leftovers(None, parts.folder.marker)  # the command's pid may belong to another process by now
        parts.store_loop.stop(LAST_BEAT_S)
        self._store_evidence(end, left)
        parts.beat_state.note("waiting", "")
        parts.beat_state.update(phase=heartbeat.FINISHED, exit=end, left=left)
        ending = parts.end_reasons.ending
        parts.folder.write_left(left == heartbeat.STOPPED and parts.end_reasons.term_received)
        if parts.store_loop.started and (ending is None or ending.may_write):
            self._store_last_beat(end, left)
        parts.push_loop.stop(LAST_BEAT_S)
        parts.pushed.step()  # once more: the loop may have been busy with an older beat

    def _store_last_beat(self, end: Optional[Exit], left: Optional[str]) -> None:
        parts = self._parts
        until = time.monotonic() + LAST_BEAT_S
        retrier = parts.retrier(lambda: parts.check_end() is not None and time.monotonic() >= until)
        try:
            retrier.call("storing the last beat", parts.stored.put)
            retrier.call("writing the exit record", self._write_record, end, left)
            retrier.call("leaving the baton", parts.keeper.change, rules.leave)
            if not parts.evidence.stored:
                retrier.call("storing the evidence", parts.evidence.store_end, end, left)
        except (GaveUp, BatonRefused, PreconditionFailed) as error:
            _log.warning("the last beat did not reach the store: %s", error)

    def _store_evidence(self, end: Optional[Exit], left: Optional[str]) -> None:
        """Only an agent that has held the baton."""
        if self._parts.store_loop.started:
            self._parts.evidence.try_to_store(end, left)

    def _write_record(self, end: Optional[Exit], left: Optional[str]) -> None:
        """The content of the last beat, for people and for a supervisor that comes later."""
        beat = self._parts.beat_state.now
        record = {
            "run_id": beat.run_id,
            "attempt": beat.attempt,
            "launch_id": beat.launch_id,
            "machine_id": beat.machine_id,
            "step": beat.step,
            "checkpoint_step": beat.checkpoint_step,
            "left": left,
            "exit": None if end is None else end._asdict(),
        }
        key = runfiles.exit_record(beat.run_id, beat.attempt)
        self._parts.store.put(key, json.dumps(record, indent=1, sort_keys=True).encode())
