"""A drill of this attempt: the way of a preemption notice, on the machine that stays.

At each moment that the training knows (contract/drill), the agent writes the stop file, sends TERM and waits as it does
at a real notice of `Timing.notice_s`; saves what is new with the same last round, verified in the store; empties the
folders of checkpoints and results and restores them from the store, as a new machine would; and starts the command
again. The attempt goes on: the baton keeps its holder, no budget is touched, no machine is requested. Where the command
works, its other files and the download caches stay as they are.

A round counts only with proof that TERM reached the command: its process was there when TERM was sent, or it died of
TERM. Any real reason to end wins at once, in every wait; the usual end of the attempt follows then. A drill begins
only while little work is unsaved (`loss_s`), and ends at the first round that loses something. A command that does not
resume drops its checkpoint and is started once more, from the one before. All of this runs in the main thread.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import time
from contextlib import suppress
from typing import Any, Callable, List, NamedTuple, Optional

from supervisor.agent.checkpoints.checkpointsaver import Restorer, drop
from supervisor.agent.facts.start import mount_kind
from supervisor.agent.life.parts import Parts
from supervisor.agent.machine.processes import kill_leftovers, stat_fields
from supervisor.agent.watch.ends import finished, judge, split_status
from supervisor.agent.watch.metrics import First, Reports
from supervisor.contract import drill, heartbeat
from supervisor.contract.baton import Baton
from supervisor.contract.drill import Record, Round

FREEZE_S, _FREEZE_CHECK_S = 1.0, 0.001
_DEAD, _STOPPED = ("Z", "X", "x", ""), ("T", "t")
_MISSED_SHARE = 0.3  # of a warm-up, before TERM comes
_log = logging.getLogger("agent")


class Timing(NamedTuple):
    """In seconds. `loss_s`: a drill starts no round while the newest checkpoint is older. `moment_s`: how long a moment
    is waited for. `start_s`: until the first step of a restored command. `warm_up_s`: a shorter time from the start to
    the first step is no warm-up."""

    notice_s: float = 120.0
    upload_s: float = 600.0
    loss_s: float = 600.0
    moment_s: float = 14_400.0
    start_s: float = 1500.0
    warm_up_s: float = 1.0
    check_s: float = 0.02


class Drilling:
    """`launch` starts the command in the prepared folders, resumed from that step. `read_reports` reads what the
    training has reported."""

    def __init__(
        self,
        parts: Parts,
        launch: Callable[[Optional[int]], None],
        read_reports: Callable[[], None],
        timing: Timing = Timing(),  # noqa: B008 - a constant
    ) -> None:
        self._parts, self._launch, self._read_reports, self._timing = parts, launch, read_reports, timing
        self._reports = Reports()
        parts.progress.follow(self._reports.add)
        self._done = 0  # the number of the last drill
        self._record: Optional[Record] = None
        self._todo: List[str] = []
        self._since = 0.0  # of the wait for the next moment
        self._started_at = 0.0  # of the command, by a drill
        self._warm_up_s = 0.0
        self._observing = False  # the first step of the restored command is awaited
        self._base: Optional[int] = None  # step of the checkpoint before the present round

    def ignore(self, number: int) -> None:
        """An order to an earlier process of this agent."""
        self._done = max(self._done, number)

    def step(self) -> None:
        """One look, while the command runs and nothing ends it. May take as long as a save and a restore.

        Raises GaveUp, BatonRefused, NotStarted."""
        if self._record is None:
            if self._parts.ordered_drill > self._done:
                self._begin(self._parts.ordered_drill)
        elif self._observing:
            self._observe()
        else:
            self._wait()

    def goes_on(self) -> bool:
        """The command has ended. True: it is started again, from the checkpoint before the one that it did not resume
        from. Raises what `step` raises."""
        parts = self._parts
        if self._observing and self._reports.first is not None and parts.check_end() is not None:
            self._take_first(self._reports.first, self._todo[:1] == [drill.WARM_UP])  # an end leaves no later look
        if self._record is None:
            return False
        code, _ = split_status(parts.training.status or 0, isinstance(parts.job.command, str))
        failed = self._observing and code != 0 and parts.check_end() is None
        if failed:
            self._put(resumed=drill.ENDED)
        goes_back = failed and self._drop_newest()
        if goes_back:
            parts.folder.add_to_output("the resume of a drill failed; starting again from the checkpoint before")
            parts.beat_state.update(checkpoint_step=self._restart())
        self._over()
        return goes_back

    def _drop_newest(self) -> bool:
        """No later attempt shall fail on it. False where nothing would be left that was there before the drill."""
        parts = self._parts
        retrier = parts.retrier(parts.must_end)
        baton: Baton = retrier.call("reading the baton", parts.keeper.read)
        if baton.checkpoint is None or (not baton.previous and self._base is not None):
            return False
        retrier.call("dropping a checkpoint", parts.keeper.change, drop, baton.checkpoint)
        return True

    # --- one drill ------------------------------------------------------------------------------------------------

    def _begin(self, number: int) -> None:
        parts = self._parts
        named = [word for word in (drill.EVALUATION, drill.CHECKPOINT) if word in parts.progress.phases]
        moments = [drill.TRAINING, drill.AGAIN, *named]
        self._todo, self._since = list(moments), time.monotonic()
        self._record = Record(number, moments=tuple(moments))
        _log.info("drill %d begins: %s", number, ", ".join(moments))
        self._publish()

    def _wait(self) -> None:
        """For the next moment."""
        moment, parts = self._todo[0], self._parts
        self._read_reports()
        phase = parts.beat_state.now.phase
        wanted = phase if moment == drill.AGAIN else moment
        has_steps = parts.progress.step is not None
        loses = time.monotonic() - parts.saved_at > self._timing.loss_s
        if has_steps and not loses and phase == wanted and (moment != drill.TRAINING or self._has_unsaved_step()):
            self._round(moment)
        elif time.monotonic() - self._since > self._timing.moment_s:
            why = drill.NO_STEPS if not has_steps else drill.UNSAVED if loses else drill.NOT_SEEN
            self._add(Round(moment, why=why))
            self._next()

    def _has_unsaved_step(self) -> bool:
        """Without one, a save at the notice cannot be told from the save before it."""
        step, saved = self._parts.progress.step, self._parts.progress.saved_step
        return self._reports.seen and step is not None and (saved is None or step > saved)

    def _next(self) -> None:
        self._todo.pop(0)
        self._since = time.monotonic()
        last = self._record.rounds[-1] if self._record is not None and self._record.rounds else None
        if not self._todo or (last is not None and last.moment in (drill.TRAINING, drill.AGAIN) and not last.delivered):
            self._over()

    def _observe(self) -> None:
        """The command was started again: its first step, or the notice in its warm-up."""
        first, now = self._reports.first, time.monotonic()
        warms_up = self._todo[:1] == [drill.WARM_UP]
        if first is not None:
            self._take_first(first, warms_up)
        elif now - self._started_at > self._timing.start_s:
            self._put(resumed=drill.LATE)
            self._over()
        elif warms_up and now - self._started_at >= _MISSED_SHARE * self._warm_up_s:
            self._put(resumed=drill.NEXT)
            self._round(drill.WARM_UP)

    def _take_first(self, first: First, missed_warm_up: bool) -> None:
        assert self._record is not None
        start_s, last = first.at - self._started_at, self._record.rounds[-1]
        shown = self._reports.compared(last.restored)._asdict()
        facts = {name: value for name, value in shown.items() if value != getattr(Round(""), name)}
        self._put(
            **{**facts, "resumed": drill.STEPPED, "start_s": start_s, "from_zero": self._parts.progress.from_zero}
        )
        if missed_warm_up:
            self._add(Round(drill.WARM_UP, why=drill.MISSED))
            self._todo.pop(0)
        if last.moment == drill.TRAINING and start_s >= self._timing.warm_up_s and self._todo:
            self._warm_up_s = start_s
            self._todo.insert(1, drill.WARM_UP)  # after the next notice, which comes at once
            self._record = self._record._replace(
                moments=(drill.TRAINING, drill.AGAIN, drill.WARM_UP, *self._record.moments[2:])
            )
        self._observing, self._since = False, time.monotonic()
        self._reports.go_on()
        shutil.rmtree(self._parts.folder.aside, ignore_errors=True)
        self._release()
        if not self._todo:
            self._over()

    # --- one notice -----------------------------------------------------------------------------------------------

    def _round(self, moment: str) -> None:
        sent_at = time.monotonic()
        self._base = self._parts.progress.saved_step
        was_there = self._notify()
        self._hold(heartbeat.CHECKPOINT)
        self._observing = False
        self._todo.remove(moment)
        self._add(Round(moment, why=drill.CUT))
        if self._wait_for_end(sent_at) and self._was_reached(was_there):
            left_at = time.monotonic()
            upload_s = self._save(left_at)
            if self._parts.check_end() is None:
                self._note_end(left_at - sent_at, upload_s)
                self._put(restored=self._restart(in_place=upload_s is None))
                return
        self._over()

    def _was_reached(self, was_there: bool) -> bool:
        """The command has left because of TERM (or KILL). False: the usual end of a command follows."""
        training, status = self._parts.training, self._parts.training.status or 0
        kill_leftovers(training.pid, self._parts.folder.marker)
        self._parts.progress.drain()
        died_of_it = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
        if not was_there and not died_of_it:  # it had ended by itself
            training.sent.discard(signal.SIGTERM)
            self._put(why=drill.GONE)
            return False
        return not self._has_finished(status)

    def _note_end(self, leave_s: float, upload_s: Optional[float]) -> None:
        progress, killed = self._parts.progress, signal.SIGKILL in self._parts.training.sent
        step, saved = progress.step, progress.saved_step
        self._put(delivered=True, why="", step=step, leave_s=leave_s, killed=killed, saved=saved, upload_s=upload_s)
        was_late = killed and self._record is not None and self._record.rounds[-1].moment != drill.WARM_UP
        if was_late or upload_s is None or saved is None or (step or 0) > saved:
            self._todo = []  # the next notices would only lose more

    def _notify(self) -> bool:
        """The stop file and TERM, in this order, as at a real notice. True: the process was there at that time.

        It is stopped for the moment in which TERM is sent, so it cannot end in between; TERM waits for it until it is
        continued. A process that cannot be stopped is looked at once more afterwards."""
        training, pid = self._parts.training, self._parts.training.pid
        assert pid is not None
        training.freeze()
        until = time.monotonic() + FREEZE_S
        while _state(pid) not in (*_DEAD, *_STOPPED) and time.monotonic() < until:
            time.sleep(_FREEZE_CHECK_S)
        is_stopped = _state(pid) in _STOPPED
        self._parts.folder.write_stop_file(heartbeat.NOTICED)
        training.signal(signal.SIGTERM)
        return is_stopped or _state(pid) not in _DEAD

    def _wait_for_end(self, sent_at: float) -> bool:
        """Of the command. False: there is a real reason to end."""
        parts, training = self._parts, self._parts.training
        times = drill.notice_times(self._timing.notice_s, parts.job.upload_reserve_s)
        while not training.poll():
            if parts.check_end() is not None:
                return False
            if time.monotonic() - sent_at >= times.kill_s and signal.SIGKILL not in training.sent:
                training.signal(signal.SIGKILL)
            self._read_reports()
            time.sleep(self._timing.check_s)
        return parts.check_end() is None

    def _has_finished(self, status: int) -> bool:
        """It has done all its work, although it was asked to leave."""
        parts, progress = self._parts, self._parts.progress
        sent, shell = parts.training.sent, isinstance(parts.job.command, str)
        end = judge(status, sent=sent, shell=shell, ran_s=0.0, tail=b"", retry=((), ()))
        return finished(end, sent, progress.step, progress.total, progress.from_zero)

    def _save(self, left_at: float) -> Optional[float]:
        """Seconds until all that is new is in the store; None: that took too long, or there is a reason to end."""
        parts = self._parts
        parts.checkpoint_duty.flush()
        parts.checkpoint_loop.wake()
        while not parts.checkpoint_duty.flushed.wait(self._timing.check_s):
            late = time.monotonic() - left_at > self._timing.upload_s
            if late or parts.checkpoint_loop.over or parts.check_end() is not None:
                return None
        return time.monotonic() - left_at

    def _restart(self, in_place: bool = False) -> Optional[int]:
        """Restore as a new machine would, and start the command. Returns the restored step. `in_place`: with the
        folders as they are, because what is in them is not in the store."""
        self._hold(heartbeat.RESTORE)  # until the first step: its limit is long, and no step is expected
        if in_place:  # an upload may hold the lock for long
            return self._start(self._parts.progress.saved_step)
        with self._parts.checkpoint_duty.lock:
            return self._start(self._restore())

    def _start(self, step: Optional[int]) -> Optional[int]:
        with suppress(OSError):
            os.unlink(self._parts.folder.stopping)
        self._reports.wait()
        self._parts.training.reset()
        self._started_at, self._observing = time.monotonic(), True
        self._launch(step)
        return step

    def _restore(self) -> Optional[int]:
        """The step of the checkpoint that is in the folder now; None = it is empty. Raises GaveUp, BatonRefused. A full
        disk leaves everything as it was."""
        parts, folder = self._parts, self._parts.folder
        retrier = parts.retrier(parts.must_end)
        baton = retrier.call("reading the baton", parts.keeper.read)
        restorer = Restorer(parts.store, parts.keeper, folder=folder.checkpoints, retrier=retrier, reject=parts.reject)
        done = False
        try:
            self._set_aside()
            pointer = restorer.restore(baton)
            parts.resume.restored(pointer, folder.checkpoints, mount_kind(folder.checkpoints))
            parts.results.saver.restore(None if pointer is None else pointer.results)
            parts.results.saver.keep(os.path.join(folder.aside, "results"))
            done = True
        except OSError as error:
            _log.warning("a drill could not restore: %s", error)
            self._todo = []
            return parts.progress.saved_step
        finally:
            if not done:
                self._put_back()
            parts.entries.ignore_present()
            parts.results.snapshots.clear()
        return None if pointer is None else pointer.step

    def _set_aside(self) -> None:
        """A new machine has neither folder. The folder of checkpoints itself stays, because it is watched. OSError."""
        folder = self._parts.folder
        shutil.rmtree(folder.aside, ignore_errors=True)
        os.makedirs(os.path.join(folder.aside, "checkpoints"))
        _move_all(folder.checkpoints, os.path.join(folder.aside, "checkpoints"))
        if os.path.isdir(folder.results) and not os.path.islink(folder.results):
            os.rename(folder.results, os.path.join(folder.aside, "results"))

    def _put_back(self) -> None:
        folder = self._parts.folder
        with suppress(OSError):
            _move_all(os.path.join(folder.aside, "checkpoints"), folder.checkpoints)
            if os.path.isdir(os.path.join(folder.aside, "results")):
                shutil.rmtree(folder.results, ignore_errors=True)
                os.rename(os.path.join(folder.aside, "results"), folder.results)

    # --- the record -----------------------------------------------------------------------------------------------

    def _add(self, new: Round) -> None:
        assert self._record is not None
        self._record = self._record._replace(rounds=(*self._record.rounds, new))
        self._publish()

    def _put(self, **facts: Any) -> None:
        """More facts of the last round."""
        assert self._record is not None
        *before, last = self._record.rounds
        self._record = self._record._replace(rounds=(*before, last._replace(**facts)))
        self._publish()

    def _publish(self) -> None:
        assert self._record is not None
        self._parts.beat_state.update(drill=drill.encode(self._record))

    def _over(self) -> None:
        assert self._record is not None
        self._release()
        self._record = self._record._replace(state=drill.OVER)
        self._publish()
        self._done, self._record, self._observing, self._todo = self._record.number, None, False, []
        self._reports.go_on()
        shutil.rmtree(self._parts.folder.aside, ignore_errors=True)
        _log.info("drill %d is over", self._done)
        self._parts.push_loop.wake()

    def _hold(self, phase: str) -> None:
        self._parts.beat_state.held_phase = phase
        self._parts.beat_state.update(phase=phase)

    def _release(self) -> None:
        state = self._parts.beat_state
        if state.held_phase is not None:
            state.held_phase = None
            if self._parts.end_reasons.ending is None:
                state.update(phase=heartbeat.TRAINING)


def _state(pid: int) -> str:
    try:
        return stat_fields(pid)[0]
    except (OSError, IndexError):
        return ""


def _move_all(source: str, target: str) -> None:
    """OSError."""
    for name in os.listdir(source) if os.path.isdir(source) and not os.path.islink(source) else ():
        os.rename(os.path.join(source, name), os.path.join(target, name))
