"""A code bundle: the files of a folder as a tar inside a gzip, named by the sha256 of the tar.

Shared with the agent: Python 3.8, standard library only. Bytes come in, members come out; nothing here opens a file.
The command line packs by these rules, the service checks uploads by them, and the agent unpacks by them. None of the
three has to trust the others: no name and no link leads out of the folder, nothing is written through a link, and a few
bytes cannot become many gigabytes.

A delta changes an unpacked bundle: an archive of the same form, whose first member is a list. It names for each file
that is added, changed or removed which contents it had before, so that a machine recognizes a file of its own making.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
import zlib
from contextlib import contextmanager
from typing import IO, Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple, cast

MAX_BYTES = 100_000_000  # content of all files
MAX_FILES = 20_000
MAX_TAR_BYTES = MAX_BYTES + MAX_FILES * 4096  # headers, long names, padding
MAX_GZIP_BYTES = 120_000_000  # of an upload
MAX_PATH_BYTES, MAX_PART_BYTES = 1024, 255
DELTA = ".spot-delta.json"  # the list in a delta; no bundle has a file of this name
MAX_DELTA_BYTES = 8_000_000  # of this list
LINK = "link:"  # begins the content of a link; that of a file is its sha256
HINT = "Leave out what is not code by a line in .spotignore; data belongs elsewhere"

_PIECE_BYTES = 1 << 18
_GZIP_WINDOW = 31  # zlib: expect a gzip header and trailer
_END = "the archive ends too early"
_NO_TAR = "it is not a tar inside a gzip: %s"


class BundleRefused(ValueError):
    """The folder or archive breaks a rule; the text names the member and says what to do."""


class Member(NamedTuple):
    """A file or a link. `path`: relative, with `/` between its parts. `link`: the target of a symbolic link, else
    None."""

    path: str
    size: int = 0
    executable: bool = False
    link: Optional[str] = None


class Delta(NamedTuple):
    """Path -> the contents that the file had before, the oldest first; none = it was not there. `changed`: the files in
    the archive; `removed`: those that are gone. Removals come first."""

    changed: Mapping[str, Tuple[str, ...]]
    removed: Mapping[str, Tuple[str, ...]]


class Tree:
    """The members so far; it refuses a member that conflicts with them."""

    def __init__(self) -> None:
        self.size = 0
        self.members: Dict[str, Member] = {}
        self._folders: Dict[str, str] = {}  # folder -> a member below it

    def add(self, member: Member) -> None:
        """Raises BundleRefused."""
        problem = path_problem(member.path)
        if problem is None and member.link is not None:
            problem = link_problem(member.path, member.link)
        if problem is not None:
            raise BundleRefused(problem)
        if member.path in self.members:
            raise BundleRefused("%r is there twice" % member.path)
        if member.path in self._folders:
            raise BundleRefused("%r is a file and the folder of %r" % (member.path, self._folders[member.path]))
        for folder in folders_of(member.path):
            if folder in self.members:
                raise BundleRefused("%r lies below %r, which is no folder" % (member.path, folder))
            self._folders[folder] = member.path
        self.members[member.path] = member
        self.size += member.size
        if len(self.members) > MAX_FILES:
            raise BundleRefused("more than %d files. %s" % (MAX_FILES, HINT))
        if self.size > MAX_BYTES:
            raise BundleRefused("more than %d MB of files. %s" % (MAX_BYTES // 1_000_000, HINT))


def folders_of(path: str) -> List[str]:
    """Every folder above the path, the outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def path_problem(path: str) -> Optional[str]:
    """Why no member may have this path; None when it is allowed."""
    try:
        raw = path.encode("utf-8")
    except UnicodeEncodeError:
        return "the name %r is not UTF-8: rename it" % path[:80]
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
        return "the name %r does not stay inside the folder" % path[:80]
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in path):
        return "the name %r holds control characters: rename it, or leave it out by .spotignore" % path[:80]
    if len(raw) > MAX_PATH_BYTES or any(len(part) > MAX_PART_BYTES for part in raw.split(b"/")):
        return "the name %r is too long (%d bytes at most)" % (path[:80] + "...", MAX_PATH_BYTES)
    return None


def link_problem(path: str, target: str) -> Optional[str]:
    """Why the link at `path` may not point to `target`; None when it stays inside.

    `..` may stand at the beginning of the target only: after a name that is a link itself it could lead anywhere.
    """
    advice = "; put the file itself into the folder, or leave the link out by .spotignore"
    if target.startswith("/"):
        return "the link %r points to the absolute path %r, which another machine does not have%s" % (
            path, target[:80], advice,
        )  # fmt: skip
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    if ups > path.count("/") or ".." in parts[ups:]:
        return "the link %r points out of the folder, to %r%s" % (path, target[:80], advice)
    called = "/".join(parts[ups:]) or "x"
    if not target or len(target) > MAX_PATH_BYTES or path_problem(called) is not None:
        return "the link %r points to %r, which no file can be called%s" % (path, target[:80], advice)
    return None


class Opened:
    """An archive that is read once, from its gzip in pieces. `tree` and `sha256` are complete after `files` has
    ended."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._tar = _Unpacked(pieces)
        self.tree = Tree()

    @property
    def sha256(self) -> str:
        """The hash of the tar, as far as it was read."""
        return self._tar.digest.hexdigest()

    def files(self) -> Iterator[Tuple[Member, Iterator[bytes]]]:
        """Each member with its content, which the caller must read before the next member. Raises BundleRefused; errors
        of `pieces` pass."""
        with _headers():  # opening the archive reads its first header
            archive = tarfile.open(None, "r|", cast(IO[bytes], self._tar), _PIECE_BYTES)  # noqa: SIM115 - closed below
        with archive:
            while True:
                with _headers():
                    info = archive.next()
                if info is None:
                    break
                if not info.isdir():
                    member = _member(info)
                    self.tree.add(member)
                    yield member, _content(archive, info)
        self._tar.drain()


def read_delta(opened: Opened) -> Tuple[Delta, Iterator[Tuple[Member, Iterator[bytes]]]]:
    """(the list, the files as `Opened.files` gives them). Raises BundleRefused, also while the files are read; errors
    of the pieces pass."""
    files = opened.files()
    member, content = next(files, (Member(""), iter(())))
    if member.path != DELTA or member.size > MAX_DELTA_BYTES:
        raise BundleRefused("it does not begin with its list, so it is no delta")
    delta = decode_delta(b"".join(content))
    return delta, _listed(delta, files)


def _listed(delta: Delta, files: Iterator[Tuple[Member, Iterator[bytes]]]) -> Iterator[Tuple[Member, Iterator[bytes]]]:
    missing = set(delta.changed)
    for member, content in files:
        if member.path not in missing:
            raise BundleRefused("%r is not in the delta's list" % member.path)
        missing.discard(member.path)
        yield member, content
    if missing:
        raise BundleRefused("%r is in the delta's list only" % min(missing))


def encode_delta(delta: Delta) -> bytes:
    return json.dumps(delta._asdict(), ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def decode_delta(raw: bytes) -> Delta:
    """Raises BundleRefused."""
    try:
        whole = json.loads(raw)
        delta = Delta(_contents(whole["changed"]), _contents(whole["removed"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BundleRefused("its list is not one of a delta") from None
    for path in (*delta.changed, *delta.removed):
        problem = path_problem(path)
        if problem is not None or path == DELTA or (path in delta.changed and path in delta.removed):
            raise BundleRefused(problem or "%r is twice in the delta's list" % path)
    return delta


def _contents(rows: Any) -> Dict[str, Tuple[str, ...]]:
    contents = {path: tuple(before) for path, before in rows.items()}
    if not all(isinstance(content, str) for before in contents.values() for content in before):
        raise TypeError("a content is a text")
    return contents


@contextmanager
def _headers() -> Iterator[None]:
    """tarfile raises more than its own errors on hostile headers. Raises BundleRefused."""
    try:
        yield
    except BundleRefused:
        raise
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise BundleRefused(_NO_TAR % error) from None


def _member(info: tarfile.TarInfo) -> Member:
    if info.issym():
        return Member(info.name, link=info.linkname)
    if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.issparse() or info.size < 0:
        raise BundleRefused("%r is neither a file nor a symbolic link" % info.name[:80])
    return Member(info.name, info.size, bool(info.mode & 0o100))


def _content(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Iterator[bytes]:
    left = info.size
    source = archive.extractfile(info) if left and not info.issym() else None
    while source is not None and left:
        try:
            piece = source.read(min(left, _PIECE_BYTES))
        except tarfile.TarError:
            piece = b""
        if not piece:
            raise BundleRefused(_END)
        left -= len(piece)
        yield piece


class _Unpacked:
    """The bytes of the tar, hashed as they are read; a file object for tarfile."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._gunzip = zlib.decompressobj(_GZIP_WINDOW)
        self._size = 0
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """At most `size` bytes, b"" at the end of the tar."""
        piece = b""
        try:
            while not piece and not self._gunzip.eof:
                given = self._gunzip.unconsumed_tail or next(self._pieces, b"")
                piece = self._gunzip.decompress(given, size)
                if not piece and not given:
                    raise BundleRefused(_END)
        except zlib.error as error:
            raise BundleRefused("it is not a gzip, or damaged: %s" % error) from None
        self._size += len(piece)
        if self._size > MAX_TAR_BYTES:
            raise BundleRefused("it unpacks to more than %d MB. %s" % (MAX_BYTES // 1_000_000, HINT))
        self.digest.update(piece)
        return piece

    def drain(self) -> None:
        """Read to the end: bytes after the last member belong to the hash."""
        while self.read(_PIECE_BYTES):
            pass
        if self._gunzip.unused_data or next(self._pieces, b""):
            raise BundleRefused("something follows the end of the archive")
