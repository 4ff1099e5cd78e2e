"""pull: the files of a run onto this computer, compared with their checksums; the last line is the proof.

A repeated pull continues where the last one stopped: it skips complete files and continues a part. When all results are
here, it reports that to the supervisor, because a run with `require_pull` keeps its machine until then.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from pathlib import Path

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import FAILED, NOT_FOUND, CliError
from supervisor.cli.files.fetching import Fetcher, Interrupted, reason
from supervisor.cli.files.pulling import Destination, FileRefused, Mismatch, Wanted, laid_out, results_folder, wanted
from supervisor.cli.finding import choose_run
from supervisor.cli.options import not_empty, run_argument, server_options
from supervisor.cli.output import note, safe
from supervisor.contract.baton import FileEntry
from supervisor.contract.runfiles import manifest_sha256
from supervisor.wording.figures import plural, size_text

KINDS = ("results", "checkpoints", "logs", "evidence", "code")
AT_ONCE, QUEUED = 4, 16
SHOW_S = 0.2
LISTS = 10  # how often the list is read again, where a live run saves newer results during the pull
FILES_MAX = 1_000_000  # a longer list is an error of the server


@click.command()
@run_argument
@click.argument("folder", metavar="[DIR]", required=False, callback=not_empty)
@click.option(
    "--kind", "kinds", type=click.Choice(KINDS), multiple=True, default=("results",), help="Repeatable (results)."
)
@click.option("--partial", is_flag=True, help="Unverified results too, of a live or failed run, as last saved.")
@click.option("--load-check", metavar="CMD", help="Run CMD in DIR at the end; it must succeed.")
@server_options
@click.pass_context
def pull(
    ctx: click.Context,
    /,
    *,
    client: Client,
    run_id: str | None,
    folder: str | None,
    kinds: tuple[str, ...],
    partial: bool,
    load_check: str | None,
) -> None:
    """Download the files of a run into DIR (default: ./RUN) and verify their checksums.

    Results go to DIR itself, or to g1, g2, … where the run has several generations; with other kinds every file keeps
    its whole path. A repeated pull fetches only what is missing. The last line is OK N/N, errors 0 only if every file
    is complete. CMD gets the folder of the results as SPOT_RESULTS_DIR.
    """
    name = choose_run(client, run_id)
    listed, results_sha256, saved = _list(client, name, kinds)
    if not listed:
        _refuse_nothing(client, name, kinds, results_sha256)
    has_results = any(file.kind == "results" for file in listed)
    if results_sha256 is None and has_results:
        _check_partial(name, saved, partial)
    listed = laid_out(listed, kinds)
    try:
        into = Destination(Path(folder or name))
    except (FileRefused, OSError) as error:
        why = "that is a file, not a folder" if isinstance(error, FileExistsError) else reason(error)
        text = f"Nothing was fetched into {folder or name}: {why}."
        raise CliError(text, FAILED, "PULL_REFUSED") from None
    try:
        pulled = _Pull(client, name, into)
        again = shlex.join(["spot", "pull", name, *([folder] if folder else [])])
        with output.detaching(f"Left. To continue where this pull stopped: {again}"):
            pulled.run(listed)
            for _ in range(LISTS):
                if not pulled.changed or not partial:
                    break
                listed, results_sha256, _ = _list(client, name, kinds)
                listed = laid_out(listed, kinds)
                pulled.run(listed)
        pulled.report_changed()
        if not pulled.errors:
            into.clear()
            if load_check is not None:
                pulled.check(load_check, results_folder(listed))
        if not pulled.errors and "results" in kinds:
            pulled.report(results_sha256, has_results)
    finally:
        into.close()
    total = len(listed)
    if pulled.errors:
        click.echo(f"FAILED {len(pulled.here)}/{total}, errors {pulled.errors}")
        ctx.exit(FAILED)
    click.echo(f"OK {total}/{total}, errors 0")


def _refuse_nothing(client: Client, name: str, kinds: Sequence[str], promised: str | None) -> None:
    """Raises CliError. A run that was verified without any result may wait for its pull, which is reported here."""
    empty = manifest_sha256(())
    if "results" in kinds and promised == empty:
        client.post(run_path(name, "pulled"), {"results_sha256": empty, "files": 0})
    text = f"{name} has no {' and no '.join(kinds)} now: nothing was fetched."
    raise CliError(text, NOT_FOUND, "NOTHING_TO_PULL", (f"what it is doing: spot show {name}",))


def _check_partial(name: str, saved: Json | None, partial: bool) -> None:
    """Unverified results are fetched only with --partial. Raises CliError."""
    if not partial:
        text = (
            f"The results of {safe(name)} are not verified, because the run is live or failed, so nothing was fetched. "
            f"`spot pull {safe(name)} --partial` fetches them as last saved."
        )
        raise CliError(text, FAILED, "RESULTS_PARTIAL")
    text = f"The results of {safe(name)} are partial: they are not verified"
    if saved is not None:
        at = "" if saved["step"] is None else f" at step {saved['step']:,}"
        text += f", and were saved in attempt {saved['attempt']}{at}. They lack what was written later"
    note(text + ".")
    for left in (saved or {}).get("left_out", []):
        note(f"Older than the rest: {safe(left['name'])}: {safe(left['why'])}")


def _list(client: Client, name: str, kinds: Sequence[str]) -> tuple[list[Wanted], str | None, Json | None]:
    """All files of these kinds, the hash of the verified results (None while there are none), and the source of partial
    ones."""
    files: list[Wanted] = []
    cursor: str | None = None
    while True:
        page = client.get(run_path(name, "files"), kind=list(kinds), page_size=1000, cursor=cursor)
        try:
            files += [wanted(entry, kinds) for entry in page["files"]]
            following, sha256 = page["next_cursor"], page["results_sha256"]
            saved = page.get("partial_results")
        except (KeyError, TypeError, ValueError):
            text = "The list of files is malformed. Is this address a Spot Supervisor?"
            raise CliError(text, FAILED, "NOT_A_SUPERVISOR") from None
        if following is None:
            return files, sha256, saved
        if len(files) > FILES_MAX or (cursor is not None and following <= cursor):
            raise CliError("The list of files does not end.", FAILED, "NOT_A_SUPERVISOR")
        cursor = following


class _Pull:
    """`here`: the complete files of the last list. `changed`: those whose content is not the one of that list.
    `errors`: how many errors were printed."""

    def __init__(self, client: Client, name: str, into: Destination) -> None:
        self._client, self._name, self._into = client, name, into
        self._lock = threading.Lock()
        self._bytes = 0
        self.here: list[FileEntry] = []
        self.changed: dict[str, Mismatch] = {}
        self.errors = 0

    def run(self, listed: list[Wanted]) -> None:
        """Raises KeyboardInterrupt, after all threads have stopped."""
        self.here, self.changed, self._bytes = [], {}, 0
        stop, total = threading.Event(), sum(file.size for file in listed)
        fetcher = Fetcher(self._client, self._name, self._into, stop, self._count)
        with ThreadPoolExecutor(AT_ONCE, "pull") as pool:
            try:
                waiting = iter(listed)
                open_: dict[Future[FileEntry], Wanted] = {}
                while True:
                    for file in islice(waiting, QUEUED - len(open_)):
                        open_[pool.submit(fetcher.fetch, file)] = file
                    if not open_:
                        break
                    done, _ = wait(open_, SHOW_S, FIRST_COMPLETED)
                    for future in done:
                        self._take(future, open_.pop(future))
                    self._show(len(listed), total)
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
        self._show(len(listed), total, last=True)

    def _take(self, future: Future[FileEntry], file: Wanted) -> None:
        error = future.exception()
        if error is None:
            self.here.append(future.result())
        elif isinstance(error, Interrupted):
            raise KeyboardInterrupt
        elif isinstance(error, Mismatch):
            self.changed[file.path] = error
        else:
            self._error(f"{safe(file.path)}: {safe(reason(error))}")

    def report_changed(self) -> None:
        for path, error in self.changed.items():
            self._error(f"{safe(path)}: {safe(reason(error))}")

    def _error(self, text: str) -> None:
        self.errors += 1
        clear = "\r\x1b[K" if sys.stderr.isatty() else ""
        note(f"{clear}error: {text}")

    def check(self, command: str, results: str) -> None:
        """Run the user's command on the files. `results`: the folder of the results in DIR."""
        env = {**os.environ, "SPOT_RESULTS_DIR": str((self._into.folder / results).absolute())}
        done = subprocess.run(["/bin/sh", "-c", command], cwd=self._into.folder, env=env, check=False)
        if done.returncode != 0:
            self._error(f"--load-check ended with exit code {done.returncode}")

    def report(self, promised: str | None, any_files: bool) -> None:
        """Report to the supervisor that all results are here, with the hash of what is here."""
        if promised is None:
            if any_files:
                note(f"The results of {safe(self._name)} are not verified, so this does not count as its pull.")
            return
        names = [(entry.name.split("/", 2)[2], entry) for entry in self.here if entry.name.startswith("results/")]
        held = manifest_sha256(FileEntry(name, entry.size, entry.sha256) for name, entry in names)
        if held != promised:
            self._error("the results differ from the verified ones by now; pull again")
            return
        body: Json = {"results_sha256": held, "files": len(names)}
        try:
            self._client.post(run_path(self._name, "pulled"), body)
        except CliError as error:
            self._error(f"the files are here, but the supervisor did not record it: {safe(error.text)}")

    def _count(self, size: int) -> None:
        with self._lock:
            self._bytes += size

    def _show(self, files: int, total: int, last: bool = False) -> None:
        """One line that is overwritten, at a terminal only."""
        if not sys.stderr.isatty() or not files:
            return
        text = f"{len(self.here)} of {plural(files, 'file')}, {size_text(self._bytes)} of {size_text(total)}"
        place = f" in {safe(self._into.folder)}" if last else ""
        click.echo(f"\r\x1b[K{text}{place}", err=True, nl=last)
