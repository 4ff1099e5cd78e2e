"""The settings of this installation: read with the sections of all providers that there are.

`supervisor/settings` knows how settings are read and knows no provider; the list of providers knows their sections.
They meet here. What is imported is light, because each command of `spot` reads the settings.

And one short text that stands for all settings: two supervisors that tell the same one are set alike. What is secret
does not go into it, so that nobody can try out guesses of a secret against it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping

from supervisor.ports.traits import Traits
from supervisor.providers.kinds import PROVIDERS
from supervisor.settings import alerts as settings_alerts
from supervisor.settings import loading
from supervisor.settings.loading import Settings
from supervisor.settings.sections import SECTIONS

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
    """Of a provider that is in use; "" = the first one."""
    return PROVIDERS[settings.sections[name or settings.provider].kind].traits


def digest(settings: Settings) -> str:
    """Of every setting but the secret ones; of a URL without its user and password."""
    told = {
        name: _PASSWORD.sub("", str(settings.value(name)))
        for name in settings.flat
        if name not in settings_alerts.SECRET
    }
    in_sections = {name for name in settings.origins if name.startswith(SECTIONS)}
    told.update({name: str(settings.value(name)) for name in in_sections})
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:DIGITS]
