"""Secrets of a launch on this computer: read from where their references point, at the launch and never before.

    env:NAME     the environment of the service; SPOT_* is its own and not for runs
    file:/PATH   a plain file, at most FILE_BYTES, that nobody but its owner (us or root) can read; one newline at its
                 end does not count

What is refused is told with the name, the reference and the cure, never with a value or a part of one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping

from supervisor.domain.texts import is_utf8, looks_secret
from supervisor.ports.provider import SecretRefused

FILE_BYTES = 65536
MIN_CHARS = 4  # what is shorter cannot be masked: it is a part of too many words


class SecretUnreadable(Exception):
    """The reference leads to no value; the text says why and what helps."""


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
    """Why it cannot be read; "" = it can."""
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
        raise SecretUnreadable(f"{reference} is no reference; write env:NAME or file:/PATH")
    if len(value.strip()) < MIN_CHARS:
        trouble = f"holds fewer than {MIN_CHARS} characters" if value.strip() else "is empty"
        raise SecretUnreadable(f"{reference} {trouble}")
    return value


def variables(references: Iterable[str]) -> set[str]:
    """Names of the service's environment that some of these references lead to."""
    return {reference[4:] for reference in references if reference.startswith("env:")}


def without_secrets(environment: Mapping[str, str], named: Collection[str]) -> dict[str, str]:
    """What an agent may inherit of the service's environment: everything but the service's own settings and what is a
    secret, by its name or because it is one of `named`."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("SPOT_") and name not in named and not looks_secret(name)
    }


def _from_environment(name: str) -> str:
    value = None if name.startswith("SPOT_") else os.environ.get(name)
    if value is None:
        raise SecretUnreadable(
            f"{name} is not set in the service's environment; set it there and start the service again"
        )
    if "\0" in value or not is_utf8(value):
        raise SecretUnreadable(f"env:{name} is not UTF-8 text")
    return value


def _from_file(path: str) -> str:
    """The path comes last in each text: a long one is cut in a sentence, and then the rest is still there."""
    try:
        # Not blocked by a pipe that nobody writes to; what was opened is what is judged.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SecretUnreadable(f"cannot be read ({reason}): file:{path}") from None
    try:
        _judge(os.fstat(descriptor), path)
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


def _judge(seen: os.stat_result, path: str) -> None:
    mode = stat.S_IMODE(seen.st_mode)
    if not stat.S_ISREG(seen.st_mode):
        raise SecretUnreadable(f"is no plain file: file:{path}")
    if seen.st_uid not in (os.geteuid(), 0):
        raise SecretUnreadable(f"belongs to another user (uid {seen.st_uid}): file:{path}")
    if mode & 0o077:
        raise SecretUnreadable(f"others can read it (mode {mode:04o}); run chmod 600 {path}")
