"""The command's own Python runs this once (`python -c`): which Python is it, and what is installed in it?

It imports none of the installed packages: versions are read from metadata and from the text of torch/version.py. It
prints one line of JSON, the last line of its output, after anything that start-up files print.

Each attempt of each run waits for it. So it reads the head of each package's metadata by itself: the standard library's
importlib.metadata and its parser of mail take three times the CPU of all the rest.
"""

from __future__ import annotations

import os
import sys

_path, sys.path = sys.path, [entry for entry in sys.path if entry not in ("", os.getcwd())]
import json  # noqa: E402 - this must not import a json.py in the training's folder
import re  # noqa: E402
from importlib import util  # noqa: E402

TYPE_CHECKING = False  # at run time typing would be a third of the imports
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, Optional, Tuple

_ASSIGNED = re.compile(r"^(\w+)(?:\s*:[^=\n]+)?\s*=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)


def frozen(name: str, version: str, origin: Optional[str]) -> str:
    """One line in the format of `pip freeze`; `origin` is the content of direct_url.json."""
    try:
        record: Dict[str, Any] = json.loads(origin or "{}")
        url = re.sub(r"//[^/@]*@", "//", str(record["url"]))
    except (ValueError, KeyError, TypeError):
        return "%s==%s" % (name, version)
    vcs = record.get("vcs_info") or {}
    if vcs:
        url = "%s+%s@%s" % (vcs.get("vcs"), url, vcs.get("commit_id"))
    if (record.get("dir_info") or {}).get("editable"):
        return "-e %s#egg=%s" % (url, name)
    return "%s @ %s" % (name, url)


def distributions() -> Iterator[Tuple[str, str, Optional[str]]]:
    """(name, version, content of direct_url.json) of each package, in the order of the path."""
    for entry in sys.path:
        try:
            names = os.listdir(entry or ".")
        except NotADirectoryError:
            yield from archived(entry)
        except OSError:
            pass
        else:
            for name in names:
                if name.lower().endswith((".dist-info", ".egg-info")) or name.lower() == "egg-info":
                    yield from described(os.path.join(entry, name))


def described(info: str) -> Iterator[Tuple[str, str, Optional[str]]]:
    """The one package that this folder describes, or this file of old installers; none for the remains of an
    interrupted installation."""
    for path in (os.path.join(info, "METADATA"), os.path.join(info, "PKG-INFO"), info):
        try:
            head = head_of(path)
        except (OSError, ValueError):
            continue
        if "name" in head and "version" in head:
            try:
                with open(os.path.join(info, "direct_url.json"), encoding="utf-8") as file:
                    origin = file.read()
            except (OSError, ValueError):
                origin = None
            yield head["name"], head["version"], origin
        return


def head_of(path: str) -> Dict[str, str]:
    """The fields above the first empty line, names in lower case; of two with one name the first counts."""
    fields: Dict[str, str] = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.strip():
                break
            name, _, value = line.partition(":")
            fields.setdefault(name.lower(), value.strip())
    return fields


def archived(path: str) -> Iterator[Tuple[str, str, Optional[str]]]:
    """The packages in an archive on the path, such as an egg."""
    from importlib import metadata  # late: such archives are rare

    for package in metadata.distributions(path=[path]):
        yield package.metadata["Name"], package.version, package.read_text("direct_url.json")


def installed() -> Dict[str, Any]:
    """`packages`: lines; `versions`: normalized name -> version. Of two with one name the first on the path counts."""
    lines, versions = [], {}
    for name, version, origin in distributions():
        normal = re.sub(r"[-_.]+", "-", name).lower()
        if normal and normal not in versions and normal != "spot-progress":  # ours, put there for the attempt
            versions[normal] = version
            lines.append(frozen(name, version, origin))
    return {"packages": sorted(lines, key=str.lower), "versions": versions}


def torch_build(versions: Dict[str, str]) -> Dict[str, Optional[str]]:
    """Versions of torch, CUDA and cuDNN; None = not installed."""
    spec = util.find_spec("torch")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    assigned: Dict[str, str] = {}
    libraries = []
    for folder in folders[:1]:
        try:
            with open(os.path.join(folder, "version.py"), encoding="utf-8") as source:
                assigned = dict(_ASSIGNED.findall(source.read()))
            libraries = os.listdir(os.path.join(folder, "lib"))
        except OSError:
            pass  # the metadata remains
    bundled = [name[len("libcudnn.so.") :] for name in libraries if name.startswith("libcudnn.so.")]
    return {
        "torch": assigned.get("__version__") or versions.get("torch"),
        "cuda": assigned.get("cuda") or _of(versions, "nvidia-cuda-runtime"),
        "cudnn": _of(versions, "nvidia-cudnn") or (max(bundled) if bundled else None),
    }


def _of(versions: Dict[str, str], name: str) -> Optional[str]:
    """Also for names with a suffix, such as nvidia-cudnn-cu12."""
    return next((versions[key] for key in sorted(versions) if re.match(name + r"(-cu\d+)?$", key)), None)


def main() -> None:
    sys.path[:] = _path
    installation = installed()
    facts = {
        "python": "%d.%d.%d" % sys.version_info[:3],
        "python_executable": sys.executable,
        "python_prefix": sys.prefix,
        "packages": installation["packages"],
    }
    facts.update(torch_build(installation["versions"]))
    sys.stdout.write("\n" + json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
