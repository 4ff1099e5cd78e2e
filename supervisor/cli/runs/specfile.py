"""The YAML file of a submit: a RunSpec, with `run_id` beside its fields where the user wants a name of his own.

The file is checked by the API; here only what YAML can hold and JSON cannot is refused or put right.

Here, too: which Python environment a run on this computer is started in. `--venv DIR` names one; without it the
environment that is active in the submitter's shell counts, because that is the Python which has just run the script by
hand. The service's own environment is rarely the right one. A spec that names an environment keeps it, and machines on
other computers cannot see ours.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from supervisor.cli import output
from supervisor.cli.client import Json
from supervisor.cli.exits import USAGE, CliError, Problem
from supervisor.cli.files.codedir import code_from
from supervisor.cli.output import safe


def names_local(providers: Sequence[str]) -> bool:
    """Whether all machines are on this computer, where no supervisor is asked which provider is its own."""
    return all(name == "local" for name in providers)


def providers_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Those that the spec names. What is no name the API refuses."""
    listed = spec.get("providers")
    named = listed if isinstance(listed, list) and listed else [spec.get("provider")]
    return tuple(name for name in named if isinstance(name, str))


def read_spec(
    path: str, with_code: bool = False, is_local: Callable[[Sequence[str]], bool] = names_local
) -> tuple[str | None, dict[str, Any]]:
    """(run_id or None, spec) of the file, or of standard input where `path` is "-". Relative `workdir` is taken from
    the file's folder (standard input: the present one), which is also its default; so is a folder that `code` names.
    Where there is code (`with_code`: from elsewhere), `workdir` is a folder of the bundle and stays as it is; where
    machines are not on this computer (`is_local`, asked with the providers that are named), one of the image. Raises
    CliError with the place of what is wrong."""
    import yaml

    shown = _shown(path)
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        loaded = yaml.load(text, Loader=_loader())  # noqa: S506 - a SafeLoader that refuses more
    except OSError as error:
        raise CliError(f"{shown} cannot be read: {error.strerror or error}", USAGE, "SPEC_UNREADABLE") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        text = f"{shown} is not YAML: " + " ".join(str(error).split()).replace('in "<unicode string>", ', "")
        raise CliError(text, USAGE, "SPEC_UNREADABLE", _command_hint(path)) from None
    if not isinstance(loaded, dict):
        text = f"{shown} does not hold the fields of a run (command: …)."
        raise CliError(text, USAGE, "SPEC_UNREADABLE", _command_hint(path))
    try:
        spec = _json(loaded, "")
    except RecursionError:
        raise CliError(f"{shown} refers to itself.", USAGE, "SPEC_UNREADABLE") from None
    except ValueError as error:
        raise CliError(f"{shown}: {error}", USAGE, "SPEC_UNREADABLE") from None
    run_id = spec.pop("run_id", None)
    if run_id is not None and not isinstance(run_id, str):
        raise CliError(f"{shown}: run_id is not a text; put it in quotes.", USAGE, "SPEC_UNREADABLE")
    folder = Path(os.path.abspath(path)).parent
    if isinstance(spec.get("code"), str):
        spec["code"] = code_from(spec["code"], str(folder))
    if not with_code and spec.get("code") is None:
        _settle_workdir(spec, folder, is_local)
    elif spec.get("workdir", "") is None:
        del spec["workdir"]
    return run_id, spec


def missing_command(file: str, spec: dict[str, Any]) -> str:
    """What to say of a file in which no `command` stands: often it does, under a name that is nearly that."""
    shown = _shown(file)
    near = next((key for key in spec if get_close_matches(key.lower(), ["command"], cutoff=0.6)), None)
    if near is not None:
        return f"{shown}{_line(file, [near])}: {near} is not known; did you mean command?"
    if isinstance(spec.get("spec"), dict):
        return f"{shown}{_line(file, ['spec'])}: in a file the fields of a run stand at the top, not below spec."
    return f"{shown} names no command to run."


def in_words_of_file(error: Problem, file: str) -> None:
    """The API's pointers become the file's own names and lines: the file has no `spec` around its fields."""
    shown, body = _shown(file), "The body is refused: "
    inside = [(pointer.removeprefix("#/spec/").removeprefix("#/"), text) for pointer, text in error.errors]
    if error.text.startswith(body) and inside:
        reasons = [
            f"{shown}{_line(file, name.split('/'))}: {name.replace('/', '.')} {text.replace(', beside spec', '')}"
            for name, text in inside
        ]
        error.text, error.errors = reasons[0], tuple(("", reason) for reason in reasons[1:])
    else:
        line = _line(file, inside[0][0].split("/")) if len(inside) == 1 else ""
        error.text = f"{shown}{line}: {error.text}"


def _shown(path: str) -> str:
    return "standard input" if path == "-" else path


def _line(path: str, names: list[str]) -> str:
    """`, line 3` where the field stands; empty where it stands nowhere, and for standard input, which is read once."""
    import yaml

    try:
        text = "" if path == "-" else Path(path).read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return ""
    mark = None
    for name in names:
        children = (
            {key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)}
            if isinstance(node, yaml.MappingNode)
            else {str(number): (value, value) for number, value in enumerate(node.value)}
            if isinstance(node, yaml.SequenceNode)
            else {}
        )
        if name not in children:
            break
        key, node = children[name]
        mark = key.start_mark
    return "" if mark is None else f", line {mark.line + 1}"


def _command_hint(path: str) -> tuple[str, ...]:
    """Where somebody gave the script itself."""
    starter = {".py": "python", ".sh": "sh"}.get(Path(path).suffix)
    return (f"to run it: spot submit -- {starter} {path}",) if starter else ()


def _loader() -> type[Any]:
    """YAML keeps the last of two equal keys in silence; we refuse them: which one was meant?"""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    problem = f"the key {key.value!r} stands there twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(str(key.value))
            return super().construct_mapping(node, deep)

    return Loader


def _settle_workdir(spec: dict[str, Any], folder: Path, is_local: Callable[[Sequence[str]], bool]) -> None:
    """Only this computer's provider can see the folder; `workdir: null` asks for none."""
    if spec.get("workdir", "") is None:
        del spec["workdir"]
        return
    if not is_local(providers_of(spec)):
        return
    if "workdir" not in spec:
        spec["workdir"] = str(folder)
    elif isinstance(spec["workdir"], str):
        spec["workdir"] = str(folder / Path(spec["workdir"]).expanduser())


def _json(value: Any, where: str) -> Any:
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


NONE = "none"  # --venv none: the first Python on the service's PATH
FIELDS = ("venv", "conda_env")


def settle_environment(
    spec: Json,
    named: str | None,
    url: str,
    is_local: Callable[[Sequence[str]], bool],
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Put the environment into `spec`, and say so in one line. `named`: --venv (None = not given). `url`: of the
    supervisor. Raises CliError where `named` is no environment."""
    if named is not None:
        for field in FIELDS:
            spec.pop(field, None)
        if named != NONE:
            spec.update(_named(named))
        return
    variables = spec.get("env")
    if any(field in spec for field in FIELDS) or (isinstance(variables, dict) and "PATH" in variables):
        return
    environment = active(environ)
    if environment is None or not _on_this_computer(url):
        return
    if is_local(providers_of(spec)):
        field, prefix = environment
        spec[field] = prefix
        output.note(f"python: {safe(prefix)}/bin/python, of the active environment (--venv none: the service's own)")


def active(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """(field of the spec, folder) of the active environment; of two, the one that comes first on PATH."""
    path = environ.get("PATH", "").split(os.pathsep)
    environments: list[tuple[int, str, str]] = []
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environ.get(variable, "").rstrip("/")
        kind = _kind(prefix) if os.path.isabs(prefix) else None
        if kind is not None:
            folder = os.path.join(prefix, "bin")
            environments.append((path.index(folder) if folder in path else len(path), kind, prefix))
    return min(environments, key=lambda environment: environment[0])[1:] if environments else None


def _named(given: str) -> Json:
    prefix = os.path.abspath(os.path.expanduser(given))
    kind = _kind(prefix)
    if kind is None:
        text = f"--venv: {safe(prefix)} is neither a virtual environment (pyvenv.cfg) nor one of conda (conda-meta)."
        raise CliError(text, USAGE, "VENV_REFUSED", (f"make one: python3 -m venv {safe(given)}",))
    return {kind: prefix}


def _kind(prefix: str) -> str | None:
    """The field that names it; None: there is no Python environment in that folder. conda_env takes no white space."""
    if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
        return "venv"
    if os.path.isdir(os.path.join(prefix, "conda-meta")) and not any(char.isspace() for char in prefix):
        return "conda_env"
    return None


def _on_this_computer(url: str) -> bool:
    from supervisor.settings.values import is_loopback

    return is_loopback(urlsplit(url).hostname or "")
