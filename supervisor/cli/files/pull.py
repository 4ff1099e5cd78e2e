"""pull: the files of a run onto this computer, compared with their checksums; the proof is the last line.

A pull that was cut off goes on where it was: complete files are skipped, a part is continued. When all results are
here, the supervisor is told, because a run with `require_pull` keeps its machine until then.
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
from supervisor.cli.exits import DETACHED, FAILED, NOT_FOUND, CliError
from supervisor.cli.files.fetching import Fetcher, Interrupted, reason
from supervisor.cli.files.pulling import Destination, FileRefused, Wanted, laid_out, results_folder, wanted
from supervisor.cli.finding import choose_run
from supervisor.cli.options import not_empty, run_argument, server_options
from supervisor.cli.output import safe
from supervisor.contract.baton import FileEntry
from supervisor.contract.runfiles import manifest_sha256
from supervisor.wording.figures import plural, size_text

KINDS = ("results", "checkpoints", "logs", "evidence", "code")
AT_ONCE, IN_HAND = 4, 16
SHOW_S = 0.2
FILES_MAX = 1_000_000  # a list without an end is no list


@click.command()
@run_argument
@click.argument("folder", metavar="[DIR]", required=False, callback=not_empty)
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, default=("results",), show_default=True,
              help="Which files; may be given several times.")  # fmt: skip
@click.option(
    "--partial",
    is_flag=True,
    help="Results that are not verified too: of a run that goes on, or did not succeed, as saved last.",
)
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
    """Fetch the files of a run into DIR (default: ./RUN) and compare them with their checksums.

    Results lie in DIR itself; below g1, g2, … only where the run has results of several generations. With other kinds
    every file keeps its whole path. Repeat it after an interruption: what is here already is not fetched again. The
    last line says OK N/N, errors 0 only when every file is complete. CMD sees SPOT_RESULTS_DIR, the results' folder.
    """
    name = choose_run(client, run_id)
    listed, results_sha256, saved = _list(client, name, kinds)
    if not listed:
        _refuse_nothing(client, name, kinds, results_sha256)
    if results_sha256 is None and any(file.kind == "results" for file in listed):
        _tell_partial(name, saved, partial)
    listed = laid_out(listed, kinds)
    try:
        into = Destination(Path(folder or name))
    except (FileRefused, OSError) as error:
        why = "that is a file, not a folder" if isinstance(error, FileExistsError) else reason(error)
        text = f"Nothing was fetched into {folder or name}: {why}."
        raise CliError(text, FAILED, "PULL_REFUSED") from None
    try:
        pulled = _Pull(client, name, into)
        try:
            pulled.run(listed)
        except KeyboardInterrupt:
            again = shlex.join(["spot", "pull", name, *([folder] if folder else [])])
            output.note(f"\nLeft. The same command goes on where this one was: {again}")
            ctx.exit(DETACHED)
        if not pulled.errors:
            into.clear()
            if load_check is not None:
                pulled.check(load_check, results_folder(listed))
        if not pulled.errors and "results" in kinds:
            pulled.report(results_sha256, any(file.kind == "results" for file in listed))
    finally:
        into.close()
    total = len(listed)
    if pulled.errors:
        click.echo(f"FAILED {len(pulled.here)}/{total}, errors {pulled.errors}")
        ctx.exit(FAILED)
    click.echo(f"OK {total}/{total}, errors 0")


def _refuse_nothing(client: Client, name: str, kinds: Sequence[str], promised: str | None) -> None:
    """Raises CliError. A run that was verified without any result may wait for its pull: that is noted all the same."""
    empty = manifest_sha256(())
    if "results" in kinds and promised == empty:
        client.post(run_path(name, "pulled"), {"results_sha256": empty, "files": 0})
    text = f"{name} has no {' and no '.join(kinds)} now: nothing was fetched."
    raise CliError(text, NOT_FOUND, "NOTHING_TO_PULL", (f"what it is doing: spot show {name}",))


def _tell_partial(name: str, saved: Json | None, wanted_so: bool) -> None:
    """Results that are not verified are fetched only by who has asked for them. Raises CliError."""
    if not wanted_so:
        text = (
            f"The results of {safe(name)} are not verified, so nothing was fetched: they are those of a run that goes "
            f"on, or did not succeed. `spot pull {safe(name)} --partial` fetches them as they were saved last."
        )
        raise CliError(text, FAILED, "RESULTS_PARTIAL")
    text = f"The results of {safe(name)} are partial: they are not verified"
    if saved is not None:
        at = "" if saved["step"] is None else f" at step {saved['step']:,}"
        text += f", and were saved in attempt {saved['attempt']}{at}. What was written since is not among them"
    output.note(text + ".")
    for left in (saved or {}).get("left_out", []):
        output.note(f"Not as new as the rest: {safe(left['name'])}: {safe(left['why'])}")


def _list(client: Client, name: str, kinds: Sequence[str]) -> tuple[list[Wanted], str | None, Json | None]:
    """All files of these kinds, the hash of the verified results (None while there are none), and where partial ones
    come from."""
    files: list[Wanted] = []
    cursor: str | None = None
    while True:
        page = client.get(run_path(name, "files"), kind=list(kinds), page_size=1000, cursor=cursor)
        try:
            files += [wanted(entry, kinds) for entry in page["files"]]
            following, sha256 = page["next_cursor"], page["results_sha256"]
            saved = page.get("partial_results")
        except (KeyError, TypeError, ValueError):
            raise CliError("The list of files makes no sense: is this address a Spot Supervisor?",
                           FAILED, "NOT_A_SUPERVISOR") from None  # fmt: skip
        if following is None:
            return files, sha256, saved
        if len(files) > FILES_MAX or (cursor is not None and following <= cursor):
            raise CliError("The list of files does not end.", FAILED, "NOT_A_SUPERVISOR")
        cursor = following


class _Pull:
    """`here`: the files that are complete. `errors`: how many lines of trouble were told."""

    def __init__(self, client: Client, name: str, into: Destination) -> None:
        self._client, self._name, self._into = client, name, into
        self._lock = threading.Lock()
        self._bytes = 0
        self.here: list[FileEntry] = []
        self.errors = 0

    def run(self, listed: list[Wanted]) -> None:
        """Raises KeyboardInterrupt, when no thread is at work any more."""
        stop, total = threading.Event(), sum(file.size for file in listed)
        fetcher = Fetcher(self._client, self._name, self._into, stop, self._count)
        with ThreadPoolExecutor(AT_ONCE, "pull") as pool:
            try:
                waiting = iter(listed)
                open_: dict[Future[FileEntry], Wanted] = {}
                while True:
                    for file in islice(waiting, IN_HAND - len(open_)):
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
        else:
            self.trouble(f"{safe(file.path)}: {safe(reason(error))}")

    def trouble(self, text: str) -> None:
        self.errors += 1
        clear = "\r\x1b[K" if sys.stderr.isatty() else ""
        output.note(f"{clear}error: {text}")

    def check(self, command: str, results: str) -> None:
        """Proof by load: the user's command on what is here. `results`: their folder in DIR."""
        env = {**os.environ, "SPOT_RESULTS_DIR": str((self._into.folder / results).absolute())}
        done = subprocess.run(["/bin/sh", "-c", command], cwd=self._into.folder, env=env, check=False)
        if done.returncode != 0:
            self.trouble(f"--load-check ended with exit code {done.returncode}")

    def report(self, promised: str | None, any_files: bool) -> None:
        """Tell the supervisor that all results are here, by the hash of what is here."""
        if promised is None:
            if any_files:
                text = f"The results of {safe(self._name)} are not verified, so this is not noted as its pull."
                output.note(text)
            return
        names = [(entry.name.split("/", 2)[2], entry) for entry in self.here if entry.name.startswith("results/")]
        held = manifest_sha256(FileEntry(name, entry.size, entry.sha256) for name, entry in names)
        if held != promised:
            self.trouble("the results are others than the verified ones by now; pull again")
            return
        body: Json = {"results_sha256": held, "files": len(names)}
        try:
            self._client.post(run_path(self._name, "pulled"), body)
        except CliError as error:
            self.trouble(f"the files are here, but the supervisor did not note it: {safe(error.text)}")

    def _count(self, size: int) -> None:
        with self._lock:
            self._bytes += size

    def _show(self, files: int, total: int, last: bool = False) -> None:
        """One line that is written over, and only for a person at a terminal."""
        if not sys.stderr.isatty() or not files:
            return
        text = f"{len(self.here)} of {plural(files, 'file')}, {size_text(self._bytes)} of {size_text(total)}"
        place = f" in {safe(self._into.folder)}" if last else ""
        click.echo(f"\r\x1b[K{text}{place}", err=True, nl=last)
