"""Characters of strangers' text that a reader does not see and that change what the reader sees.

Control characters, C1 too, drive a terminal. Marks of writing direction (bidi) turn `exe.png` around, and characters
without width hide text. Labels, metric names, commands and log lines come from people and programs whom we do not know.
A text that is kept and shown to others (a label, a note, a reason) is refused with such characters: ONE_LINE and PROSE
are the check and what the API's document says. Every text is shown with `visible`.
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
