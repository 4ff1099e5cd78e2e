"""How a body and a query are read, and why one is refused: a JSON pointer and a reason that says what to write instead.

The value that was sent is never repeated; a misspelled name or word is answered with the known one that is nearest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from fastapi import Request
from pydantic import BaseModel, ValidationError

from supervisor.api.errors import MalformedJson, UnsupportedMediaType
from supervisor.api.shapes.run_spec import SHELL, WORDS
from supervisor.contract.identifiers import RUN_ID_RULE
from supervisor.domain.errors import InvalidRequest
from supervisor.domain.texts import ONE_LINE, PROSE, REFUSAL

JSON = "application/json"
ERRORS_SHOWN = 20
NAME_CHARS = 64  # of what was sent, in an answer and in a search for what was meant
# The library's kind of error -> what would be right.
_TYPES = {
    "list_type": "must be a list, such as [a, b]",
    "bool_type": "must be true or false",
    "string_type": "must be a text; in YAML put it in quotes",
    "dict_type": "must have a value for each name, such as NAME: VALUE",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
}
_SECONDS = "must be a number of seconds, such as 3600 for an hour"


M = TypeVar("M", bound=BaseModel)


async def read_body(model: type[M], request: Request, optional: bool = False, kind: str = JSON) -> M:
    """The body as `model`. `optional`: no body at all means every default. `kind`: a media type that is taken beside
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


def _is_json(told: str, kind: str) -> bool:
    """JSON is UTF-8 (RFC 8259); a type that says otherwise is not what is read here."""
    media_type, *more = (part.strip().lower() for part in told.split(";"))
    charsets = [part.partition("=")[2].strip('"') for part in more if part.startswith("charset=")]
    return media_type in (JSON, kind) and all(charset in ("utf-8", "utf8") for charset in charsets)


def read_query(model: type[M], request: Request) -> M:
    """The query parameters as `model`. Raises InvalidRequest; for an unknown one too, which would be ignored silently
    otherwise."""
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
    found = error.errors(include_url=False)
    if found[0]["type"] == "json_invalid":
        return MalformedJson("The body is not JSON that can be read: " + _reason(found[0], model))
    errors = list(dict.fromkeys((_pointer(root, e["loc"]), _reason(e, model)) for e in found))[:ERRORS_SHOWN]
    first = "; ".join(f"{pointer} {reason}" for pointer, reason in errors[:3]).rstrip(".")
    text = f"The {where} is refused: {first}" + ("" if first.endswith("?") else ".")
    return InvalidRequest(text, {"count": len(found)}, errors)


def _pointer(root: str, loc: tuple[int | str, ...]) -> str:
    """RFC 6901 for a body; `?name` for a query. Names are cut: they may be anything that was sent."""
    parts = [str(part)[:NAME_CHARS] for part in loc if part not in (WORDS, SHELL, "[key]")]
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
        return "must have fields of its own: " + ", ".join(_known(model, loc))
    if kind in ("float_type", "int_type") and str(loc[-1]).endswith("_s"):
        return _SECONDS
    if kind in _TYPES:
        return _TYPES[kind]
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be ", "must be ", 1)
    return message[:1].lower() + message[1:]


def _pattern(error: Any) -> str:
    loc = error["loc"]
    if "run_id" in loc:
        return f"must be {RUN_ID_RULE}"
    if "secrets" in loc and loc[-1] != "[key]":
        return (
            "must say where the value lies: env:NAME or file:/PATH of the service's computer, or "
            "gcp:projects/PROJECT/secrets/SECRET/versions/VERSION; the value itself is never accepted"
        )
    if loc and loc[-1] == "image":
        return "must be the name of an image, such as REGISTRY/NAME:TAG, without spaces"
    if loc and loc[-1] == "venv":
        return "must be the whole path of a virtual environment, such as /home/ada/env"
    if error["ctx"]["pattern"] == ONE_LINE:
        return REFUSAL
    if error["ctx"]["pattern"] == PROSE:
        return f"must not be empty, and {REFUSAL}"
    if "x00" in error["msg"]:
        address = bool(loc) and loc[-1] == "url"
        return (
            "must be an https:// address, without spaces" if address else "must not be empty or hold control characters"
        )
    return ""


def _choice(error: Any) -> str:
    """Every word that would be right, and the one that is probably meant."""
    known = re.findall(r"'([^']+)'", str(error["ctx"]["expected"]))
    given = error["input"]
    near = get_close_matches(given[:NAME_CHARS], known, n=1, cutoff=0.6) if isinstance(given, str) else []
    words = ", ".join(known[:-1]) + f" or {known[-1]}" if len(known) > 1 else "".join(known)
    return f"must be {words}" + (f"; did you mean {near[0]}?" if near else "")


def _nearest_field(name: str, model: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    """The known field that is probably meant: one beside it, one deeper inside (`limits.max_attempts`), or one of the
    whole body (`run_id`, beside `spec`). Empty where none is near."""
    plain = name[:NAME_CHARS].replace("-", "_").lower()
    beside = get_close_matches(plain, _known(model, loc), n=1, cutoff=0.6)
    if beside:
        return beside[0]
    here = _at(model, loc)
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


def _known(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Field names of the model at `loc` inside `model`."""
    return list(_at(model, loc).model_fields)


def _at(model: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel]:
    for part in loc:
        field = model.model_fields.get(str(part)) if isinstance(part, str) else None
        if field is not None:
            model = _inner(field.annotation) or model
    return model


def _inner(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _inner(part)) is not None), None)
