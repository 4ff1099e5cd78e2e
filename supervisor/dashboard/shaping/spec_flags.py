"""A spec as options of `spot submit`, where options can say all of it: shorter than a file, and what people type.

What they cannot say (rules for retries, a stall limit of one's own), or would say otherwise (a fraction of a second, a
folder that the command line would make another one of), has no such form.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Options = Iterator[str]
LONGEST = 8000  # characters that anybody would want to type or read


class Unsaid(Exception):
    """No option says this."""


def as_words(spec: Mapping[str, Any]) -> list[str] | None:
    """Each option with its value as one word, the command last; None = it has no such form."""
    try:
        words = [word for name, value in spec.items() if name != "command" for word in _OPTIONS[name](value)]
    except (KeyError, Unsaid):
        return None
    # Where no folder is named, the command line puts the present one, unless the machines are elsewhere for sure.
    if "workdir" not in spec and spec.get("provider", "local") == "local":
        return None
    command = spec["command"]
    words += [f"--shell={command}"] if isinstance(command, str) else ["--", *command]
    fits = all(word.isprintable() for word in words) and sum(map(len, words)) <= LONGEST
    return words if fits else None


def _plain(option: str) -> Callable[[Any], Options]:
    def words(value: Any) -> Options:
        if not isinstance(value, str) or not value:
            raise Unsaid
        yield f"--{option}={value}"

    return words


def _number(option: str, unit: str = "") -> Callable[[Any], Options]:
    def words(value: Any) -> Options:
        if unit and not float(value).is_integer():
            raise Unsaid
        yield f"--{option}={_text(value)}{unit}"

    return words


def _text(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def _each(option: str) -> Callable[[Sequence[str]], Options]:
    return lambda values: (f"--{option}={value}" for value in values)


def _pairs(option: str) -> Callable[[Mapping[str, str]], Options]:
    return lambda pairs: (f"--{option}={name}={value}" for name, value in pairs.items())


def _switch(option: str, meant: bool) -> Callable[[Any], Options]:
    def words(value: Any) -> Options:
        if value is not meant:
            raise Unsaid
        yield f"--{option}"

    return words


def _workdir(folder: Any) -> Options:
    if not folder.startswith("/") or posixpath.normpath(folder) != folder:
        raise Unsaid
    yield f"--workdir={folder}"


def _results(rules: Sequence[Mapping[str, Any]]) -> Options:
    for rule in rules:
        if set(rule) != {"path"}:
            raise Unsaid
        yield f"--result={rule['path']}"


def _limits(limits: Mapping[str, Any]) -> Options:
    for name, value in limits.items():
        yield from _LIMITS[name](value)


_LIMITS: Mapping[str, Callable[[Any], Options]] = {
    "max_runtime_s": _number("max-runtime", "s"),
    "deadline": _plain("deadline"),
    "max_attempts": _number("max-attempts"),
    "max_user_failures": _number("max-user-failures"),
    "wait_for_capacity_s": _number("wait", "s"),
    "budget_usd": _number("budget"),
}
_OPTIONS: Mapping[str, Callable[[Any], Options]] = {
    "provider": _plain("provider"),
    "workdir": _workdir,
    "image": _plain("image"),
    "image_follow_tag": _switch("image-follow-tag", True),
    "zones": _each("zone"),
    "shapes": _each("shape"),
    "spot": _switch("on-demand", False),
    "allow_on_demand": _switch("allow-on-demand", True),
    "same_region": _plain("same-region"),
    "env": _pairs("env"),
    "secrets": _pairs("secret"),
    "labels": _pairs("label"),
    "results": _results,
    "limits": _limits,
    "expect_runtime_s": _number("expect-runtime", "s"),
    "expect_checkpoint_gb": _number("expect-checkpoint"),
    "stop_grace_s": _number("stop-grace", "s"),
    "on_success": _plain("on-success"),
    "on_failure": _plain("on-failure"),
    "keep_s": _number("keep", "s"),
}
