"""Names of variables that say that they hold a secret: no training inherits one that it has not asked for."""

from __future__ import annotations

import re

_WORDS = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE|_PAT$|_PWD$|_DSN$|^PASS$|_PASS$", re.IGNORECASE
)


def looks_secret(name: str) -> bool:
    return _WORDS.search(name) is not None
