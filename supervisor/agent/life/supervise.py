"""One life: claim the baton, restore, run the command, watch it, leave. Each part has its own file; this one ties them.

The claim is the only door to writing anything of a run (RULES section 1). A newcomer waits while the old holder has
neither left nor is known gone; `standing` says when the wait is over. A store that does not answer says nothing: the
agent waits with its beats going out by push.

The code bundle is unpacked into a fresh folder and hashed on the way. One that differs from its hash is fetched again,
a few times, because the copy on the way may be at fault; after that the command is not started at all. Nothing in the
archive is trusted: its names by the rules of contract/bundle, and each file is made new, through no link.

TERM to the agent asks for a stop. The signal handler itself writes the stop file and passes TERM on to the command's
group; it does not wait for the next look. KILL follows when the grace is over. An error of the agent's own ends the
command too.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import time
from functools import partial
from types import FrameType
from typing import Callable, Iterator, Optional

from supervisor.agent.checkpoints.folder import Restorer
from supervisor.agent.life.leaving import Leaving
from supervisor.agent.life.station import Station
from supervisor.agent.machine import gpus
from supervisor.agent.machine.command import NotStarted, Unfit, check_gpus, prepare
from supervisor.agent.store.reach import TRIES, BatonKeeper, GaveUp, Patience, left_word
from supervisor.agent.watch.ends import Ending
from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.baton import Baton, BatonRefused, Pointer
from supervisor.contract.bundle import BundleRefused, Member, Opened
from supervisor.contract.stores.promise import ObjectMissing, ObjectStore

LOOK_S = 1.0
# Between two looks at the command: long trainings are looked at less often. A notice is seen within 0.2 s all the same.
TICK_S, TICK_MAX_S, TICK_SHARE = 0.05, 0.15, 0.005
STAY_LOOK_S = 0.5
DISK_FULL = 1  # exit code; the words beside it tell the rest
_log = logging.getLogger("agent")
_WHAT = "fetching the code bundle"


class StandDown(Exception):
    """This agent is not wanted: `left` is the beat's word for it. It stops and writes nothing."""

    def __init__(self, left: str) -> None:
        super().__init__(left)
        self.left = left


def claim(
    keeper: BatonKeeper,
    launch_id: str,
    machine_id: str,
    patience: Patience,
    monotonic: Callable[[], float],
    tell: Callable[[str], None],
) -> Baton:
    """The baton with us as its holder. Raises StandDown, GaveUp."""
    waits_since: Optional[float] = None
    while True:
        seen = patience.insist("reading the baton", keeper.read)
        waited_s = 0.0 if waits_since is None else monotonic() - waits_since
        verdict = rules.standing(seen, launch_id, machine_id, waited_s)
        if verdict in (rules.OVER, rules.OUTDATED):
            raise StandDown(left_word(verdict))
        if verdict == rules.WAIT:
            waits_since = monotonic() if waits_since is None else waits_since
            tell("waiting for the previous machine to leave")
            patience.pause("waiting for the baton", LOOK_S)
            continue
        tell("")
        try:
            return patience.insist(
                "claiming the baton", partial(keeper.change, partial(_claimed, launch_id, machine_id, waited_s))
            )
        except BatonRefused:
            continue  # it changed between our looks: judge the new one


def _claimed(launch_id: str, machine_id: str, waited_s: float, baton: Baton) -> Baton:
    return rules.claim(baton, launch_id, machine_id, waited_s)


def bring(store: ObjectStore, sha256: str, folder: str, patience: Patience) -> None:
    """Unpack the bundle into `folder`; nothing else is in it then. Raises Unfit, GaveUp, OSError."""
    for number in range(1, TRIES + 1):
        problem = patience.insist(_WHAT, lambda: _try(store, sha256, folder, patience))
        if problem is None:
            _log.info("code %s unpacked into %s", sha256[:12], folder)
            return
        _log.warning("code %s: %s (try %d of %d)", sha256[:12], problem, number, TRIES)
        if number < TRIES:
            patience.pause(_WHAT, float(number))
    shutil.rmtree(folder, ignore_errors=True)
    text = "%s%s %s (fetched %d times)" % (heartbeat.BAD_CODE, sha256[:12], problem, TRIES)
    raise Unfit(heartbeat.NO_CODE, text)


def _try(store: ObjectStore, sha256: str, folder: str, patience: Patience) -> Optional[str]:
    """What is wrong with the bundle, None when it is unpacked. Raises StoreUnavailable and what `bring` raises."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    opened = Opened(_pieces(store, runfiles.code(sha256), patience))
    try:
        for member, content in opened.files():
            _write(folder, member, content)
    except BundleRefused as error:
        return "is damaged: %s" % error
    except ObjectMissing:
        return "is not in the object store"
    return None if opened.sha256 == sha256 else "differs from its checksum"


def _pieces(store: ObjectStore, key: str, patience: Patience) -> Iterator[bytes]:
    for piece in store.read(key):
        patience.check(_WHAT)
        yield piece


def _write(folder: str, member: Member, content: Iterator[bytes]) -> None:
    path = os.path.join(folder, member.path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if member.link is not None:
        os.symlink(member.link, path)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o755 if member.executable else 0o644), "wb") as target:
        for piece in content:
            target.write(piece)


class Supervision:
    _told_stopping = False

    def __init__(self, station: Station) -> None:
        self._station = station
        self._leaving = Leaving(station)

    def run(self) -> None:
        """The agent's whole life; returns when there is nothing left to do on this machine."""
        signal.signal(signal.SIGTERM, self._on_term)
        self._station.vitals_loop.start()
        self._station.push_loop.start()
        if self._station.preemption_loop is not None:
            self._station.preemption_loop.start()
        self._live()
        self._stay()

    def _live(self) -> None:
        station = self._station
        try:
            try:
                self._begin()
            except StandDown as refused:
                _log.info("not wanted (%s): standing down", refused.left)
                station.attention.ask(refused.left, may_write=False)
            except BatonRefused as refused:
                _log.info("the baton went to somebody else: %s", refused)
                station.attention.ask(station.why_lost(), may_write=False)
            except GaveUp:
                _log.info("told to end before the command was started")
            except Unfit as unfit:
                self._leaving.unfit(unfit.left, str(unfit))
                return
            except NotStarted as error:
                self._leaving.not_started(error.code, str(error))
                return
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._leaving.not_started(DISK_FULL, "this machine's disk is full: %s" % error)
                return
            self._watch()
            self._leaving.leave()
        except Exception as error:
            self._leaving.confess(error)
            raise
        finally:
            self._end_command()

    def _begin(self) -> None:
        """Up to the command's start. Raises StandDown, BatonRefused, GaveUp, Unfit, NotStarted, OSError."""
        station = self._station
        patience = station.patience(station.told_to_end)
        # Before the claim: whoever holds the baton now may go on until this machine can compute.
        no_cuda = self._cuda() if station.job.gpus and station.unfit is None else ""
        baton = claim(
            station.keeper,
            station.job.launch_id,
            station.machine_id,
            patience,
            time.monotonic,
            lambda text: station.situation.note("claim", text),
        )
        _log.info("holding the baton as %s", station.machine_id)
        station.situation.tell(phase=heartbeat.RESTORE)
        station.store_loop.start()
        if station.unfit is not None:
            raise station.unfit
        check_gpus(station.job, station.gpus, station.told_to_end)
        if no_cuda:
            raise Unfit(heartbeat.NO_GPU, no_cuda)
        if station.job.code is not None:
            bring(station.store, station.job.code, station.folder.code, patience)
        restorer = Restorer(
            station.store,
            station.keeper,
            station.holder,
            folder=station.folder.checkpoints,
            patience=patience,
            reject=self._reject,
        )
        pointer = restorer.restore(baton)
        station.results.saver.restore(None if pointer is None else pointer.results)
        station.saver.clean(patience.insist("reading the baton", station.keeper.read))
        self._start(pointer)

    def _cuda(self) -> str:
        station = self._station
        return gpus.cuda_trouble(
            station.told_to_end, lambda text: station.situation.note("cuda", text), gpus.driver_version
        )

    def _reject(self, step: int, text: str) -> None:
        self._station.situation.note("restore", text)
        self._station.situation.tell(rejected_checkpoint=step)

    def _start(self, pointer: Optional[Pointer]) -> None:
        station, job, folder = self._station, self._station.job, self._station.folder
        step = None if pointer is None else pointer.step
        _log.info("starting the command, %s", "from nothing" if step is None else "resumed from step %d" % step)
        station.entries.ignore_present()
        station.results.moments.clear()
        station.progress.saved(step)
        place = station.workplace = prepare(job, folder, station.secrets, step)
        station.evidence.observe_start()
        station.training.start(job.command, place.cwd, place.env, folder.output)
        station.situation.tell(phase=heartbeat.TRAINING, resumed_from=step, checkpoint_step=step)
        station.moment_loop.start()
        station.checkpoint_loop.start()
        station.log_loop.start()
        station.facts_duty.of(place.cwd, place.env)
        station.facts_loop.start()
        station.stall_loop.start()

    def _watch(self) -> None:
        """Until the command has ended."""
        station = self._station
        ignored = 0
        while station.training.pid is not None and not station.training.poll():
            station.stepped_log.look(station.progress.step)
            station.progress.poll()
            if station.progress.ignored != ignored:
                ignored = station.progress.ignored
                station.situation.note("progress", "%d lines of the progress file make no sense" % ignored)
            ending = station.look()
            if ending is not None:
                self._press(ending)
            old_s = 0.0 if ending is not None else TICK_SHARE * station.training.ran_s
            time.sleep(min(TICK_MAX_S, max(TICK_S, old_s)))
        station.progress.drain()
        station.stepped_log.look(station.progress.step)

    def _stay(self) -> None:
        """Where the machine is kept for a person: until it is released, which kills us, or its own time is over."""
        station = self._station
        end, job = station.situation.now.exit, station.job
        if end is None or station.attention.ending is not None:
            return
        if job.stays_after_success if end.work_done else job.stays_after_failure:
            _log.info("the work is over; the machine is kept")
            while station.attention.stays():
                time.sleep(STAY_LOOK_S)

    def _press(self, ending: Ending) -> None:
        training = self._station.training
        if not self._told_stopping:
            self._told_stopping = True
            _log.info("ending the command: %s", ending.reason)
            self._ask_to_leave(ending.reason)
        if time.monotonic() >= ending.kill_at and signal.SIGKILL not in training.sent:
            _log.info("the command is still there: KILL")
            training.signal(signal.SIGKILL)

    def _on_term(self, number: int, frame: Optional[FrameType]) -> None:
        """No locks and no logging here: the main thread may be inside either."""
        self._station.attention.term_received = True
        if not self._told_stopping:
            self._ask_to_leave(heartbeat.STOPPED)

    def _ask_to_leave(self, reason: str) -> None:
        """The file before TERM: a library with a TERM handler of its own (Lightning) leaves at the end of the step, and
        its training saves there only if it finds the file. Runs in the signal handler too."""
        station = self._station
        station.folder.tell_stopping(reason)
        if signal.SIGTERM not in station.training.sent:
            station.training.signal(signal.SIGTERM)

    def _end_command(self) -> None:
        """Only after an error of our own is there still one to end."""
        training = self._station.training
        if training.pid is not None and not training.poll():
            training.signal(signal.SIGKILL)
