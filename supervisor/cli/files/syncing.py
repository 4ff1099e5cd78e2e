"""sync: a folder and the code of a living run in step, through the object store: no SSH, no open port.

The supervisor lists the files of the run's code with their checksums. What differs in the folder is sent as one delta,
and the machine applies it whole. The folder is read by the rules of a bundle (pack.py): what is not sent at a submit is
not sent here. A file is removed from the code only where it is gone from the folder: one that is left out by now stays
as it was.

With --watch the system reports changes, so nothing is read while nothing changes. A few changed files are looked at by
name; after many, after a change of the ignore rules and from time to time the whole folder is. A file that changes
while it is read is sent with the next delta.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from supervisor.cli import output
from supervisor.cli.client import PIECE_BYTES, Client, Json, run_path
from supervisor.cli.exits import USAGE, CliError, Problem, Unreachable
from supervisor.cli.files.pack import ALWAYS, IGNORE_FILES, Source, archived, found_files, is_left_out, source_at
from supervisor.cli.finding import choose_run
from supervisor.cli.options import not_empty, run_argument, server_options, yes_option
from supervisor.cli.output import note, safe
from supervisor.contract.bundle import LINK, BundleRefused, Delta, Member, Opened, encode_delta
from supervisor.wording.figures import plural, size_text

APPLIED_S = 60.0  # a machine applies a delta with its next beat
ATTEND_S = 60.0  # so often a watch asks for the revision: beats come fast meanwhile
POLL_S = 0.5
TRIES = 5  # against other people who sync the same run
FEW = 200  # changed files that are looked at by name
DEBOUNCE_MS, WAKE_MS = 200, 1000
RESCAN_S, AGAIN_S = 600.0, 3.0  # the system may drop reports; after a failure
UNWATCHED_S = 10.0  # between two looks at a folder that the system cannot watch
MISSING = 0.5  # a folder without this share of the code is probably another one
ORIG = ".orig"


@click.command()
@run_argument
@click.argument("folder", metavar="[DIR]", required=False, callback=not_empty)
@click.option("--watch", is_flag=True, help="Go on sending what changes, until Ctrl-C.")
@click.option("--back", is_flag=True, help="Fetch what the machine has changed into DIR instead.")
@click.option("--path", "paths", multiple=True, metavar="PATH", help="With --back: only this part; repeatable.")
@click.option("--list", "lists", is_flag=True, help="Only show which attempt began with which revision.")
@yes_option("Also where most files of the code are missing in DIR.")
@server_options
def sync(
    *,
    client: Client,
    run_id: str | None,
    folder: str | None,
    watch: bool,
    back: bool,
    paths: tuple[str, ...],
    lists: bool,
    yes: bool,
) -> None:
    """Send what changed in DIR (default: here) to the code of a living run; with --back the other way.

    Its machine gets whole files, usually within two seconds and one beat; the next attempt starts from them. A file
    that was changed on both sides is kept as NAME.orig where the other one arrives. What a command has loaded already
    stays as it is.
    """
    name = choose_run(client, run_id)
    if back:
        bring_back(client, name, Path(folder or "."), paths)
        return
    if lists:
        show_revisions(client.get(run_path(name, "code")))
        return
    syncing = Syncing(client, name, Local(Path(folder or ".")))
    syncing.begin(yes)
    if not watch:
        if not syncing.send():
            note(f"Nothing differs from revision {syncing.revision}.")
        syncing.wait()
        return
    with output.detaching(f"Left. {name} keeps revision {syncing.revision} and what was sent since."):
        syncing.follow()


def show_revisions(code: Json) -> None:
    lines = [f"revision {code['revision']} of code {safe(code['code'][:12])}, git {safe(code['git'] or 'unknown')}"]
    for attempt in code["attempts"]:
        moved = f", now {attempt['revision']}" if attempt["revision"] != attempt["began"] else ""
        lines.append(f"attempt {attempt['attempt']}: began with revision {attempt['began']}{moved}")
        lines += [f"  kept on its machine: {safe(path)}" for path in attempt["kept"]]
    output.show(lines)


@dataclass
class Local:
    """A folder as a bundle would hold it. `seen`: path -> (the file, its content as in a delta's list)."""

    folder: Path
    seen: dict[str, tuple[Source, str]] = field(default_factory=dict)

    def scan(self) -> None:
        """Look at everything; a file whose mark is the same is not read again. Raises CliError."""
        if not self.folder.is_dir():
            raise CliError(f"{self.folder} is not a folder.", USAGE, "CODE_REFUSED")
        before = self.seen
        sources = found_files(self.folder)
        self.seen = {source.member.path: (source, self._content(source, before)) for source in sources}

    def look(self, paths: set[str]) -> None:
        """Look at these paths below the folder. Raises CliError."""
        if len(paths) > FEW or any(self._is_more(path) for path in paths):
            self.scan()
            return
        for path in paths:
            source = source_at(self.folder, path)
            if source is not None:
                self.seen[path] = source, self._content(source, self.seen)
            elif self.seen.pop(path, None) is None and not os.path.lexists(self.folder / path):
                for inside in [each for each in self.seen if each.startswith(path + "/")]:
                    del self.seen[inside]

    def _is_more(self, path: str) -> bool:
        """Other files may be in the bundle, or out of it, since this path has changed."""
        name, whole = path.rpartition("/")[2], self.folder / path
        return name in IGNORE_FILES or (whole.is_dir() and not whole.is_symlink())

    def _content(self, source: Source, before: dict[str, tuple[Source, str]]) -> str:
        path, last = self.folder / source.member.path, before.get(source.member.path)
        if source.member.link is not None:
            return LINK + source.member.link
        if last is not None and last[0] == source:
            return last[1]
        try:
            with open(path, "rb", opener=_opened) as content:
                return hashlib.file_digest(content, "sha256").hexdigest()
        except OSError as error:  # it has changed since it was found, so its mark differs when it is packed
            return f"unread: {error}"

    def is_gone(self, path: str) -> bool:
        """Not merely left out."""
        whole = self.folder / path
        return not os.path.lexists(whole) or (whole.is_dir() and not whole.is_symlink())

    def commit(self) -> str:
        """Of git; "" = it is not known."""
        git = shutil.which("git")
        words = ["describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"]
        if git is None:
            return ""
        with suppress(OSError, subprocess.SubprocessError):
            command = [git, "-C", str(self.folder), *words]
            return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
        return ""


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


@dataclass
class Syncing:
    """`files`: the newest revision of the run's code, by path. `waits`: the machine has not applied it yet."""

    client: Client
    name: str
    local: Local
    revision: int = 0
    files: dict[str, Json] = field(default_factory=dict)
    waits: bool = False
    sent_at: float = 0.0
    looked_at: float = float("-inf")
    kept: set[str] = field(default_factory=set)

    def begin(self, yes: bool) -> None:
        """Raises CliError, Problem, Unreachable."""
        self.local.scan()
        self._read()
        missing = sum(1 for path in self.files if path not in self.local.seen)
        if missing > MISSING * len(self.files) and not yes:
            text = f"{self.local.folder.resolve()} has {len(self.files) - missing:,} of the {len(self.files):,} files "
            text += f"of the code of {self.name}: it seems to be another folder. Nothing was sent."
            raise CliError(text, USAGE, "CODE_REFUSED", ("name the folder that was submitted, or use --yes",))

    def _read(self) -> None:
        tree = self.client.get(run_path(self.name, "code", "files"))
        self.revision, self.files = tree["revision"], {file["path"]: file for file in tree["files"]}

    def delta(self) -> tuple[Delta, list[Source]]:
        changed: dict[str, tuple[str, ...]] = {}
        for path, (source, content) in self.local.seen.items():
            file = self.files.get(path)
            if file is None or (file["content"], file["executable"]) != (content, source.member.executable):
                changed[path] = () if file is None else (file["content"],)
        removed = {
            path: (file["content"],)
            for path, file in self.files.items()
            if path not in self.local.seen and self.local.is_gone(path)
        }
        return Delta(changed, removed), [self.local.seen[path][0] for path in sorted(changed)]

    def send(self) -> bool:
        """False: nothing differs. Raises CliError (a file changed meanwhile), Problem, Unreachable."""
        for _ in range(TRIES):
            delta, sources = self.delta()
            if not delta.changed and not delta.removed:
                return False
            try:
                self._put(delta, sources)
                return True
            except Problem as error:
                if error.code != "SYNC_CONFLICT":
                    raise
                self._read()
        raise CliError(f"The code of {self.name} kept changing; nothing was sent. Retry.", code="SYNC_CONFLICT")

    def _put(self, delta: Delta, sources: list[Source]) -> None:
        with archived(self.local.folder, sources, encode_delta(delta)) as (_, file, size):
            headers = {"Content-Type": "application/gzip", "Content-Length": str(size)}
            path, params = run_path(self.name, "code", str(self.revision + 1)), {"git": self.local.commit() or None}
            try:
                self.client.send("PUT", path, params, headers=headers, content=file)
            except Unreachable as error:
                if not error.sent:
                    raise
                file.seek(0)  # the response was lost; the same delta again changes nothing
                self.client.send("PUT", path, params, headers=headers, content=file)
        self.revision += 1
        self.waits, self.sent_at = True, time.monotonic()
        for gone in delta.removed:
            del self.files[gone]
        for member in (source.member for source in sources):
            self.files[member.path] = {"content": self.local.seen[member.path][1], "executable": member.executable}
        what = f"{plural(len(delta.changed), 'file')} changed, {len(delta.removed)} removed, {size_text(size)}"
        note(f"revision {self.revision}: {what}")

    def wait(self) -> None:
        """Until the machine has the newest revision, for APPLIED_S at most. Raises Problem, Unreachable."""
        while self.waits:
            self.look()
            if self.waits:
                time.sleep(POLL_S)

    def look(self) -> None:
        """Whether the machine has the newest revision; what it kept is shown once."""
        if not self.waits and time.monotonic() - self.looked_at < ATTEND_S:
            return
        self.looked_at = time.monotonic()
        attempts = self.client.get(run_path(self.name, "code"))["attempts"]
        if not self.waits:
            return
        newest: Json = attempts[-1] if attempts else {"revision": 0, "kept": []}
        took_s = time.monotonic() - self.sent_at
        if newest["revision"] >= self.revision:
            note(f"revision {self.revision} is on the machine of attempt {newest['attempt']} ({took_s:.1f} s)")
            for path in (path for path in newest["kept"] if path not in self.kept):
                note(f"  its machine had changed that file too: {safe(path)} there is its own")
            self.kept.update(newest["kept"])
            self.waits = False
        elif took_s > APPLIED_S or self.client.run(self.name)["status"] != "running":
            note(f"revision {self.revision} is not on a machine yet: the next attempt starts from it at the latest")
            self.waits = False

    def follow(self) -> None:
        """Send what changes, until the run ends. Raises CliError, Problem, and KeyboardInterrupt."""
        note(f"watching {self.local.folder.resolve()} for {self.name} (Ctrl-C leaves)")
        is_dirty, trouble, scanned_at = True, "", float("-inf")
        for paths in watched(self.local.folder):
            try:
                if time.monotonic() - scanned_at > RESCAN_S:
                    scanned_at, is_dirty = time.monotonic(), True
                    self.local.scan()
                elif paths:
                    is_dirty = True
                    self.local.look(paths)
                if is_dirty:
                    self.send()
                is_dirty = False
                self.look()
            except CliError as error:
                if isinstance(error, Problem) and error.code in ("RUN_ENDED", "RUN_NOT_FOUND", "FILES_PURGED"):
                    raise
                if not isinstance(error, Unreachable):  # a file has changed while it was read: look at all again
                    scanned_at = min(scanned_at, time.monotonic() - RESCAN_S + AGAIN_S)
                if error.text != trouble:
                    note(f"not sent yet: {error.text}")
                trouble = error.text
            else:
                trouble = ""


def watched(folder: Path) -> Iterator[set[str]]:
    """Paths below the folder that have changed, {} now and then; endless."""
    import watchfiles  # late: the other commands start without it

    top = str(folder.resolve())

    def matters(change: object, path: str) -> bool:
        return ALWAYS.isdisjoint(path[len(top) :].split("/"))

    try:
        changes = watchfiles.watch(
            top, watch_filter=matters, debounce=DEBOUNCE_MS, rust_timeout=WAKE_MS, yield_on_timeout=True
        )
        for batch in changes:
            yield {os.path.relpath(path, top) for _, path in batch} - {"."}
    except OSError as error:  # such as too many folders for the system
        note(f"The system cannot watch {folder} ({error}): it is read every {UNWATCHED_S:g} s instead.")
        while True:
            yield {"."}
            time.sleep(UNWATCHED_S)


# --- back -------------------------------------------------------------------------------------------------------------


def bring_back(client: Client, name: str, folder: Path, paths: tuple[str, ...]) -> None:
    """Fetch the files of the code that the machine has changed. A file that was changed here since the last sync is
    kept as NAME.orig. Nothing is removed here. Raises CliError, Problem, Unreachable."""
    sent = client.post(run_path(name, "code", "collected"), {"paths": list(paths)})
    path = run_path(name, "commands", sent["command_id"])
    with output.detaching("Left: nothing was fetched."):
        while True:
            result = client.patiently(lambda: client.get(path))
            if result["state"] not in ("waiting", "running"):
                break
            time.sleep(POLL_S)
    if result["state"] != "done":
        raise CliError(f"The machine of {name} did not send its files: {safe(result['text'])}.", code="SYNC_REFUSED")
    if not result["files"]:
        note(f"The machine of {name} has changed nothing of its code.")
        return
    synced = {file["path"]: file["content"] for file in client.get(run_path(name, "code", "files"))["files"]}
    with client.stream(f"{path}/files", {}) as response:
        _unpack(iter(partial(response.read, PIECE_BYTES), b""), folder, synced)


def _unpack(pieces: Iterator[bytes], folder: Path, synced: dict[str, str]) -> None:
    """`synced`: path -> content at the last sync. Raises CliError."""
    folder.mkdir(parents=True, exist_ok=True)
    came: list[str] = []
    left_out = 0
    try:
        for member, content in Opened(pieces).files():
            if member.link is not None or is_left_out(folder, member.path):
                left_out += 1
                for _ in content:
                    pass
            elif _arrived(folder, member, content, synced.get(member.path)):
                came.append(member.path)
    except BundleRefused as error:
        raise CliError(f"What the machine sent is refused: {error}.", code="SYNC_REFUSED") from None
    except OSError as error:
        raise CliError(f"{error.filename or folder}: {error.strerror}.", code="SYNC_REFUSED") from None
    output.show(map(safe, came))
    also = f"; {left_out} left out by the ignore rules" if left_out else ""
    note(f"{plural(len(came), 'file')} of the machine came into {safe(folder)}{also}")


def _arrived(folder: Path, member: Member, content: Iterator[bytes], synced: str | None) -> bool:
    """False: the same is here already. Raises BundleRefused, OSError."""
    target = folder / member.path
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise BundleRefused(f"a link here leads {member.path!r} out of the folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{hashlib.sha256(member.path.encode()).hexdigest()[:16]}.spot-part")
    digest = hashlib.sha256()
    part.unlink(missing_ok=True)
    try:
        mode = 0o755 if member.executable else 0o644
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
            for piece in content:
                digest.update(piece)
                file.write(piece)
        here = _content_here(target)
        if here == digest.hexdigest():
            return False
        if here not in (None, synced):
            os.replace(target, f"{target}{ORIG}")
            note(f"{safe(member.path)} was changed here too: yours is {safe(member.path)}{ORIG}")
        os.replace(part, target)
        return True
    finally:
        part.unlink(missing_ok=True)


def _content_here(path: Path) -> str | None:
    if path.is_symlink():
        return LINK + os.readlink(path)
    with suppress(FileNotFoundError), open(path, "rb", opener=_opened) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
    return None
