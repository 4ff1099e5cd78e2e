"""What files say without a supervisor, and what the rules are: for `spot diagnose` and `spot docs causes`.

The command line reads the files and prints; the rules are reached through the services, like everywhere else. Nothing
is opened, and no settings are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from supervisor.domain.errors import InvalidRequest
from supervisor.services.reading import diagnosis

Json = dict[str, Any]


def diagnosed(name: str, log: bytes, documents: Sequence[Json]) -> Json:
    """The verdict on a log with at most one evidence document, or with loose facts, of which a later one wins. Raises
    InvalidRequest."""
    kept = [document for document in documents if isinstance(document.get("readings"), dict)]
    if kept and len(documents) > 1:
        text = "An evidence document stands for itself: name one, without other JSON files."
        raise InvalidRequest(f"{text} A log may be beside it.", {"count": len(documents)})
    facts: Json = {}
    for document in documents:
        facts |= document
    return dict(diagnosis.of_files(name, log, facts))


def rules_of_causes() -> dict[str, list[Json]]:
    """Cause -> the rules that give it, in the order in which they are tried; "" -> those about runs that go on."""
    rules: dict[str, list[Json]] = {}
    for rule in diagnosis.rules_shown():
        rules.setdefault(rule["cause"] or "", []).append(dict(rule))
    return rules
