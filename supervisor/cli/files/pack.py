"""A folder as a code bundle: which files it holds, and bytes that depend on these files alone.

Code is everything but what the ignore files name, Python environments, and what `spot pull` has fetched. The patterns
are git's. Each folder's .gitignore applies to what lies below it, then its .spotignore, which may also take a file back
(`!data/small.csv`); the innermost file with a matching pattern decides. A folder that is left out is not entered.
Ignore files above the packed folder do not apply: the same tree is the same bundle wherever it lies.

Equal trees give equal archives: sorted names, no times, no owners, two modes. .git, __pycache__, empty folders and the
usual files of secrets are left out. The gzip is written in pieces, and a piece that does not shrink is stored, which
makes packing fast.
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
from supervisor.contract.bundle import DELTA, HINT, MAX_BYTES, MAX_FILES, BundleRefused, Member, Tree
from supervisor.domain.bundle_index import BundleIndex, crlf_problem, holds_crlf
from supervisor.images.context import last_word, parsed
from supervisor.wording.figures import size_text

IGNORE_FILES = (".gitignore", ".spotignore")
ALWAYS = frozenset({".git", DELTA})
SECRETS = (".env", ".env.local", ".netrc", ".git-credentials", "id_rsa", "id_ed25519")
USUAL = ("__pycache__/", *SECRETS)  # `!__pycache__/` takes it back
# A name in a folder -> what the folder is. Such a folder inside is left out, unless a pattern takes it back.
NO_CODE = {"pyvenv.cfg": "a virtual environment", "conda-meta": "a conda environment", PULLED: "pulled results"}
MAX_NAMES = 20 * MAX_FILES  # a folder with more is not code
_KINDS = {stat.S_IFSOCK: "socket", stat.S_IFIFO: "pipe", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}
_LARGEST_SHOWN = 5
_NEARLY_ALL = 0.9
_IN_MEMORY_BYTES = 16_000_000
_THREADS, _WAITING = 2, 4  # compressing threads, and pieces that wait for them
_PIECE_BYTES = 1 << 20
_SAMPLE_BYTES = 1 << 14
_WORTH_IT = 0.9  # a piece that does not shrink below this part of its size is stored
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no name, no time, no system
_LAST_BLOCK = b"\x03\x00"

Mark = tuple[int, int, int, int]
Rules = tuple[str, GitIgnoreSpec]  # the folder of the ignore files, "" or with a slash at its end


@dataclass(frozen=True)
class Source:
    """A file or link of the folder. `mark` changes with the file; (0, …) for a link."""

    member: Member
    mark: Mark


@dataclass(frozen=True)
class Packed:
    """`file`: the gzip, positioned at its beginning, for as long as the `with`. `left_out`: folders that are no code,
    such as `.venv/ (a virtual environment)`."""

    index: BundleIndex
    file: IO[bytes]
    left_out: tuple[str, ...] = ()


@contextmanager
def packed(folder: Path) -> Iterator[Packed]:
    """The bundle of `folder`. Raises CliError, which names the file, where the folder cannot be packed."""
    left_out: list[str] = []
    sources = found_files(folder, left_out)
    with archived(folder, sources) as (sha256, file, size):
        index = BundleIndex.of(sha256, (source.member for source in sources), size)
        yield Packed(index, file, tuple(sorted(left_out)))


def found_files(folder: Path, left_out: list[str] | None = None) -> list[Source]:
    """What `walk` finds, in the order of an archive. Raises CliError, also for a folder that no bundle can hold."""
    return _checked(folder, sorted(walk(folder, left_out), key=lambda source: os.fsencode(source.member.path)))


@contextmanager
def archived(
    folder: Path, sources: Sequence[Source], first: bytes | None = None
) -> Iterator[tuple[str, IO[bytes], int]]:
    """(sha256 of the tar, its gzip, bytes of the gzip), for as long as the `with`. `first`: the list of a delta, its
    first member. Raises CliError."""
    try:
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
            with ThreadPoolExecutor(_THREADS) as pool:
                archive = _Archive(file, pool)
                if first is not None:
                    archive.add_list(first)
                broken = [source.member.path for source in sources if _add(archive, folder, source)]
                if broken:
                    raise _refused(f"{folder}: {crlf_problem(broken)}")
                sha256 = archive.close()
            size = file.tell()
            file.seek(0)
            yield sha256, file, size
    except OSError as error:  # of the temporary file; errors of the folder are converted where they happen
        target = f"{tempfile.gettempdir()}: {error.strerror}"
        text = f"The bundle of {folder} cannot be written to {target}. Free some space there, or set TMPDIR."
        raise CliError(text, FAILED, "CODE_REFUSED") from None


def _refused(text: str, *hints: str) -> CliError:
    return CliError(text, USAGE, "CODE_REFUSED", hints)


def _unreadable(path: Path, error: OSError) -> CliError:
    return _refused(f"{path} cannot be read: {error.strerror}.")


def walk(folder: Path, left_out: list[str] | None = None) -> Iterator[Source]:
    """Files and links to pack, in no order. `left_out` gets a text for each folder that is no code. Raises CliError for
    what cannot be packed, and where a folder cannot be read."""
    names = 0
    waiting: list[tuple[str, tuple[Rules, ...], bool]] = [("", (("", parsed(USUAL)),), True)]
    while waiting:
        inside, above, taken_back = waiting.pop()
        entries = _entries(folder, inside)
        kind = None if taken_back else _no_code({entry.name for entry in entries})
        if kind is not None:
            if left_out is not None:
                left_out.append(f"{inside} ({kind})")
            continue
        rules = (*above, *_rules(folder, inside, {entry.name for entry in entries}))
        for entry in entries:
            names += 1
            if names > MAX_NAMES:
                raise _refused(f"{folder} holds more than {MAX_NAMES:,} files. {HINT}.")
            path, is_folder = inside + entry.name, entry.is_dir(follow_symlinks=False)
            ignored = _ignored(path + "/" if is_folder else path, rules)
            if entry.name in ALWAYS or ignored:
                if left_out is not None and entry.name in SECRETS:
                    left_out.append(f"{path} (a file of secrets)")
                continue
            if is_folder:
                waiting.append((path + "/", rules, ignored is False))
            else:
                yield _source(folder, path)


def source_at(folder: Path, path: str) -> Source | None:
    """The file or link at `path` as `walk` finds it; None: there is none, or it is left out. Raises CliError."""
    whole = folder / path
    is_file = os.path.lexists(whole) and not _is_folder(whole)
    return _source(folder, path) if is_file and not is_left_out(folder, path) else None


def is_left_out(folder: Path, path: str) -> bool:
    """`walk` does not find this file, or would not if it were there. Raises CliError."""
    *folders, name = path.split("/")
    inside, is_taken_back = "", True
    rules: tuple[Rules, ...] = (("", parsed(USUAL)),)
    for part in (*folders, ""):
        names = {each for each in (*IGNORE_FILES, *NO_CODE) if os.path.lexists(folder / inside / each)}
        if not is_taken_back and _no_code(names) is not None:
            return True
        rules = (*rules, *_rules(folder, inside, names))
        below = inside + (f"{part}/" if part else name)
        ignored = _ignored(below, rules)
        if ignored or (part or name) in ALWAYS or (part and os.path.islink(folder / inside / part)):
            return True
        inside, is_taken_back = below, ignored is False
    return False


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _entries(folder: Path, inside: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder / inside) as entries:
            return list(entries)
    except OSError as error:
        raise _unreadable(folder / inside, error) from None


def _no_code(names: set[str]) -> str | None:
    """What a folder with these names is, where programs create it and no one writes code in it."""
    return next((kind for name, kind in NO_CODE.items() if name in names), None)


def _rules(folder: Path, inside: str, names: set[str]) -> Iterator[Rules]:
    lines: list[str] = []
    for name in IGNORE_FILES:
        if name in names:
            path = folder / inside / name
            try:
                if not path.is_file():  # reading a pipe would block, a device has no end
                    raise _refused(f"{path} is not a file.")
                text = path.read_text(encoding="utf-8", errors="surrogateescape")  # every line end is \n here
            except OSError as error:
                raise _unreadable(path, error) from None
            lines += text.split("\n")
    try:
        if lines:
            yield inside, parsed(lines)
    except ValueError as error:
        raise _refused(f"An ignore file in {folder / inside} holds no pattern of git: {error}") from None


def _ignored(path: str, rules: Sequence[Rules]) -> bool | None:
    """True: left out, False: taken back, None: no pattern matches. `path` with a slash at its end for a folder. The
    last pattern that matches the path itself decides. A pattern that matches a folder above it does not count: if it
    had left that folder out, we would not be here, and if it took it back, it did not mean everything below."""
    for inside, spec in reversed(rules):
        ignored = last_word(path[len(inside) :], spec)
        if ignored is not None:
            return ignored
    return None


def _source(folder: Path, path: str) -> Source:
    try:
        status = os.lstat(folder / path)
        if stat.S_ISLNK(status.st_mode):
            return Source(Member(path, link=os.readlink(folder / path)), (0, 0, 0, 0))
    except OSError as error:
        raise _unreadable(folder / path, error) from None
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "special file")
        raise _refused(f"{folder / path} is a {kind}, which cannot be packed. Remove it, or name it in .spotignore.")
    return Source(Member(path, status.st_size, bool(status.st_mode & 0o100)), _mark(status))


def _mark(status: os.stat_result) -> Mark:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def _checked(folder: Path, sources: list[Source]) -> list[Source]:
    if not sources:
        raise _refused(f"There is nothing in {folder} to pack (or .gitignore names all of it).")
    size = sum(source.member.size for source in sources)
    if size > MAX_BYTES or len(sources) > MAX_FILES:
        content = f"{len(sources):,} files, {size / 1e6:,.0f} MB"
        text = (
            f"{folder} holds {content}; a code bundle has at most {MAX_FILES:,} files and {MAX_BYTES // 1_000_000} MB."
        )
        raise _refused(text, *_largest(sources, by_size=size > MAX_BYTES), f"{HINT}.")
    tree = Tree()
    for source in sources:
        try:
            tree.add(source.member)
        except BundleRefused as error:
            raise _refused(f"{folder}: {error}.") from None
    return sources


def _largest(sources: list[Source], by_size: bool) -> Iterator[str]:
    """The largest folders and files at the top, by bytes or by number of files; where one folder inside holds nearly
    all of it, that folder."""
    sizes: dict[str, tuple[int, int]] = {}
    for source in sources:
        parts = source.member.path.split("/")
        for depth in range(1, len(parts) + 1):
            name = "/".join(parts[:depth]) + ("/" if depth < len(parts) else "")
            size, number = sizes.get(name, (0, 0))
            sizes[name] = size + source.member.size, number + 1
    weights = {name: both[0 if by_size else 1] for name, both in sizes.items()}
    top = [name for name in weights if "/" not in name.rstrip("/")]
    whole = sum(weights[name] for name in top)
    for name in sorted(top, key=lambda name: weights[name], reverse=True)[:_LARGEST_SHOWN]:
        if weights[name] * 100 < whole:
            break  # leaving it out would not help
        deep = _deepest(name, weights)
        size, number = sizes[deep]
        yield f"  {size_text(size):>8}  {deep}" + (f"  ({number:,} files)" if deep.endswith("/") else "")


def _deepest(name: str, weights: dict[str, int]) -> str:
    while name.endswith("/"):
        depth, least = name.count("/") + 1, _NEARLY_ALL * weights[name]
        heavy = [
            other
            for other in weights
            if other.startswith(name) and other.endswith("/") and other.count("/") == depth and weights[other] >= least
        ]
        if len(heavy) != 1:
            break
        name = heavy[0]
    return name


def _add(archive: _Archive, folder: Path, source: Source) -> bool:
    """True for a shell script with Windows line ends."""
    member = source.member
    info = tarfile.TarInfo(member.path)
    if member.link is not None:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, member.link, 0o777
        archive.write(info.tobuf(tarfile.PAX_FORMAT))
        return False
    info.size, info.mode = member.size, 0o755 if member.executable else 0o644
    archive.write(info.tobuf(tarfile.PAX_FORMAT))
    content = _content(folder, source, archive)
    broken = member.path.endswith(".sh") and holds_crlf(content)
    for _ in content:
        pass
    archive.write(b"\0" * (-member.size % tarfile.BLOCKSIZE))
    return broken


def _content(folder: Path, source: Source, archive: _Archive) -> Iterator[bytes]:
    """The bytes of the file on their way into the archive. Raises CliError where the file has changed."""
    path = folder / source.member.path
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(path, error) from None
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        left = source.member.size
        while left:
            try:
                piece = file.read(min(left, _PIECE_BYTES))
            except OSError as error:
                raise _unreadable(path, error) from None
            if not piece:
                break
            left -= len(piece)
            archive.write(piece)
            yield piece
        if left or _mark(os.fstat(descriptor)) != source.mark:
            advice = "Submit again when nothing writes there, or name it in .spotignore."
            raise _refused(f"{path} changed while it was packed. {advice}")


class _Archive:
    """A tar that is hashed and gzipped on its way into `sink`; threads compress the pieces while the next is read."""

    def __init__(self, sink: IO[bytes], pool: Executor) -> None:
        self._sink, self._pool = sink, pool
        self._deflated: deque[Future[bytes]] = deque()
        self._sha256 = hashlib.sha256()
        self._crc, self._size = 0, 0
        self._piece = bytearray()
        sink.write(_GZIP_HEADER)

    def write(self, data: bytes) -> None:
        self._piece += data
        if len(self._piece) >= _PIECE_BYTES:
            self._flush()

    def add_list(self, content: bytes) -> None:
        """The first member of a delta."""
        info = tarfile.TarInfo(DELTA)
        info.size, info.mode = len(content), 0o644
        self.write(info.tobuf(tarfile.PAX_FORMAT) + content + b"\0" * (-len(content) % tarfile.BLOCKSIZE))

    def close(self) -> str:
        """Ends the archive; its sha256."""
        total = self._size + len(self._piece) + 2 * tarfile.BLOCKSIZE
        self.write(b"\0" * (2 * tarfile.BLOCKSIZE + -total % tarfile.RECORDSIZE))
        self._flush()
        self._write_deflated(0)
        self._sink.write(_LAST_BLOCK + struct.pack("<LL", self._crc, self._size & 0xFFFFFFFF))
        return self._sha256.hexdigest()

    def _flush(self) -> None:
        piece = bytes(self._piece)
        self._piece.clear()
        self._sha256.update(piece)
        self._crc = zlib.crc32(piece, self._crc)
        self._size += len(piece)
        self._deflated.append(self._pool.submit(_deflate, piece))
        self._write_deflated(_WAITING)

    def _write_deflated(self, leave: int) -> None:
        while len(self._deflated) > leave:
            self._sink.write(self._deflated.popleft().result())


def _deflate(piece: bytes) -> bytes:
    """Deflated alone up to the end of a byte, so that pieces of different levels make one stream."""
    deflate = zlib.compressobj(1 if _shrinks(piece) else 0, zlib.DEFLATED, -zlib.MAX_WBITS)
    return deflate.compress(piece) + deflate.flush(zlib.Z_SYNC_FLUSH)


def _shrinks(piece: bytes) -> bool:
    middle = len(piece) // 2
    sample = piece[:_SAMPLE_BYTES] + piece[middle : middle + _SAMPLE_BYTES]
    return len(zlib.compress(sample, 1)) < _WORTH_IT * len(sample)
