"""Secrets of a launch on this computer, read by their references at the launch and never before.

    env:NAME     a variable in the environment of the service; SPOT_* variables are its own settings and not for runs
    file:/PATH   a regular file of at most FILE_BYTES that only its owner (this user or root) can read; one newline at
                 its end is removed

An error contains the name, the reference and the fix, never a value or a part of it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping

from supervisor.domain.texts import is_utf8, looks_secret
from supervisor.ports.provider import SecretRefused

FILE_BYTES = 65536
MIN_CHARS = 4  # a shorter value cannot be masked, because it is a part of too many words


class SecretUnreadable(Exception):
    """The reference has no value; the text says why and how to fix it."""


def read_all(references: Mapping[str, str]) -> dict[str, str]:
    """name -> value. SecretRefused names the first secret that cannot be read."""
    values = {}
    for name, reference in references.items():
        try:
            values[name] = read(reference)
        except SecretUnreadable as error:
            raise SecretRefused(f"secret {name}: {error}") from None
    return values


def problem(reference: str) -> str:
    """Why it cannot be read; "" = it can be read."""
    try:
        read(reference)
    except SecretUnreadable as error:
        return str(error)
    return ""


def read(reference: str) -> str:
    """The value. Raises SecretUnreadable."""
    kind, _, rest = reference.partition(":")
    if kind == "env":
        value = _from_environment(rest)
    elif kind == "file" and rest.startswith("/"):
        value = _from_file(rest)
    else:
        raise SecretUnreadable(f"{reference} is not a reference; write env:NAME or file:/PATH")
    if len(value.strip()) < MIN_CHARS:
        trouble = f"holds fewer than {MIN_CHARS} characters" if value.strip() else "is empty"
        raise SecretUnreadable(f"{reference} {trouble}")
    return value


def variables(references: Iterable[str]) -> set[str]:
    """The variables of the service's environment that these references name."""
    return {reference[4:] for reference in references if reference.startswith("env:")}


def without_secrets(environment: Mapping[str, str], named: Collection[str]) -> dict[str, str]:
    """The part of the service's environment that an agent may inherit: without the settings of the service, without
    variables whose name looks like a secret, and without those in `named`."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("SPOT_") and name not in named and not looks_secret(name)
    }


def _from_environment(name: str) -> str:
    value = None if name.startswith("SPOT_") else os.environ.get(name)
    if value is None:
        raise SecretUnreadable(f"{name} is not set in the service's environment; set it there and restart the service")
    if "\0" in value or not is_utf8(value):
        raise SecretUnreadable(f"env:{name} is not UTF-8 text")
    return value


def _from_file(path: str) -> str:
    """The path is at the end of each text, so that shortening a long text keeps the rest of the sentence."""
    try:
        # A pipe without a writer does not block this; the checks apply to the opened file.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SecretUnreadable(f"cannot be read ({reason}): file:{path}") from None
    try:
        _check(os.fstat(descriptor), path)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise SecretUnreadable(f"cannot be read ({error.strerror}): file:{path}") from None
    finally:
        os.close(descriptor)
    if len(data) > FILE_BYTES:
        raise SecretUnreadable(f"is larger than {FILE_BYTES} bytes: file:{path}")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise SecretUnreadable(f"is not UTF-8 text: file:{path}")
    return text.removesuffix("\n").removesuffix("\r")


def _check(file_stat: os.stat_result, path: str) -> None:
    mode = stat.S_IMODE(file_stat.st_mode)
    if not stat.S_ISREG(file_stat.st_mode):
        raise SecretUnreadable(f"is not a regular file: file:{path}")
    if file_stat.st_uid not in (os.geteuid(), 0):
        raise SecretUnreadable(f"belongs to another user (uid {file_stat.st_uid}): file:{path}")
    if mode & 0o077:
        raise SecretUnreadable(f"others can read it (mode {mode:04o}); run chmod 600 {path}")
