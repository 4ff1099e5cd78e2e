"""The list of a bundle's files, stored beside the bundle, and the check whether a command can start from it.

A submit is checked against this list alone, so a forgotten file is found before a machine is rented. Only a certain
error refuses a submit: a shell command with pipes, variables or patterns passes.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from supervisor.contract.bundle import Member, folders_of

VERSION = 1
MAX_LINKS = 40  # followed in one path, as the kernel does
MAX_PATH = 4096
MAX_COMPARED = 2000  # names that are compared with a missing one to suggest another
SHOWN = 120  # characters of a word in an error
CRLF_FIX = "sed -i 's/\\r$//' {path}"
_PYTHON = re.compile(r"python(\d+(\.\d+)*)?\Z")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_LAUNCHERS = frozenset({"torchrun", "accelerate", "accelerate-launch", "deepspeed", "horovodrun", "colossalai"})
_WITH_VALUE = {"python": ("-W", "-X"), "shell": ("-o", "-O", "+O", "--rcfile", "--init-file")}
_SHELL_SIGNS = frozenset("|&;<>()$`*?[]{}~#!\n\\")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SCRIPT = (".py", ".sh")


@dataclass(frozen=True, slots=True)
class BundleIndex:
    """`size`: bytes of all files. `stored_bytes`: bytes of the gzip in the store."""

    sha256: str
    members: Mapping[str, Member]
    size: int
    stored_bytes: int = 0
    _folders: set[str] = field(default_factory=set, compare=False)

    @classmethod
    def of(cls, sha256: str, members: Iterable[Member], stored_bytes: int = 0) -> BundleIndex:
        by_path = {member.path: member for member in members}
        size = sum(member.size for member in by_path.values())
        folders = {folder for path in by_path for folder in folders_of(path)}
        return cls(sha256, by_path, size, stored_bytes, folders)

    def encode(self) -> bytes:
        files = [
            {"path": m.path, "size": m.size, "executable": m.executable}
            if m.link is None
            else {"path": m.path, "link": m.link}
            for m in self.members.values()
        ]
        whole = {
            "version": VERSION, "sha256": self.sha256, "size_bytes": self.size, "stored_bytes": self.stored_bytes,
            "files": files,
        }  # fmt: skip
        return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, raw: bytes) -> BundleIndex:
        """Raises ValueError."""
        try:
            whole = json.loads(raw)
            members = [
                Member(m["path"], m.get("size", 0), m.get("executable", False), m.get("link")) for m in whole["files"]
            ]
            if not all(isinstance(m.link, str | None) for m in members):
                raise TypeError("the target of a link is not a text")
            return cls.of(whole["sha256"], members, whole["stored_bytes"])
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not the list of a bundle: {error}") from None

    def find(self, path: str) -> Member | None:
        """The file at this path, through links; None = there is none."""
        return self.members.get(self._followed(path) or "")

    def has_folder(self, path: str) -> bool:
        followed = self._followed(path)
        return followed == "" or followed in self._folders

    def _followed(self, path: str) -> str | None:
        """The real path, "" for the top; None = a link is circular or points outside."""
        if len(path) > MAX_PATH:
            return None
        done: list[str] = []
        left = path.split("/")
        links = 0
        while left:
            part = left.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                if not done:
                    return None
                done.pop()
                continue
            member = self.members.get("/".join([*done, part]))
            if member is None or member.link is None:
                done.append(part)
                continue
            links += 1
            if links > MAX_LINKS:
                return None
            left = [*member.link.split("/"), *left]
        return "/".join(done)


def holds_crlf(content: Iterable[bytes]) -> bool:
    """Reads all of `content`."""
    has_crlf, last = False, b""
    for piece in content:
        has_crlf = has_crlf or b"\r\n" in last + piece
        last = piece[-1:]
    return has_crlf


def crlf_problem(paths: Sequence[str]) -> str:
    """The error for shell scripts with Windows line ends, with the fix."""
    shown = " ".join(shlex.quote(path) for path in paths[:5]) + (" ..." if len(paths) > 5 else "")
    names = "has" if len(paths) == 1 else "have"
    return (
        f"{shown} {names} Windows line ends (CRLF), which a shell on Linux does not understand. "
        f"Run {CRLF_FIX.format(path=shown)}, and add the line '*.sh text eol=lf' to .gitattributes."
    )


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why a command cannot start from a bundle. `field`: of the spec. `text`: a whole sentence."""

    field: str
    reason: str
    text: str


def unfit(command: str | Sequence[str], workdir: str, index: BundleIndex) -> Unfit | None:
    """None: the command can start, or that cannot be known."""
    reason = workdir_problem(workdir, index)
    if reason is not None:
        return Unfit("workdir", reason, _sentence(f"workdir {workdir} {reason}"))
    reason = command_problem(command, workdir, index)
    if reason is not None:
        return Unfit("command", reason, _sentence(f"The command cannot start from this code: {reason}"))
    return None


def _sentence(text: str) -> str:
    return text if text.endswith("?") else text + "."


def workdir_problem(workdir: str, index: BundleIndex) -> str | None:
    """Why the command cannot start there; None = it can."""
    if workdir.startswith("/"):
        return "is an absolute path; a run with code starts inside its bundle: use a path relative to it"
    if not index.has_folder(workdir):
        folders = sorted({folder for path in index.members for folder in folders_of(path)})
        return f"is not a folder of the bundle{_nearest(posixpath.normpath(workdir), folders)}"
    return None


def command_problem(command: str | Sequence[str], workdir: str, index: BundleIndex) -> str | None:
    """Why the command cannot start from this bundle; None = it can, or that cannot be known."""
    words = _simple(command) if isinstance(command, str) else list(command)
    if not words:
        return None
    program, name = words[0], posixpath.basename(words[0])
    if "/" in program:
        return None if program.startswith("/") else _missing(program, workdir, index, run=True)
    if program.endswith(_SCRIPT) and index.find(posixpath.join(workdir, program)) is not None:
        return f"{program} is searched in PATH, not in the bundle: write ./{program}"
    script = _script(name, words[1:])
    if script is None or script.startswith("/"):
        return None
    return _missing(script, workdir, index, run=False)


def _missing(word: str, workdir: str, index: BundleIndex, run: bool) -> str | None:
    path = posixpath.normpath(posixpath.join(workdir, word))
    entry = index.find(posixpath.join(workdir, word))
    shown = word if len(word) <= SHOWN else word[:SHOWN] + "…"
    if entry is None:
        return f"{shown} is not in the bundle{_nearest(path, index.members)}"
    if run and not entry.executable:
        return f"{shown} is in the bundle, but not executable: run chmod +x {shlex.quote(path)}"
    return None


def _script(name: str, rest: Sequence[str]) -> str | None:
    """The file that an interpreter or a launcher will run; None = another command, or not known."""
    if name in _LAUNCHERS:
        for word in rest:
            if word in ("-m", "--module"):
                return None
            if word.endswith(_SCRIPT) and not word.startswith("-"):
                return word
        return None
    kind = "python" if _PYTHON.match(name) else "shell" if name in _SHELLS else None
    if kind is None:
        return None
    left = list(rest)
    while left:
        word = left.pop(0)
        if word == "-" or (word[:1] == "-" and word[:2] != "--" and not {"m", "c"}.isdisjoint(word)):
            return None  # a module, code as text, or standard input
        if word in _WITH_VALUE[kind]:
            left = left[1:]
        elif word[:1] not in ("-", "+"):
            return word if word.endswith(_SCRIPT) else None
    return None


def _simple(text: str) -> list[str] | None:
    """The words of a shell text that is one plain command; None = it is not."""
    if not _SHELL_SIGNS.isdisjoint(text):
        return None
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    while words and _ASSIGNMENT.match(words[0]):
        words.pop(0)
    return words[1:] if words[:1] == ["exec"] else words


def _nearest(path: str, paths: Iterable[str]) -> str:
    names = list(paths)
    same = [name for name in names if posixpath.basename(name) == posixpath.basename(path)]
    near = sorted(same)[:3] or get_close_matches(path[:SHOWN], names[:MAX_COMPARED], n=3, cutoff=0.6)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return " (what .gitignore or .spotignore names is left out)"
