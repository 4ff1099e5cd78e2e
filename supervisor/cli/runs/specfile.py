"""The YAML file of a submit: the fields of a RunSpec, with `run_id` beside them.

The API checks the fields. Here only what YAML can hold and JSON cannot is refused or converted, and errors of the API
get the names and lines of the file.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from supervisor.cli.exits import USAGE, CliError, Problem
from supervisor.cli.files.local_inputs import IsLocal, code_from, names_local, providers_of


def read_spec(path: str, with_code: bool = False, is_local: IsLocal = names_local) -> tuple[str | None, dict[str, Any]]:
    """(run_id or None, spec) of the file, or of standard input where `path` is "-". A relative `workdir` is taken from
    the folder of the file (standard input: the current one), which is also its default; so is the folder that `code`
    names. Where there is code (`with_code`: from elsewhere), `workdir` is a folder of the bundle and stays as it is;
    where machines are elsewhere, one of the image. Raises CliError with the place of what is wrong."""
    run_id, spec = _load(path)
    folder = Path(os.path.abspath(path)).parent
    if isinstance(spec.get("code"), str):
        spec["code"] = code_from(spec["code"], str(folder))
    workdir = spec.get("workdir", "")
    if workdir is None:  # asks for none
        del spec["workdir"]
    elif not with_code and spec.get("code") is None and isinstance(workdir, str) and is_local(providers_of(spec)):
        spec["workdir"] = str(folder / Path(workdir).expanduser())
    return run_id, spec


def _load(path: str) -> tuple[str | None, dict[str, Any]]:
    import yaml

    shown = _shown(path)

    def refused(text: str) -> CliError:
        # A user may have named the script itself.
        starter = {".py": "python", ".sh": "sh"}.get(Path(path).suffix)
        hints = (f"to run it: spot submit -- {starter} {path}",) if starter else ()
        return CliError(f"{shown} {text}", USAGE, "SPEC_UNREADABLE", hints)

    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        loaded = yaml.load(text, Loader=_loader())  # noqa: S506 - a SafeLoader that refuses more
    except OSError as error:
        raise CliError(f"{shown} cannot be read: {error.strerror or error}", USAGE, "SPEC_UNREADABLE") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise refused("is not YAML: " + " ".join(str(error).split()).replace('in "<unicode string>", ', "")) from None
    if not isinstance(loaded, dict):
        raise refused("does not hold the fields of a run (command: …).")
    try:
        spec = _json(loaded, "")
        run_id = spec.pop("run_id", None)
        if run_id is not None and not isinstance(run_id, str):
            raise ValueError("run_id is not a text; put it in quotes.")
    except RecursionError:
        raise CliError(f"{shown} refers to itself.", USAGE, "SPEC_UNREADABLE") from None
    except ValueError as error:
        raise CliError(f"{shown}: {error}", USAGE, "SPEC_UNREADABLE") from None
    return run_id, spec


def missing_command(file: str, spec: dict[str, Any]) -> str:
    """The error for a file without `command`; often the field is there under a similar name."""
    shown = _shown(file)
    near = next((key for key in spec if get_close_matches(key.lower(), ["command"], cutoff=0.6)), None)
    if near is not None:
        return f"{shown}{_line(file, [near])}: {near} is not known; did you mean command?"
    if isinstance(spec.get("spec"), dict):
        return f"{shown}{_line(file, ['spec'])}: in a file the fields of a run stand at the top, not below spec."
    return f"{shown} names no command to run."


def at_line(file: str | None, names: Sequence[str], text: str) -> str:
    """The text with the file and the line of this field."""
    return text if file is None else f"{_shown(file)}{_line(file, list(names))}: {text}"


def in_words_of_file(error: Problem, file: str | None, prefix: Sequence[str] = ()) -> Problem:
    """The error with the names and lines of the file instead of the API's pointers: a file has no `spec` around its
    fields. `prefix`: the way to the fields in the file. Unchanged without a file."""
    if file is None:
        return error
    shown = _shown(file)
    inside = [(pointer.removeprefix("#/spec/").removeprefix("#/"), text) for pointer, text in error.errors]
    if inside and error.errors[0][0] in error.text:  # the text repeats the pointer
        reasons = [
            at_line(file, [*prefix, *name.split("/")], f"{name.replace('/', '.')} {text.replace(', beside spec', '')}")
            for name, text in inside
        ]
        error.text, error.errors = reasons[0], tuple(("", reason) for reason in reasons[1:])
    else:
        line = _line(file, [*prefix, *inside[0][0].split("/")]) if len(inside) == 1 else ""
        error.text = f"{shown}{line}: {error.text}"
    return error


def _shown(path: str) -> str:
    return "standard input" if path == "-" else path


def _line(path: str, names: list[str]) -> str:
    """`, line 3` of the field; empty where the file has no such field, and for standard input, which is read once."""
    import yaml

    try:
        text = "" if path == "-" else Path(path).read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return ""
    mark = None
    for name in names:
        children: dict[str, tuple[Any, Any]] = {}
        if isinstance(node, yaml.MappingNode):
            children = {key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)}
        elif isinstance(node, yaml.SequenceNode):
            children = {str(number): (value, value) for number, value in enumerate(node.value)}
        if name not in children:
            break
        key, node = children[name]
        mark = key.start_mark
    return "" if mark is None else f", line {mark.line + 1}"


def _loader() -> type[Any]:
    """A SafeLoader that refuses two equal keys: YAML keeps the last one silently."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in keys:
                    problem = f"the key {key.value!r} appears twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                keys.add(str(key.value))
            return super().construct_mapping(node, deep)

    return Loader


def _json(value: Any, where: str) -> Any:
    """`value` as JSON can hold it. ValueError with the place of a value that it cannot hold."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"the key {key!r} in {where or 'the file'} is not a text; put it in quotes")
        return {key: _json(part, f"{where}/{key}") for key, part in value.items()}
    if isinstance(value, list):
        return [_json(part, f"{where}/{number}") for number, part in enumerate(value)]
    if isinstance(value, dt.datetime):
        # YAML reads a time into an object; without a zone it is UTC by YAML's own rule.
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return aware.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is not a finite number")
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"{where} is a {type(value).__name__}; put it in quotes")
