"""Credentials in files: what is read, what is refused, and that nothing of it is shown."""

from pathlib import Path

import pytest

from supervisor.domain import callers
from supervisor.domain.errors import SettingsRefused
from supervisor.settings import credentials
from supervisor.wiring.settings import digest, load

URL = "postgresql://spot:pa55word@db/spot"


def database_url(tmp_path: Path, setting: str) -> str:
    return load({"data_dir": str(tmp_path)}, {"SPOT_DATABASE_URL": setting, "HOME": "/"}).database_url


def test_the_database_address_is_the_first_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(f"{URL}\nnot this\n")
    assert database_url(tmp_path, f"file:{file}") == URL
    assert database_url(tmp_path, URL) == URL


@pytest.mark.parametrize(
    ("content", "path", "complaint"),
    [
        (b"", "url", "is empty"),
        (b"\xff\xfe", "url", "it is not text"),
        (b"x", "other", "cannot be read: No such file"),
        (b"mysql://root:pa55word@db/x", "url", "expected sqlite:///PATH"),
    ],
)
def test_an_unusable_value_is_refused_by_name(tmp_path: Path, content: bytes, path: str, complaint: str) -> None:
    (tmp_path / "url").write_bytes(content)
    with pytest.raises(SettingsRefused, match=complaint) as refused:
        database_url(tmp_path, f"file:{tmp_path / path}")
    assert refused.value.detail.startswith("database_url: ")
    assert "pa55word" not in refused.value.detail


def test_a_file_is_named_by_its_whole_path(tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match="needs the whole path"):
        database_url(tmp_path, "file:url")
    with pytest.raises(SettingsRefused, match="needs the whole path"):
        load({"data_dir": str(tmp_path)}, {"SPOT_ADMIN_TOKEN": "file:admin-token", "HOME": "/"})


def test_the_admin_token_is_shown_nowhere() -> None:
    token = callers.write(b"\x03" * callers.RANDOM_BYTES)
    settings = load({}, {"SPOT_ADMIN_TOKEN": token, "HOME": "/"})
    assert settings.access.admin_token == token
    assert token not in repr(settings)
    assert credentials.shown("admin_token", token) == "***"
    assert digest(settings) == digest(load({}, {"SPOT_ADMIN_TOKEN": token[::-1], "HOME": "/"})), "no guess to test"
