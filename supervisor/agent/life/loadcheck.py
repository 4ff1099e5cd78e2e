"""Proof by load: `verify` of a result rule runs on the files as they were read back from the store.

A size and a hash say that the bytes arrived; only opening a file says that somebody can use it. Each rule gets a fresh
folder with nothing in it but the files that match, so that a check cannot lean on what the machine still has. The
check runs with the command's environment and in its folder; SPOT_RESULTS_DIR names the folder with the copies. What it
prints goes to the run's log. Too few files are not judged here: the supervisor calls such a run partial.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import shutil
import signal
import time
from typing import Callable, Tuple

from supervisor.agent.checkpoints.results import Unverified
from supervisor.agent.life.station import Station
from supervisor.agent.machine.job import ResultCheck
from supervisor.agent.machine.leftovers import kill_leftovers
from supervisor.agent.machine.preparing import Workplace
from supervisor.agent.machine.training import NotStarted, Training
from supervisor.agent.store.patience import GaveUp, Patience
from supervisor.agent.store.transfer import Mismatch, download
from supervisor.agent.watch import exits
from supervisor.contract.baton import FileEntry

LIMIT_S = 3600.0  # of one check
LOOK_S = 0.05
_log = logging.getLogger("agent")


class LoadCheck:
    """Used by the main thread, after the upload and before `done`."""

    def __init__(self, station: Station, patience: Patience) -> None:
        self._station = station
        self._patience = patience
        self._folder = station.folder.readback

    def check(self, prefix: str, files: Tuple[FileEntry, ...]) -> None:
        """Every rule that has a `verify` and a file to run it on. Raises Unverified, GaveUp."""
        for rule in self._station.job.results:
            matching = [entry for entry in files if fnmatch.fnmatch(entry.name, rule.path)]
            if rule.verify and matching:
                self._station.situation.note("results", "checking that %s can be loaded" % rule.path)
                shutil.rmtree(self._folder, ignore_errors=True)
                try:
                    for entry in matching:
                        self._read_back(prefix, entry)
                    self._run(rule)
                finally:
                    shutil.rmtree(self._folder, ignore_errors=True)

    def _read_back(self, prefix: str, entry: FileEntry) -> None:
        path = os.path.join(self._folder, entry.name)
        between: Callable[[], None] = lambda: self._patience.check("reading results back")  # noqa: E731
        try:
            self._patience.insist(
                "reading results back",
                lambda: download(self._station.store, prefix, path, entry, between),
            )
        except (Mismatch, OSError) as error:
            raise Unverified("%s could not be read back: %s" % (entry.name, error)) from None

    def _run(self, rule: ResultCheck) -> None:
        station = self._station
        place = station.workplace
        assert place is not None, "the command has run"
        station.folder.say("verify %s: %s" % (rule.path, rule.verify))
        output = station.folder.output
        if not os.path.isfile(output):
            output = os.devnull  # the command put something else there: the results are none the worse for it
        begin = os.path.getsize(output)
        check = Training()
        try:
            self._wait(check, rule, place, output)
        except NotStarted as error:
            raise Unverified("verify of %s could not be started: %s" % (rule.path, error)) from None
        finally:
            kill_leftovers(check.pid, station.folder.marker)
            check.poll()
            self._ship_log()
        code, number = exits.split_status(check.status or 0, True)
        if code != 0:
            end = "ended with exit code %s" % code if number is None else "was ended by signal %d" % number
            raise Unverified("verify of %s %s%s" % (rule.path, end, self._last_words(output, begin)))

    def _wait(self, check: Training, rule: ResultCheck, place: Workplace, output: str) -> None:
        """Until it has ended. Raises NotStarted, Unverified (its time is over), GaveUp (ours is)."""
        env = {**place.env, "SPOT_RESULTS_DIR": self._folder}
        check.start(rule.verify, place.cwd, env, output)
        until = time.monotonic() + LIMIT_S
        while not check.poll():
            ending = self._station.look()
            over = ending is not None and (not ending.may_write or time.monotonic() >= ending.kill_at)
            if over or time.monotonic() >= until:
                check.signal(signal.SIGKILL)
                if over:
                    raise GaveUp("verify of %s" % rule.path)
                raise Unverified("verify of %s took longer than %g s" % (rule.path, LIMIT_S))
            time.sleep(LOOK_S)

    def _last_words(self, output: str, begin: int) -> str:
        """The last line that the check has printed."""
        written = max(0, os.path.getsize(output) - begin) if os.path.exists(output) else 0
        tail = exits.masked_tail(output, self._station.masker, min(written, exits.TAIL_BYTES))
        line = exits.last_line(tail.decode("utf-8", "replace").splitlines())
        return ": %s" % line if line else ""

    def _ship_log(self) -> None:
        """The log's last round was before the results; this is what was printed since."""
        try:
            self._patience.insist("storing the log", self._station.log_duty.ship_rest)
        except GaveUp:
            _log.warning("the output of verify did not reach the store in time")
