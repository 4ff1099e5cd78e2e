"""The YAML file of a submit: a RunSpec, with `run_id` beside its fields where the user wants a name of his own.

The file is checked by the API; here only what YAML can hold and JSON cannot is refused or put right.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from supervisor.cli.codedir import code_from
from supervisor.cli.exits import USAGE, CliError


def names_local(provider: str | None) -> bool:
    """Whether machines are on this computer, where no supervisor is asked which provider is its own."""
    return (provider or "local") == "local"


def read_spec(
    path: str, with_code: bool = False, is_local: Callable[[str | None], bool] = names_local
) -> tuple[str | None, dict[str, Any]]:
    """(run_id or None, spec) of the file, or of standard input where `path` is "-". Relative `workdir` is taken from
    the file's folder (standard input: the present one), which is also its default; so is a folder that `code` names.
    Where there is code (`with_code`: from elsewhere), `workdir` is a folder of the bundle and stays as it is; where
    machines are not on this computer (`is_local`, asked with the provider that is named), one of the image. Raises
    CliError with the place of what is wrong."""
    import yaml

    shown = "standard input" if path == "-" else path
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        loaded = yaml.load(text, Loader=_loader())  # noqa: S506 - a SafeLoader that refuses more
    except OSError as error:
        raise CliError(
            f"{shown} cannot be read: {error.strerror or error}", USAGE, "SPEC_UNREADABLE"
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        text = f"{shown} is not YAML: " + " ".join(str(error).split()).replace('in "<unicode string>", ', "")
        raise CliError(text, USAGE, "SPEC_UNREADABLE", _meant(path)) from None
    if not isinstance(loaded, dict):
        text = f"{shown} does not hold the fields of a run (command: …)."
        raise CliError(text, USAGE, "SPEC_UNREADABLE", _meant(path))
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


def _meant(path: str) -> tuple[str, ...]:
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


def _settle_workdir(spec: dict[str, Any], folder: Path, is_local: Callable[[str | None], bool]) -> None:
    """Only this computer's provider can see the folder; `workdir: null` asks for none."""
    if spec.get("workdir", "") is None:
        del spec["workdir"]
        return
    named = spec.get("provider")
    if not is_local(named if isinstance(named, str) else None):
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
