"""Kubernetes' own schemas, from kubernetes-validate: which fields an object may have, and of which type.

The definitions of all kinds are one file of 1.5 MB, so they are read once in a process, and a validator of each kind is
kept. The strict form knows no other fields than the documented ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

MINOR = "1.34"
MOST_PROBLEMS = 5
# Kinds of Kueue: kubernetes-validate has Kubernetes' own only. Their forms are rules (rules.py).
NO_SCHEMA = frozenset({"LocalQueue", "Workload"})
_FOLDER = f"kubernetes-json-schema/v{MINOR}.0-local-strict"
# Without a group of their own, and in a file that is named otherwise.
_META = frozenset({"Status", "DeleteOptions", "APIGroup", "APIGroupList", "APIResourceList"})


def problems(resource: Mapping[str, Any]) -> list[str]:
    """What the schema of its kind does not allow, as `spec.template: message`; the first few."""
    kind, api_version = str(resource.get("kind")), str(resource.get("apiVersion"))
    if kind in NO_SCHEMA:
        return []
    try:
        validator = _validator(kind, api_version)
    except FileNotFoundError:
        return [f"there is no kind {kind} in {api_version}"]
    errors = validator.iter_errors(resource)
    texts = (f"{'.'.join(map(str, error.absolute_path)) or 'object'}: {error.message[:300]}" for error in errors)
    return [text for text, _ in zip(texts, range(MOST_PROBLEMS), strict=False)]


@cache
def _validator(kind: str, api_version: str) -> Draft202012Validator:
    """FileNotFoundError: there is no such kind."""
    group, _, version = api_version.rpartition("/")
    part = "meta" if kind in _META else group.partition(".")[0]
    name = "-".join(word for word in (kind.lower(), part, version) if word)
    return Draft202012Validator(schema_contents(f"{_FOLDER}/{name}.json", MINOR), registry=_registry())


@cache
def _registry() -> Registry[Any]:
    contents = schema_contents(f"{_FOLDER}/_definitions.json", MINOR)
    registry: Registry[Any] = Resource.from_contents(contents) @ Registry()
    return registry.crawl()
