"""Which files of a folder are code: everything but what its ignore files name, environments of Python and what
`spot pull` has fetched.

The patterns are git's. Each folder's .gitignore counts for what lies below it, then its .spotignore, which may also
take something back (`!data/small.csv`); the innermost file that says anything about a name decides. A folder that is
left out is not looked into. Ignore files above the packed folder do not count: the same tree is the same bundle
wherever it lies.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from supervisor.cli.exits import USAGE, CliError
from supervisor.cli.files.pulling import PULLED
from supervisor.contract.bundle import HINT, MAX_FILES, Member
from supervisor.images.ignoring import last_word, parsed

IGNORE_FILES = (".gitignore", ".spotignore")
ALWAYS = frozenset({".git"})
USUAL = ("__pycache__/",)  # may be taken back by `!__pycache__/`
# What lies in a folder -> what the folder is. Such a folder inside is left out, unless a pattern takes it back.
NO_CODE = {
    "pyvenv.cfg": "a virtual environment",
    "conda-meta": "a conda environment",
    PULLED: "pulled results",
}
MAX_SEEN = 20 * MAX_FILES  # names; a folder with more is not code
_KINDS = {stat.S_IFSOCK: "socket", stat.S_IFIFO: "pipe", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}

Mark = tuple[int, int, int, int]
Rules = tuple[str, GitIgnoreSpec]  # the folder they stand in, "" or with a slash at its end


@dataclass(frozen=True)
class Found:
    """`mark` tells whether the file is still the one that was found; (0, …) for a link."""

    member: Member
    mark: Mark


def walk(folder: Path, left_out: list[str] | None = None) -> Iterator[Found]:
    """Files and links to pack, in no order. `left_out` gets a text for each folder that is no code by what it holds.
    Raises CliError for what cannot travel, and where a folder cannot be read."""
    seen = 0
    waiting: list[tuple[str, tuple[Rules, ...], bool]] = [("", (("", parsed(USUAL)),), True)]
    while waiting:
        inside, above, taken_back = waiting.pop()
        entries = _entries(folder, inside)
        kind = None if taken_back else _no_code({entry.name for entry in entries})
        if kind is not None:
            if left_out is not None:
                left_out.append(f"{inside} ({kind})")
            continue
        rules = (*above, *_rules(folder, inside, entries))
        for entry in entries:
            seen += 1
            if seen > MAX_SEEN:
                raise CliError(f"{folder} holds more than {MAX_SEEN:,} files. {HINT}.", USAGE, "CODE_REFUSED")
            path, is_folder = inside + entry.name, entry.is_dir(follow_symlinks=False)
            said = _last_word(path + "/" if is_folder else path, rules)
            if entry.name in ALWAYS or said:
                continue
            if is_folder:
                waiting.append((path + "/", rules, said is False))
            else:
                yield _found(folder, path, entry)


def mark(seen: os.stat_result) -> Mark:
    return seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_mode


def _entries(folder: Path, inside: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder / inside) as entries:
            return list(entries)
    except OSError as error:
        raise CliError(
            f"{folder / inside} cannot be read: {error.strerror}.", USAGE, "CODE_REFUSED"
        ) from None


def _rules(folder: Path, inside: str, entries: Sequence[os.DirEntry[str]]) -> Iterator[Rules]:
    names = {entry.name for entry in entries}
    lines: list[str] = []
    for name in IGNORE_FILES:
        if name in names:
            path = folder / inside / name
            try:
                if not path.is_file():  # a pipe would be waited for, a device has no end
                    raise CliError(f"{path} is not a file.", USAGE, "CODE_REFUSED")
                text = path.read_text(encoding="utf-8", errors="surrogateescape")  # any line end is \n here
            except OSError as error:
                raise CliError(f"{path} cannot be read: {error.strerror}.", USAGE, "CODE_REFUSED") from None
            lines += text.split("\n")
    try:
        if lines:
            yield inside, parsed(lines)
    except ValueError as error:
        where = folder / inside
        raise CliError(
            f"An ignore file in {where} holds no pattern of git: {error}", USAGE, "CODE_REFUSED"
        ) from None


def _no_code(names: set[str]) -> str | None:
    """What a folder is that holds these names, where it is one that programs make and nobody writes code in."""
    return next((kind for name, kind in NO_CODE.items() if name in names), None)


def _last_word(path: str, rules: Sequence[Rules]) -> bool | None:
    """True: left out, False: taken back, None: no pattern names it. `path` with a slash at its end for a folder. The
    last pattern that names the path itself decides. One that names a folder above it does not count: we would not be
    here if it had left that folder out, and if it took it back, that was not meant for everything below."""
    for inside, spec in reversed(rules):
        said = last_word(path[len(inside) :], spec)
        if said is not None:
            return said
    return None


def _found(folder: Path, path: str, entry: os.DirEntry[str]) -> Found:
    try:
        seen = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(seen.st_mode):
            return Found(Member(path, link=os.readlink(folder / path)), (0, 0, 0, 0))
    except OSError as error:
        raise CliError(f"{folder / path} cannot be read: {error.strerror}.", USAGE, "CODE_REFUSED") from None
    if not stat.S_ISREG(seen.st_mode):
        kind = _KINDS.get(stat.S_IFMT(seen.st_mode), "special file")
        text = f"{folder / path} is a {kind}, which cannot travel. Remove it, or name it in .spotignore."
        raise CliError(text, USAGE, "CODE_REFUSED")
    return Found(Member(path, seen.st_size, bool(seen.st_mode & 0o100)), mark(seen))
