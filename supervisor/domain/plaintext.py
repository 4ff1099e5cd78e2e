"""Characters of strangers' text that a reader does not see and that change what the reader sees.

Control characters, C1 too, drive a terminal. Marks of writing direction (bidi) turn `exe.png` around, and characters
without width hide text. Labels, metric names, commands and log lines come from people and programs whom we do not know.
Requests that carry such characters in a label or a note are refused (`one_line`); every text is shown with `visible`.
"""

from __future__ import annotations

import re

# Of Unicode: marks of direction, characters without width, line and paragraph separators, annotations, tags.
INVISIBLE = "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
HIDDEN = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{INVISIBLE}]")  # but for tabs and line ends


def one_line(text: str) -> str:
    """`text` itself; ValueError where it is more than one line or holds hidden characters."""
    if HIDDEN.search(text) or any(char in text for char in "\t\n\r"):
        raise ValueError(
            "must not hold control characters, marks of writing direction or other hidden characters"
        )
    return text


def visible(text: str) -> str:
    """`text` with each hidden character as its number: `⟨U+202E⟩`."""
    return HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def visible_in(value: object) -> object:
    """The same of every text in `value`, which is what JSON can hold."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible_in(key): visible_in(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [visible_in(item) for item in value]
    return value
