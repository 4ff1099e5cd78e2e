"""What a run was asked for, as text to copy, and what its newest machine is started with.

Values of the environment are covered where the spec is only looked at; the texts to copy hold them, folded, because
without them another run would begin.

The texts: YAML, a command of the command line, a request with curl. Shells are given quoted words, or the text as a
quoted here-document, in which nothing means anything to them. What comes back out of each of the three is the very same
spec; tests submit it. Options of `spot submit` are what people type; what they cannot say (rules for retries, a stall
limit of one's own), or would say otherwise (a fraction of a second, a folder that the command line would make another
one of), goes in as a file.
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
from supervisor.dashboard.pages import run as run_page
from supervisor.dashboard.public_api import Api, Json

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


Spec = dict[str, Any]
DOTS = "•••"
END = "SPEC"  # of a here-document
WIDTH = 110


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stand as blocks; nothing refers to anything else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """What cannot be seen, line breaks of other alphabets among it, stands in quotes, where it has names."""
    seen = value.replace("\n", "").isprintable()
    style = '"' if not seen else "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(spec: Spec) -> str:
    text = yaml.dump(spec, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)
    return _seen(text, lambda letter: f"\\U{ord(letter):08x}")  # they stand in double quotes, see _text


def masked(value: Any) -> Any:
    """The same with dots for every value of an environment, wherever one stands."""
    if isinstance(value, dict):
        return {
            name: dict.fromkeys(inner, DOTS) if name == "env" and isinstance(inner, dict) else masked(inner)
            for name, inner in value.items()
        }
    return [masked(item) for item in value] if isinstance(value, list) else value


def as_command(spec: Spec) -> str:
    """For the command line, which puts the present folder where no `workdir` is named: none was, so it says so."""
    words = as_words(spec)
    if words is not None:
        return _typed(words)
    return _fed("spot submit -", as_yaml(spec if "workdir" in spec else {**spec, "workdir": None}))


def as_curl(spec: Spec) -> str:
    command = 'curl -sS "$SPOT_URL/v1/runs" -H "Authorization: Bearer $SPOT_TOKEN" --json @-'
    text = json.dumps({"spec": spec}, indent=2, ensure_ascii=False) + "\n"
    return _fed(command, _seen(text, lambda letter: json.dumps(letter)[1:-1]))


def _seen(text: str, by_number: Callable[[str], str]) -> str:
    """What a terminal would obey, such as DEL, or what turns the direction of reading, by its number."""
    return "".join(letter if letter == "\n" or letter.isprintable() else by_number(letter) for letter in text)


def _typed(words: list[str]) -> str:
    """An option a line, then the command."""
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


SCRIPT = "startup-script"  # its name in the metadata of a machine


async def show(request: Request, api: Api) -> Response:
    path = f"/v1/runs/{request.path_params['run_id']}"
    run, answer, launch = await api.together(
        run_page.of(request, api), api.get(f"{path}/spec"), api.get(f"{path}/launch")
    )
    spec, (script, rest) = answer["spec"], _launch_texts(launch["launch"])
    return await rendering.tab(
        request,
        "run_spec.html",
        run,
        "spec",
        spec=answer,
        looked=as_yaml(masked(spec)),
        names=sorted(spec.get("env", {})),
        secrets=spec.get("secrets", {}),
        texts=(("cli", "CLI", as_command(spec)), ("curl", "curl", as_curl(spec)), ("yaml", "YAML", as_yaml(spec))),
        launch=launch,
        script=script,
        rest=rest,
    )


def _launch_texts(launch: Json | None) -> tuple[str, str]:
    """(the start-up script, "" = a machine of this kind has none; all else as JSON)"""
    if launch is None:
        return "", ""
    packed = launch.get("unpacked") or {}  # shown unpacked, and not a second time
    metadata = {name: value for name, value in (launch.get("metadata") or {}).items() if name not in packed}
    script = str(metadata.pop(SCRIPT, ""))
    rest = {**launch, **({"metadata": metadata} if metadata else {})}
    return script, json.dumps(masked(rest), indent=2, ensure_ascii=False)
