"""The results on their way to the store: every plain file, read back, compared and proven by load before `done`.

The supervisor judges which promised files are missing (RULES section 2). Left out are only files that a link names
outside the folder; `refused` says so. Attempts write to the same names, so each write is conditional on the generation
at the time when the baton was last known to be ours: an agent that was frozen meanwhile overwrites nothing of a later
one.

Proof by load: a size and a hash prove that the bytes arrived; only opening a file proves that it can be used. `verify`
of a result rule runs on the files as they were read back from the store. Each rule gets a new folder with nothing in it
but the matching files, so that a check cannot rely on other files of the machine. The check runs with the command's
environment and in its folder; SPOT_RESULTS_DIR names the folder with the copies. Its output goes to the run's log. Too
few files are not an error here: the supervisor calls such a run partial.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import shutil
import signal
import time
from typing import Callable, Dict, Optional, Sequence, Tuple

from supervisor.agent.checkpoints.snapshots import LeadsOut, ResultsFolder
from supervisor.agent.life.parts import Parts
from supervisor.agent.life.trackers import TRACKER_FOLDERS
from supervisor.agent.machine.command import NotStarted, Training, Workplace
from supervisor.agent.machine.job import ResultCheck
from supervisor.agent.machine.masking import NOTHING, Masker
from supervisor.agent.machine.processes import kill_leftovers
from supervisor.agent.store.access import TRIES, GaveUp, Mismatch, Retrier, Transfer, hash_file
from supervisor.agent.watch import ends
from supervisor.contract import runfiles
from supervisor.contract.baton import FileEntry
from supervisor.contract.stores.promise import ABSENT, ObjectStore, PreconditionFailed, StoreFull

LIMIT_S = 3600.0  # of one check
CHECK_S = 0.05
_log = logging.getLogger("agent")


class Unverified(Exception):
    """Some files could not be uploaded and read back; the text names the first of them."""


class ResultsUploader:
    """Uploads one folder below one prefix. A verified file is not uploaded again. A file whose name contains the value
    of a secret is stored under its masked name; a name that no object can have is escaped (`renamed`).

    `fence` raises BatonRefused, which passes.
    """

    _generations: Optional[Dict[str, str]] = None  # key -> generation, when the baton was last known to be ours

    def __init__(
        self,
        store: ObjectStore,
        folder: ResultsFolder,
        prefix: str,
        *,
        retrier: Retrier,
        masker: Masker = NOTHING,
        fence: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._folder, self._prefix, self._masker = store, folder, prefix, masker
        self._retrier, self._transfer, self._fence = retrier, Transfer(store, retrier, "uploading results"), fence
        self._verified: Dict[str, FileEntry] = {}
        self.refused: Dict[str, str] = {}  # name in the store -> why it is not there
        self.renamed: Dict[str, str] = {}  # name here -> name in the store

    def upload(self, report: Callable[[int, int], None] = lambda done, of: None) -> Tuple[FileEntry, ...]:
        """All files, in order of name. Raises Unverified, GaveUp, BatonRefused; waits while the store is
        unavailable."""
        self.refused = {}
        names = self._names()
        first_problem: Optional[str] = None
        failed = 0
        for number, name in enumerate(names):
            report(number, len(names))
            try:
                self._save(name, names[name])
            except LeadsOut as error:
                self.refused[names[name]] = str(error)
            except (Mismatch, ValueError, OSError, StoreFull) as error:
                failed += 1
                first_problem = first_problem or "%s: %s" % (names[name], error)
        if first_problem is not None:
            raise Unverified("%d of %d files could not be saved; %s" % (failed, len(names), first_problem))
        return tuple(self._verified[name] for name in names if names[name] not in self.refused)

    def _names(self) -> Dict[str, str]:
        """Name here -> name in the store, no two of them equal. A folder that the training removed has no results; an
        unreadable one may have some."""
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
        owners: Dict[str, str] = {}
        for name in sorted(names, key=lambda name: (name in self.renamed, name)):
            number, plain = 1, stored[name]
            while name in self.renamed and stored[name] in owners:
                number += 1
                stored[name] = self.renamed[name] = "%s~%d" % (plain, number)
            owners.setdefault(stored[name], name)
        self._owners = owners
        return stored

    def _save(self, name: str, stored_name: str) -> None:
        if self._owners[stored_name] != name:
            raise ValueError("without secrets it has the name of another file")
        with self._folder.opened(name) as (path, _):
            if name in self._verified and self._verified[name] == hash_file(path, stored_name):
                return
            for _ in range(TRIES):
                try:
                    # A full store is final here: a person must free space.
                    args = ("uploading results", self._upload, path, stored_name)
                    self._verified[name] = self._retrier.call(*args, final=(StoreFull,))
                    return
                except PreconditionFailed:
                    self._generations = None  # another process wrote it: check again whether the baton is ours
            raise Mismatch("%s was written by another attempt meanwhile" % stored_name)

    def _upload(self, path: str, stored_name: str) -> FileEntry:
        """Raises Mismatch, PreconditionFailed, StoreUnavailable, OSError, ValueError, BatonRefused, GaveUp."""
        if self._generations is None:
            present = {info.key: info.generation for page in self._store.pages(self._prefix) for info in page.objects}
            self._fence()  # after the listing: a later holder writes another generation
            self._generations = present
        key = self._prefix + stored_name
        generation = self._generations.get(key, ABSENT)
        entry, self._generations[key] = self._transfer.upload_unhashed(self._prefix, path, stored_name, generation)
        return entry


def has_results(rules: Sequence[ResultCheck], folder: ResultsFolder) -> bool:
    """Every declared result has its files; without declared results there is some file that is no tracker's."""
    try:
        names = folder.listing().files
    except OSError:
        return False
    if not rules:
        names = tuple(name for name in names if name.partition("/")[0] not in TRACKER_FOLDERS)
    wanted = [(rule.path, rule.min_count) for rule in rules] or [("*", 1)]
    return all(len(fnmatch.filter(names, path)) >= least for path, least in wanted)


class LoadCheck:
    """Used by the main thread, after the upload and before `done`."""

    def __init__(self, parts: Parts, retrier: Retrier) -> None:
        self._parts = parts
        self._retrier = retrier
        self._transfer = Transfer(parts.store, retrier, "reading results back")
        self._folder = parts.folder.readback

    def check(self, prefix: str, files: Tuple[FileEntry, ...]) -> None:
        """Every rule that has a `verify` and a file to run it on. Raises Unverified, GaveUp."""
        for rule in self._parts.job.results:
            matching = [entry for entry in files if fnmatch.fnmatch(entry.name, rule.path)]
            if rule.verify and matching:
                self._parts.beat_state.note("results", "checking that %s can be loaded" % rule.path)
                shutil.rmtree(self._folder, ignore_errors=True)
                try:
                    for entry in matching:
                        self._read_back(prefix, entry)
                    self._run(rule)
                finally:
                    shutil.rmtree(self._folder, ignore_errors=True)

    def _read_back(self, prefix: str, entry: FileEntry) -> None:
        try:
            self._transfer.download(prefix, os.path.join(self._folder, entry.name), entry)
        except (Mismatch, OSError) as error:
            raise Unverified("%s could not be read back: %s" % (entry.name, error)) from None

    def _run(self, rule: ResultCheck) -> None:
        parts = self._parts
        workplace = parts.workplace
        assert workplace is not None, "the command has run"
        parts.folder.add_to_output("verify %s: %s" % (rule.path, rule.verify))
        output = parts.folder.output
        if not os.path.isfile(output):
            output = os.devnull  # the command replaced its output with something else: that does not spoil the results
        begin = os.path.getsize(output)
        check = Training()
        try:
            self._wait(check, rule, workplace, output)
        except NotStarted as error:
            raise Unverified("verify of %s could not be started: %s" % (rule.path, error)) from None
        finally:
            kill_leftovers(check.pid, parts.folder.marker)
            check.poll()
            self._ship_log()
        code, number = ends.split_status(check.status or 0, True)
        if code != 0:
            end = "ended with exit code %s" % code if number is None else "was ended by signal %d" % number
            raise Unverified("verify of %s %s%s" % (rule.path, end, self._last_line(output, begin)))

    def _wait(self, check: Training, rule: ResultCheck, workplace: Workplace, output: str) -> None:
        """Until it has ended. Raises NotStarted, Unverified (its time is over), GaveUp (ours is)."""
        env = {**workplace.env, "SPOT_RESULTS_DIR": self._folder}
        check.start(rule.verify, workplace.cwd, env, output)
        until = time.monotonic() + LIMIT_S
        while not check.poll():
            ending = self._parts.check_end()
            over = ending is not None and (not ending.may_write or time.monotonic() >= ending.kill_at)
            if over or time.monotonic() >= until:
                check.signal(signal.SIGKILL)
                if over:
                    raise GaveUp("verify of %s" % rule.path)
                raise Unverified("verify of %s took longer than %g s" % (rule.path, LIMIT_S))
            time.sleep(CHECK_S)

    def _last_line(self, output: str, begin: int) -> str:
        """The last line of the check's own output."""
        written = max(0, os.path.getsize(output) - begin) if os.path.exists(output) else 0
        tail = ends.masked_tail(output, self._parts.masker, min(written, ends.TAIL_BYTES))
        line = ends.last_line(tail.decode("utf-8", "replace").splitlines())
        return ": %s" % line if line else ""

    def _ship_log(self) -> None:
        """The log's last round was before the results; this is the output since then."""
        try:
            self._retrier.call("storing the log", self._parts.log_duty.ship_rest)
        except GaveUp:
            _log.warning("the output of verify did not reach the store in time")
