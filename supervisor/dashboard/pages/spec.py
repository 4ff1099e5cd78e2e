"""The spec of a run, as text to copy, and what its newest machine is started with.

Values of the environment are masked where the spec is only shown; the texts to copy contain them, folded, because
without them the new run would differ.

The texts: YAML, a command, a request with curl. Shells get quoted words, or the text as a quoted here-document, in
which nothing has a meaning to them. Each of the three submits exactly the same spec; tests do so. Options of `spot
submit` are what people type. A spec goes in as a file where no option can say it (rules for retries, an own stall
limit) or where an option would change it (a fraction of a second, a relative folder).
"""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json

Options = Iterator[str]
Spec = dict[str, Any]

LONGEST = 8000  # characters that a person would type or read
DOTS = "•••"
END = "SPEC"  # of a here-document
WIDTH = 110
SCRIPT = "startup-script"  # its name in the metadata of a machine


async def show(request: Request, api: Api) -> Response:
    run, answer, launch = await api.of_run("", "/spec", "/launch")
    spec, (script, rest) = answer["spec"], _launch_texts(launch["launch"])
    return await rendering.tab(
        request,
        "run_spec.html",
        run,
        "spec",
        spec=answer,
        shown=as_yaml(masked(spec)),
        names=sorted(spec.get("env", {})),
        secrets=spec.get("secrets", {}),
        texts=(("cli", "CLI", as_command(spec)), ("curl", "curl", as_curl(spec)), ("yaml", "YAML", as_yaml(spec))),
        launch=launch,
        script=script,
        rest=rest,
    )


def _launch_texts(launch: Json | None) -> tuple[str, str]:
    """(the start-up script, everything else as JSON); "" = a machine of this provider has none."""
    if launch is None:
        return "", ""
    unpacked = launch.get("unpacked") or {}  # shown unpacked only
    metadata = {name: value for name, value in (launch.get("metadata") or {}).items() if name not in unpacked}
    script = str(metadata.pop(SCRIPT, ""))
    rest = {**launch, **({"metadata": metadata} if metadata else {})}
    return script, json.dumps(masked(rest), indent=2, ensure_ascii=False)


def masked(value: Any) -> Any:
    """The same with dots for every value of every environment in it."""
    if isinstance(value, dict):
        return {
            name: dict.fromkeys(inner, DOTS) if name == "env" and isinstance(inner, dict) else masked(inner)
            for name, inner in value.items()
        }
    return [masked(item) for item in value] if isinstance(value, list) else value


class Inexpressible(Exception):
    """No option can express this."""


def as_words(spec: Mapping[str, Any]) -> list[str] | None:
    """Each option with its value as one word, the command last; None = the spec has no such form."""
    try:
        words = [word for name, value in spec.items() if name != "command" for word in _OPTIONS[name](value)]
    except (KeyError, Inexpressible):
        return None
    # Where no folder is given, the command line fills in the current one, unless the machines are elsewhere.
    if "workdir" not in spec and spec.get("provider", "local") == "local":
        return None
    command = spec["command"]
    words += [f"--shell={command}"] if isinstance(command, str) else ["--", *command]
    fits = all(word.isprintable() for word in words) and sum(map(len, words)) <= LONGEST
    return words if fits else None


def _plain(option: str) -> Callable[[Any], Options]:
    def words(value: Any) -> Options:
        if not isinstance(value, str) or not value:
            raise Inexpressible
        yield f"--{option}={value}"

    return words


def _number(option: str, unit: str = "") -> Callable[[Any], Options]:
    def words(value: Any) -> Options:
        if unit and not float(value).is_integer():
            raise Inexpressible
        yield f"--{option}={_flag_text(value)}{unit}"

    return words


def _flag_text(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def _each(option: str) -> Callable[[Sequence[str]], Options]:
    return lambda values: (f"--{option}={value}" for value in values)


def _pairs(option: str) -> Callable[[Mapping[str, str]], Options]:
    return lambda pairs: (f"--{option}={name}={value}" for name, value in pairs.items())


def _switch(option: str, expected: bool) -> Callable[[Any], Options]:
    def words(value: Any) -> Options:
        if value is not expected:
            raise Inexpressible
        yield f"--{option}"

    return words


def _workdir(folder: Any) -> Options:
    if not folder.startswith("/") or posixpath.normpath(folder) != folder:
        raise Inexpressible
    yield f"--workdir={folder}"


def _results(rules: Sequence[Mapping[str, Any]]) -> Options:
    for rule in rules:
        if set(rule) != {"path"}:
            raise Inexpressible
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


class _Dumper(yaml.SafeDumper):
    """Texts of several lines become blocks; there are no references."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Invisible characters, such as line breaks of other alphabets, need quotes, where they have escapes."""
    seen = value.replace("\n", "").isprintable()
    style = '"' if not seen else "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(spec: Spec) -> str:
    text = yaml.dump(spec, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)
    return _seen(text, lambda letter: f"\\U{ord(letter):08x}")  # they are in double quotes, see _text


def as_command(spec: Spec) -> str:
    """The command line fills in the current folder where no `workdir` is given, so a spec without one says so."""
    words = as_words(spec)
    if words is not None:
        return _typed(words)
    return _fed("spot submit -", as_yaml(spec if "workdir" in spec else {**spec, "workdir": None}))


def as_curl(spec: Spec) -> str:
    command = 'curl -sS "$SPOT_URL/v1/runs" -H "Authorization: Bearer $SPOT_TOKEN" --json @-'
    text = json.dumps({"spec": spec}, indent=2, ensure_ascii=False) + "\n"
    return _fed(command, _seen(text, lambda letter: json.dumps(letter)[1:-1]))


def _seen(text: str, by_number: Callable[[str], str]) -> str:
    """Characters that a terminal would obey (DEL) or that change the direction of reading become escapes."""
    return "".join(letter if letter == "\n" or letter.isprintable() else by_number(letter) for letter in text)


def _typed(words: list[str]) -> str:
    """One option a line, then the command."""
    at = words.index("--") if "--" in words else len(words)
    parts = ["spot submit"]
    for word in words[:at]:
        option, sign, value = word.partition("=")
        parts.append(option + sign + (shlex.quote(value) if sign else ""))
    if at < len(words):
        parts.append(shlex.join(words[at:]))
    return " \\\n  ".join(parts) + "\n"


def _fed(command: str, text: str) -> str:
    lines, end = set(text.split("\n")), END
    while end in lines:
        end += "_"
    return f"{command} <<'{end}'\n{text}{end}\n"
