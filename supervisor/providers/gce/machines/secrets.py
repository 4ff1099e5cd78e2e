"""Secrets of a run on Google Cloud: read by the machine itself, with its own account. Here only their form is checked:
the supervisor's account need not be able to read them, and no value passes through it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from supervisor.ports.provider import SecretRefused

_REFERENCE = re.compile(r"gcp:projects/[a-z0-9:.-]+/secrets/[A-Za-z0-9_-]{1,255}/versions/([1-9][0-9]*|latest)\Z")
FORM = "gcp:projects/PROJECT/secrets/NAME/versions/NUMBER (or latest)"


def problem(reference: str) -> str:
    """Why a machine could not read it; "" = it has the right form."""
    if _REFERENCE.match(reference):
        return ""
    kind = reference.partition(":")[0]
    if kind in ("env", "file"):
        return f"{kind}: is of the supervisor's own computer; on Google Cloud write {FORM}"
    return f"write {FORM}"


def refuse(secrets: Mapping[str, str]) -> None:
    """SecretRefused, naming the first one that no machine could read."""
    for name, reference in sorted(secrets.items()):
        why = problem(reference)
        if why:
            raise SecretRefused(f"secret {name}: {why}")
