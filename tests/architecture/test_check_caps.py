"""tools/checks/caps.py: each cap is broken once."""

from pathlib import Path

import pytest

from tools.checks.caps import MAX_FILE_LINES, MAX_FUNCTION_LINES, size_problems


def problems(root: Path, name: str, text: str) -> list[str]:
    path = root / "supervisor" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return size_problems(root)


def function_of(lines: int) -> str:
    return "def long():\n" + "    pass\n" * (lines - 1)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("room/big.py", "x = 1\n" * (MAX_FILE_LINES + 1), f"{MAX_FILE_LINES + 1} lines"),
        ("room/long.py", function_of(MAX_FUNCTION_LINES + 1), f"long() has {MAX_FUNCTION_LINES + 1} lines"),
        ("room/long.py", "async " + function_of(MAX_FUNCTION_LINES + 1), "long() has"),
        ("room/__init__.py", '"""Words."""\nx = 1\n', "__init__.py:2: only a docstring"),
        ("room/__init__.py", "def f():\n    pass\n", "only a docstring"),
        ("room/utils.py", "", "'utils' says nothing"),
        ("helpers/good.py", "", "'helpers' says nothing"),
    ],
)
def test_a_broken_cap_is_found(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    complaints = problems(tmp_path, name, text)
    assert len(complaints) == 1
    assert complaint in complaints[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("room/full.py", "x = 1\n" * MAX_FILE_LINES),
        ("room/full.py", function_of(MAX_FUNCTION_LINES)),
        ("room/__init__.py", '"""Words."""\nfrom json import loads\n\n__all__ = ["loads"]\n'),
    ],
)
def test_what_fits_is_left_alone(tmp_path: Path, name: str, text: str) -> None:
    assert problems(tmp_path, name, text) == []
