"""A spec as text to copy: YAML, a command of the command line, a request with curl.

Shells are given quoted words, or the text as a quoted here-document, in which nothing means anything to them. What
comes back out of each of the three is the very same spec; tests submit it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

import yaml

from supervisor.dashboard.shaping.spec_flags import as_words

Spec = dict[str, Any]
DOTS = "•••"
END = "SPEC"  # of a here-document
WIDTH = 110


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stand as blocks; nothing refers to anything else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """What cannot be seen, line breaks of other alphabets among it, stands in quotes, where it has names."""
    seen = value.replace("\n", "").isprintable()
    style = '"' if not seen else "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(spec: Spec) -> str:
    text = yaml.dump(spec, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)
    return _seen(text, lambda letter: f"\\U{ord(letter):08x}")  # they stand in double quotes, see _text


def masked(value: Any) -> Any:
    """The same with dots for every value of an environment, wherever one stands."""
    if isinstance(value, dict):
        return {
            name: dict.fromkeys(inner, DOTS) if name == "env" and isinstance(inner, dict) else masked(inner)
            for name, inner in value.items()
        }
    return [masked(item) for item in value] if isinstance(value, list) else value


def as_command(spec: Spec) -> str:
    """For the command line, which puts the present folder where no `workdir` is named: none was, so it says so."""
    words = as_words(spec)
    if words is not None:
        return _typed(words)
    return _fed("spot submit -", as_yaml(spec if "workdir" in spec else {**spec, "workdir": None}))


def as_curl(spec: Spec) -> str:
    asked = 'curl -sS "$SPOT_URL/v1/runs" -H "Authorization: Bearer $SPOT_TOKEN" --json @-'
    text = json.dumps({"spec": spec}, indent=2, ensure_ascii=False) + "\n"
    return _fed(asked, _seen(text, lambda letter: json.dumps(letter)[1:-1]))


def _seen(text: str, by_number: Callable[[str], str]) -> str:
    """What a terminal would obey, such as DEL, or what turns the direction of reading, by its number."""
    return "".join(one if one == "\n" or one.isprintable() else by_number(one) for one in text)


def _typed(words: list[str]) -> str:
    """An option a line, then the command."""
    at = words.index("--") if "--" in words else len(words)
    parts = ["spot submit"]
    for word in words[:at]:
        option, sign, value = word.partition("=")
        parts.append(option + sign + (shlex.quote(value) if sign else ""))
    if at < len(words):
        parts.append(shlex.join(words[at:]))
    return " \\\n  ".join(parts) + "\n"


def _fed(command: str, text: str) -> str:
    lines, end = set(text.split("\n")), END
    while end in lines:
        end += "_"
    return f"{command} <<'{end}'\n{text}{end}\n"
