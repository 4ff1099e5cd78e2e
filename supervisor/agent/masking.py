"""Secret values never leave this machine: whatever goes to the store or into a beat is masked here first."""

from __future__ import annotations

from typing import Mapping, Tuple

MASK = "[secret %s]"


class Masker:
    """Replaces the values of `secrets` (name -> value), the longest first, by a mark with the name."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        by_length = sorted(secrets.items(), key=lambda item: -len(item[1]))
        self._texts: Tuple[Tuple[str, str], ...] = tuple(
            (value, MASK % name) for name, value in by_length if value
        )

    def text(self, text: str) -> str:
        for value, mark in self._texts:
            text = text.replace(value, mark)
        return text

    def data(self, data: bytes) -> bytes:
        for value, mark in self._texts:
            data = data.replace(value.encode(), mark.encode())
        return data
