"""Which Python environment a run on this computer is started in.

`--venv DIR` names one; without it the environment that is active in the submitter's shell counts, because that is the
Python which has just run the script by hand. The service's own environment is rarely the right one. A spec that names
an environment keeps it, and machines on other computers cannot see ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from supervisor.cli import output
from supervisor.cli.client import Json
from supervisor.cli.exits import USAGE, CliError
from supervisor.cli.words import safe

NONE = "none"  # --venv none: the first Python on the service's PATH
FIELDS = ("venv", "conda_env")


def settle_environment(
    spec: Json,
    named: str | None,
    url: str,
    is_local: Callable[[str | None], bool],
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
    found = active(environ)
    provider = spec.get("provider")
    if found is None or not _on_this_computer(url):
        return
    if provider is not None and not isinstance(provider, str):
        return  # the API says what is wrong with it
    if is_local(provider):
        field, prefix = found
        spec[field] = prefix
        output.note(
            f"python: {safe(prefix)}/bin/python, of the active environment (--venv none: the service's own)"
        )


def active(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """(field of the spec, folder) of the active environment; of two, the one that comes first on PATH."""
    path = environ.get("PATH", "").split(os.pathsep)
    found: list[tuple[int, str, str]] = []
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environ.get(variable, "").rstrip("/")
        kind = _kind(prefix) if os.path.isabs(prefix) else None
        if kind is not None:
            folder = os.path.join(prefix, "bin")
            found.append((path.index(folder) if folder in path else len(path), kind, prefix))
    return min(found, key=lambda one: one[0])[1:] if found else None


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
