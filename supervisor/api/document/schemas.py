"""The models of all bodies and answers, as the document tells them.

The framework's models say two things less exactly than they check them; both are told here: the names of a mapping
must have their form, and titles that only repeat a field's name are noise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

REF = "#/components/schemas/{model}"
Json = dict[str, Any]


def components(models: Iterable[type[BaseModel]]) -> Json:
    """name → JSON schema, of these models and of what they are made of."""
    by_name = sorted(set(models), key=lambda model: model.__name__)
    _, shared = models_json_schema([(model, "validation") for model in by_name], ref_template=REF)
    return {name: _exact(schema) for name, schema in shared["$defs"].items()}


def reference(model: type[BaseModel]) -> Json:
    return {"$ref": REF.format(model=model.__name__)}


def _exact(part: Any) -> Any:
    if isinstance(part, list):
        return [_exact(one) for one in part]
    if not isinstance(part, dict):
        return part
    told = {
        key: _exact(value) for key, value in part.items() if not (key == "title" and isinstance(value, str))
    }
    if "patternProperties" in told and "additionalProperties" not in told:
        [(pattern, value)] = told.pop("patternProperties").items()
        told["additionalProperties"] = value
        told["propertyNames"] = {**told.get("propertyNames", {}), "pattern": pattern}
    return told
