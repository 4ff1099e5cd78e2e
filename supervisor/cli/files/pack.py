"""A folder as a code bundle: which files travel, and bytes that depend on nothing but them.

Code is everything but what the folder's ignore files name, environments of Python and what `spot pull` has fetched. The
patterns are git's. Each folder's .gitignore counts for what lies below it, then its .spotignore, which may also take
something back (`!data/small.csv`); the innermost file that says anything about a name decides. A folder that is left
out is not looked into. Ignore files above the packed folder do not count: the same tree is the same bundle wherever it
lies.

Equal trees give equal archives: sorted names, no times, no owners, two modes. Left out are .git and __pycache__, too,
and folders in which nothing is left. The gzip is written in pieces: one that does not shrink is stored, which is what
makes packing quick.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import tarfile
import tempfile
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pathspec import GitIgnoreSpec

from supervisor.cli.exits import FAILED, USAGE, CliError
from supervisor.cli.files.pulling import PULLED
from supervisor.contract.bundle import HINT, MAX_BYTES, MAX_FILES, BundleRefused, Member, Tree
from supervisor.domain.bundle_index import BundleIndex, crlf_problem, holds_crlf
from supervisor.images.context import last_word, parsed
from supervisor.wording.figures import size_text

IGNORE_FILES = (".gitignore", ".spotignore")
ALWAYS = frozenset({".git"})
USUAL = ("__pycache__/",)  # may be taken back by `!__pycache__/`
# What lies in a folder -> what the folder is. Such a folder inside is left out, unless a pattern takes it back.
NO_CODE = {"pyvenv.cfg": "a virtual environment", "conda-meta": "a conda environment", PULLED: "pulled results"}
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
                yield _read_entry(folder, path, entry)


def mark(seen: os.stat_result) -> Mark:
    return seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_mode


def _entries(folder: Path, inside: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder / inside) as entries:
            return list(entries)
    except OSError as error:
        raise CliError(f"{folder / inside} cannot be read: {error.strerror}.", USAGE, "CODE_REFUSED") from None


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
        raise CliError(f"An ignore file in {where} holds no pattern of git: {error}", USAGE, "CODE_REFUSED") from None


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


def _read_entry(folder: Path, path: str, entry: os.DirEntry[str]) -> Found:
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


REFUSED = "CODE_REFUSED"
_PIECE_BYTES = 1 << 20
_SAMPLE_BYTES = 1 << 14
_WORTH_IT = 0.9  # of its size: a piece that stays larger is stored
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no name, no time, no system
_LAST_BLOCK = b"\x03\x00"
_SHOWN = 5
_NEARLY_ALL = 0.9
_IN_MEMORY_BYTES = 16_000_000
_THREADS, _WAITING = 2, 4  # who compress, and how many pieces may wait for it


@dataclass(frozen=True)
class Packed:
    """`file` holds the gzip, at its beginning; it lives as long as the `with`. `left_out`: folders that are no code,
    such as `.venv/ (a virtual environment)`."""

    index: BundleIndex
    file: IO[bytes]
    left_out: tuple[str, ...] = ()


@contextmanager
def packed(folder: Path) -> Iterator[Packed]:
    """The bundle of what lies in `folder`. Raises CliError where the folder cannot travel, naming the file."""
    left_out: list[str] = []
    files = _checked(folder, sorted(walk(folder, left_out), key=lambda file: os.fsencode(file.member.path)))
    try:
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
            with ThreadPoolExecutor(_THREADS) as pool:
                archive = _Archive(file, pool)
                broken = [source.member.path for source in files if _add(archive, folder, source)]
                if broken:
                    raise CliError(f"{folder}: {crlf_problem(broken)}", USAGE, REFUSED)
                sha256 = archive.close()
            size = file.tell()
            file.seek(0)
            yield Packed(
                BundleIndex.of(sha256, (source.member for source in files), size), file, tuple(sorted(left_out))
            )
    except OSError as error:  # of the temporary file: those of the folder are told where they happen
        place = f"{tempfile.gettempdir()}: {error.strerror}"
        text = f"The bundle of {folder} cannot be written to {place}. Free some space there, or set TMPDIR."
        raise CliError(text, FAILED, REFUSED) from None


def _checked(folder: Path, files: list[Found]) -> list[Found]:
    if not files:
        raise CliError(f"There is nothing in {folder} to pack (or .gitignore names all of it).", USAGE, REFUSED)
    size = sum(file.member.size for file in files)
    if size > MAX_BYTES or len(files) > MAX_FILES:
        what = f"{len(files):,} files, {size / 1e6:,.0f} MB"
        text = f"{folder} holds {what}; a code bundle has at most {MAX_FILES:,} files and {MAX_BYTES // 1_000_000} MB."
        raise CliError(text, USAGE, REFUSED, (*_largest(files, by_size=size > MAX_BYTES), f"{HINT}."))
    tree = Tree()
    for file in files:
        try:
            tree.add(file.member)
        except BundleRefused as error:
            raise CliError(f"{folder}: {error}.", USAGE, REFUSED) from None
    return files


def _largest(files: list[Found], by_size: bool) -> Iterator[str]:
    """The largest folders and files of the top, by bytes or by number of files; where one folder inside holds nearly
    all, that one."""
    sizes: dict[str, tuple[int, int]] = {}
    for file in files:
        parts = file.member.path.split("/")
        for depth in range(1, len(parts) + 1):
            name = "/".join(parts[:depth]) + ("/" if depth < len(parts) else "")
            size, number = sizes.get(name, (0, 0))
            sizes[name] = size + file.member.size, number + 1
    at = 0 if by_size else 1
    top = [name for name in sizes if "/" not in name.rstrip("/")]
    for name in sorted(top, key=lambda name: sizes[name][at], reverse=True)[:_SHOWN]:
        if sizes[name][at] * 100 < sum(sizes[other][at] for other in top):
            break  # leaving it out would not help
        deep = _deepest(name, {other: both[at] for other, both in sizes.items()})
        size, number = sizes[deep]
        yield f"  {size_text(size):>8}  {deep}" + (f"  ({number:,} files)" if deep.endswith("/") else "")


def _deepest(name: str, weights: dict[str, int]) -> str:
    while name.endswith("/"):
        heavy = [
            other
            for other in weights
            if other.startswith(name)
            and other.endswith("/")
            and other.count("/") == name.count("/") + 1
            and weights[other] >= _NEARLY_ALL * weights[name]
        ]
        if len(heavy) != 1:
            break
        name = heavy[0]
    return name


def _add(archive: _Archive, folder: Path, file: Found) -> bool:
    """True for a shell script with Windows line ends."""
    member = file.member
    info = tarfile.TarInfo(member.path)
    if member.link is not None:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, member.link, 0o777
        archive.write(info.tobuf(tarfile.PAX_FORMAT))
        return False
    info.size, info.mode = member.size, 0o755 if member.executable else 0o644
    archive.write(info.tobuf(tarfile.PAX_FORMAT))
    content = _content(folder, file, archive)
    broken = member.path.endswith(".sh") and holds_crlf(content)
    for _ in content:
        pass
    archive.write(b"\0" * (-member.size % tarfile.BLOCKSIZE))
    return broken


def _content(folder: Path, file: Found, archive: _Archive) -> Iterator[bytes]:
    """The file's bytes on their way into the archive. Raises CliError when it is not the file that was found."""
    path = folder / file.member.path
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}.", USAGE, REFUSED) from None
    with os.fdopen(descriptor, "rb", buffering=0) as source:
        left = file.member.size
        while left:
            try:
                piece = source.read(min(left, _PIECE_BYTES))
            except OSError as error:
                raise CliError(f"{path} cannot be read: {error.strerror}.", USAGE, REFUSED) from None
            if not piece:
                break
            left -= len(piece)
            archive.write(piece)
            yield piece
        after = os.fstat(descriptor)
        if left or mark(after) != file.mark:
            advice = "Submit again when nothing writes there, or name it in .spotignore."
            raise CliError(f"{path} changed while it was packed. {advice}", USAGE, REFUSED)


class _Archive:
    """A tar, hashed and gzipped on its way into `sink`; the pieces are compressed beside the reading."""

    def __init__(self, sink: IO[bytes], pool: Executor) -> None:
        self._sink, self._pool = sink, pool
        self._deflated: deque[Future[bytes]] = deque()
        self._sha256 = hashlib.sha256()
        self._crc, self._size = 0, 0
        self._waiting: list[bytes] = []
        self._waits = 0
        sink.write(_HEADER)

    def write(self, data: bytes) -> None:
        self._waiting.append(data)
        self._waits += len(data)
        if self._waits >= _PIECE_BYTES:
            self._flush()

    def close(self) -> str:
        """Ends the archive; its sha256."""
        total = self._size + self._waits + 2 * tarfile.BLOCKSIZE
        self.write(b"\0" * (2 * tarfile.BLOCKSIZE + -total % tarfile.RECORDSIZE))
        self._flush()
        self._put(0)
        self._sink.write(_LAST_BLOCK + struct.pack("<LL", self._crc, self._size & 0xFFFFFFFF))
        return self._sha256.hexdigest()

    def _flush(self) -> None:
        piece = b"".join(self._waiting)
        self._waiting, self._waits = [], 0
        self._sha256.update(piece)
        self._crc = zlib.crc32(piece, self._crc)
        self._size += len(piece)
        self._deflated.append(self._pool.submit(_deflate, piece))
        self._put(_WAITING)

    def _put(self, leave: int) -> None:
        while len(self._deflated) > leave:
            self._sink.write(self._deflated.popleft().result())


def _deflate(piece: bytes) -> bytes:
    """Deflated by itself up to a byte's end, so that pieces of different kinds make one stream."""
    deflate = zlib.compressobj(1 if _shrinks(piece) else 0, zlib.DEFLATED, -zlib.MAX_WBITS)
    return deflate.compress(piece) + deflate.flush(zlib.Z_SYNC_FLUSH)


def _shrinks(piece: bytes) -> bool:
    middle = len(piece) // 2
    sample = piece[:_SAMPLE_BYTES] + piece[middle : middle + _SAMPLE_BYTES]
    return len(zlib.compress(sample, 1)) < _WORTH_IT * len(sample)
