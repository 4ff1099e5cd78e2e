"""Secrets by standard input: all of them or a refusal without values, and nothing left to read for a child."""

import os
from pathlib import Path

import pytest

from supervisor.agent.machine.secrets import SecretRefused, SecretsMissing, read_secrets, secrets_in


def given(data: bytes) -> int:
    descriptor = os.memfd_create("test")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def test_exactly_the_named_secrets_are_used() -> None:
    descriptor = given(b'{"A": "one", "B": "z\\u00fc\\nx", "MORE": "not asked for"}')
    try:
        assert read_secrets(["B", "A"], descriptor) == {"A": "one", "B": "z\u00fc\nx"}
        assert os.read(descriptor, 100) == b""
        assert os.readlink(f"/proc/self/fd/{descriptor}") == os.devnull
    finally:
        os.close(descriptor)


def test_nothing_is_read_when_none_are_named() -> None:
    assert read_secrets([], -1) == {}


@pytest.mark.parametrize(
    "data", [b"", b'{"A": "hush', b'["hush"]', b'{"A": "hush", "B": null}', b'{"A": "hush"}', b"\xff"]
)
def test_an_incomplete_input_is_refused_with_names_only(data: bytes) -> None:
    descriptor = given(data)
    try:
        with pytest.raises(SecretsMissing, match=r"ended before it brought .*B") as refused:
            read_secrets(["A", "B"], descriptor)
        assert "hush" not in str(refused.value)
        assert refused.value.__cause__ is None
    finally:
        os.close(descriptor)


def test_an_input_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(SecretsMissing, match="cannot be read"):
        read_secrets(["A"], 999_999)


def test_secrets_that_a_platform_brings_as_files(tmp_path: Path) -> None:
    (tmp_path / "A").write_bytes("zü\n".encode() + b"xyz\n")
    (tmp_path / "MORE").write_bytes(b"not asked for")
    assert secrets_in(str(tmp_path), ["A"]) == {"A": "zü\nxyz"}
    assert secrets_in("/nowhere", []) == {}


@pytest.mark.parametrize(
    ("data", "why"),
    [(None, "cannot be read"), (b"\xff\xfe\xfd\xfc", "not a text"), (b"a\x00bcd", "not a text"), (b"abc\n", "fewer")],
)
def test_a_file_without_a_usable_value_is_refused_by_name(tmp_path: Path, data: bytes | None, why: str) -> None:
    if data is not None:
        (tmp_path / "B").write_bytes(data)
    with pytest.raises(SecretRefused, match=rf"secret B: .*{why}") as refused:
        secrets_in(str(tmp_path), ["B"])
    assert "abc" not in str(refused.value)
