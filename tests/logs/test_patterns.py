"""The table of patterns: each text of an error is in its pattern, no line is slow, a healthy line costs nothing."""

from __future__ import annotations

import importlib
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract.logs.matcher import patterns_of, scan
from supervisor.contract.logs.patterns import PATTERNS
from supervisor.contract.logs.phrases import TRIGGERS, Pattern
from supervisor.contract.signs import ROLES

# Lines that programs print at an error, by their pattern, and lines that only look like one of it.
TEXTS = json.loads((Path(__file__).parent / "texts.json").read_text(encoding="utf-8"))
LINES, ALIKE = TEXTS["lines"], TEXTS["alike"]
LONGEST_REPEAT = 4096
SLOWEST_S = 0.02  # for one line of 4 KB and one pattern, on a loaded computer
PREFIXES = ("", "[rank3]: ", "2026-11-26 12:00:00,123 - train - ERROR - ", "\x1b[31m", "(train pid=12) ")


def ids(text: str) -> set[str]:
    return {seen.pattern.id for seen in scan(text.encode()).seen()}


def test_each_pattern_has_a_meaning_a_role_an_id_of_its_own_and_examples() -> None:
    names = Counter(pattern.id for pattern in PATTERNS)
    assert names.most_common(1)[0][1] == 1
    assert set(names) == set(LINES)
    assert all(pattern.role in ROLES and pattern.meaning and pattern.anchors for pattern in PATTERNS)
    assert all(re.fullmatch(r"[a-z][a-z_]{2,30}", pattern.id) for pattern in PATTERNS)


@pytest.mark.parametrize("name", LINES)
def test_a_line_of_an_error_is_found_by_its_trigger_and_its_pattern(name: str) -> None:
    for line in LINES[name]:
        assert name in ids(f"step 1\n{line}\nstep 2\n"), line
        assert name in {pattern.id for pattern in patterns_of(line)}, line


def test_a_prefix_or_a_color_hides_no_error() -> None:
    bound_to_the_beginning = {"line_ends", "shell_killed", "teardown", "hang_up", "launcher"}
    for name in set(LINES) - bound_to_the_beginning:
        for prefix in PREFIXES:
            assert name in ids(f"{prefix}{LINES[name][0]}\x1b[0m\n"), (name, prefix)


@pytest.mark.parametrize("name", ALIKE)
def test_a_line_that_looks_like_an_error_is_none(name: str) -> None:
    for line in ALIKE[name]:
        assert name not in ids(line + "\n"), line


def test_a_healthy_line_has_no_trigger() -> None:
    lines = (
        "2026-11-26 12:00:00 INFO trainer: epoch 3 step 4711 loss=0.1234 lr=0.0003 grad_norm=1.23 tokens/s=4711",
        " 12%|█▏        | 1234/10000 [01:02<08:00, 18.2it/s, loss=0.71, memory=12.3GiB]",
        "{'loss': 1.23, 'grad_norm': 0.4, 'learning_rate': 5e-05, 'epoch': 0.3}",
        "saved checkpoint /checkpoints/step-4711.pt (1.2 GB, 3.4 s)",
        "Epoch 3/10 - accuracy: 0.91 - val_loss: 0.31 - val_accuracy: 0.89",
    )
    for line in lines:
        assert not [trigger for trigger in TRIGGERS if trigger in line.encode()], line


def unbounded(regex: bytes) -> bool:
    """Whether a part of the expression may repeat without a limit, or repeats something that repeats."""
    parser: Any = importlib.import_module("re._parser")

    def is_bad(part: Any, repeated: bool) -> bool:
        """A parsed expression is a sequence of (operation, argument); an argument may hold further ones."""
        if isinstance(part, tuple) and len(part) == 2 and str(part[0]).endswith("_REPEAT"):
            _, most, inner = part[1]
            many = most > 1
            return most > LONGEST_REPEAT or (repeated and many) or is_bad(inner, repeated or many)
        inside = part if isinstance(part, list | tuple) else getattr(part, "data", ())
        return any(is_bad(item, repeated) for item in inside)

    return is_bad(parser.parse(regex), False)


@pytest.mark.parametrize("regex", [rb"a*b", rb"(?:a{1,3}){1,40}", rb"x.+y", rb"(a{0,9}b){2}"])
def test_an_expression_without_a_bound_is_noticed(regex: bytes) -> None:
    assert unbounded(regex)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.id)
def test_no_expression_is_slow_on_any_line(pattern: Pattern) -> None:
    assert not unbounded(pattern.regex)
    regex = re.compile(pattern.regex)
    parts = [*pattern.anchors, b"a", b" ", b"[", b"'", b"/", b".", b"1", b": ", b"\\r'", b"process", b"loss"]
    for part in parts:
        line = (part * (4096 // len(part) + 1))[:4096]
        begun = time.thread_time()
        regex.search(line)
        assert time.thread_time() - begun < SLOWEST_S, part
