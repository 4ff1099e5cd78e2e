"""A kind of provider as the settings and the composition root see it: one value, made in the provider's own folder.

The list of all kinds stands in `providers/kinds.py`. A kind is light: its settings, its traits, and functions that load
what is heavy (a vendor's libraries) when they are called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from supervisor.domain.errors import SettingsRefused
from supervisor.ports.traits import Traits
from supervisor.settings.values import Rules

if TYPE_CHECKING:  # each command of `spot` reads the settings: what it never calls is not loaded
    from supervisor.domain.findings import Finding
    from supervisor.ports.opening import OpenedProvider, ProviderContext

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class StoreForm:
    """The object store of a daemon with this kind alone. `form`: the address in words; `pattern`: what it must match;
    `hint`: the end of a refusal, with an example."""

    form: str
    pattern: re.Pattern[str]
    hint: str = ""

    @property
    def scheme(self) -> str:
        return self.form.partition(":")[0]

    @property
    def start(self) -> str:
        """How the form begins, up to its first placeholder."""
        return re.split("[A-Z[]", self.form, maxsplit=1)[0]


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[V]):
    """`values`: a frozen dataclass, each field one setting with its default; `prefix`: what a key of a section leaves
    out of its name; `rules`: bounds of single values. `check(values)`: pairs that contradict each other, given or not;
    `complete(values)`: what is missing for use. Both raise SettingsRefused. `idle(values)`: a setting that only
    somebody sets who means this kind, as `name = value`; "" = none is set.

    `meaning(values, store_url, image)`: what counts here, in words, and more lines for the doctor. `ready()`: can it be
    opened in this installation? Raises SettingsRefused. `open(name, values, context)`: the provider under this name.
    Raises SettingsRefused. `leaves_no_trace`: opening makes nothing, so the doctor may do it beside a supervisor."""

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
    """A provider that is in use: a kind and its values."""

    kind: str
    values: Any


def need(kind: str, values: object, examples: Mapping[str, str]) -> None:
    """Every setting of `examples` must be set. Raises SettingsRefused with the example."""
    for name, example in examples.items():
        if not getattr(values, name):
            variable = "SPOT_" + name.upper()
            raise SettingsRefused(
                f"provider = {kind} needs {name}, and it is not set. For example: {variable}={example}", {"name": name}
            )


def match(values: object, forms: Mapping[str, tuple[str, str]]) -> None:
    """`forms`: setting -> (pattern, what is expected); "" is left alone. Raises SettingsRefused."""
    for name, (form, expected) in forms.items():
        value = getattr(values, name)
        if value and not re.fullmatch(form, value):
            raise SettingsRefused(f"{name} = {value}: expected {expected}", {"name": name})
