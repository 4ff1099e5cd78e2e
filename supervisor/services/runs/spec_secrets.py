"""Secrets in a spec: by reference only. A text that looks like a secret's value is refused and never repeated.

A spec is stored, shown and logged in many places, so a value in it cannot be taken back. A text looks like a key if it
starts as its maker's keys do, or if the name of its variable says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from supervisor.domain.errors import InvalidRequest, SecretInSpec
from supervisor.domain.texts import KEY_MIN, KEYS, NAME, VALUE, looks_secret
from supervisor.ports.traits import SecretKinds

SHOWN = 16
DOTS = "•••"
# Set by the agent, or a wrong value would keep a command from starting.
TAKEN = frozenset({"PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"})
# Every training needs these variables: a secret of one run must not hide them from the others.
ORDINARY = TAKEN | {"HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "HOSTNAME", "PWD"}
_WORD = re.compile(r"[A-Za-z0-9_]{1,128}")
OWN = "SPOT_"  # settings of the service, and variables that the agent sets


def check_secrets(spec: Mapping[str, Any], kinds: SecretKinds) -> None:
    """`kinds`: the kinds of secrets that the run's machines read. Raises InvalidRequest for a reserved name,
    SecretInSpec for a value in plain text."""
    _check_names(spec)
    if spec.get("allow_plain_secrets"):
        return
    # Names of `env:` references are checked too: a user may have put a value there. A path may look like anything.
    names = {name: ref if ref.startswith("env:") else "" for name, ref in spec.get("secrets", {}).items()}
    texts = _texts({**spec, "secrets": names})
    places = [(pointer, what) for pointer, text in texts if (what := _looks_like(pointer, text))]
    if places:
        raise _in_plain_text(places, kinds)


def check_kinds(spec: Mapping[str, Any], provider: str, kinds: SecretKinds) -> None:
    """A remote machine cannot read this computer's files, and a local one needs no cloud. Raises InvalidRequest."""
    places = [
        (f"#/spec/secrets/{name}", "is of a kind that this provider cannot read")
        for name, reference in spec.get("secrets", {}).items()
        if not kinds.read(reference)
    ]
    if not places:
        return
    names = ", ".join(_plain(pointer) for pointer, _ in places[:SHOWN])
    raise InvalidRequest(
        f"{names}: the provider {provider} reads secrets as {kinds.forms}. Nothing was stored.",
        {"provider": provider},
        places[:SHOWN],
    )


def shared_names(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """A warning for each reference to a variable that other trainings may have inherited already."""
    named = sorted({ref[4:] for ref in spec.get("secrets", {}).values() if ref.startswith("env:")})
    return tuple(
        f"{name} in the service's environment does not look like a secret by its name, so earlier trainings have "
        f"inherited it. Rename it to {name}_KEY, or use file:PATH."
        for name in named
        if not looks_secret(name)
    )


def hidden(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with dots instead of everything that looks like a secret. A secret that `allow_plain_secrets` let in is
    stored and given to the command, but never shown."""

    def of(pointer: str, value: Any) -> Any:
        if isinstance(value, str):
            if pointer.startswith("#/spec/env/") and NAME.search(pointer):
                return DOTS
            for _, pattern in KEYS:
                value = pattern.sub(DOTS, value)
            return value
        if isinstance(value, dict):
            return {name: of(f"{pointer}/{name}", item) for name, item in value.items()}
        if isinstance(value, list):
            return [of(f"{pointer}/{number}", item) for number, item in enumerate(value)]
        return value

    # References hold no values: this was checked when they were stored.
    return {**of("#/spec", {**spec, "secrets": {}}), "secrets": dict(spec.get("secrets", {}))}


def shown_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The same with only the fields of the spec: a submit accepts it."""
    return {name: value for name, value in hidden(spec).items() if name in spec}


def _check_names(spec: Mapping[str, Any]) -> None:
    env = spec.get("env", {})
    refusals = []
    for name, reference in spec.get("secrets", {}).items():
        pointer = f"#/spec/secrets/{name}"
        if name in env:
            refusals.append((pointer, "is in env too; keep one of them"))
        if name.startswith(OWN) or name in TAKEN:
            refusals.append((pointer, "is set by the agent; choose another name"))
        if reference.startswith(f"env:{OWN}"):
            refusals.append((pointer, "refers to a setting of the service; settings are not for runs"))
        if reference.removeprefix("env:") in ORDINARY:
            refusals.append((pointer, "refers to an ordinary variable, which every training sees"))
    if refusals:
        text = "; ".join(f"{_plain(pointer)} {why}" for pointer, why in refusals[:SHOWN])
        raise InvalidRequest(f"{text}. Nothing was stored.", {}, refusals[:SHOWN])


def _in_plain_text(places: list[tuple[str, str]], kinds: SecretKinds) -> SecretInSpec:
    pointer, what = places[0]
    more = f" (and {len(places) - 1} more places)" if len(places) > 1 else ""
    return SecretInSpec(
        f"{_plain(pointer)} looks like {what}{more}. A spec is stored and shown, so it was refused. Put "
        f"the value {kinds.advice}: the command gets it as an environment variable. If it is no "
        "secret, submit with `allow_plain_secrets: true`.",
        {"places": len(places)},
        [(at, f"looks like {kind}") for at, kind in places[:SHOWN]],
    )


def _looks_like(pointer: str, text: str) -> str:
    """The kind of secret that the text looks like; "" = none."""
    if len(text) < KEY_MIN:
        return ""
    for what, pattern in KEYS:
        if pattern.search(text):
            return what
    name = pointer.removeprefix("#/spec/env/")
    return "the value of a key" if name != pointer and NAME.search(name) and VALUE.fullmatch(text) else ""


def _texts(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every text of the spec, including names, with its JSON pointer. A name that looks like a secret, or is no plain
    word, appears in the pointer as its number."""
    left: list[tuple[str, object]] = [("#/spec", dict(spec))]
    while left:
        pointer, value = left.pop()
        if isinstance(value, str):
            yield pointer, value
        elif isinstance(value, dict):
            for number, (name, item) in reversed([*enumerate(value.items())]):
                secret = len(name) >= KEY_MIN and any(pattern.search(name) for _, pattern in KEYS)
                below = f"{pointer}/{number if secret or not _WORD.fullmatch(name) else name}"
                left += (below, item), (below, name)  # the name comes first
        elif isinstance(value, list):
            left += [(f"{pointer}/{number}", item) for number, item in reversed([*enumerate(value)])]


def _plain(pointer: str) -> str:
    return pointer.removeprefix("#/spec/").replace("/", ".")
