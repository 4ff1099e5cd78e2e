"""Texts of others: with characters that a reader does not see, with secrets that nobody may see, or to be quoted.

Control characters, C1 too, drive a terminal. Marks of writing direction (bidi) turn `exe.png` around, and characters
without width hide text. Labels, metric names, commands and log lines come from people and programs whom we do not know.
A text that is kept and shown to others (a label, a note, a reason) is refused with such characters: ONE_LINE and PROSE
are the check and what the API's document says. Every text is shown with `visible`.

A text is a secret by its looks: by the beginning that its maker gives it, or as a value behind a name that says what it
is. A spec is refused and a log is covered by the same table. No training inherits a variable whose name says that it
holds a secret, unless its spec names the variable.
"""

from __future__ import annotations

import re

# Of Unicode: marks of direction, characters without width, line and paragraph separators, annotations, tags. Written so
# that Python, JSON schema (ECMA-262 with its flag u) and Rust read the same; the tags have no spelling in common and
# stand as themselves.
INVISIBLE = r"\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb" + "\U000e0000-\U000e007f"
_HIDING = rf"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{INVISIBLE}"  # but for tabs and line ends
HIDDEN = re.compile(f"[{_HIDING}]")
ONE_LINE = rf"^[^\x00-\x1f\x7f-\x9f{INVISIBLE}]*$"  # neither hidden characters nor tabs and line ends
PROSE = rf"^[^{_HIDING}]*[^\s{_HIDING}][^{_HIDING}]*$"  # says something, in lines, without hidden characters
REFUSAL = "must not hold control characters, marks of writing direction or other hidden characters"


def is_utf8(text: str) -> bool:
    """False for bytes of an environment or a file name that are no UTF-8, as Python reads them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def visible(text: str) -> str:
    """`text` with each hidden character as its number: `⟨U+202E⟩`."""
    return HIDDEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def visible_in(value: object) -> object:
    """The same of every text in `value`, which is what JSON can hold."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible_in(key): visible_in(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [visible_in(item) for item in value]
    return value


_WORDS = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE|_PAT$|_PWD$|_DSN$|^PASS$|_PASS$", re.IGNORECASE)


def looks_secret(name: str) -> bool:
    return _WORDS.search(name) is not None


_NAME = "(API[-_]?KEY|ACCESS[-_]KEY|TOKEN|SECRET|PASSW(OR)?D)"
_CHAR = "[A-Za-z0-9+/=_.-]"
_VALUE = rf"(?![./])(?={_CHAR}*[0-9])(?={_CHAR}*[A-Za-z]){_CHAR}{{20,}}"
NAME = re.compile(rf"{_NAME}$", re.IGNORECASE)
VALUE = re.compile(_VALUE)
# What a text is -> how it looks, wherever it stands.
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
KEY_MIN = 15  # characters: no shorter text is any of these


def clause(words: object) -> str:
    """Somebody else's words, for a sentence of ours: without the full stop at their end, as ours brings its own."""
    return str(words).rstrip(". \r\n\t")
