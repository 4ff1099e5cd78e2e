"""Presets: the profiles of rentals that many people use, and `generic` for any other computer. One data file each.

A file names every fact of a profile, the unknown ones too. A known value names the page where it was read; an unknown
one says why, or how to measure it. Nothing is measured here, so no file has a size of a disk: `measured` and `of_user`
make the profiles that `merge` (domain/profile.py) joins to a preset.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from importlib.resources import files
from typing import Any, get_args, get_type_hints

from supervisor.domain.profile import (
    HOME,
    NO_LIMIT,
    By,
    End,
    Fact,
    Profile,
    Reach,
    Source,
    Stops,
    Survival,
    Tier,
    Verb,
    facts_of,
)

KIND = "ssh"
GENERIC = "generic"
SUFFIX = ".toml"
UNLIMITED = "no limit"  # of a number
_FOLDER = files("supervisor.providers.ssh").joinpath("presets")
_FACTS: Mapping[str, type] = {
    name: get_args(hint)[0] for name, hint in get_type_hints(Profile).items() if name in Profile(KIND, "").facts
}
_PARTS = frozenset({"title", "pages", "facts", "tiers", "verbs"})


class PresetInvalid(ValueError):
    """A preset, or a value for a profile, does not have the right form. The text says where."""


def names() -> tuple[str, ...]:
    """In the order of the alphabet."""
    file_names = (path.name for path in _FOLDER.iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in file_names if name.endswith(SUFFIX)))


@cache
def preset(name: str) -> Profile:
    """Raises PresetInvalid, with the names of the presets for another name."""
    if name not in names():
        raise PresetInvalid(f"there is no preset {name!r}: expected {', '.join(names())}")
    return read(_FOLDER.joinpath(name + SUFFIX).read_text(encoding="utf-8"), name)


def of_user(texts: Mapping[str, str], on: str) -> Profile:
    """What a user says of a platform: field of a profile -> value, as text. Raises PresetInvalid."""
    values = {name: _from_text(name, text) for name, text in texts.items()}
    return _profile(values, Source.USER, on, "you say so")


def _from_text(field: str, text: str) -> Any:
    expected = _FACTS.get(field)
    if expected is bool and text in ("true", "false"):
        return text == "true"
    if expected is float:
        with suppress(ValueError):
            return float(text)
    return text


def measured(values: Mapping[str, Any], on: str, note: str) -> Profile:
    """What was measured on the machine. `note`: how. Raises PresetInvalid."""
    return _profile(values, Source.MEASURED, on, note)


def _profile(values: Mapping[str, Any], source: Source, on: str, note: str) -> Profile:
    facts: dict[str, Any] = {name: Fact(_value(name, value), source, on, note) for name, value in values.items()}
    return Profile(KIND, "", **facts)


def read(text: str, name: str) -> Profile:
    """The profile in a file. Raises PresetInvalid."""
    try:
        content = tomllib.loads(text)
        _keys(content, _PARTS, required=_PARTS)
        missing = _FACTS.keys() - content["facts"].keys()
        if missing:
            raise PresetInvalid(f"facts: {', '.join(sorted(missing))}: each is named, an unknown one with a note")
        pages = _Pages(content["pages"])
        facts: dict[str, Any] = {field: _fact(pages, field, entry) for field, entry in content["facts"].items()}
        profile = Profile(
            KIND,
            content["title"],
            **facts,
            tiers=tuple(_tier(pages, entry) for entry in content["tiers"]),
            verbs=tuple(_verb(pages, entry) for entry in content["verbs"]),
        )
        pages.check_used()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise PresetInvalid(f"preset {name}: {error}") from error
    return profile


class _Pages:
    """Where values were read. Each value names one of them."""

    def __init__(self, pages: Mapping[str, Mapping[str, str]]) -> None:
        for entry in pages.values():
            _keys(entry, {"title", "on"}, required={"title", "on"})
        self._pages, self._used = pages, set[str]()

    def fact(self, value: Any, page: str, note: str) -> Fact[Any]:
        if page not in self._pages:
            raise PresetInvalid(f"page {page!r} is not in [pages]")
        self._used.add(page)
        title, on = self._pages[page]["title"], self._pages[page]["on"]
        return Fact(value, Source.DOCUMENTED, on, f"{title}: {note}" if note else title)

    def check_used(self) -> None:
        unused = sorted(self._pages.keys() - self._used)
        if unused:
            raise PresetInvalid(f"no value names the pages {', '.join(unused)}")


def _fact(pages: _Pages, field: str, entry: Mapping[str, Any]) -> Fact[Any]:
    _keys(entry, {"value", "page", "note"}, required={"note"})
    if "value" not in entry:
        _keys(entry, {"note"})
        return Fact(note=entry["note"])
    return pages.fact(_value(field, entry["value"]), entry.get("page", ""), entry["note"])


def _value(field: str, value: Any) -> Any:
    """Raises PresetInvalid."""
    expected = _FACTS.get(field)
    if expected is None:
        raise PresetInvalid(f"{field}: a profile has no such field")
    if expected is float and value == UNLIMITED:
        return NO_LIMIT
    if expected is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value) or value < 0:
            raise PresetInvalid(f"{field}: {value} is not a number of at least 0; write {UNLIMITED!r} for none")
        return float(value)
    if expected is Reach:
        try:
            return Reach(value)
        except ValueError as error:
            raise PresetInvalid(f"{field}: {error}") from None
    if type(value) is not expected:
        raise PresetInvalid(f"{field}: {value!r} is not of the type {expected.__name__}")
    return value


def _tier(pages: _Pages, entry: Mapping[str, Any]) -> Tier:
    columns = {end.name.lower(): f"survives_{end.name.lower()}" for end in End}
    keys = {"name", "paths", "page", "note", "survives"}
    _keys(entry, keys, required=keys)
    _keys(entry["survives"], columns.keys())
    fact = partial(pages.fact, page=entry["page"], note=entry["note"])
    survives = {columns[end]: fact(Survival(answer)) for end, answer in entry["survives"].items()}
    path = next(path for path in entry["paths"] if path != HOME)
    return Tier(
        entry["name"],
        tuple(entry["paths"]),
        **survives,
        bytes_cap=Fact(note=f"measure it: df -B1 {path}"),
        inodes_cap=Fact(note=f"measure it: df -i {path}"),
    )


def _verb(pages: _Pages, entry: Mapping[str, Any]) -> Verb:
    facts = facts_of(Verb("")).keys()
    plain = {"verb", "end", "by", "page", "note"}
    _keys(entry, plain | {"command"} | facts, required=plain)
    fact = partial(pages.fact, page=entry["page"], note=entry["note"])
    values = {name: entry[name] for name in facts if name in entry}
    if "stops_meter" in values:
        values["stops_meter"] = Stops(values["stops_meter"])
    return Verb(
        entry["verb"],
        End[entry["end"].upper()],
        By[entry["by"].upper()],
        command=entry.get("command", ""),
        **{name: fact(value) for name, value in values.items()},
    )


def _keys(entry: Mapping[str, Any], allowed: Any, required: Any = frozenset()) -> None:
    for wrong, text in ((entry.keys() - set(allowed), "is not expected"), (set(required) - entry.keys(), "is missing")):
        if wrong:
            raise PresetInvalid(f"{', '.join(sorted(wrong))} {text} in {dict(entry)}"[:300])
