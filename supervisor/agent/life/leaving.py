"""The last part of a life (RULES sections 1 and 7), in this order: last checkpoint and log tail, results verified
(where the work is done), `done`, the last beat with the exit record, the baton left, nothing of ours still running.

Everything is tried until it is done or until the time for it is over. Whoever has lost the baton writes nothing.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from signal import SIGTERM
from typing import Callable, Optional, Set, Tuple

from supervisor.agent.facts.noted import names_python, python_of
from supervisor.agent.life.results import LoadCheck, ResultsUploader, Unverified, results_there
from supervisor.agent.life.station import Station
from supervisor.agent.machine import vitals
from supervisor.agent.machine.processes import kill_leftovers
from supervisor.agent.store.reach import TRIES, GaveUp, Mismatch, Patience
from supervisor.agent.watch import ends
from supervisor.agent.watch.ends import POINTER_S
from supervisor.agent.watch.situation import fit_text
from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.baton import BatonRefused, Done, FileEntry
from supervisor.contract.heartbeat import Exit
from supervisor.contract.stores.promise import PreconditionFailed, StoreUnavailable

LOOK_S = 0.05
KEEP_S = 60.0  # for the results at an end other than success; the supervisor waits for the exit
NAMES_TOLD = 20
PERSON_PAUSE_S = 60.0  # between tries while a person is asked
FACTS_S = 3.0  # how long the facts may still take when everything else is saved
LAST_WORDS_S = 5.0  # for the last beat and the baton, once the time for uploads is over
_log = logging.getLogger("agent")


class Leaving:
    def __init__(self, station: Station) -> None:
        self._station = station
        self._told: Set[str] = set()  # names of results, in the log

    def not_started(self, code: int, text: str) -> None:
        """The command could not even be started: its log says why, and the beat carries a shell's exit code."""
        text = self._station.masker.text(text)
        self._refuse(text)
        self._say(Exit(code, None, False, 0.0, ends.last_line([text])), None)

    def unfit(self, left: str, text: str) -> None:
        """The command is not started on this machine; `left` is the beat's word for it."""
        self._station.situation.note("unfit", text)
        self._refuse(text)
        self._say(None, left)

    def _refuse(self, text: str) -> None:
        _log.warning("%s", text)
        self._station.folder.say(text)
        self._station.log_loop.start()
        self._save_rest()

    def leave(self) -> None:
        """After the command's end, or instead of its start."""
        station = self._station
        training, ending = station.training, station.look()
        reason = None if ending is None else ending.reason
        station.stall_loop.stop()
        station.evidence.observe_end()
        kill_leftovers(training.pid, station.folder.marker)
        if training.pid is None or training.status is None:
            self._say(None, reason)
            return
        end, finished = self._judge(training.status)
        _log.info("the command has ended: %s", end)
        if finished:
            station.situation.tell(phase=heartbeat.FINISHING)
        self._save_rest()
        if finished and station.attention.ending is None:
            # Before `done`: the machine may be gone soon after it. Where the time is short, the results come first.
            self._keep_evidence(end, None)
        if not finished:
            self._keep_results()
        if finished and self._finish(end):
            self._say(end, None)
        elif finished:
            ending = station.attention.ending
            self._say(None, heartbeat.STOPPED if ending is None else ending.reason)
        else:
            self._say(end, reason if training.sent else None)

    def _judge(self, status: int) -> Tuple[Exit, bool]:
        """(how the command ended, whether the work is done)."""
        station, job = self._station, self._station.job
        tail = ends.masked_tail(station.folder.output, station.masker)
        retry = (job.retry_exit_codes, job.retry_patterns)
        sent = station.training.sent
        shell, ran_s = isinstance(job.command, str), station.training.ran_s
        since_step = ends.masked_tail(station.folder.output, station.masker, self._tail_bytes())
        end = ends.judge(status, sent, shell, ran_s, tail, retry, since_step)
        if end.last_line.startswith(heartbeat.NO_MODULE):
            end = replace(end, last_line=fit_text("%s (%s)" % (end.last_line, self._python())))
        if end.code != 0:
            disk_full = fit_text(vitals.full_disks(station.folder.roles()))
            end = replace(end, oom_kills=station.evidence.oom_kills(), disk_full=disk_full)
        progress = station.progress
        reached = (progress.step, progress.total, progress.from_zero)
        finished = ends.finished(end, sent, *reached)
        if ends.failed_after_work(end, sent, *reached) and results_there(job.results, station.results_folder):
            end, finished = replace(end, after_work=True), True
        if end.code == 0 and not finished:
            # It left politely after our TERM. To say "exit 0" would say that the work is done.
            end = replace(end, code=None, signal=int(SIGTERM), sent_by_us=True)
        return end, finished

    def _python(self) -> str:
        """Which Python could not find the module: of several on one computer often not the one that a person means."""
        station, command = self._station, self._station.job.command
        place = station.workplace
        python = None if place is None else python_of(command, place.cwd, place.env)
        named = names_python(command)
        text = "%s: %s" % ("python" if named else "python on its PATH", python or "not found")
        return station.masker.text(text)

    def _tail_bytes(self) -> int:
        return min(ends.TAIL_BYTES, self._station.stepped_log.tail_bytes())

    def _save_rest(self) -> None:
        """The last round of the checkpoint and log threads, up to the time when uploads are over."""
        station = self._station
        station.checkpoint_duty.finish()
        station.log_duty.finish()
        loops = (station.checkpoint_loop, station.log_loop)
        for loop in loops:
            loop.finish()
        station.facts_duty.finish()
        station.facts_loop.finish()
        while not all(loop.over for loop in loops) and not station.saving_over():
            time.sleep(LOOK_S)
        station.facts_loop.stop(FACTS_S if station.attention.ending is None else 0.0)
        for loop in loops:
            loop.stop()

    def _keep_results(self) -> None:
        """The results as they are now, for people: the next attempt starts from those of its checkpoint."""
        station = self._station
        station.keep_until = time.monotonic() + KEEP_S
        until = station.keep_until + POINTER_S
        patience = station.patience(lambda: station.saving_over() or time.monotonic() >= until)
        try:
            baton = patience.insist("reading the baton", station.keeper.read)
            manifest = station.results.saver.keep_last(baton, station.progress.step)
            if manifest is not None:
                named: FileEntry = manifest
                after = patience.insist(
                    "keeping the results",
                    lambda: station.keeper.change(lambda b: rules.keep_results(b, *station.holder, named)),
                )
                station.results.saver.prune(after)
        except (GaveUp, BatonRefused, Mismatch, StoreUnavailable) as error:
            _log.warning("the newest results were not kept: %s", error)

    def _finish(self, end: Exit) -> bool:
        """Results, then `done`. False when the time was over or the baton is not ours.

        After TRIES failures a person is asked: the beat says finished without `done`, and the machine waits with its
        files, still trying now and then.
        """
        station, job = self._station, self._station.job
        patience = station.patience(station.saving_over)
        prefix = runfiles.results(job.run_id, job.results_generation)
        uploader = ResultsUploader(
            station.store, station.results_folder, prefix, patience=patience, masker=station.masker, fence=self._fence
        )
        load_check = LoadCheck(station, patience)
        tries = 0
        try:
            while True:
                try:
                    files = self._upload(uploader, load_check, prefix)
                except Unverified as error:
                    tries += 1
                    _log.warning("results are not verified: %s", error)
                    station.situation.note("results", str(error))
                    if tries == TRIES:
                        station.situation.tell(phase=heartbeat.FINISHED, exit=end)
                    pause_s = PERSON_PAUSE_S if tries >= TRIES else float(tries)
                    station.patience(station.told_to_end).pause("results", pause_s)
                else:
                    lost = station.results.saver.lost_among(files, uploader.refused)
                    self._ship_rest(patience)
                    self._declare_done(end, prefix, files, lost, patience.insist)
                    station.situation.note("results", "")
                    return True
        except GaveUp:
            _log.warning("the results could not be saved in time")
        except BatonRefused as refused:
            _log.warning("the work is not ours to finish any more: %s", refused)
            station.attention.ask(station.why_lost(), may_write=False)
        return False

    def _ship_rest(self, patience: Patience) -> None:
        """The log's last round was before the results; this is what was said since."""
        if self._told:
            patience.insist("storing the log", self._station.log_duty.ship_rest)

    def _fence(self) -> None:
        """Raises BatonRefused when somebody else holds the baton: what lies in the store is theirs by now."""
        verdict = rules.standing(self._station.keeper.read(), *self._station.holder, 0.0)
        if verdict != rules.MINE:
            raise BatonRefused("not the holder: %s" % verdict)

    def _upload(self, uploader: ResultsUploader, check: LoadCheck, prefix: str) -> Tuple[FileEntry, ...]:
        """Raises Unverified, GaveUp, BatonRefused. An error that nobody foresaw is for a person: a crash would lose the
        files."""
        try:
            files = uploader.upload(self._tell_upload)
            self._tell_names(uploader)
            check.check(prefix, files)
            return files
        except (Unverified, GaveUp, BatonRefused):
            raise
        except Exception as error:
            _log.exception("an unexpected error while saving the results")
            raise Unverified("unexpected %s: %s" % (type(error).__name__, error)) from error

    def _tell_names(self, uploader: ResultsUploader) -> None:
        """In the log, which stays: what is stored under another name, or not at all."""
        lines = ["the result %s is stored as %s" % (ascii(name), kept) for name, kept in uploader.renamed.items()]
        lines += ["the result %s is not stored: %s" % (name, why) for name, why in uploader.refused.items()]
        more = ["and %d more" % (len(lines) - NAMES_TOLD)] if len(lines) > NAMES_TOLD else []
        for line in [*lines[:NAMES_TOLD], *more]:
            if line not in self._told:
                self._told.add(line)
                self._station.folder.say(self._station.masker.text(line))

    def confess(self, error: Exception) -> None:
        """The last beat of an agent that is about to die of an error of its own."""
        self._station.situation.note("agent", "the agent failed: %s: %s" % (type(error).__name__, error))
        self._keep_evidence(None, None)
        self._station.pushed.step()
        if self._station.store_loop.started:
            self._station.stored.step()

    def _declare_done(
        self,
        end: Exit,
        prefix: str,
        files: Tuple[FileEntry, ...],
        lost: Tuple[str, ...],
        insist: Callable[[str, Callable[[], object]], object],
    ) -> None:
        station = self._station
        done = Done(
            launch_id=station.job.launch_id,
            prefix=prefix,
            results=files,
            step=station.progress.step,
            total=station.progress.total,
            training_s=round(station.training.ran_s, 3),
            from_zero=station.progress.from_zero,
            lost=lost,
            error=ends.words_of(end) if end.after_work else "",
        )
        insist(
            "declaring the work done",
            lambda: station.keeper.change(lambda b: rules.finish(b, station.machine_id, done)),
        )
        _log.info("done: %d files of results are verified", len(files))

    def _tell_upload(self, number: int, of: int) -> None:
        self._station.situation.note("results", "saving results (%d of %d)" % (number + 1, of))

    def _say(self, end: Optional[Exit], left: Optional[str]) -> None:
        """The last words, by both ways, and the baton left. Pushes go on meanwhile: a supervisor that hangs must not
        use up what is left of a notice."""
        station = self._station
        kill_leftovers(None, station.folder.marker)  # the command's pid may be a stranger's by now
        station.store_loop.stop(LAST_WORDS_S)
        self._keep_evidence(end, left)
        station.situation.note("waiting", "")
        station.situation.tell(phase=heartbeat.FINISHED, exit=end, left=left)
        ending = station.attention.ending
        if station.store_loop.started and (ending is None or ending.may_write):
            self._store_last_words(end, left)
        station.push_loop.stop(LAST_WORDS_S)
        station.pushed.step()  # once more: the loop may have been busy with an older beat

    def _store_last_words(self, end: Optional[Exit], left: Optional[str]) -> None:
        station = self._station
        until = time.monotonic() + LAST_WORDS_S
        patience = station.patience(lambda: station.look() is not None and time.monotonic() >= until)
        launch_id, machine_id = station.holder
        evidence = station.evidence
        try:
            patience.insist("storing the last beat", station.stored.put)
            patience.insist("writing the exit record", lambda: self._write_record(end, left))
            patience.insist(
                "leaving the baton", lambda: station.keeper.change(lambda b: rules.leave(b, launch_id, machine_id))
            )
            if not evidence.kept:
                patience.insist("storing the evidence", lambda: evidence.insist(end, left))
        except (GaveUp, BatonRefused, PreconditionFailed) as error:
            _log.warning("the last words did not reach the store: %s", error)

    def _keep_evidence(self, end: Optional[Exit], left: Optional[str]) -> None:
        """Only who has held the baton."""
        if self._station.store_loop.started:
            self._station.evidence.keep(end, left)

    def _write_record(self, end: Optional[Exit], left: Optional[str]) -> None:
        """What the last beat said, for people and for a supervisor that comes later."""
        station = self._station
        beat = station.situation.now
        record = {
            "run_id": beat.run_id,
            "attempt": beat.attempt,
            "launch_id": beat.launch_id,
            "machine_id": beat.machine_id,
            "step": beat.step,
            "checkpoint_step": beat.checkpoint_step,
            "left": left,
            "exit": None if end is None else vars(end),
        }
        key = runfiles.exit_record(beat.run_id, beat.attempt)
        station.store.put(key, json.dumps(record, indent=1, sort_keys=True).encode())
