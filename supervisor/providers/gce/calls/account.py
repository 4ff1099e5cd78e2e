"""The project by name **and** number: half of Google's messages and pages use the one, half the other.

Compute Engine's own `id` of a project is a third thing, says its discovery document. The number stands at the beginning
of the default service account's name; where the project has none of that form, the Resource Manager is asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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
