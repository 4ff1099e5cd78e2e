"""Which project `gcloud` is set to on this computer, read from its own files: gcloud itself takes a second to start.

A person who types `gcloud compute instances list` sees that project's machines, and not the supervisor's, without a
word that they differ. Files: `active_config` names the configuration, `configurations/config_NAME` holds it;
CLOUDSDK_CORE_PROJECT wins (https://cloud.google.com/sdk/docs/properties).

The project by name **and** number: half of Google's messages and pages use the one, half the other.

Compute Engine's own `id` of a project is a third thing, says its discovery document. The number stands at the beginning
of the default service account's name; where the project has none of that form, the Resource Manager is asked.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.domain.findings import OK, WARN, Finding
from supervisor.ports.platform import Account
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.config import GceConfig

RESOURCE_MANAGER = "https://cloudresourcemanager.googleapis.com"
CONSOLE = "https://console.cloud.google.com/compute/instances?project="
_DEFAULT_ACCOUNT = re.compile(r"([0-9]+)-compute@")


class Whose:
    """`known`: what is known so far. The number is asked for once; it never changes."""

    def __init__(self, config: GceConfig, compute: Compute) -> None:
        self._config, self._compute = config, compute
        self.known = Account(config.project, "", CONSOLE + config.project)

    def ask(self) -> Account:
        """ApiError: the project cannot be read. Where only its number is not told, that is ""."""
        if not self.known.number:
            name = self._config.project
            facts = self._compute.read("", fields="name,defaultServiceAccount")
            number = number_of(facts) or self._from_resource_manager()
            self.known = Account(name, number, CONSOLE + name)
        return self.known

    def _from_resource_manager(self) -> str:
        root = (self._config.resource_manager_endpoint or RESOURCE_MANAGER).rstrip("/")
        try:
            facts = self._compute.elsewhere("GET", f"{root}/v1/projects/{self._config.project}")
        except ApiError:
            return ""  # a second door, which the account need not have: nobody misses more than the number
        return str(facts.get("projectNumber") or "")


def number_of(facts: Mapping[str, Any]) -> str:
    """The project's number as Compute Engine tells it, in the name of the project's own account; "" = not told."""
    match = _DEFAULT_ACCOUNT.match(str(facts.get("defaultServiceAccount") or ""))
    return match.group(1) if match else ""


def asks_as(compute: Compute) -> str:
    """The address of the account that we ask Google with; "" where nobody tells it. Raises nothing."""
    try:
        return compute.identity()
    except ApiError:
        return ""


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
    cause = f"gcloud and perhaps the Console show the machines of {found.project}: ours look as if they were gone"
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
