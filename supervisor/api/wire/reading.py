"""How a body and a query are read, and why one is refused: a JSON pointer and a reason that says what to write instead.

The value that was sent is never repeated. For a misspelled name or word the reason names the nearest known one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from fastapi import Request
from pydantic import BaseModel, ValidationError

from supervisor.api.errors import MalformedJson, UnsupportedMediaType
from supervisor.api.shapes.run_spec import FORMS
from supervisor.contract.identifiers import RUN_ID_RULE
from supervisor.domain.errors import InvalidRequest
from supervisor.domain.texts import ONE_LINE, PROSE, REFUSAL

JSON = "application/json"
ERRORS_SHOWN = 20
NAME_CHARS = 64  # of a sent name, in a response and in the search for the nearest known name
# Kind of error of the library -> what would be right.
_TYPES = {
    "list_type": "must be a list, such as [a, b]",
    "bool_type": "must be true or false",
    "string_type": "must be a text; in YAML put it in quotes",
    "dict_type": "must have a value for each name, such as NAME: VALUE",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    **dict.fromkeys(
        ("datetime_type", "datetime_parsing", "datetime_from_date_parsing", "timezone_aware"),
        "must be a time with its zone, such as 2026-01-31T12:00:00Z",
    ),
}
_SECONDS = "must be a number of seconds, such as 3600 for an hour"
# What a text must be: by the name of its field, and by its pattern.
_FIELDS = {
    "run_id": f"must be {RUN_ID_RULE}",
    "plan_id": "must be the id of a plan, as the last line of `spot submit --dry-run` shows it",
    "image": "must be the name of an image, such as REGISTRY/NAME:TAG, without spaces",
    "venv": "must be the whole path of a virtual environment, such as /home/ada/env",
}
_PATTERNS = {ONE_LINE: REFUSAL, PROSE: f"must not be empty, and {REFUSAL}"}
_REFERENCE = (
    "must say where the value is: env:NAME or file:/PATH of the service's computer, k8s:NAME/KEY, or "
    "gcp:projects/PROJECT/secrets/SECRET/versions/VERSION; the value itself is never accepted"
)
_ADDRESS = "must be an https:// address, without spaces"

M = TypeVar("M", bound=BaseModel)


async def read_body(model: type[M], request: Request, optional: bool = False, kind: str = JSON) -> M:
    """The body as `model`. `optional`: no body means every default. `kind`: a media type that is accepted beside
    application/json. Raises UnsupportedMediaType, MalformedJson, InvalidRequest."""
    raw = await request.body()
    if optional and not raw:
        return model()
    if not _is_json(request.headers.get("content-type", ""), kind):
        raise UnsupportedMediaType(f"The body must be {JSON}.", {"accepted": JSON})
    if request.headers.get("content-encoding", "identity") != "identity":
        raise UnsupportedMediaType("The body must not be compressed.", {"accepted": JSON})
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise refusal(error, model, "#", "body") from None


def _is_json(content_type: str, kind: str) -> bool:
    """JSON is UTF-8 (RFC 8259); another charset is refused."""
    media_type, *more = (part.strip().lower() for part in content_type.split(";"))
    charsets = [part.partition("=")[2].strip('"') for part in more if part.startswith("charset=")]
    return media_type in (JSON, kind) and all(charset in ("utf-8", "utf8") for charset in charsets)


def read_query(model: type[M], request: Request) -> M:
    """The query parameters as `model`. Raises InvalidRequest, also for an unknown parameter, which the framework would
    ignore silently."""
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        field = model.model_fields.get(name)
        if field is not None and field.default == []:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise InvalidRequest(f"The query parameter {name} is given twice.", {}, [(f"?{name}", "is given twice")])
        else:
            given[name] = value
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise refusal(error, model, "?", "query") from None


def refusal(error: ValidationError, model: type[BaseModel], root: str, where: str) -> InvalidRequest | MalformedJson:
    problems = error.errors(include_url=False)
    if problems[0]["type"] == "json_invalid":
        return MalformedJson("The body is not JSON that can be read: " + _reason(problems[0], model))
    errors = list(dict.fromkeys((_pointer(root, each["loc"]), _reason(each, model)) for each in problems))
    errors = errors[:ERRORS_SHOWN]
    first = "; ".join(f"{pointer} {reason}" for pointer, reason in errors[:3]).rstrip(".")
    text = f"The {where} is refused: {first}" + ("" if first.endswith("?") else ".")
    return InvalidRequest(text, {"count": len(problems)}, errors)


def _pointer(root: str, loc: tuple[int | str, ...]) -> str:
    """RFC 6901 for a body; `?name` for a query. Names are cut: a client may send any text."""
    parts = [str(part)[:NAME_CHARS] for part in loc if part not in (*FORMS, "[key]")]
    if root == "?":
        return "?" + (parts[0] if parts else "")
    return "/".join([root, *(part.replace("~", "~0").replace("/", "~1") for part in parts)])


def _reason(error: Any, model: type[BaseModel]) -> str:
    kind, loc = error["type"], error["loc"]
    if kind == "extra_forbidden":
        near = _nearest_field(str(loc[-1]), model, loc[:-1])
        return "is not known" + (f"; did you mean {near}?" if near else "")
    if kind in ("literal_error", "enum"):
        return _choice(error)
    if kind == "string_pattern_mismatch":
        reason = _pattern(error)
        if reason:
            return reason
    if kind in ("model_attributes_type", "model_type"):
        return "must have fields of its own: " + ", ".join(_at(model, loc).model_fields)
    if kind in ("float_type", "int_type") and str(loc[-1]).endswith("_s"):
        return _SECONDS
    if kind in _TYPES:
        return _TYPES[kind]
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be ", "must be ", 1)
    return message[:1].lower() + message[1:]


def _pattern(error: Any) -> str:
    """ "" = the library's own words are good."""
    loc, pattern = error["loc"], error["ctx"]["pattern"]
    name = loc[-1] if loc else ""
    if "secrets" in loc and name != "[key]":
        return _REFERENCE
    for words, key in ((_FIELDS, "run_id" if "run_id" in loc else name), (_PATTERNS, pattern)):
        if key in words:
            return words[key]
    if "x00" in pattern:
        return _ADDRESS if name == "url" else "must not be empty or contain control characters"
    return ""


def _choice(error: Any) -> str:
    """Every word that would be right, and the nearest one."""
    expected = str(error["ctx"]["expected"])
    words = re.findall(r"'([^']+)'", expected) or re.findall(r"\d+", expected)
    given = error["input"]
    near = get_close_matches(given[:NAME_CHARS], words, n=1, cutoff=0.6) if isinstance(given, str) else []
    choice = ", ".join(words[:-1]) + f" or {words[-1]}" if len(words) > 1 else "".join(words)
    return f"must be {choice}" + (f"; did you mean {near[0]}?" if near else "")


def _nearest_field(name: str, model: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    """The nearest known field: beside it, deeper inside (`limits.max_attempts`), or of the whole body (`run_id`, beside
    `spec`). Empty where none is near."""
    plain = name[:NAME_CHARS].replace("-", "_").lower()
    here = _at(model, loc)
    beside = get_close_matches(plain, here.model_fields, n=1, cutoff=0.6)
    if beside:
        return beside[0]
    deeper = {path.rpartition(".")[2]: path for path in _deeper(here)}
    near = get_close_matches(plain, deeper, n=1, cutoff=0.8)
    if near:
        return deeper[near[0]]
    above = get_close_matches(plain, model.model_fields, n=1, cutoff=0.8) if loc else []
    return f"{above[0]}, beside {loc[0]}" if above else ""


def _deeper(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = _inner(field.annotation)
        if inner is not None:
            yield from (f"{name}.{below}" for below in inner.model_fields)


def _at(model: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel]:
    """The model at `loc` inside `model`."""
    for part in loc:
        field = model.model_fields.get(str(part)) if isinstance(part, str) else None
        if field is not None:
            model = _inner(field.annotation) or model
    return model


def _inner(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _inner(part)) is not None), None)
