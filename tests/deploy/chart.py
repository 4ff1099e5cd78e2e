"""The chart of deploy/helm as Helm renders it, and the pod of its Deployment as processes of this computer."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.components import require_component

CHART = Path(__file__).parents[2] / "deploy/helm"
ENGINE = Path(__file__).with_name("helm_engine.py")
RELEASE, NAMESPACE = "spot", "spot-system"
HOW_TO_INSTALL = "make env on Linux with x86-64 or macOS with ARM, for which the wheel helm-python-sdk exists"
SCRATCH = "/tmp"  # noqa: S108 - a path in the container; no value of the chart names it
OF_RUNS = "SPOT_KUBERNETES_"  # what these name is in other pods

Object = dict[str, Any]


class Refused(Exception):
    """Helm refused the values; its message."""


@dataclass(frozen=True)
class Rendered:
    objects: tuple[Object, ...]
    notes: str

    def all(self, *kinds: str) -> list[Object]:
        return [each for each in self.objects if each["kind"] in kinds]

    def only(self, kind: str) -> Object:
        (found,) = self.all(kind)
        return found

    @property
    def pod(self) -> Object:
        """The spec of the Deployment's pods."""
        spec: Object = self.only("Deployment")["spec"]["template"]["spec"]
        return spec

    @property
    def server(self) -> Object:
        """The container that serves."""
        (container,) = self.pod["containers"]
        found: Object = container
        return found

    @property
    def settings_file(self) -> str:
        return str(self.only("ConfigMap")["data"]["spot.toml"])


def rendered(values: Mapping[str, Any], chart: Path = CHART) -> Rendered:
    """As `helm install` would send it. Raises Refused."""
    answer = _engine("render", str(chart), json.dumps(values))
    if "refused" in answer:
        raise Refused(answer["refused"])
    files: dict[str, str] = answer["files"]
    objects = [
        found
        for name, text in sorted(files.items())
        if name.endswith(".yaml")
        for found in yaml.safe_load_all(text)
        if found
    ]
    return Rendered(tuple(objects), next(text for name, text in files.items() if name.endswith("NOTES.txt")))


def lint(values: Mapping[str, Any], chart: Path = CHART) -> list[Object]:
    """The findings of `helm lint --strict`, without pure information."""
    answer = _engine("lint", str(chart), json.dumps(values))
    return [each for each in answer["messages"] if each["severity"] > 1]


def _engine(action: str, chart: str, values: str) -> dict[str, Any]:
    require_component("Helm", importlib.util.find_spec("helm_python") is not None, HOW_TO_INSTALL)
    request = {"action": action, "chart": chart, "release": RELEASE, "namespace": NAMESPACE}
    if chart != str(CHART):  # a broken variant
        return _run(json.dumps({**request, "values": json.loads(values)}))
    return _once(json.dumps({**request, "values": json.loads(values)}))


def _run(request: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, ENGINE], input=request, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


_once = cache(_run)


def mounted(chart: Rendered, folder: Path, secrets: Mapping[str, Mapping[str, str]], claims: Path) -> dict[str, str]:
    """The environment of the server's container, whose mounts are folders below `folder` (of claims: below `claims`),
    with the files of its ConfigMap and of its Secrets: name -> key -> value."""
    volumes = {each["name"]: each for each in chart.pod["volumes"]}
    places: dict[str, Path] = {}
    for mount in chart.server["volumeMounts"]:
        if mount["mountPath"] != SCRATCH:
            claim = volumes[mount["name"]].get("persistentVolumeClaim")
            name = mount["mountPath"].lstrip("/") if claim is None else claim["claimName"]
            places[mount["mountPath"]] = (folder if claim is None else claims) / name
    paths = re.compile("|".join(re.escape(path) for path in sorted(places, key=len, reverse=True)))

    def here(text: str) -> str:
        return paths.sub(lambda match: str(places[match[0]]), text)

    for mount in chart.server["volumeMounts"]:
        if (place := places.get(mount["mountPath"])) is not None:
            place.mkdir(parents=True, exist_ok=True)
            for name, text in _files(chart, volumes[mount["name"]], secrets).items():
                (place / name).write_text(here(text))
    environ = {}
    for variable in chart.server["env"]:
        name, source = variable["name"], variable.get("valueFrom", {}).get("secretKeyRef")
        if source is not None:
            environ[name] = secrets[source["name"]][source["key"]]
        else:
            environ[name] = variable["value"] if name.startswith(OF_RUNS) else here(variable["value"])
    return environ


def _files(chart: Rendered, volume: Object, secrets: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    if "configMap" in volume:
        (found,) = (each for each in chart.all("ConfigMap") if each["metadata"]["name"] == volume["configMap"]["name"])
        files: dict[str, str] = found["data"]
        return files
    if "secret" in volume:
        values = secrets[volume["secret"]["secretName"]]
        return {item["path"]: values[item["key"]] for item in volume["secret"]["items"]}
    return {}
