"""Texts that are secrets by their looks: the makers' own beginnings, and a value behind a name that says what it is.

What is refused in a spec and what is hidden in a log are judged by the same table.

Names of variables that say that they hold a secret: no training inherits one that it has not asked for.
"""

from __future__ import annotations

import re

_WORDS = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE|_PAT$|_PWD$|_DSN$|^PASS$|_PASS$", re.IGNORECASE
)


def looks_secret(name: str) -> bool:
    return _WORDS.search(name) is not None


_NAME = "(API[-_]?KEY|ACCESS[-_]KEY|TOKEN|SECRET|PASSW(OR)?D)"
_CHAR = "[A-Za-z0-9+/=_.-]"
_VALUE = rf"(?![./])(?={_CHAR}*[0-9])(?={_CHAR}*[A-Za-z]){_CHAR}{{20,}}"
NAME = re.compile(rf"{_NAME}$", re.IGNORECASE)
VALUE = re.compile(_VALUE)
# What a text is -> how it looks, wherever it stands.
MAKERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("a key that begins with sk-", re.compile(r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{20,}")),
    ("a Hugging Face token", re.compile(r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{20,}")),
    (
        "a GitHub token",
        re.compile(r"(?<![A-Za-z0-9])(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})"),
    ),
    ("a GitLab token", re.compile(r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,}")),
    ("an AWS access key", re.compile(r"(?<![A-Za-z0-9])A(KIA|SIA)[0-9A-Z]{16}(?![0-9A-Za-z])")),
    ("a Slack token", re.compile(r"(?<![A-Za-z0-9])xox[abeprs]-[A-Za-z0-9-]{10,}")),
    ("a Google API key", re.compile(r"(?<![A-Za-z0-9])AIza[0-9A-Za-z_-]{30,}")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----")),
)
KEYS = (*MAKERS, ("the value of a key", re.compile(rf"{_NAME}=['\"]?{_VALUE}", re.IGNORECASE)))
KEY_MIN = 15  # characters: no shorter text is any of these
