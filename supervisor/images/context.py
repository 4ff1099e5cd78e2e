"""The files that are sent to a build: chosen once, laid out once, and the same for every way.

The list of patterns is the folder's .gcloudignore, otherwise our own allow-list. gcloud's lists are git's with one
difference: a single `*` matches names of the top folder only, so `*` and `!src/` together send all of src. Whatever a
list says, .git and virtual environments are never sent, and neither is a file that looks like a secret, unless the list
includes it again by its own name (`!.env`). The chosen files are copied with the Dockerfile into a folder of their own:
the user's folder is not changed, and no tool applies rules of its own. Times and modes are fixed, so the same files
give the same bytes.

Dockerfile, allow-list and cloudbuild.yaml are files of deploy/training-image; an installed package contains them in
`supervisor/_training_image`, put there by the wheel build.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from pathspec import GitIgnoreSpec

import supervisor
from supervisor.domain.errors import ImageBuildRefused
from supervisor.images.request import BuildRequest
from supervisor.machinefolder import agent_archive

BUILD_CONFIG = "cloudbuild.yaml"
IGNORE_FILE, DOCKERFILE, DOCKER_IGNORE = ".gcloudignore", "Dockerfile", ".dockerignore"
AGENT = ".spot/agent.pyz"  # our own Dockerfile copies it
INCLUDE = "#!include:"  # gcloud's own word for another list
NEVER = frozenset({".git", ".hg", ".svn"})
ENVIRONMENT = "pyvenv.cfg"  # a folder with this file is a virtual environment
MAX_SEEN, MAX_BYTES = 400_000, 2_000_000_000
LIST_BYTES = 1_000_000
TIME_S = 315_532_800  # 1980: zip files, and so wheels that are built on the way, allow no earlier time
SECRET_NAMES = (
    ".env", ".env.*", "*.env", ".netrc", ".npmrc", ".pypirc", ".pgpass", ".htpasswd", "*.pem", "*.key", "*.p12",
    "*.pfx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*credentials*.json", "*service[-_]account*.json",
    "kaggle.json", "client_secret*.json", "secrets.*", "*.tfstate", "*.tfvars", ".git-credentials", ".dockercfg",
    ".dockerconfigjson", ".boto", ".s3cfg", ".my.cnf",
)  # fmt: skip
SECRET_FOLDERS = ("/.ssh/", "/.gnupg/", "/.aws/", "/.kube/", "/.docker/config.json")  # as in home folders
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_SEARCHED = (".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".txt", ".conf", "")
_KEY_FILE_BYTES = 65_536
_LONE_STAR = re.compile(r"^(!?)\*(/?)\s*$")
_FOLDER_GROUP = "ps_d"  # the name of this group in pathspec


@dataclass(frozen=True)
class Context:
    """`files`: paths below `folder`, sorted, without our own Dockerfile and agent. `secrets`: left out because they
    look like secrets. `left_out`: the number of files and folders that the list leaves out. `own_list`,
    `own_dockerfile`: those of the folder, not ours."""

    folder: Path
    files: tuple[str, ...]
    size_bytes: int
    secrets: tuple[str, ...]
    left_out: int
    own_list: bool
    own_dockerfile: bool

    @property
    def brought(self) -> tuple[str, ...]:
        return () if self.own_dockerfile else (AGENT, DOCKERFILE)


def chosen(folder: Path) -> Context:
    """ImageBuildRefused where the folder cannot be read or sent."""
    if not folder.is_dir():
        raise ImageBuildRefused(f"{folder} is not a folder.")
    lines, own_list = _lines(folder)
    try:
        spec = parsed_as_gcloud(lines)
    except ValueError as error:
        raise ImageBuildRefused(f"{folder / IGNORE_FILE} has a line that is not a pattern of git: {error}") from None
    allowed = {line[1:].strip().rsplit("/", 1)[-1] for line in lines if line.startswith("!")}
    walk = _Walk(folder, spec, allowed)
    try:
        files = tuple(sorted(walk.files(), key=os.fsencode))
    except OSError as error:
        raise ImageBuildRefused(f"{error.filename} cannot be read: {error.strerror}.") from None
    if (folder / DOCKERFILE).is_symlink() and DOCKERFILE not in files:
        raise ImageBuildRefused(
            f"{folder / DOCKERFILE} is a link that leads out of the folder, or nowhere. Put the file itself there."
        )
    if not files:
        list_name = IGNORE_FILE if own_list else "the default allow-list of spot (write a .gcloudignore to change it)"
        raise ImageBuildRefused(f"Nothing in {folder} is sent: {list_name} leaves out everything.")
    if walk.size_bytes > MAX_BYTES:
        size = f"{walk.size_bytes / 1e9:.1f} GB"
        raise ImageBuildRefused(
            f"{folder}: {size} would be sent, {MAX_BYTES // 10**9} GB are allowed. List data in {IGNORE_FILE}."
        )
    own_dockerfile = DOCKERFILE in files
    return Context(folder, files, walk.size_bytes, tuple(sorted(walk.secrets)), walk.left_out, own_list, own_dockerfile)


def lay_out(context: Context, target: Path) -> None:
    """Copies the chosen files, and our own, into the new folder `target`. ImageBuildRefused where a file is missing."""
    target.mkdir()
    try:
        for name in context.files:
            _copy(context.folder / name, target / name)
        if not context.own_dockerfile:
            _copy(brought_folder() / DOCKERFILE, target / DOCKERFILE)
            _write(target / AGENT, agent_archive.build_agent())
    except OSError as error:
        raise ImageBuildRefused(f"{error.filename} cannot be copied: {error.strerror}.") from None


def brought_folder() -> Path:
    """The folder of our own Dockerfile: in an installed package, or in the source checkout."""
    package = Path(supervisor.__file__).parent
    inside = package / "_training_image"
    return inside if inside.is_dir() else package.parent / "deploy" / "training-image"


def build_config(request: BuildRequest) -> dict[str, Any]:
    """Cloud Build's own JSON of this build, without its source: cloudbuild.yaml with the time limit and the account of
    this request."""
    config: dict[str, Any] = yaml.safe_load((brought_folder() / BUILD_CONFIG).read_text(encoding="utf-8"))
    config["timeout"] = f"{request.build_s:.0f}s"
    config["substitutions"] = {"_IMAGE": request.image, "_MARK": request.marked, "_BUILD": request.mark}
    if request.account:
        config["serviceAccount"] = f"projects/{request.project}/serviceAccounts/{request.account}"
    return config


def parsed(lines: Iterable[str]) -> GitIgnoreSpec:
    """ValueError for a line that is not a pattern of git."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about unusual sets such as [[]
        try:
            return GitIgnoreSpec.from_lines(lines)
        except re.error as error:
            raise ValueError(str(error)) from error


def parsed_as_gcloud(lines: Iterable[str]) -> GitIgnoreSpec:
    """The lines of a .gcloudignore. ValueError as above."""
    return parsed(_LONE_STAR.sub(r"\1/*\2", line) for line in lines)


def last_word(path: str, spec: GitIgnoreSpec) -> bool | None:
    """`path`: with a trailing slash for a folder. True: left out, False: included again, None: not in the list."""
    for pattern in reversed(spec.patterns):
        if pattern.include is not None and pattern.regex is not None and _matches(pattern.regex, path):
            return pattern.include
    return None


def _matches(regex: re.Pattern[str], path: str) -> bool:
    """Whether it matches the path itself. pathspec marks the slash of a matched folder; `*/` is only that slash, so
    every match counts."""
    return any(
        match.groupdict().get(_FOLDER_GROUP) is None or match.end(_FOLDER_GROUP) == len(path)
        for match in regex.finditer(path)
    )


def _lines(folder: Path) -> tuple[list[str], bool]:
    """(lines of the list, whether it is the folder's own)."""
    own = folder / IGNORE_FILE
    try:
        if own.is_file():
            return list(_with_included(folder, own)), True
        return (brought_folder() / IGNORE_FILE).read_text(encoding="utf-8").splitlines(), False
    except OSError as error:
        raise ImageBuildRefused(f"{error.filename} cannot be read: {error.strerror}.") from None


def _with_included(folder: Path, path: Path) -> Iterator[str]:
    """A line can include another list of the same folder, one level deep, as for gcloud."""
    for line in _list_of(path):
        if line.startswith(INCLUDE):
            yield from _list_of(folder / line[len(INCLUDE) :].strip())
        else:
            yield line


def _list_of(path: Path) -> list[str]:
    """Raises OSError; ImageBuildRefused for a pipe or device, which may never end, and for a file that is too large."""
    list_stat = path.stat()
    if not stat.S_ISREG(list_stat.st_mode) or list_stat.st_size > LIST_BYTES:
        raise ImageBuildRefused(f"{path} is not a list of patterns: a file of at most {LIST_BYTES // 10**6} MB.")
    return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()


class _Walk:
    """`allowed`: names that the list includes again by their own names."""

    def __init__(self, folder: Path, spec: GitIgnoreSpec, allowed: set[str]) -> None:
        self._folder, self._spec, self._allowed = folder, spec, allowed
        self.size_bytes, self.left_out, self._seen = 0, 0, 0
        self.secrets: list[str] = []
        self._own_dockerfile = (folder / DOCKERFILE).is_file()

    def files(self) -> Iterator[str]:
        waiting = [""]
        while waiting:
            inside = waiting.pop()
            for entry in self._entries(inside):
                path, is_folder = inside + entry.name, entry.is_dir(follow_symlinks=False)
                if not self._is_sent(path, entry, is_folder):
                    self.left_out += 1
                elif is_folder:
                    waiting.append(path + "/")
                elif self._is_secret(path, entry):
                    self.secrets.append(path)
                else:
                    self._count(entry)
                    yield path

    def _entries(self, inside: str) -> Sequence[os.DirEntry[str]]:
        try:
            with os.scandir(self._folder / inside) as scan:
                entries = list(scan)
        except OSError as error:
            raise ImageBuildRefused(f"{self._folder / inside} cannot be read: {error.strerror}.") from None
        self._seen += len(entries)
        if self._seen > MAX_SEEN:
            raise ImageBuildRefused(
                f"{self._folder} has more than {MAX_SEEN:,} files. List large folders in {IGNORE_FILE}."
            )
        return entries

    def _is_sent(self, path: str, entry: os.DirEntry[str], is_folder: bool) -> bool:
        if entry.name in NEVER or (is_folder and os.path.exists(os.path.join(entry.path, ENVIRONMENT))):
            return False
        if path == DOCKERFILE or (path == DOCKER_IGNORE and self._own_dockerfile):
            return _can_be_sent(entry, self._folder) and os.path.isfile(entry.path)
        if last_word(path + "/" if is_folder else path, self._spec):
            return False
        return is_folder or _can_be_sent(entry, self._folder)

    def _is_secret(self, path: str, entry: os.DirEntry[str]) -> bool:
        if entry.name in self._allowed or entry.is_symlink():
            return False
        name = entry.name.lower()
        named = any(fnmatchcase(name, pattern) for pattern in SECRET_NAMES)
        named = named or any(folder in f"/{path.lower()}" for folder in SECRET_FOLDERS)
        if named and not name.endswith(".py"):
            return True
        if os.path.splitext(name)[1] not in _SEARCHED or entry.stat().st_size > _KEY_FILE_BYTES:
            return False
        try:
            return _PRIVATE_KEY.search((self._folder / path).read_bytes()) is not None
        except OSError as error:
            raise ImageBuildRefused(f"{self._folder / path} cannot be read: {error.strerror}.") from None

    def _count(self, entry: os.DirEntry[str]) -> None:
        if not entry.is_symlink():
            self.size_bytes += entry.stat().st_size


def _can_be_sent(entry: os.DirEntry[str], folder: Path) -> bool:
    """Files, and links that stay inside the folder."""
    if not entry.is_symlink():
        return entry.is_file()
    target = os.readlink(entry.path)
    inside = os.path.normpath(os.path.join(os.path.dirname(entry.path), target))
    return not os.path.isabs(target) and inside.startswith(f"{folder}{os.sep}")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        os.symlink(os.readlink(source), target)
        return
    shutil.copyfile(source, target)
    _fix_mode_and_time(target, executable=bool(source.stat().st_mode & stat.S_IXUSR))


def _write(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    _fix_mode_and_time(target, executable=False)


def _fix_mode_and_time(path: Path, executable: bool) -> None:
    path.chmod(0o755 if executable else 0o644)
    os.utime(path, (TIME_S, TIME_S))
