"""One short text that stands for all settings: two supervisors that tell the same one are set alike.

What is secret does not go into it, so that nobody can try out guesses of a secret against it.
"""

from __future__ import annotations

import hashlib
import json
import re

from supervisor.settings import alerts as settings_alerts
from supervisor.settings.loading import FIELDS, Settings

DIGITS = 16
_PASSWORD = re.compile(r"(?<=://)[^/@]*@")


def digest(settings: Settings) -> str:
    """Of every setting but the secret ones; of a URL without its user and password."""
    told = {
        name: _PASSWORD.sub("", str(getattr(settings, name)))
        for name in FIELDS
        if name not in settings_alerts.SECRET
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:DIGITS]
