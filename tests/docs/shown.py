"""Commands that a page shows with their answers, and whether an answer is what the page says.

In a block of `console` a line that begins with `$ ` is a command (a backslash at its end goes on in the next line), and
what follows is its answer. `…` stands for what was left out.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BLOCK = re.compile(r"^```console\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
MARK = "-- the next answer --"


@dataclass
class Shown:
    command: str
    answer: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.answer).strip()


def sections(page: str, level: str = "### ") -> dict[str, str]:
    """Heading → what stands below it."""
    parts = re.split(rf"^{level}(.+)\n", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.split("\n## ")[0] for part in parts[2::2]), strict=True))


def commands(section: str) -> list[Shown]:
    found: list[Shown] = []
    for block in BLOCK.findall(section):
        going_on = False
        for line in block.splitlines():
            if going_on:
                found[-1].command += "\n" + line
            elif line.startswith("$ "):
                found.append(Shown(line[2:]))
            else:
                found[-1].answer.append(line)
                continue
            going_on = line.endswith("\\")
    return found


def run(prelude: str, wanted: list[Shown], env: Mapping[str, str]) -> list[str]:
    """What each command answers, in one shell after the other's."""
    script = "\n".join([prelude, *(f"{one.command}\nprintf '\\n{MARK}\\n'" for one in wanted)])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    answers = [part.strip() for part in done.stdout.split(MARK)]
    assert len(answers) == len(wanted) + 1, (done.returncode, done.stderr, done.stdout[-2000:])
    return answers[:-1]


def differs(shown: str, answer: str) -> str:
    """Why an answer is not what is shown; "" = it is."""
    if not shown.startswith(("{", "[")):
        return _lines_differ(shown, answer)
    try:
        return _differs(json.loads(_whole(shown)), json.loads(answer), "")
    except ValueError as error:
        return f"{error}: {answer[:300]}"


def _whole(shown: str) -> str:
    """JSON again, without what stands for more."""
    return re.sub(r"(?:,\s*)?…(?:,\s*)?(?=\s*[\]}])", "", shown)


def _differs(shown: Any, answer: Any, at: str) -> str:
    """Fields that are shown must be there, in the same type; null tells no type."""
    if isinstance(shown, dict) and isinstance(answer, dict):
        if lost := sorted(shown.keys() - answer.keys()):
            return f"{at}/{lost[0]} is not answered"
        return next((why for key in shown if (why := _differs(shown[key], answer[key], f"{at}/{key}"))), "")
    if isinstance(shown, list) and isinstance(answer, list):
        if shown and not answer:
            return f"{at} is empty"
        return _differs(shown[0], answer[0], f"{at}/0") if shown else ""
    if shown is None or answer is None or _kind(shown) == _kind(answer):
        return ""
    return f"{at} is {json.dumps(answer)[:100]}"


def _kind(value: object) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def _lines_differ(shown: str, answer: str) -> str:
    """Lines of a text; numbers, ids and times may be others."""
    told = [_plain(line) for line in answer.splitlines()]
    for line in shown.splitlines():
        begun = line.partition("…")[0]
        there = any(one.startswith(_plain(begun)) if "…" in line else one == _plain(line) for one in told)
        if not there:
            return f"not answered: {line}"
    return ""


def _plain(line: str) -> str:
    return re.sub(r"[0-9a-f]{8,}|\d+", "0", line).strip()
