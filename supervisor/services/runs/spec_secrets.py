"""Secrets in a spec: by reference only. What looks like a value is refused where it stands and never repeated.

A spec is stored, shown and logged by many hands; a value in it could not be taken back. Which texts look like keys is
told by the makers' own beginnings; a variable whose name says that it holds a key is believed too.
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
# Set by the agent, or what would keep a command from starting at all.
TAKEN = frozenset({"PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"})
# Every training needs them, so none is taken from the others for being named as a secret.
ORDINARY = TAKEN | {"HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "HOSTNAME", "PWD"}
_WORD = re.compile(r"[A-Za-z0-9_]{1,128}")
OWN = "SPOT_"  # settings of the service, and what the agent tells the command


def check_secrets(spec: Mapping[str, Any], kinds: SecretKinds) -> None:
    """`kinds`: those that the run's machines read. Raises InvalidRequest for a name that is taken, SecretInSpec for a
    value that is written out."""
    _check_names(spec)
    if spec.get("allow_plain_secrets"):
        return
    # Of secrets the names: somebody may have written a value in the place of one. A path may look like anything.
    names = {name: ref if ref.startswith("env:") else "" for name, ref in spec.get("secrets", {}).items()}
    texts = _texts({**spec, "secrets": names})
    places = [(pointer, what) for pointer, text in texts if (what := _looks_like(pointer, text))]
    if places:
        raise _written_out(places, kinds)


def check_kinds(spec: Mapping[str, Any], provider: str, kinds: SecretKinds) -> None:
    """A machine elsewhere cannot see this computer's files, and a local one needs no cloud. Raises InvalidRequest."""
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
    """A warning for each reference to a variable that other trainings have perhaps inherited already."""
    named = sorted({ref[4:] for ref in spec.get("secrets", {}).values() if ref.startswith("env:")})
    return tuple(
        f"{name} in the service's environment does not look like a secret by its name, so trainings that were started "
        f"before this one have inherited it. Call it {name}_KEY, or use file:PATH."
        for name in named
        if not looks_secret(name)
    )


def hidden(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with dots in the place of everything that looks like a secret. Where `allow_plain_secrets` let one in,
    it is stored and handed to the command, and shown to nobody."""

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

    # References name places, and were checked to be nothing else.
    return {**of("#/spec", {**spec, "secrets": {}}), "secrets": dict(spec.get("secrets", {}))}


def shown_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The same with no field that the spec has not: what a submit takes."""
    return {name: value for name, value in hidden(spec).items() if name in spec}


def _check_names(spec: Mapping[str, Any]) -> None:
    env = spec.get("env", {})
    refusals = []
    for name, reference in spec.get("secrets", {}).items():
        pointer = f"#/spec/secrets/{name}"
        if name in env:
            refusals.append((pointer, "is in env too; leave it in one of them"))
        if name.startswith(OWN) or name in TAKEN:
            refusals.append((pointer, "is set by the agent; choose another name"))
        if reference.startswith(f"env:{OWN}"):
            refusals.append((pointer, "refers to a setting of the service; settings are not for runs"))
        if reference.removeprefix("env:") in ORDINARY:
            refusals.append((pointer, "refers to an ordinary variable; every training sees it as it is"))
    if refusals:
        text = "; ".join(f"{_plain(pointer)} {why}" for pointer, why in refusals[:SHOWN])
        raise InvalidRequest(f"{text}. Nothing was stored.", {}, refusals[:SHOWN])


def _written_out(places: list[tuple[str, str]], kinds: SecretKinds) -> SecretInSpec:
    pointer, what = places[0]
    more = f" (and {len(places) - 1} more places)" if len(places) > 1 else ""
    return SecretInSpec(
        f"{_plain(pointer)} holds what looks like {what}{more}. A spec is stored and shown, so nothing was kept. Put "
        f"the value {kinds.advice}: the command gets it as an environment variable. If it is no "
        "secret, submit with `allow_plain_secrets: true`.",
        {"places": len(places)},
        [(at, f"looks like {kind}") for at, kind in places[:SHOWN]],
    )


def _looks_like(pointer: str, text: str) -> str:
    """What kind of secret it seems to be; "" = none."""
    if len(text) < KEY_MIN:
        return ""
    for what, pattern in KEYS:
        if pattern.search(text):
            return what
    name = pointer.removeprefix("#/spec/env/")
    return "the value of a key" if name != pointer and NAME.search(name) and VALUE.fullmatch(text) else ""


def _texts(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every text of the spec, names included, with its JSON pointer. A name that is itself what must not be shown, or
    no plain word, stands there as its number."""
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
