"""Secrets by standard input: all of them or a refusal without values, and nothing left to read for a child."""

import os

import pytest

from supervisor.agent.machine.secrets import SecretsMissing, read_secrets


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
