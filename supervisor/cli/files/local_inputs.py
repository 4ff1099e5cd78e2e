"""What a spec takes from this computer: a folder of code, and a Python environment.

Code: the folder becomes a stored bundle, and its hash takes the place of the folder in the spec.

Environment: a run on this computer starts its command in the environment of --venv, else in the one that is active in
the user's shell, because that Python has probably run the script before. The environment of the service is rarely
right. A spec that names an environment keeps it, and machines on other computers cannot see ours.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from supervisor.cli.client import Client, Json
from supervisor.cli.exits import USAGE, CliError, Problem, Unreachable
from supervisor.cli.output import note, safe
from supervisor.domain.bundle_index import BundleIndex, unfit
from supervisor.wording.figures import plural, size_text

if TYPE_CHECKING:
    from supervisor.cli.files.pack import Packed

IsLocal = Callable[[Sequence[str]], bool]  # whether all machines of these providers (none = the default) are here
HASH = re.compile(r"[0-9a-f]{64}\Z")
HASH_CHARS = 12
LEFT_OUT_SHOWN = 5
NO_VENV = "none"  # --venv none: the first Python on the service's PATH
VENV_FIELDS = ("venv", "conda_env")


def names_local(providers: Sequence[str]) -> bool:
    """IsLocal where no supervisor can be asked."""
    return all(name == "local" for name in providers)


def machines_here(client: Client, option: Sequence[str] = ()) -> IsLocal:
    """IsLocal of this supervisor; `option`: the providers of the command line, which win over those of a spec. An older
    supervisor, which does not list its providers, calls its own machines local."""

    @cache
    def here() -> dict[str, bool]:
        """In the supervisor's order, its default first."""
        listing = _or_none(client, "/v1/providers")
        if listing is not None:
            return {provider["name"]: provider["shares_computer"] for provider in listing["providers"]}
        meta = _or_none(client, "/v1/meta")
        name = "local" if meta is None else str(meta["provider"])
        return {name: name == "local"}

    def is_here(providers: Sequence[str]) -> bool:
        names = option or providers
        return all(here().get(name, name == "local") for name in names) if names else next(iter(here().values()))

    return is_here


def _or_none(client: Client, path: str) -> Any:
    try:
        return client.get(path)
    except Problem as error:
        if error.status != 404:
            raise
        return None


def providers_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The providers that the spec names. The API refuses what is no name."""
    listed = spec.get("providers")
    names = listed if isinstance(listed, list) and listed else [spec.get("provider")]
    return tuple(name for name in names if isinstance(name, str))


def code_from(code: str, folder: str) -> str:
    """A hash as it is; a path taken from `folder`."""
    if not code or HASH.match(code):
        return code
    return os.path.normpath(os.path.join(folder, os.path.expanduser(code)))


def settle_code(client: Client, spec: Json, send: bool = True) -> bool:
    """Pack and store the folder that `code` names, and put its hash there. A hash, or a value that is no text, is left
    to the API. Without `send` nothing is stored, and True says that it would have been. Raises CliError, Problem,
    Unreachable."""
    code = spec.get("code")
    if not isinstance(code, str) or not code or HASH.match(code):
        return False
    workdir = spec.get("workdir")
    if isinstance(workdir, str) and not os.path.isabs(workdir):
        spec["workdir"] = posixpath.normpath(workdir)
    folder = Path(code)
    if not os.path.isdir(folder):  # for a name that no file can have too, where Path.is_dir raises
        text = f"code: {folder} is not a folder" + (", it is a file." if os.path.exists(folder) else ".")
        raise CliError(text, USAGE, "CODE_REFUSED")
    from supervisor.cli.files.pack import packed

    with packed(folder) as bundle:
        _check(spec, bundle.index)
        _check_secrets(spec, folder, bundle.index)
        url = f"/v1/code/{bundle.index.sha256}"
        stored = _is_stored(client, url)
        if send and not stored:
            _send(client, url, bundle)
        size = size_text(bundle.index.stored_bytes)
        state = "stored already" if stored else f"stored, {size} sent" if send else f"not stored, {size} to send"
        _report(folder, bundle, state)
        spec["code"] = bundle.index.sha256
        return not stored and not send


def _report(folder: Path, bundle: Packed, state: str) -> None:
    index = bundle.index
    content = f"{plural(len(index.members), 'file')}, {size_text(index.size)} of {safe(folder)}"
    note(f"code {index.sha256[:HASH_CHARS]}: {content} ({state})")
    if bundle.left_out:
        names = ", ".join(map(safe, bundle.left_out[:LEFT_OUT_SHOWN]))
        note(f"left out: {names}{', …' if len(bundle.left_out) > LEFT_OUT_SHOWN else ''}")


def _check(spec: Json, index: BundleIndex) -> None:
    """A bundle that the API would refuse is not sent. Raises CliError."""
    command, workdir = spec.get("command"), spec.get("workdir")
    words = command if isinstance(command, list) else [command]
    if not all(isinstance(word, str) for word in (*words, workdir or "")):
        return
    misfit = unfit(command or [], workdir or "", index)
    if misfit is not None:
        raise CliError(misfit.text, USAGE, "CODE_REFUSED")


def _check_secrets(spec: Json, folder: Path, index: BundleIndex) -> None:
    """A bundle is stored, so it must not hold the file of a secret. Raises CliError."""
    secrets = spec.get("secrets")
    top = os.path.realpath(folder)
    for name, reference in secrets.items() if isinstance(secrets, dict) else ():
        if not isinstance(reference, str) or not reference.startswith("file:"):
            continue
        inside = os.path.relpath(os.path.realpath(reference.removeprefix("file:")), top)
        if inside in index.members:
            text = f"{safe(inside)} holds the secret {safe(name)} and would be stored with the code. Nothing was sent."
            hint = f"move it out of {safe(folder)}, or name it in .spotignore"
            raise CliError(text, USAGE, "CODE_REFUSED", (hint,))


def _is_stored(client: Client, url: str) -> bool:
    try:
        client.get(url)
    except Problem as error:
        if error.code != "CODE_NOT_FOUND":
            raise
        return False
    return True


def _send(client: Client, url: str, bundle: Packed) -> None:
    headers = {"Content-Type": "application/gzip", "Content-Length": str(bundle.index.stored_bytes)}
    try:
        client.send("PUT", url, headers=headers, content=bundle.file)
    except Unreachable as error:
        if not error.sent:
            raise
        bundle.file.seek(0)  # the response was lost; storing the bundle again changes nothing
        client.send("PUT", url, headers=headers, content=bundle.file)


def settle_environment(
    spec: Json, option: str | None, url: str, is_local: IsLocal, environ: Mapping[str, str] = os.environ
) -> None:
    """Put the environment into `spec`; one line reports an active one. `option`: --venv (None = not given). `url`: of
    the supervisor. Raises CliError where `option` is no environment."""
    if option is not None:
        for field in VENV_FIELDS:
            spec.pop(field, None)
        if option != NO_VENV:
            spec.update(_at(option))
        return
    variables = spec.get("env")
    if any(field in spec for field in VENV_FIELDS) or (isinstance(variables, dict) and "PATH" in variables):
        return
    environment = active_environment(environ)
    if environment is not None and _on_this_computer(url) and is_local(providers_of(spec)):
        field, prefix = environment
        spec[field] = prefix
        note(f"python: {safe(prefix)}/bin/python of the active environment (--venv none: the service's own)")


def active_environment(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """(field of the spec, folder) of the active environment; of two, the first on PATH."""
    path = environ.get("PATH", "").split(os.pathsep)
    environments: list[tuple[int, str, str]] = []
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environ.get(variable, "").rstrip("/")
        field = _field_of(prefix) if os.path.isabs(prefix) else None
        if field is not None:
            folder = os.path.join(prefix, "bin")
            environments.append((path.index(folder) if folder in path else len(path), field, prefix))
    return min(environments, key=lambda environment: environment[0])[1:] if environments else None


def _at(folder: str) -> Json:
    prefix = os.path.abspath(os.path.expanduser(folder))
    field = _field_of(prefix)
    if field is None:
        text = f"--venv: {safe(prefix)} is neither a virtual environment (pyvenv.cfg) nor one of conda (conda-meta)."
        raise CliError(text, USAGE, "VENV_REFUSED", (f"make one: python3 -m venv {safe(folder)}",))
    return {field: prefix}


def _field_of(prefix: str) -> str | None:
    """None: the folder holds no Python environment. conda_env takes no white space."""
    if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
        return "venv"
    if os.path.isdir(os.path.join(prefix, "conda-meta")) and not any(char.isspace() for char in prefix):
        return "conda_env"
    return None


def _on_this_computer(url: str) -> bool:
    from supervisor.settings.values import is_loopback

    return is_loopback(urlsplit(url).hostname or "")
