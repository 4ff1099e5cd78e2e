"""Which project `gcloud` is set to on this computer, read from its own files: gcloud itself takes a second to start.

A person who types `gcloud compute instances list` sees that project's machines, and not the supervisor's, without a
word that they differ. Files: `active_config` names the configuration, `configurations/config_NAME` holds it;
CLOUDSDK_CORE_PROJECT wins (https://cloud.google.com/sdk/docs/properties).
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.domain.findings import OK, WARN, Finding

NAME = "gcloud"


@dataclass(frozen=True, slots=True)
class Gcloud:
    """Empty texts: not set. `source`: what says the project."""

    project: str = ""
    account: str = ""
    source: str = ""


def active(environ: Mapping[str, str] | None = None) -> Gcloud:
    """What gcloud would use here. Raises OSError and ValueError for files that are there and cannot be read."""
    environ = os.environ if environ is None else environ
    folder = _folder(environ)
    name = environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or _text(folder / "active_config").strip() or "default"
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(_text(folder / "configurations" / f"config_{name}"))
    project = parser.get("core", "project", fallback="").strip()
    account = parser.get("core", "account", fallback="").strip()
    given = environ.get("CLOUDSDK_CORE_PROJECT", "")
    source = "CLOUDSDK_CORE_PROJECT" if given else f"configuration {name}"
    return Gcloud(given or project, environ.get("CLOUDSDK_CORE_ACCOUNT") or account, source)


def mismatch(project: str, number: str) -> Finding:
    """`number`: of the project, "" = not known."""
    try:
        found = active()
    except (OSError, ValueError, configparser.Error) as error:
        cause = f"its configuration cannot be read: {error}".splitlines()[0]
        return _told(WARN, "not compared with the supervisor's project", cause, "gcloud config list")
    if not found.project:
        return _told(OK, f"has no active project here; say --project={project} with each command")
    if found.project in (project, number):
        return _told(OK, f"its active project is {project} too")
    fact = f"its active project is {found.project} ({found.source}), the supervisor's is {project}"
    cause = (
        f"gcloud and perhaps the Console show the machines of {found.project}: ours look as if they were gone"
    )
    fix = (
        f"gcloud compute instances list --project={project}; in the Console: "
        f"https://console.cloud.google.com/compute/instances?project={project}"
    )
    return _told(WARN, fact, cause, fix)


def _folder(environ: Mapping[str, str]) -> Path:
    given = environ.get("CLOUDSDK_CONFIG")
    if given:
        return Path(given)
    home = environ.get("HOME")
    return (Path(home) if home else Path.home()) / ".config" / "gcloud"


def _text(path: Path) -> str:
    """ "" = there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _told(result: str, fact: str, cause: str = "", fix: str = "") -> Finding:
    return Finding(NAME, result, fact, cause, fix, group="google")
