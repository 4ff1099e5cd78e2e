"""The locks: everything is pinned and hashed, nothing that is required is missing, and no lock names its source.

Python packages are required by pyproject.toml, the dashboard's scripts by its package.json. The machine that installs
the packages chooses the registry, so no file of the project names one. For the same reason the hosts are spelled in two
halves here.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.project_files import project_files

DEV_LOCK = "requirements-dev.lock"
IMAGE_LOCK = "deploy/server/requirements.lock"
SCRIPTS = "supervisor/dashboard/package.json"
SCRIPTS_LOCK = "supervisor/dashboard/package-lock.json"
HALVES = (
    ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("yarnpkg", "com"),
    ("anaconda", "org"), ("crates", "io"),
)  # fmt: skip
REGISTRIES = tuple(map(".".join, HALVES))
PIN = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;]+)")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")
INTEGRITY = re.compile(r"sha512-[A-Za-z0-9+/]{86}==")
EXACT = re.compile(r"\d+\.\d+\.\d+")
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")


NOT_LOCKED = {("mcp", "image")}  # extra, group: `spot mcp` runs beside its program, not in the server's image


def check(root: Path) -> list[str]:
    """Every problem of the locks, and every registry that a file names."""
    pyproject = (root / "pyproject.toml").read_text(encoding="utf-8")
    dev, image = ((root / lock).read_text(encoding="utf-8") for lock in (DEV_LOCK, IMAGE_LOCK))
    tested = _pins(dev)
    return [
        *_problems_in_lock(DEV_LOCK, dev),
        *_problems_in_lock(IMAGE_LOCK, image),
        *_missing(DEV_LOCK, dev, _required(pyproject, "dev")),
        *_missing(IMAGE_LOCK, image, _required(pyproject, "image")),
        *(
            f"{IMAGE_LOCK}: {name} {version} is not the version that the tests run with (make lock)"
            for name, version in _pins(image).items()
            if tested.get(name) != version
        ),
        *_problems_of_scripts(root),
        *_registries_named(root),
    ]


def _canonical(name: str) -> str:
    """One spelling of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _pins(text: str) -> dict[str, str]:
    """Name -> version."""
    matches = (PIN.match(line) for line in text.splitlines())
    return {_canonical(match["name"]): match["version"] for match in matches if match}


def _problems_in_lock(lock: str, text: str) -> Iterator[str]:
    if "://" in text:
        yield f"{lock}: holds a URL"
    logical_lines = text.replace("\\\n", " ").splitlines()
    for line in (line.strip() for line in logical_lines):
        if not line or line.startswith("#"):
            continue
        if not PIN.match(line):
            yield f"{lock}: neither a pin nor a comment: {line[:80]}"
        elif not HASH.search(line):
            yield f"{lock}: without a hash: {line[:80]}"


def _required(pyproject: str, group: str) -> set[str]:
    """Names that a lock must hold: runtime, the group, build backend, and the extras."""
    table = tomllib.loads(pyproject)
    project = table["project"]
    extras = project["optional-dependencies"]
    requirements = [
        *table["build-system"]["requires"],
        *project["dependencies"],
        *(requirement for name in extras for requirement in extras[name] if (name, group) not in NOT_LOCKED),
        *table["dependency-groups"][group],
    ]
    return {_canonical(match[0]) for text in requirements if (match := NAME.match(text))}


def _missing(lock: str, text: str, names: set[str]) -> Iterator[str]:
    for name in sorted(names - set(_pins(text))):
        yield f"{lock}: {name} is required by pyproject.toml and not pinned (make lock)"


def _problems_of_scripts(root: Path) -> Iterator[str]:
    """What is wrong with the lock of the dashboard's scripts."""
    dependencies = json.loads((root / SCRIPTS).read_text(encoding="utf-8"))["dependencies"]
    text = (root / SCRIPTS_LOCK).read_text(encoding="utf-8")
    if "://" in text:
        yield f"{SCRIPTS_LOCK}: holds a URL (npm install --package-lock-only in that folder leaves them out)"
    packages: dict[str, dict[str, Any]] = json.loads(text)["packages"]
    if packages.pop("", {}).get("dependencies") != dependencies:
        yield f"{SCRIPTS_LOCK}: was made for another package.json (npm install --package-lock-only)"
    for place, package in packages.items():
        if not INTEGRITY.fullmatch(package.get("integrity", "")):
            yield f"{SCRIPTS_LOCK}: without a hash: {place}"
    for name, version in dependencies.items():
        locked = packages.get(f"node_modules/{name}", {}).get("version")
        if not EXACT.fullmatch(version) or locked != version:
            yield f"{SCRIPTS_LOCK}: {name} is required as {version} and locked as {locked}"


def _registries_named(root: Path) -> Iterator[str]:
    for path in project_files(root):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # not a text
        for number, line in enumerate(lines, start=1):
            for host in REGISTRIES:
                if host in line.lower():
                    yield f"{path.relative_to(root)}:{number}: names the package registry {host}"
