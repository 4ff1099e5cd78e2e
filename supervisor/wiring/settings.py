"""The settings of this installation: `supervisor/settings` with the kinds of all providers.

`supervisor/settings` reads settings and knows no provider; the list of providers knows their sections. They meet here.
The imports are light, because every command of `spot` reads the settings.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Mapping

from supervisor.ports.traits import Traits
from supervisor.providers.kinds import PROVIDERS
from supervisor.settings import credentials, loading
from supervisor.settings.loading import Settings
from supervisor.settings.sections import SECTIONS

DEFAULT_KIND = next(iter(PROVIDERS))  # where the settings name no provider
DIGITS = 16
_PASSWORD = re.compile(r"(?<=://)[^/@]*@")


def load(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
    env_file: str | os.PathLike[str] | None = None,
) -> Settings:
    """As `loading.load`. Raises SettingsRefused, InvalidTimeouts."""
    return loading.load(PROVIDERS, flags, environ, file, env_file)


def traits_of(settings: Settings, name: str = "") -> Traits:
    """Of a provider in use; "" = the first one."""
    return PROVIDERS[settings.sections[name or settings.provider].kind].traits


def digest(settings: Settings) -> str:
    """A hash of all settings: two supervisors with the same digest have the same settings. Without secret settings, and
    without user and password of URLs, so that nobody can test guesses of a secret against it."""
    values = {name: str(settings.value(name)) for name in settings.origins if name not in credentials.SECRET}
    values |= {name: _PASSWORD.sub("", value) for name, value in values.items() if not name.startswith(SECTIONS)}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:DIGITS]


Group = tuple[str, str]  # name, title


def groups_of(settings: Settings) -> dict[str, Group]:
    """Provider -> the group of the doctor's lines about it. Rented providers first, because their lines also cover a
    remote store. Providers of the same kind have a group each."""
    traits = {name: PROVIDERS[section.kind].traits for name, section in settings.sections.items()}
    shared = Counter(each.group for each in traits.values())
    order = sorted(traits.items(), key=lambda item: not item[1].rented)
    return {
        name: (f"{each.group} {name}", f"{each.title} ({name})") if shared[each.group] > 1 else (each.group, each.title)
        for name, each in order
    }
