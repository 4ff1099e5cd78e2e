"""What travels to a build: chosen once, laid out once, and the same for every way.

The list is the folder's .gcloudignore, else the allow-list that comes with us. gcloud's lists are git's with one
difference: a lone `*` fits names of the top folder only, which is why `*` and `!src/` together send all of src.
Whatever a list says, .git and virtual environments stay here, and so does what looks like a secret, unless the list
takes it back by its own name (`!.env`). The chosen files are copied into a folder of their own, with the Dockerfile, so
that the user's folder is not touched, and no tool applies rules of its own to it. Times and modes are fixed: the same
files are the same bytes.

Dockerfile, allow-list and the words for Cloud Build are files of deploy/training-image; an installed package carries
them in `supervisor/_training_image`, put there by the wheel build.
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
from supervisor.machinefolder import agent_archive as agent_bundle

_LONE_STAR = re.compile(r"^(!?)\*(/?)\s*$")
_FOLDER_GROUP = "ps_d"  # the library's name of the group


def parsed(lines: Iterable[str]) -> GitIgnoreSpec:
    """ValueError for a line that is no pattern of git's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of odd sets such as [[]
        try:
            return GitIgnoreSpec.from_lines(lines)
        except re.error as error:
            raise ValueError(str(error)) from error


def parsed_as_gcloud(lines: Iterable[str]) -> GitIgnoreSpec:
    """Of a .gcloudignore. ValueError as above."""
    return parsed(_LONE_STAR.sub(r"\1/*\2", line) for line in lines)


def last_word(path: str, spec: GitIgnoreSpec) -> bool | None:
    """`path` with a slash at its end for a folder. True: left out, False: taken back, None: not named by the list."""
    for pattern in reversed(spec.patterns):
        if pattern.include is not None and pattern.regex is not None and _names(pattern.regex, path):
            return pattern.include
    return None


def _names(regex: re.Pattern[str], path: str) -> bool:
    """Does it name the path itself? The library marks the slash at which it matched a folder; `*/` is nothing but that
    slash, so each one counts."""
    for match in regex.finditer(path):
        if match.groupdict().get(_FOLDER_GROUP) is None or match.end(_FOLDER_GROUP) == len(path):
            return True
    return False


BUILD_CONFIG = "cloudbuild.yaml"


def brought_folder() -> Path:
    """Inside the package where it was installed, beside it in a checkout."""
    package = Path(supervisor.__file__).parent
    inside = package / "_training_image"
    return inside if inside.is_dir() else package.parent / "deploy" / "training-image"


def build_config(request: BuildRequest) -> dict[str, Any]:
    """Cloud Build's own JSON of this build, without its source: what cloudbuild.yaml says, this request's time limit
    and account."""
    config: dict[str, Any] = yaml.safe_load((brought_folder() / BUILD_CONFIG).read_text(encoding="utf-8"))
    config["timeout"] = f"{request.build_s:.0f}s"
    config["substitutions"] = substitutions(request)
    if request.account:
        config["serviceAccount"] = f"projects/{request.project}/serviceAccounts/{request.account}"
    return config


def substitutions(request: BuildRequest) -> dict[str, str]:
    return {"_IMAGE": request.image, "_MARK": request.marked, "_BUILD": request.mark}


IGNORE_FILE, DOCKERFILE, DOCKER_IGNORE = ".gcloudignore", "Dockerfile", ".dockerignore"
BROUGHT = ".spot/agent.pyz"  # what our own Dockerfile copies
INCLUDE = "#!include:"  # gcloud's own word for another list
NEVER = frozenset({".git", ".hg", ".svn"})
ENVIRONMENT = "pyvenv.cfg"  # a folder that holds it is a virtual environment
MAX_SEEN, MAX_BYTES = 400_000, 2_000_000_000
LIST_BYTES = 1_000_000
TIME_S = 315_532_800  # 1980: zip files, and so wheels that are built on the way, know nothing older

SECRET_NAMES = (
    ".env", ".env.*", "*.env", ".netrc", ".npmrc", ".pypirc", ".pgpass", ".htpasswd", "*.pem", "*.key", "*.p12",
    "*.pfx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*credentials*.json", "*service[-_]account*.json",
    "kaggle.json", "client_secret*.json", "secrets.*", "*.tfstate", "*.tfvars", ".git-credentials", ".dockercfg",
    ".dockerconfigjson", ".boto", ".s3cfg", ".my.cnf",
)  # fmt: skip
SECRET_FOLDERS = ("/.ssh/", "/.gnupg/", "/.aws/", "/.kube/", "/.docker/config.json")  # as in people's homes
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_LOOKED_INTO = (".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".txt", ".conf", "")
_KEY_FILE_BYTES = 65_536


@dataclass(frozen=True)
class Context:
    """`files`: paths below `folder`, sorted; our own Dockerfile and agent are not among them. `secrets`: left out
    because they look like secrets. `left_out`: how many files and folders the list leaves out. `own_list`,
    `own_dockerfile`: the folder's, not ours."""

    folder: Path
    files: tuple[str, ...]
    size_bytes: int
    secrets: tuple[str, ...]
    left_out: int
    own_list: bool
    own_dockerfile: bool

    @property
    def brought(self) -> tuple[str, ...]:
        return () if self.own_dockerfile else (BROUGHT, DOCKERFILE)


def chosen(folder: Path) -> Context:
    """ImageBuildRefused where the folder cannot be read or sent."""
    if not folder.is_dir():
        raise ImageBuildRefused(f"{folder} is not a folder.")
    lines, own_list = _lines(folder)
    try:
        spec = parsed_as_gcloud(lines)
    except ValueError as error:
        raise ImageBuildRefused(f"{folder / IGNORE_FILE} holds no pattern of git: {error}") from None
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
        raise ImageBuildRefused(f"Nothing in {folder} is sent: {_list_name(own_list)} leaves out everything.")
    if walk.size_bytes > MAX_BYTES:
        size = f"{walk.size_bytes / 1e9:.1f} GB"
        raise ImageBuildRefused(
            f"{folder}: {size} would be sent, {MAX_BYTES // 10**9} GB are allowed. Name data in {IGNORE_FILE}."
        )
    own_dockerfile = DOCKERFILE in files
    return Context(folder, files, walk.size_bytes, tuple(sorted(walk.secrets)), walk.left_out, own_list, own_dockerfile)


def lay_out(context: Context, target: Path) -> None:
    """Copies the chosen files, and what we bring, into the new folder `target`. ImageBuildRefused where one is gone."""
    target.mkdir()
    try:
        for name in context.files:
            _copy(context.folder / name, target / name)
        if not context.own_dockerfile:
            _copy(brought_folder() / DOCKERFILE, target / DOCKERFILE)
            _write(target / BROUGHT, agent_bundle.build_agent())
    except OSError as error:
        raise ImageBuildRefused(f"{error.filename} cannot be copied: {error.strerror}.") from None


def _lines(folder: Path) -> tuple[list[str], bool]:
    """The list's lines, and whether it is the folder's own."""
    own = folder / IGNORE_FILE
    try:
        if own.is_file():
            return list(_with_included(folder, own)), True
        return (brought_folder() / IGNORE_FILE).read_text(encoding="utf-8").splitlines(), False
    except OSError as error:
        raise ImageBuildRefused(f"{error.filename} cannot be read: {error.strerror}.") from None


def _with_included(folder: Path, path: Path) -> Iterator[str]:
    """gcloud reads another list of the same folder where a line says so, one level deep."""
    for line in _list_of(path):
        if line.startswith(INCLUDE):
            yield from _list_of(folder / line[len(INCLUDE) :].strip())
        else:
            yield line


def _list_of(path: Path) -> list[str]:
    """Raises OSError; ImageBuildRefused for a pipe or device, which may never end, and for what is no list by size."""
    list_stat = path.stat()
    if not stat.S_ISREG(list_stat.st_mode) or list_stat.st_size > LIST_BYTES:
        raise ImageBuildRefused(f"{path} is no list of patterns: a file of at most {LIST_BYTES // 10**6} MB.")
    return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()


class _Walk:
    """`allowed`: names that the list takes back one by one."""

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
                if not self._travels(path, entry, is_folder):
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
                f"{self._folder} holds more than {MAX_SEEN:,} files. Name large folders in {IGNORE_FILE}."
            )
        return entries

    def _travels(self, path: str, entry: os.DirEntry[str], is_folder: bool) -> bool:
        if entry.name in NEVER or (is_folder and os.path.exists(os.path.join(entry.path, ENVIRONMENT))):
            return False
        if path == DOCKERFILE or (path == DOCKER_IGNORE and self._own_dockerfile):
            return _can_travel(entry, self._folder) and os.path.isfile(entry.path)
        if last_word(path + "/" if is_folder else path, self._spec):
            return False
        return is_folder or _can_travel(entry, self._folder)

    def _is_secret(self, path: str, entry: os.DirEntry[str]) -> bool:
        if entry.name in self._allowed or entry.is_symlink():
            return False
        name = entry.name.lower()
        named = any(fnmatchcase(name, pattern) for pattern in SECRET_NAMES)
        named = named or any(folder in f"/{path.lower()}" for folder in SECRET_FOLDERS)
        if named and not name.endswith(".py"):
            return True
        if os.path.splitext(name)[1] not in _LOOKED_INTO or entry.stat().st_size > _KEY_FILE_BYTES:
            return False
        try:
            return _PRIVATE_KEY.search((self._folder / path).read_bytes()) is not None
        except OSError as error:
            raise ImageBuildRefused(f"{self._folder / path} cannot be read: {error.strerror}.") from None

    def _count(self, entry: os.DirEntry[str]) -> None:
        if not entry.is_symlink():
            self.size_bytes += entry.stat().st_size


def _can_travel(entry: os.DirEntry[str], folder: Path) -> bool:
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
    _settle(target, executable=bool(source.stat().st_mode & stat.S_IXUSR))


def _write(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    _settle(target, executable=False)


def _settle(path: Path, executable: bool) -> None:
    path.chmod(0o755 if executable else 0o644)
    os.utime(path, (TIME_S, TIME_S))


def _list_name(own_list: bool) -> str:
    return IGNORE_FILE if own_list else "the allow-list that comes with spot (write a .gcloudignore to change it)"
