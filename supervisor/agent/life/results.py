"""The results on their way to the store: every plain file, read back, compared and proven by load before `done`.

Which files a run promised is judged by the supervisor (RULES section 2). Left out is only what a link names outside the
folder; `refused` says so. Attempts write to the same names, so each write is conditional on what lay there when the
baton was last seen to be ours: an agent that was frozen meanwhile overwrites nothing of a later one.

Proof by load: a size and a hash say that the bytes arrived; only opening a file says that somebody can use it. `verify`
of a result rule runs on the files as they were read back from the store. Each rule gets a fresh folder with nothing in
it but the files that match, so that a check cannot lean on what the machine still has. The check runs with the
command's environment and in its folder; SPOT_RESULTS_DIR names the folder with the copies. What it prints goes to the
run's log. Too few files are not judged here: the supervisor calls such a run partial.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import shutil
import signal
import time
from typing import Callable, Dict, Iterable, Optional, Tuple, Union

from supervisor.agent.checkpoints.moments import LeadsOut, ResultsFolder
from supervisor.agent.life.station import Station
from supervisor.agent.machine.command import NotStarted, Training, Workplace
from supervisor.agent.machine.folder import ResultCheck
from supervisor.agent.machine.masking import NOTHING, Masker
from supervisor.agent.machine.processes import kill_leftovers
from supervisor.agent.store.reach import TRIES, GaveUp, Mismatch, Patience, download, hash_file, nothing, upload_file
from supervisor.agent.watch import ends
from supervisor.contract import runfiles
from supervisor.contract.baton import FileEntry
from supervisor.contract.stores.promise import ABSENT, ObjectStore, PreconditionFailed, StoreFull

LIMIT_S = 3600.0  # of one check
LOOK_S = 0.05
_log = logging.getLogger("agent")


class Unverified(Exception):
    """Some files could not be uploaded and read back; the text names the first of them."""


class ResultsUploader:
    """Uploads one folder below one prefix. What was verified once is not uploaded again. A file whose name holds the
    value of a secret is stored under its masked name; a name that no object can have is escaped (`renamed`).

    `fence` raises BatonRefused, which passes."""

    _there: Optional[Dict[str, str]] = None  # key -> generation, as of the last look at the baton

    def __init__(
        self,
        store: ObjectStore,
        folder: ResultsFolder,
        prefix: str,
        *,
        patience: Patience,
        masker: Masker = NOTHING,
        fence: Callable[[], None] = nothing,
    ) -> None:
        self._store, self._folder, self._prefix, self._masker = store, folder, prefix, masker
        self._patience, self._fence = patience, fence
        self._verified: Dict[str, FileEntry] = {}
        self.refused: Dict[str, str] = {}  # name in the store -> why it is not there
        self.renamed: Dict[str, str] = {}  # name here -> name in the store

    def upload(self, tell: Callable[[int, int], None] = lambda done, of: None) -> Tuple[FileEntry, ...]:
        """All files, in order of name. Raises Unverified, GaveUp; waits while the store does not answer."""
        self.refused = {}
        names = self._names()
        trouble: Optional[str] = None
        failed = 0
        for number, name in enumerate(names):
            tell(number, len(names))
            try:
                self._one(name, names[name])
            except LeadsOut as error:
                self.refused[names[name]] = str(error)
            except (Mismatch, ValueError, OSError, StoreFull) as error:
                failed += 1
                trouble = trouble or "%s: %s" % (names[name], error)
        if trouble is not None:
            raise Unverified("%d of %d files could not be saved; %s" % (failed, len(names), trouble))
        return tuple(self._verified[name] for name in names if names[name] not in self.refused)

    def _names(self) -> Dict[str, str]:
        """Name here -> name in the store, no two of them the same. A folder that the training took away holds no
        results; one that cannot be read may hold some."""
        try:
            names = self._folder.listing().files
        except NotADirectoryError:
            raise Unverified(
                "the results folder %s is not a folder any more, or a link, which is not followed" % self._folder.path
            ) from None
        except OSError as error:
            raise Unverified("the results folder %s cannot be read: %s" % (self._folder.path, error)) from None
        stored = {name: runfiles.storable(self._masker.text(name)) for name in names}
        self.renamed = {name: stored[name] for name in names if stored[name] != self._masker.text(name)}
        taken: Dict[str, str] = {}
        for name in sorted(names, key=lambda name: (name in self.renamed, name)):
            number, plain = 1, stored[name]
            while name in self.renamed and stored[name] in taken:
                number += 1
                stored[name] = self.renamed[name] = "%s~%d" % (plain, number)
            taken.setdefault(stored[name], name)
        self._owners = taken
        return stored

    def _one(self, name: str, kept: str) -> None:
        if self._owners[kept] != name:
            raise ValueError("without secrets it has the name of another file")
        with self._folder.opened(name) as (path, _):
            if name in self._verified and self._verified[name] == hash_file(path, kept):
                return
            for left in reversed(range(TRIES)):
                outcome = self._patience.insist("uploading results", lambda: self._try(path, kept))
                if isinstance(outcome, FileEntry):
                    self._verified[name] = outcome
                    return
                if isinstance(outcome, StoreFull) or left == 0:
                    raise outcome
                self._there = None  # somebody wrote it since: look again whose turn it is

    def _try(self, path: str, kept: str) -> Union[FileEntry, StoreFull, Mismatch]:
        """Raises Mismatch, StoreUnavailable, OSError, ValueError, BatonRefused, GaveUp."""
        if self._there is None:
            there = {info.key: info.generation for page in self._store.pages(self._prefix) for info in page.objects}
            self._fence()  # after the look: whoever comes next writes another generation
            self._there = there
        key = self._prefix + kept
        try:
            entry, self._there[key] = upload_file(
                self._store,
                self._prefix,
                path,
                name=kept,
                between=self._check,
                if_generation=self._there.get(key, ABSENT),
            )
            return entry
        except StoreFull as error:  # an answer, not an outage: a person must make room
            return error
        except PreconditionFailed:
            return Mismatch("%s was written by another attempt meanwhile" % kept)

    def _check(self) -> None:
        self._patience.check("uploading results")


def results_there(rules: Iterable[ResultCheck], folder: ResultsFolder) -> bool:
    """Every declared result has its files; some file is there where none is declared."""
    try:
        names = folder.listing().files
    except OSError:
        return False
    wanted = [(rule.path, rule.min_count) for rule in rules] or [("*", 1)]
    return all(len(fnmatch.filter(names, path)) >= least for path, least in wanted)


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
                "reading results back", lambda: download(self._station.store, prefix, path, entry, between)
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
        code, number = ends.split_status(check.status or 0, True)
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
        tail = ends.masked_tail(output, self._station.masker, min(written, ends.TAIL_BYTES))
        line = ends.last_line(tail.decode("utf-8", "replace").splitlines())
        return ": %s" % line if line else ""

    def _ship_log(self) -> None:
        """The log's last round was before the results; this is what was printed since."""
        try:
            self._patience.insist("storing the log", self._station.log_duty.ship_rest)
        except GaveUp:
            _log.warning("the output of verify did not reach the store in time")
