"""Domain values as JSON text and back, by the type hints of their dataclasses and named tuples.

Fields with their default value are left out, so most of a run costs no bytes; names that this version does not know are
ignored. Each class is inspected once, because each start reads ten thousand runs. A value that the two databases store
differently (NaN, Infinity, NUL, lone surrogates) is a ValueError.

A minute writes the pulses of ten thousand runs, so plain values go through a faster encoder. It writes NaN as null and
refuses whole numbers of more than 64 bits: these take the slower one.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from enum import StrEnum
from functools import cache, lru_cache, partial
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from supervisor.domain.machines import Placement
from supervisor.domain.policies import Policy
from supervisor.domain.run import Counters, Files, Image, Money, Person, Waiting

T = TypeVar("T")
Plain = dict[str, Any]
Convert = Callable[[Any], Any] | None

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_encode_plain = msgspec.json.Encoder().encode
_PLAIN = frozenset({str, int, NoneType, bool})
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SHARED = frozenset({Counters, Placement, Policy})  # many runs have the same few values: equal ones become one object
# Groups whose fields are stored flat, among the fields of the class that has the group: field -> stored name, where it
# differs. Rows of every version have these names.
_FLAT: dict[type, dict[str, str]] = {
    Waiting: {"since": "waiting_since", "before_s": "waited_s", "reasons": "waiting_told"},
    Money: {"all_known": "cost_known"},
    Person: {"why": "needs_person", "since": "needs_person_at"},
    Image: {"digest": "image_digest"},
    Files: {"pulled_sha256": "pulled"},
}


def dumps(value: object) -> str:
    """Compact JSON. Raises ValueError for NaN, Infinity, NUL and lone surrogates."""
    try:
        text = _encode_plain(value).decode() if _is_plain(value) else _encode(value)
    except OverflowError:
        text = _encode(value)
    text.encode()
    if "\\u0000" in text and _NUL.search(text):
        raise ValueError("a text contains NUL, which cannot be stored")
    return text


def _is_plain(value: object) -> bool:
    """A text, a finite number or None, or objects and lists of them."""
    kind = type(value)
    if kind is float:
        return math.isfinite(value)  # type: ignore[arg-type]
    if kind is dict:
        return all(map(_is_plain, value.values()))  # type: ignore[attr-defined]
    if kind is list or kind is tuple:
        return all(map(_is_plain, value))  # type: ignore[call-overload]
    return kind in _PLAIN


def to_plain(value: Any, leave_out: frozenset[str] = frozenset()) -> Plain:
    """The fields that differ from their defaults, as JSON values."""
    plan = _plan(type(value))
    out: Plain = {}
    for name, default, convert, field_value in zip(
        plan.names, plan.defaults, plan.encoders, plan.read(value), strict=True
    ):
        if field_value is default or field_value == default or name in leave_out:
            continue
        out[name] = convert(field_value) if convert is not None and field_value is not None else field_value
    return out


def from_plain(cls: type[T], plain: Plain, **more: Any) -> T:
    """The value of this class. `more`: fields that are stored elsewhere. Changes `plain`: do not use it again."""
    plan = _plan(cls)
    if not plan.field_names.issuperset(plain):
        plain = {name: value for name, value in plain.items() if name in plan.field_names}
    for name in plan.decoders.keys() & plain.keys():
        value = plain[name]
        if value is not None:
            plain[name] = plan.decoders[name](value)
    if cls in _SHARED:
        constructor: Any = cls
        shared: T = _share(constructor, *plain.items())
        return shared
    for group, (group_class, names) in plan.groups.items():
        values = {inner: plain.pop(name) for name, inner in names.items() if name in plain}
        if values:
            plain[group] = group_class(**values)
    plain.update(more)
    return cls(**plain)


@lru_cache(maxsize=10_000)
def _share(cls: Any, *fields: tuple[str, Any]) -> Any:
    """Equal fields give the same object."""
    return cls(**dict(fields))


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """`names`, `defaults`, `encoders` and the values of `read` are in one order; a missing default is MISSING."""

    names: tuple[str, ...]
    defaults: tuple[Any, ...]
    encoders: tuple[Convert, ...]
    read: Callable[[Any], tuple[Any, ...]]
    decoders: dict[str, Callable[[Any], Any]]
    field_names: frozenset[str]
    groups: dict[str, tuple[Any, dict[str, str]]]  # field -> (class, stored name -> name)


def _make_plan(cls: Any) -> _Plan:
    cells = _cells(cls)
    groups: dict[str, tuple[Any, dict[str, str]]] = {}
    names = tuple(cell.name for cell in cells)
    paths = [cell.path for cell in cells]
    converters = [_converters(cell.hint) for cell in cells]
    for cell in cells:
        group, _, inner = cell.path.rpartition(".")
        if group:
            groups.setdefault(group, (cell.owner, {}))[1][cell.name] = inner
    return _Plan(
        names,
        tuple(cell.default for cell in cells),
        tuple(encode for encode, _ in converters),
        attrgetter(*paths) if len(paths) > 1 else lambda value: (getattr(value, paths[0]),),
        {name: decode for name, (_, decode) in zip(names, converters, strict=True) if decode is not None},
        frozenset(names),
        groups,
    )


_plan: Callable[[Any], _Plan] = cache(_make_plan)


class _Cell(NamedTuple):
    """A stored name and the path of its value. `owner`: the class of the group, else the class itself."""

    name: str
    path: str
    hint: Any
    default: Any
    owner: Any


def _cells(cls: Any) -> list[_Cell]:
    """The fields of a class, with the fields of its groups in `_FLAT`."""
    hints = get_type_hints(cls)
    cells = []
    for name, default in _defaults(cls).items():
        hint = hints[name]
        stored_names = _FLAT.get(hint)
        if stored_names is not None:
            within = get_type_hints(hint)
            cells += [
                _Cell(stored_names.get(part, part), f"{name}.{part}", within[part], default_of_part, hint)
                for part, default_of_part in _defaults(hint).items()
            ]
        else:
            cells.append(_Cell(name, name, hint, default, cls))
    return cells


def _defaults(cls: Any) -> Plain:
    """Field -> default, MISSING = it has none."""
    if not dataclasses.is_dataclass(cls):
        return {name: cls._field_defaults.get(name, MISSING) for name in cls._fields}
    return {
        field.name: field.default_factory() if field.default_factory is not MISSING else field.default
        for field in dataclasses.fields(cls)
    }


def _converters(hint: Any) -> tuple[Convert, Convert]:
    """(to JSON, from JSON) of one type; None = the value is the same in both. Never called for None values."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        (inner,) = [arg for arg in args if arg is not NoneType]
        return _converters(inner)
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")):
        return to_plain, partial(from_plain, hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return None, hint  # it is its own JSON text
    if origin is tuple:
        encode, decode = _converters(args[0])
        return (
            None if encode is None else lambda items: [encode(item) for item in items],
            tuple if decode is None else lambda items: tuple(decode(item) for item in items),
        )
    if origin is Mapping or hint in (str, int, float, bool):
        return None, None
    raise TypeError(f"no JSON form for {hint!r}")
