"""Domain values as JSON text and back, guided by the type hints of their dataclasses.

Fields that equal their default are left out, so most of a run costs no bytes; names that this version does not know
are ignored. Each class is looked at once and its plan is kept: ten thousand runs are read at every start. What would
be stored differently by two databases (NaN, Infinity, NUL, lone surrogates) is a ValueError.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field
from enum import StrEnum
from functools import partial
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from supervisor.domain.machines.placement import Placement
from supervisor.domain.policies import Policy

T = TypeVar("T")
Plain = dict[str, Any]
Convert = Callable[[Any], Any] | None

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SHARED = frozenset({Placement, Policy})  # few values, held by many runs: equal ones become one object
_SHARED_MAX = 10_000
_shared: dict[tuple[Any, ...], Any] = {}


def dumps(value: object) -> str:
    """Compact JSON. Raises ValueError for NaN, Infinity, NUL and lone surrogates."""
    text = _encode(value)
    if "\\u0000" in text and _NUL.search(text):
        raise ValueError("a text holds NUL, which cannot be stored")
    text.encode()
    return text


def to_plain(value: Any, leave_out: frozenset[str] = frozenset()) -> Plain:
    """The fields of a dataclass that differ from their defaults, as JSON values."""
    plan = _plan(type(value))
    out: Plain = {}
    for name, default, convert, found in zip(
        plan.names, plan.defaults, plan.encoders, plan.read(value), strict=True
    ):
        if found is default or found == default or name in leave_out:
            continue
        out[name] = convert(found) if convert is not None and found is not None else found
    return out


def from_plain(cls: type[T], plain: Plain, **more: Any) -> T:
    """The dataclass value; `more` are fields that are stored elsewhere. Takes `plain` over: do not use it again."""
    plan = _plan(cls)
    if not plan.known.issuperset(plain):
        plain = {name: value for name, value in plain.items() if name in plan.known}
    for name in plan.decoders.keys() & plain.keys():
        value = plain[name]
        if value is not None:
            plain[name] = plan.decoders[name](value)
    if cls in _SHARED:
        return _share(cls, plain)
    plain.update(more)
    return cls(**plain)


def _share(cls: type[T], plain: Plain) -> T:
    key = (cls, *plain.items())
    known = _shared.get(key)
    if known is None:
        if len(_shared) >= _SHARED_MAX:
            _shared.clear()
        known = _shared[key] = cls(**plain)
    shared: T = known
    return shared


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """`names`, `defaults`, `encoders` and what `read` gives are in the same order; a missing default is MISSING."""

    names: tuple[str, ...]
    defaults: tuple[Any, ...]
    encoders: tuple[Convert, ...]
    read: Callable[[Any], tuple[Any, ...]]
    decoders: dict[str, Callable[[Any], Any]]
    known: frozenset[str]


_plans: dict[type, _Plan] = {}


def _plan(cls: type) -> _Plan:
    known = _plans.get(cls)
    if known is None:
        known = _plans[cls] = _make_plan(cls)
    return known


def _make_plan(cls: Any) -> _Plan:
    fields, hints = dataclasses.fields(cls), get_type_hints(cls)
    names = tuple(field.name for field in fields)
    converters = [_converters(hints[name]) for name in names]
    return _Plan(
        names,
        tuple(_default(field) for field in fields),
        tuple(encode for encode, _ in converters),
        attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),),
        {name: decode for name, (_, decode) in zip(names, converters, strict=True) if decode is not None},
        frozenset(names),
    )


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _converters(hint: Any) -> tuple[Convert, Convert]:
    """(to JSON, from JSON) of one type; None where the value is the same in both. None values never get here."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        (inner,) = [arg for arg in args if arg is not NoneType]
        return _converters(inner)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return to_plain, partial(from_plain, hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return None, hint  # it is its own JSON text
    if origin is tuple:
        encode, decode = _converters(args[0])
        return (
            None if encode is None else lambda found: [encode(item) for item in found],
            tuple if decode is None else lambda found: tuple(decode(item) for item in found),
        )
    if origin is Mapping or hint in (str, int, float, bool):
        return None, None
    raise TypeError(f"no JSON form for {hint!r}")
