"""The place where a fake provider's secrets lie: readable, or spoilt by the test."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from supervisor.ports.provider import SecretRefused


class KeptSecrets:
    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}  # reference -> value
        self.spoilt: set[str] = set()  # references that cannot be read

    def check_secrets(self, references: Collection[str]) -> Mapping[str, str]:
        """A file that is there can be read too."""
        files = {one for one in references if Path(one.removeprefix("file:")).is_file()}
        readable = (self.secrets.keys() | files) - self.spoilt
        return {one: "" if one in readable else f"{one} cannot be read" for one in references}

    def refuse_secrets(self, references: Mapping[str, str]) -> None:
        """Raises SecretRefused."""
        told = self.check_secrets(references.values())
        for name, reference in references.items():
            if told[reference]:
                raise SecretRefused(f"secret {name}: {told[reference]}")
