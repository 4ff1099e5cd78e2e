"""The schemas of the tools of `spot mcp`, made from the table of the tools and the API's document: `make openapi`.

An argument has the schema of the API's parameter, header or field of the body that has its name. What a schema of a
program need not know is left out: a default of null, long patterns. A spec is an object with a text; its fields stand
apart, under `spec`, for the tool that lists them.
"""

from __future__ import annotations

import json
from typing import Any

from supervisor.cli.mcp.tools import HEADERS, SPEC_TEXT, TOOLS, Tool

Json = dict[str, Any]
LOCAL = {"cause": "a word, such as preempted", "field": "its name, such as limits"}  # of tools without a request
PATTERN_MAX = 60
REF = "#/components/schemas/"


def schemas(document: Json) -> str:
    """JSON text: `tools`, the schema of the arguments of each; `spec`, the schema of each field of a spec."""
    fields = document["components"]["schemas"]["RunSpec"]["properties"]
    whole = {
        "tools": {name: _schema(tool, document) for name, tool in TOOLS.items()},
        "spec": {name: _plain(part, document) for name, part in fields.items()},
    }
    whole["spec"]["command"]["description"] = "a list of words, or a text for /bin/sh -c"
    whole["spec"]["code"]["description"] = "a folder on this computer, or the SHA-256 of a stored bundle"
    return json.dumps(whole, indent=1, sort_keys=True) + "\n"


def _schema(tool: Tool, document: Json) -> Json:
    """Raises KeyError where the API has no such operation or argument."""
    properties = {name: _argument(tool, name, document) for name in tool.arguments}
    if tool.size:
        properties[tool.size] |= {"minimum": 1, "maximum": tool.most, "default": tool.usual}
        properties[tool.size]["description"] = (
            "bytes at most" if tool.size == "limit" and "tail" in properties else ("records at most")
        )
    required = [name for name, needed in tool.arguments.items() if needed]
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _argument(tool: Tool, name: str, document: Json) -> Json:
    if not tool.operation:
        return {"type": "string", "description": LOCAL[name]}
    if name == "spec":
        return {"type": "object", "description": SPEC_TEXT}
    method, _, path = tool.operation.partition(" ")
    operation = document["paths"][path][method.lower()]
    for parameter in operation["parameters"]:
        if parameter["name"] == HEADERS.get(name, name):
            described = {"description": parameter["description"]} if parameter.get("description") else {}
            return dict(_plain({**parameter["schema"], **described}, document))
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    return dict(_plain(_resolved(body, document)["properties"][name], document))


def _resolved(schema: Json, document: Json) -> Json:
    if "$ref" not in schema:
        return schema
    target: Json = document["components"]["schemas"][schema["$ref"].removeprefix(REF)]
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def _plain(part: Any, document: Json) -> Any:
    """With references replaced, and without what only the API needs."""
    if isinstance(part, list):
        return [_plain(each, document) for each in part]
    if not isinstance(part, dict):
        return part
    schema = dict(_resolved(part, document))
    if schema.get("default", "") is None:  # null says the same as leaving it out
        del schema["default"]
        choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
        if len(choices) == 1:
            del schema["anyOf"]
            schema = {**_resolved(choices[0], document), **schema}
    if len(str(schema.get("pattern", ""))) > PATTERN_MAX:
        del schema["pattern"]
    return {key: _plain(value, document) if key != "default" else value for key, value in schema.items()}
