"""Kubernetes' own schemas, from kubernetes-validate: which fields an object may have, and of which type.

The definitions of all kinds are one file of 1.5 MB, so they are read once in a process, and a validator of each kind is
kept. The strict form knows no other fields than the documented ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
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
        required, _ = _validator(kind, api_version)
    except FileNotFoundError:
        return [f"there is no kind {kind} in {api_version}"]
    texts = [f"object: '{name}' is a required property" for name in required if name not in resource]
    for name, value in resource.items():
        parts = value.items() if name == "metadata" and isinstance(value, dict) else [("", value)]
        for key, part in parts:
            texts += _problems(kind, api_version, name, key, json.dumps(part))
    return texts[:MOST_PROBLEMS]


@lru_cache(maxsize=4096)
def _problems(kind: str, api_version: str, name: str, key: str, text: str) -> tuple[str, ...]:
    """Of one field of an object, or of one entry of its metadata: a specification stays while everything else moves,
    and to check it takes most of the time."""
    part = json.loads(text)
    errors = _validator(kind, api_version)[1].iter_errors({name: {key: part} if key else part})
    return tuple(f"{'.'.join(map(str, error.absolute_path)) or 'object'}: {error.message[:300]}" for error in errors)


@cache
def _validator(kind: str, api_version: str) -> tuple[Sequence[str], Draft202012Validator]:
    """The fields that it must have, and the rest of its schema. FileNotFoundError: there is no such kind."""
    group, _, version = api_version.rpartition("/")
    part = "meta" if kind in _META else group.partition(".")[0]
    name = "-".join(word for word in (kind.lower(), part, version) if word)
    schema = dict(schema_contents(f"{_FOLDER}/{name}.json", MINOR))
    return schema.pop("required", ()), Draft202012Validator(schema, registry=_registry())


@cache
def _registry() -> Registry[Any]:
    contents = schema_contents(f"{_FOLDER}/_definitions.json", MINOR)
    registry: Registry[Any] = Resource.from_contents(contents) @ Registry()
    return registry.crawl()
