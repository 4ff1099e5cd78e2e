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
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.pages.providers import survival_look
from supervisor.dashboard.public_api import Api, Json

Spec = dict[str, Any]

LONGEST = 8000  # characters that a person would type or read
DOTS = "•••"
END = "SPEC"  # of a here-document
WIDTH = 110
SCRIPT = "startup-script"  # its name in the metadata of a machine
# Field of the spec, or of its limits -> (option, form of the value); true, false: the option stands for that value.
_OPTIONS: Mapping[str, tuple[str, str | bool]] = {
    "provider": ("provider", "text"),
    "workdir": ("workdir", "folder"),
    "image": ("image", "text"),
    "image_follow_tag": ("image-follow-tag", True),
    "zones": ("zone", "each"),
    "shapes": ("shape", "each"),
    "spot": ("on-demand", False),
    "allow_on_demand": ("allow-on-demand", True),
    "allow_flex_start": ("allow-flex-start", True),
    "optimize": ("optimize", "text"),
    "same_region": ("same-region", "text"),
    "env": ("env", "pairs"),
    "secrets": ("secret", "pairs"),
    "labels": ("label", "pairs"),
    "priority": ("priority", "number"),
    "min_run_s": ("min-run", "seconds"),
    "results": ("result", "paths"),
    "expect_runtime_s": ("expect-runtime", "seconds"),
    "expect_checkpoint_gb": ("expect-checkpoint", "number"),
    "stop_grace_s": ("stop-grace", "seconds"),
    "on_resume_ignored": ("on-resume-ignored", "text"),
    "on_slow": ("on-slow", "text"),
    "on_success": ("on-success", "text"),
    "on_failure": ("on-failure", "text"),
    "keep_s": ("keep", "seconds"),
    "max_runtime_s": ("max-runtime", "seconds"),
    "deadline": ("deadline", "text"),
    "max_attempts": ("max-attempts", "number"),
    "max_user_failures": ("max-user-failures", "number"),
    "wait_for_capacity_s": ("wait", "seconds"),
    "budget_usd": ("budget", "number"),
}


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
        look=survival_look,
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
    # Where no folder is given, the command line fills in the current one, unless the machines are elsewhere.
    if "workdir" not in spec and spec.get("provider", "local") == "local":
        return None
    options = {name: value for name, value in spec.items() if name not in ("command", "limits")}
    try:
        words = [word for name, value in {**options, **spec.get("limits", {})}.items() for word in _words(name, value)]
    except (KeyError, Inexpressible):
        return None
    command = spec["command"]
    words += [f"--shell={command}"] if isinstance(command, str) else ["--", *command]
    fits = all(word.isprintable() for word in words) and sum(map(len, words)) <= LONGEST
    return words if fits else None


def _words(name: str, value: Any) -> list[str]:
    """Raises Inexpressible, and KeyError where there is no such option."""
    option, form = _OPTIONS[name]
    match form:
        case "each":
            values = value
        case "pairs":
            values = [f"{key}={text}" for key, text in value.items()]
        case "paths" if all(set(rule) == {"path"} for rule in value):
            values = [rule["path"] for rule in value]
        case "folder" if value.startswith("/") and posixpath.normpath(value) == value:
            values = [value]
        case "seconds" if float(value).is_integer():
            values = [f"{int(value)}s"]
        case "number":
            values = [str(int(value)) if float(value).is_integer() else repr(value)]
        case "text" if isinstance(value, str) and value:
            values = [value]
        case bool() if value is form:
            return [f"--{option}"]
        case _:
            raise Inexpressible
    return [f"--{option}={text}" for text in values]


class _Dumper(yaml.SafeDumper):
    """Texts of several lines become blocks; there are no references."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Invisible characters, such as line breaks of other alphabets, need quotes, where they have escapes."""
    printable = value.replace("\n", "").isprintable()
    style = '"' if not printable else "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(spec: Spec) -> str:
    text = yaml.dump(spec, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)
    return _escaped(text, lambda letter: f"\\U{ord(letter):08x}")  # they are in double quotes, see _text


def as_command(spec: Spec) -> str:
    """The command line fills in the current folder where no `workdir` is given, so a spec without one says so."""
    words = as_words(spec)
    if words is not None:
        return _typed(words)
    return _fed("spot submit -", as_yaml(spec if "workdir" in spec else {**spec, "workdir": None}))


def as_curl(spec: Spec) -> str:
    command = 'curl -sS "$SPOT_URL/v1/runs" -H "Authorization: Bearer $SPOT_TOKEN" --json @-'
    text = json.dumps({"spec": spec}, indent=2, ensure_ascii=False) + "\n"
    return _fed(command, _escaped(text, lambda letter: json.dumps(letter)[1:-1]))


def _escaped(text: str, by_number: Callable[[str], str]) -> str:
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
