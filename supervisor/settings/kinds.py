"""A kind of provider for the settings and the composition root: one value, defined in the provider's own folder.

The list of all kinds is in `providers/kinds.py`. A kind is light: its settings, its traits, and functions that load
heavy code (a vendor's libraries) when they are called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.texts import looks_secret
from supervisor.ports.traits import Traits
from supervisor.settings.values import Rules

if TYPE_CHECKING:  # every command of `spot` reads the settings, so unused code is not loaded
    from supervisor.domain.findings import Finding
    from supervisor.ports.opening import OpenedProvider, ProviderContext

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class StoreForm:
    """The object store of a daemon that has only this kind. `form`: the address in words; `pattern`: the regular
    expression of the address; `hint`: the end of a refusal, with an example."""

    form: str
    pattern: re.Pattern[str]
    hint: str = ""

    @property
    def scheme(self) -> str:
        return self.form.partition(":")[0]

    @property
    def start(self) -> str:
        """The start of the form, up to its first placeholder."""
        return re.split("[A-Z[]", self.form, maxsplit=1)[0]


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[V]):
    """`values`: a frozen dataclass, each field is one setting with its default. `prefix`: the part of a setting's name
    that a key of a section leaves out. `rules`: bounds of single values. `check(values)`: refuses contradicting pairs.
    `complete(values)`: refuses missing settings. Both raise SettingsRefused. `idle(values)`: a setting that is set and
    makes sense for this kind only, as `name = value`; "" = none is set.

    `meaning(values, store_url, image)`: the valid settings in words, and further lines for the doctor. `ready()`:
    raises SettingsRefused if this installation cannot open the kind. `open(name, values, context)`: the provider with
    this name. Raises SettingsRefused. `leaves_no_trace`: opening writes nothing, so the doctor may open it too."""

    traits: Traits
    values: type[V]
    prefix: str
    store: StoreForm
    open: Callable[[str, V, ProviderContext], OpenedProvider]
    meaning: Callable[[V, str, str], tuple[str, tuple[Finding, ...]]]
    rules: Rules = field(default_factory=Rules)
    check: Callable[[V], None] = lambda values: None
    complete: Callable[[V], None] = lambda values: None
    idle: Callable[[V], str] = lambda values: ""
    ready: Callable[[], None] = lambda: None
    leaves_no_trace: bool = False

    @property
    def fields(self) -> Mapping[str, str]:
        """Name of each setting -> its annotation."""
        return {each.name: str(each.type) for each in fields(self.values)}  # type: ignore[arg-type]

    def key(self, setting: str) -> str:
        """The setting's name in a section."""
        return setting.removeprefix(self.prefix)


Kinds = Mapping[str, Kind[Any]]


@dataclass(frozen=True, slots=True)
class Section:
    """A provider in use: a kind and its values."""

    kind: str
    values: Any


def need(kind: str, values: object, examples: Mapping[str, str]) -> None:
    """Every setting of `examples` must be set. Raises SettingsRefused with the example."""
    for name, example in examples.items():
        if not getattr(values, name):
            text = f"provider = {kind} needs {name}, and it is not set. For example: SPOT_{name.upper()}={example}"
            raise SettingsRefused(text, {"name": name})


def match(values: object, forms: Mapping[str, tuple[str, str]]) -> None:
    """`forms`: setting -> (pattern, expected form in words); "" is allowed. Raises SettingsRefused, which does not
    repeat what may be a secret."""
    for name, (form, expected) in forms.items():
        value = getattr(values, name)
        if value and not re.fullmatch(form, value):
            shown = name if looks_secret(name) else f"{name} = {value}"
            raise SettingsRefused(f"{shown}: expected {expected}", {"name": name})
