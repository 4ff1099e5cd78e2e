"""A too large folder is refused with its largest parts, before any file is read; a full disk is named as the reason."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from supervisor.cli.exits import CliError
from supervisor.cli.files import pack
from tests.cli.test_pack import refused, sha256, write


def test_too_much_names_the_largest_folders(tmp_path: Path) -> None:
    folder = write(tmp_path / "code", {"train.py": "1", "data/raw/x/info": "1", "few/a": "1"})
    for name, size in (("data/raw/x/a.bin", 90), ("data/raw/x/b.bin", 60), ("few/weights", 20), ("one.bin", 30)):
        with (folder / name).open("wb") as file:
            file.truncate(size * 1_000_000)
    error = refused(folder)
    assert "7 files, 200 MB" in error.text
    assert [hint.split()[2] for hint in error.hints[:-1]] == ["data/raw/x/", "one.bin", "few/"]  # not train.py
    assert ".spotignore" in error.hints[-1]
    write(folder, {".spotignore": "data/\n"})
    assert sha256(folder)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: the error said that the last read file was unreadable."""
    (tmp_path / "train.py").write_bytes(os.urandom(3_000_000))
    monkeypatch.setattr(pack, "_IN_MEMORY_BYTES", 1000)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "w+b"))  # noqa: SIM115
    with pytest.raises(CliError) as error, pack.packed(tmp_path):
        pass
    assert "No space left on device. Free some space there, or set TMPDIR" in error.value.text
    assert "train.py" not in error.value.text


def test_too_many_names_the_fullest_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "MAX_FILES", 30)
    many = {f"env/lib/{number}.py": "1" for number in range(29)}
    folder = write(tmp_path / "code", {**many, "large": "1" * 1000, "src/a.py": "1"})
    error = refused(folder)
    assert "31 files" in error.text
    assert error.hints[0].split()[2:] == ["env/lib/", "(29", "files)"]
