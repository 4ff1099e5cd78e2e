"""Settings of providers: the settings of each kind, and the sections [providers.NAME] of the file, one per provider.

A key of a section is the setting's name without the prefix of its kind (`zones`), or the whole name. A key that a
section leaves out has the value of that setting, so a variable of the environment is a default for all sections of its
kind. Without any section, the setting `provider` names a kind, which is also the name of the provider.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from supervisor.domain.errors import SettingsRefused
from supervisor.settings.kinds import Kind, Kinds, Section
from supervisor.settings.values import close_miss, parse

PROVIDERS = "providers"
SECTIONS = f"{PROVIDERS}."  # the start of the names of their keys
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
Given = Mapping[str, tuple[object, str]]  # setting -> (raw value, origin)


def flat(kind: Kind[Any], given: Given) -> Any:
    """The values of this kind outside of sections. Raises SettingsRefused."""
    values = {
        name: parse(name, annotation, *given[name], kind.rules)
        for name, annotation in kind.fields.items()
        if name in given
    }
    return kind.values(**values)


def read(
    kinds: Kinds, tables: object, file: str, defaults: Mapping[str, Any]
) -> tuple[dict[str, Section], dict[str, str]]:
    """(sections by name in the order of the file, origins of their keys). Raises SettingsRefused."""
    if not isinstance(tables, dict) or not tables:
        raise SettingsRefused(
            f"{file}: providers: expected sections such as [providers.{next(iter(kinds))}], each with its kind",
            {"path": file},
        )
    sections: dict[str, Section] = {}
    origins: dict[str, str] = {}
    for name, table in tables.items():
        title = f"[{PROVIDERS}.{name}]"
        if not _NAME.fullmatch(name):
            raise SettingsRefused(
                f"{file}: {title}: a name is a lower-case letter, then up to 30 letters, digits or dashes",
                {"path": file},
            )
        if not isinstance(table, dict):
            raise SettingsRefused(f"{file}: {PROVIDERS}.{name}: expected a section {title}", {"path": file})
        word = _kind(kinds, table, f"{file}: {title}")
        given = dict(_keys(kinds[word], table, file, title))
        values = {
            key: parse(key, kinds[word].fields[key], raw, f"file {file} {title}", kinds[word].rules)
            for key, raw in given.items()
        }
        sections[name] = Section(word, replace(defaults[word], **values))
        origins.update({f"{PROVIDERS}.{name}.{key}": f"file {file}" for key in ("kind", *given)})
    return sections, origins


def _kind(kinds: Kinds, table: Mapping[str, object], where: str) -> str:
    word, words = table.get("kind"), " or ".join(kinds)
    if word is None:
        raise SettingsRefused(f"{where}: kind is not set: expected {words}", {"name": "kind"})
    if not isinstance(word, str) or word not in kinds:
        near = close_miss(str(word), kinds)
        hint = f"; did you mean {near}?" if near else ""
        raise SettingsRefused(f"{where}: kind = {word}: expected {words}{hint}", {"name": "kind"})
    return word


def _keys(kind: Kind[Any], table: Mapping[str, object], file: str, title: str) -> Iterator[tuple[str, object]]:
    """(setting, raw value) of every key but `kind`."""
    settings = {kind.key(name): name for name in kind.fields} | {name: name for name in kind.fields}
    keys: dict[str, str] = {}
    for key, raw in table.items():
        if key == "kind":
            continue
        facts = {"path": file, "name": key}
        if key not in settings:
            near = close_miss(key, settings)
            listed = ", ".join(kind.key(name) for name in kind.fields)
            hint = f"; did you mean {near}?" if near else f"; {kind.traits.kind} has {listed}"
            raise SettingsRefused(f"{file}: {title}: {key} is not a setting of {kind.traits.kind}{hint}", facts)
        earlier = keys.setdefault(settings[key], key)
        if earlier != key:
            raise SettingsRefused(f"{file}: {title}: {earlier} and {key} are the same setting: keep one", facts)
        yield settings[key], raw


def check_lone(kinds: Kinds, word: str, store_url: str) -> None:
    """Check the setting `provider`, and that the store fits this kind. Raises SettingsRefused."""
    if word not in kinds:
        raise SettingsRefused(f"provider = {word}: expected {' or '.join(kinds)}", {"name": "provider"})
    store = kinds[word].store
    if not store.pattern.fullmatch(store_url):
        raise SettingsRefused(
            f"provider = {word} needs store_url = {store.form}{_shown(kinds, store_url)}{store.hint}",
            {"provider": word},
        )


def _shown(kinds: Kinds, store_url: str) -> str:
    """An address with an unknown form is not repeated: it may be anything."""
    starts = tuple(kind.store.start for kind in kinds.values())
    return f"; it is {store_url}" if store_url.startswith(starts) else ""


def check_stores(kinds: Kinds, sections: Mapping[str, Section], store_url: str) -> None:
    """All providers must be able to use the one store. Raises SettingsRefused."""
    scheme = store_url.partition(":")[0]
    forms = {kind.store.scheme: kind.store for kind in kinds.values()}
    for name, section in sections.items():
        schemes, own = kinds[section.kind].traits.stores, kinds[section.kind].store
        form = own if scheme == own.scheme else forms.get(scheme, own)
        if scheme not in schemes or not form.pattern.fullmatch(store_url):
            expected = " or ".join(forms[word].form for word in schemes if word in forms)
            raise SettingsRefused(
                f"[{PROVIDERS}.{name}] (kind = {section.kind}) needs store_url = {expected}"
                f"{_shown(kinds, store_url)}; all providers share one store",
                {"provider": name},
            )


def check_values(kinds: Kinds, defaults: Mapping[str, Any], sections: Mapping[str, Section]) -> None:
    """Refuse contradicting pairs, and missing settings of kinds in use. Raises SettingsRefused."""
    for word in set(defaults) - {section.kind for section in sections.values()}:
        kinds[word].check(defaults[word])
    for name, section in sections.items():
        try:
            kinds[section.kind].check(section.values)
            kinds[section.kind].complete(section.values)
        except SettingsRefused as error:
            if section.values is defaults[section.kind] and name == section.kind:
                raise
            raise SettingsRefused(f"[{PROVIDERS}.{name}]: {error.detail}", error.meta) from None


def idle(kinds: Kinds, defaults: Mapping[str, Any], sections: Mapping[str, Section], lone: str) -> Iterator[str]:
    """Warnings about settings of a kind that is not in use. `lone`: the setting `provider`; "" = there are sections."""
    used = {section.kind for section in sections.values()}
    for word, kind in kinds.items():
        text = kind.idle(defaults[word]) if word not in used else ""
        if text and lone:
            yield f"{text} has no effect, because provider = {lone}. Set provider = {word}."
        elif text:
            yield f"{text} has no effect, because no section of [{PROVIDERS}] has kind = {word}."
