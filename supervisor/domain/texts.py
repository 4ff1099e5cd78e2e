"""Texts from outside: with hidden characters, with secrets, or quoted in our sentences.

Control characters (C1 too) control a terminal, marks of writing direction reverse `exe.png`, and zero-width characters
hide text. Labels, metric names, commands and log lines come from unknown people and programs. A text that is stored and
shown to others (a label, a note, a reason) must not have such characters: ONE_LINE and PROSE are the check and the
pattern in the API's document. Each text is displayed with `visible`.

A secret is recognized by the prefix of its issuer, or by the name before its value. The same table refuses a spec and
masks a log. A training inherits no variable whose name looks like a secret, unless its spec names the variable.
"""

from __future__ import annotations

import re

# Of Unicode: marks of direction, zero-width characters, line and paragraph separators, annotations, tags. Python, JSON
# schema (ECMA-262 with its flag u) and Rust read this text alike; the tags have no common escape and are literal.
INVISIBLE = r"\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb" + "\U000e0000-\U000e007f"
_HIDING = rf"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{INVISIBLE}"  # without tabs and line ends
HIDDEN = re.compile(f"[{_HIDING}]")
ONE_LINE = rf"^[^\x00-\x1f\x7f-\x9f{INVISIBLE}]*$"  # no hidden characters, tabs or line ends
PROSE = rf"^[^{_HIDING}]*[^\s{_HIDING}][^{_HIDING}]*$"  # not blank; may have lines; no hidden characters
REFUSAL = "must not hold control characters, marks of writing direction or other hidden characters"

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE|_PAT$|_PWD$|_DSN$|^PASS$|_PASS$", re.IGNORECASE
)
_NAME = "(API[-_]?KEY|ACCESS[-_]KEY|TOKEN|SECRET|PASSW(OR)?D)"
_CHAR = "[A-Za-z0-9+/=_.-]"
_VALUE = rf"(?![./])(?={_CHAR}*[0-9])(?={_CHAR}*[A-Za-z]){_CHAR}{{20,}}"
NAME = re.compile(rf"{_NAME}$", re.IGNORECASE)
VALUE = re.compile(_VALUE)
# Name of a secret -> its form, at any position of a text.
SECRET_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("a key that begins with sk-", re.compile(r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{20,}")),
    ("a Hugging Face token", re.compile(r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{20,}")),
    ("a GitHub token", re.compile(r"(?<![A-Za-z0-9])(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})")),
    ("a GitLab token", re.compile(r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,}")),
    ("an AWS access key", re.compile(r"(?<![A-Za-z0-9])A(KIA|SIA)[0-9A-Z]{16}(?![0-9A-Za-z])")),
    ("a Slack token", re.compile(r"(?<![A-Za-z0-9])xox[abeprs]-[A-Za-z0-9-]{10,}")),
    ("a Google API key", re.compile(r"(?<![A-Za-z0-9])AIza[0-9A-Za-z_-]{30,}")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----")),
)
KEYS = (*SECRET_FORMS, ("the value of a key", re.compile(rf"{_NAME}=['\"]?{_VALUE}", re.IGNORECASE)))
KEY_MIN = 15  # characters: no shorter text has one of these forms


def is_utf8(text: str) -> bool:
    """False: the text has bytes of an environment or a file name that are not UTF-8 (surrogates in Python)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def visible(text: str) -> str:
    """`text` with each hidden character as its code point: `⟨U+202E⟩`."""
    return HIDDEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def visible_in(value: object) -> object:
    """The same for each text in `value`, a JSON value."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible_in(key): visible_in(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [visible_in(item) for item in value]
    return value


def looks_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def clause(words: object) -> str:
    """A foreign text as a part of our sentence: without the full stop at its end."""
    return str(words).rstrip(". \r\n\t")
