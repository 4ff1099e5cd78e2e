"""Which project the machines belong to, and whether gcloud on this computer shows another one.

The project has a name **and** a number: half of Google's messages and pages use the name, the other half the number.
Compute Engine's own `id` of a project is a third value, by its discovery document. The number is the beginning of the
name of the default service account; where the project has no such account, the Resource Manager is asked.

A user who types `gcloud compute instances list` sees the machines of gcloud's active project, and no message says that
it is not the supervisor's. gcloud itself takes a second to start, so its files are read: `active_config` names the
configuration, `configurations/config_NAME` contains it; CLOUDSDK_CORE_PROJECT comes first
(https://cloud.google.com/sdk/docs/properties).
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from supervisor.domain.findings import OK, WARN, Finding
from supervisor.ports.platform import Account
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.traits import google_finding

RESOURCE_MANAGER = "https://cloudresourcemanager.googleapis.com"
CONSOLE = "https://console.cloud.google.com/compute/instances?project="
_DEFAULT_ACCOUNT = re.compile(r"([0-9]+)-compute@")
_finding = partial(google_finding, "gcloud")


class ProjectAccount:
    """`so_far`: what is known without a request. The number is read once, because it never changes."""

    def __init__(self, config: GceConfig, compute: Compute) -> None:
        self._config, self._compute = config, compute
        self.so_far = Account(config.project, "", CONSOLE + config.project)

    def read(self) -> Account:
        """ApiError: the project cannot be read. The number is "" where only the number cannot be read."""
        if not self.so_far.number:
            name = self._config.project
            facts = self._compute.read("", fields="name,defaultServiceAccount")
            number = number_of(facts) or self._from_resource_manager()
            self.so_far = Account(name, number, CONSOLE + name)
        return self.so_far

    def _from_resource_manager(self) -> str:
        root = (self._config.resource_manager_endpoint or RESOURCE_MANAGER).rstrip("/")
        try:
            facts = self._compute.other_api("GET", f"{root}/v1/projects/{self._config.project}")
        except ApiError:
            return ""  # the account does not need this permission: only the number is missing then
        return str(facts.get("projectNumber") or "")


def number_of(facts: Mapping[str, Any]) -> str:
    """The project's number from the name of its default service account; "" = unknown."""
    match = _DEFAULT_ACCOUNT.match(str(facts.get("defaultServiceAccount") or ""))
    return match.group(1) if match else ""


def account_email(compute: Compute) -> str:
    """The email address of the account that sends our requests; "" = unknown. Raises nothing."""
    try:
        return compute.identity()
    except ApiError:
        return ""


@dataclass(frozen=True, slots=True)
class Gcloud:
    """Empty texts: not set. `source`: where the project is set."""

    project: str = ""
    account: str = ""
    source: str = ""


def active(environ: Mapping[str, str] | None = None) -> Gcloud:
    """The values that gcloud uses on this computer. Raises OSError and ValueError for files that cannot be read."""
    environ = os.environ if environ is None else environ
    folder = _folder(environ)
    name = environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or _text(folder / "active_config").strip() or "default"
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(_text(folder / "configurations" / f"config_{name}"))
    project = parser.get("core", "project", fallback="").strip()
    account = parser.get("core", "account", fallback="").strip()
    from_environment = environ.get("CLOUDSDK_CORE_PROJECT", "")
    source = "CLOUDSDK_CORE_PROJECT" if from_environment else f"configuration {name}"
    return Gcloud(from_environment or project, environ.get("CLOUDSDK_CORE_ACCOUNT") or account, source)


def mismatch(project: str, number: str) -> Finding:
    """The doctor's line on gcloud. `number`: of the project, "" = unknown."""
    try:
        gcloud = active()
    except (OSError, ValueError, configparser.Error) as error:
        cause = f"its configuration cannot be read: {error}".splitlines()[0]
        return _finding(WARN, "not compared with the supervisor's project", cause, "gcloud config list")
    if not gcloud.project:
        return _finding(OK, f"has no active project here; add --project={project} to each command")
    if gcloud.project in (project, number):
        return _finding(OK, f"its active project is {project} too")
    fact = f"its active project is {gcloud.project} ({gcloud.source}), the supervisor's is {project}"
    cause = f"gcloud and perhaps the Console show the machines of {gcloud.project}: our machines seem to be missing"
    fix = f"gcloud compute instances list --project={project}; in the Console: {CONSOLE}{project}"
    return _finding(WARN, fact, cause, fix)


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
