"""Write openapi/openapi.json from the routes, and what is made of it: `make openapi`. With --release clients may rely
on it from now on: `make release-openapi`.

The second file has the schemas of the tools of `spot mcp`. An argument has the schema of the API's parameter, header
or field of the body that has its name. What a schema of a program need not know is left out: a default of null, long
patterns. A spec is an object with a text; its fields stand apart, under `spec`, for the tool that lists them.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from supervisor.api.document.build import document
from supervisor.api.server import create_app
from supervisor.cli.mcp.tools import HEADERS, SCHEMAS, SPEC_TEXT, TOOLS, Tool
from tools.checks.openapi import DOCUMENT, release
from tools.project_files import ROOT

Json = dict[str, Any]
LOCAL = {"cause": "a word, such as preempted", "field": "its name, such as limits"}  # of tools without a request
PATTERN_MAX = 60
REF = "#/components/schemas/"


def schemas(whole_api: Json) -> str:
    """JSON text: `tools`, the schema of the arguments of each; `spec`, the schema of each field of a spec."""
    fields = whole_api["components"]["schemas"]["RunSpec"]["properties"]
    whole = {
        "tools": {name: _schema(tool, whole_api) for name, tool in TOOLS.items()},
        "spec": {name: _plain(part, whole_api) for name, part in fields.items()},
    }
    whole["spec"]["command"]["description"] = "a list of words, or a text for /bin/sh -c"
    whole["spec"]["code"]["description"] = "a folder on this computer, or the SHA-256 of a stored bundle"
    return json.dumps(whole, indent=1, sort_keys=True) + "\n"


def _schema(tool: Tool, whole_api: Json) -> Json:
    """Raises KeyError where the API has no such operation or argument."""
    properties = {name: _argument(tool, name, whole_api) for name in tool.arguments}
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


def _argument(tool: Tool, name: str, whole_api: Json) -> Json:
    if not tool.operation:
        return {"type": "string", "description": LOCAL[name]}
    if name == "spec":
        return {"type": "object", "description": SPEC_TEXT}
    method, _, path = tool.operation.partition(" ")
    operation = whole_api["paths"][path][method.lower()]
    for parameter in operation["parameters"]:
        if parameter["name"] == HEADERS.get(name, name):
            described = {"description": parameter["description"]} if parameter.get("description") else {}
            return dict(_plain({**parameter["schema"], **described}, whole_api))
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    return dict(_plain(_resolved(body, whole_api)["properties"][name], whole_api))


def _resolved(schema: Json, whole_api: Json) -> Json:
    if "$ref" not in schema:
        return schema
    target: Json = whole_api["components"]["schemas"][schema["$ref"].removeprefix(REF)]
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def _plain(part: Any, whole_api: Json) -> Any:
    """With references replaced, and without what only the API needs."""
    if isinstance(part, list):
        return [_plain(each, whole_api) for each in part]
    if not isinstance(part, dict):
        return part
    schema = dict(_resolved(part, whole_api))
    if schema.get("default", "") is None:  # null says the same as leaving it out
        del schema["default"]
        choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
        if len(choices) == 1:
            del schema["anyOf"]
            schema = {**_resolved(choices[0], whole_api), **schema}
    if len(str(schema.get("pattern", ""))) > PATTERN_MAX:
        del schema["pattern"]
    return {key: _plain(value, whole_api) if key != "default" else value for key, value in schema.items()}


if __name__ == "__main__":
    text = document(create_app(None))
    (ROOT / DOCUMENT).write_text(text, encoding="utf-8")
    SCHEMAS.write_text(schemas(json.loads(text)), encoding="utf-8")
    print(f"wrote {DOCUMENT} and {SCHEMAS.relative_to(ROOT)}")
    if sys.argv[1:] == ["--release"]:
        release(ROOT)
