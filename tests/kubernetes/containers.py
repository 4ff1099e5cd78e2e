"""What a container gets: its command, its variables, the files of its volumes; and why it cannot have them yet.

A kubelet starts a container by a Runtime. `processes.py` starts a real process, `still.py` one that does nothing.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.kubernetes.kinds import CLAIM, CONFIG_MAP, NODE, POD, SECRET
from tests.kubernetes.objects import OVER, Object, Objects

_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z0-9_.-]+)\))")


@dataclass(frozen=True)
class Exit:
    code: int
    oom: bool = False


class Running(Protocol):
    """A container that was started. `poll` None: it runs."""

    def poll(self) -> Exit | None: ...

    def terminate(self) -> None:
        """TERM to its first process."""

    def kill(self) -> None:
        """KILL to all of it, now."""

    def log(self) -> bytes: ...


class Runtime(Protocol):
    def start(self, launch: Launch) -> Running:
        """Raises OSError: its first process cannot be started."""


@dataclass(frozen=True)
class Mount:
    """`claim`: its name, "" = none. `files`: path -> content, of a Secret or ConfigMap; None = an empty folder."""

    path: str
    volume: str
    claim: str = ""
    files: Mapping[str, bytes] | None = None
    in_memory: bool = False


@dataclass(frozen=True)
class Launch:
    pod: Object
    command: tuple[str, ...]
    environ: Mapping[str, str]
    mounts: tuple[Mount, ...]
    workdir: str = ""


@dataclass
class Waits(Exception):
    """It cannot start yet. `reason`: of its waiting state; `event`: the reason of the event that says why."""

    reason: str
    message: str
    event: str = ""
    shown: str = field(default="", kw_only=True)  # the message of the state, where it differs


def prepare(objects: Objects, pod: Object) -> Launch:
    """Raises Waits."""
    (container,) = pod["spec"]["containers"]
    assert not pod["spec"].get("initContainers"), "this kubelet starts pods of one container"
    volumes = {volume["name"]: _volume(objects, pod, volume) for volume in pod["spec"].get("volumes", ())}
    environ = dict(_variables(objects, pod, container))
    mounts = tuple(
        Mount(**{**volumes[mount["name"]], "path": mount["mountPath"]}) for mount in container.get("volumeMounts", ())
    )
    words = (*container.get("command", ()), *container.get("args", ()))
    assert words, "an image's own command is not known to this kubelet"
    command = tuple(_expanded(word, environ) for word in words)
    return Launch(pod, command, environ, mounts, container.get("workingDir", ""))


def _volume(objects: Objects, pod: Object, volume: Mapping[str, Any]) -> dict[str, Any]:
    """Of a Mount, without its path. Raises Waits."""
    name = volume["name"]
    if "emptyDir" in volume:
        return {"volume": name, "in_memory": volume["emptyDir"].get("medium") == "Memory"}
    if "persistentVolumeClaim" in volume:
        claim = volume["persistentVolumeClaim"]["claimName"]
        _check_attachment(objects, pod, claim)
        return {"volume": name, "claim": claim}
    try:
        if "projected" in volume:
            files: dict[str, bytes] = {}
            for source in volume["projected"]["sources"]:
                files.update(_files(objects, pod, source, "name"))
        else:
            files = _files(objects, pod, volume, "secretName")
    except LookupError as error:
        text = f'MountVolume.SetUp failed for volume "{name}" : {error.args[0]}'
        raise Waits("ContainerCreating", text, "FailedMount") from None
    return {"volume": name, "files": files}


def _files(objects: Objects, pod: Object, source: Mapping[str, Any], key: str) -> dict[str, bytes]:
    """Raises LookupError."""
    if "secret" in source:
        given, kind, name = source["secret"], SECRET, source["secret"][key]
    else:
        given, kind, name = source["configMap"], CONFIG_MAP, source["configMap"]["name"]
    found = objects.find(kind, pod["metadata"]["namespace"], name)
    if found is None:
        if given.get("optional"):
            return {}
        raise LookupError(f'{kind.kind.lower()} "{name}" not found')
    content = contents(found)
    if "items" not in given:
        return content
    for item in given["items"]:
        if item["key"] not in content:
            raise LookupError(f"references non-existent {kind.kind.lower()} key: {item['key']}")
    return {item["path"]: content[item["key"]] for item in given["items"]}


def contents(resource: Object) -> dict[str, bytes]:
    """The values of a Secret or ConfigMap."""
    plain, coded = resource.get("data", {}), resource.get("binaryData", {})
    if resource["kind"] == "Secret":
        return {key: base64.b64decode(value) for key, value in plain.items()}
    texts = {key: value.encode() for key, value in plain.items()}
    return {**texts, **{key: base64.b64decode(value) for key, value in coded.items()}}


def _check_attachment(objects: Objects, pod: Object, name: str) -> None:
    """A claim that only one node may write is not attached to a second one. Raises Waits."""
    claim = objects.find(CLAIM, pod["metadata"]["namespace"], name)
    if claim is None or set(claim["spec"]["accessModes"]) - {"ReadWriteOnce", "ReadWriteOncePod"}:
        return
    for other in objects.of(POD, pod["metadata"]["namespace"]):
        node = other["spec"].get("nodeName")
        elsewhere = node not in (None, pod["spec"]["nodeName"]) and objects.find(NODE, "", node) is not None
        volumes = other["spec"].get("volumes", ())
        uses = any(each.get("persistentVolumeClaim", {}).get("claimName") == name for each in volumes)
        if elsewhere and uses and other["status"]["phase"] not in OVER:
            volume = claim["spec"].get("volumeName", name)
            text = (
                f'Multi-Attach error for volume "{volume}" Volume is already used by pod(s) {other["metadata"]["name"]}'
            )
            raise Waits("ContainerCreating", text, "FailedAttachVolume")


def _variables(objects: Objects, pod: Object, container: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Raises Waits."""
    known: dict[str, str] = {}
    for variable in container.get("env", ()):
        name, origin = variable["name"], variable.get("valueFrom")
        if origin is None:
            known[name] = _expanded(variable.get("value", ""), known)
        elif "fieldRef" in origin:
            known[name] = _field(pod, origin["fieldRef"]["fieldPath"])
        else:
            value = _from_key(objects, pod, origin)
            if value is not None:
                known[name] = value
    assert "envFrom" not in container, "this kubelet knows no envFrom"
    yield from known.items()


def _from_key(objects: Objects, pod: Object, origin: Mapping[str, Any]) -> str | None:
    """Raises Waits."""
    kind, given = (
        (SECRET, origin["secretKeyRef"]) if "secretKeyRef" in origin else (CONFIG_MAP, origin["configMapKeyRef"])
    )
    namespace, name, key = pod["metadata"]["namespace"], given["name"], given["key"]
    found = objects.find(kind, namespace, name)
    content = {} if found is None else contents(found)
    if key in content:
        return content[key].decode()
    if given.get("optional"):
        return None
    missing = f"couldn't find key {key} in {kind.kind} {namespace}/{name}"
    text = f'{kind.kind.lower()} "{name}" not found' if found is None else missing
    raise Waits("CreateContainerConfigError", f"Error: {text}", "Failed", shown=text)


def _field(pod: Object, path: str) -> str:
    match = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if match is not None:
        return str(pod["metadata"].get(match[1], {}).get(match[2], ""))
    value: Any = pod
    for part in path.split("."):
        value = value.get(part, "")
    return str(value)


def _expanded(text: str, environ: Mapping[str, str]) -> str:
    """`$(NAME)`, as Kubernetes does it: an unknown name stays as it is."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else environ.get(match[2], match[0])

    return _REFERENCE.sub(value, text)
