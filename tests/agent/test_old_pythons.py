"""An image may have any Python: for one that is too old the agent prints one line and has an exit code of its own."""

import ast
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.components import require_component

TOO_OLD = 4


def old_python(version: str) -> str:
    pythons = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    require_component(f"Python {version}", bool(pythons), f"pyenv install {version}")
    return str(pythons[0])


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7"])
def test_an_old_python_says_so_and_nothing_else(archive: Path, tmp_path: Path, version: str) -> None:
    done = subprocess.run(
        [old_python(version), str(archive), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == TOO_OLD
    assert done.stderr.startswith("spot: the agent needs Python 3.8 or newer; this one, ")
    assert f" is {version}." in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_entry_is_spelt_for_any_python(archive: Path) -> None:
    """Without an old Python at hand: the code before the check must not use words that it does not know."""
    text = zipfile.ZipFile(archive).read("__main__.py").decode("ascii")
    before, check, _ = text.partition("if sys.argv")
    assert check
    tree = ast.parse(before)
    kinds = {type(node).__name__ for node in ast.walk(tree)}
    assert not kinds & {"JoinedStr", "AnnAssign", "NamedExpr", "AsyncFunctionDef", "Starred", "ImportFrom"}
    assert "sys.exit(4)" in before
