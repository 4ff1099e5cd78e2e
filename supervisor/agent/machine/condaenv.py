"""A command in a conda or virtual environment: an activation amounts to a PATH and one or two names.

Virtual environments are named by their path. Conda's are looked for where conda keeps them: below each installation
that can be found, and in the list that it writes into the home directory.
"""

from __future__ import annotations

import os
import shutil
from typing import Dict, Iterator, List, Mapping, Optional

from supervisor.agent.machine.training import NOT_FOUND, NotStarted
from supervisor.contract.heartbeat import NO_CONDA, NO_VENV

HOMES = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba")
SYSTEM = ("/opt/conda", "/opt/miniconda3", "/opt/miniforge3")
BASE = "base"
_SHOWN = 8


def activated(wanted: str, env: Mapping[str, str]) -> Dict[str, str]:
    """`env` with the environment `wanted` (a name or an absolute path) in front. Raises NotStarted, naming those that
    exist."""
    found = environments(env)
    prefix = wanted if os.path.isabs(wanted) else found.get(wanted)
    if prefix is None or not os.path.isdir(os.path.join(prefix, "conda-meta")):
        raise NotStarted(
            NOT_FOUND, "%s%s is not on this machine; %s" % (NO_CONDA, wanted, _told(list(found)))
        )
    path = os.pathsep.join((os.path.join(prefix, "bin"), env.get("PATH", os.defpath)))
    after = {**env, "PATH": path, "CONDA_PREFIX": prefix, "CONDA_DEFAULT_ENV": wanted}
    after.pop("VIRTUAL_ENV", None)
    after.pop("PYTHONHOME", None)
    return after


def with_venv(prefix: str, env: Mapping[str, str]) -> Dict[str, str]:
    """`env` with the virtual environment in the folder `prefix` in front. Raises NotStarted where there is none."""
    if not os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
        raise NotStarted(NOT_FOUND, "%s%s is not on this machine" % (NO_VENV, prefix))
    path = os.pathsep.join((os.path.join(prefix, "bin"), env.get("PATH", os.defpath)))
    after = {**env, "PATH": path, "VIRTUAL_ENV": prefix}
    after.pop("PYTHONHOME", None)
    return after


def environments(env: Mapping[str, str]) -> Dict[str, str]:
    """Name -> folder of every environment that can be found; the first of two with one name counts."""
    found: Dict[str, str] = {}
    for root in _roots(env):
        if os.path.isdir(os.path.join(root, "conda-meta")):
            found.setdefault(BASE, root)
        for name in _names(os.path.join(root, "envs")):
            found.setdefault(name, os.path.join(root, "envs", name))
    for prefix in _listed(env):
        found.setdefault(os.path.basename(prefix), prefix)
    return {name: path for name, path in found.items() if os.path.isdir(os.path.join(path, "conda-meta"))}


def _told(names: List[str]) -> str:
    if not names:
        return "no conda environment was found there at all"
    more = ", ..." if len(names) > _SHOWN else ""
    return "there are: %s%s" % (", ".join(sorted(names)[:_SHOWN]), more)


def _roots(env: Mapping[str, str]) -> Iterator[str]:
    """Folders of installations, the likeliest first; some may not exist."""
    program = env.get("CONDA_EXE") or shutil.which("conda", path=env.get("PATH", os.defpath))
    if program:
        yield os.path.dirname(os.path.dirname(os.path.realpath(program)))
    if env.get("MAMBA_ROOT_PREFIX"):
        yield env["MAMBA_ROOT_PREFIX"]
    home = _home(env)
    if home is not None:
        for name in HOMES:
            yield os.path.join(home, name)
        yield os.path.join(home, ".conda")
    yield from SYSTEM


def _listed(env: Mapping[str, str]) -> List[str]:
    """Conda's own list of environments, those outside its folders too."""
    home = _home(env)
    if home is None:
        return []
    try:
        with open(
            os.path.join(home, ".conda", "environments.txt"), encoding="utf-8", errors="replace"
        ) as lines:
            return [line.strip().rstrip("/") for line in lines if line.startswith("/")]
    except OSError:
        return []


def _home(env: Mapping[str, str]) -> Optional[str]:
    home = env.get("HOME") or os.path.expanduser("~")
    return home if os.path.isabs(home) else None


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
