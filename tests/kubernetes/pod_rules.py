"""What the API refuses in the spec of a pod, also in a Job's template, although the schema allows it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from tests.kubernetes.errors import DUPLICATE, FORBIDDEN, INVALID, NOT_FOUND, REQUIRED, UNSUPPORTED, Cause
from tests.kubernetes.quantities import extended, quantity

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VARIABLE = re.compile(r"[ -<>-~]+")  # since 1.34 every printable ASCII character but =
NAME_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})


def template_causes(template: Mapping[str, Any], job: str) -> Iterator[Cause]:
    """Of a Job's template: its pods may not be restarted for ever."""
    spec, at = template["spec"], "spec.template.spec"
    if len(job) > 63:
        yield Cause(INVALID, "spec.template.labels", f'Invalid value: "{job}": must be no more than 63 characters')
    policy = spec.get("restartPolicy", "Always")
    if "restartPolicy" not in spec:
        yield Cause(REQUIRED, f"{at}.restartPolicy", 'Required value: valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        known = f'Unsupported value: "{policy}": supported values: "OnFailure", "Never"'
        yield Cause(UNSUPPORTED, f"{at}.restartPolicy", known)
    yield from pod_spec_causes(spec, at)


def pod_spec_causes(spec: Mapping[str, Any], at: str) -> Iterator[Cause]:
    yield from _own_causes(spec, at)
    volumes = [volume.get("name", "") for volume in spec.get("volumes") or ()]
    yield from _duplicates(volumes, f"{at}.volumes", "name")
    for place, volume in enumerate(spec.get("volumes") or ()):
        yield from _name(volume.get("name", ""), f"{at}.volumes[{place}].name")
        yield from _source_causes(volume, f"{at}.volumes[{place}]")
    containers = spec.get("containers") or []
    if not containers:
        yield Cause(REQUIRED, f"{at}.containers", "Required value")
    names = [container.get("name", "") for container in containers]
    yield from _duplicates(names, f"{at}.containers", "name")
    for group in ("initContainers", "containers"):
        for place, container in enumerate(spec.get(group) or ()):
            yield from _container_causes(container, f"{at}.{group}[{place}]", volumes)
    for place, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration_causes(toleration, f"{at}.tolerations[{place}]")


def _own_causes(spec: Mapping[str, Any], at: str) -> Iterator[Cause]:
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        yield Cause(INVALID, f"{at}.terminationGracePeriodSeconds", "Invalid value: must be greater than or equal to 0")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        yield Cause(INVALID, f"{at}.activeDeadlineSeconds", f"Invalid value: {deadline}: must be between 1 and 2^31-1")
    for field in ("serviceAccountName", "priorityClassName"):
        if spec.get(field) and not _SUBDOMAIN.fullmatch(spec[field]):
            yield Cause(INVALID, f"{at}.{field}", f'Invalid value: "{spec[field]}": {NAME_TEXT}')
    for place, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield Cause(REQUIRED, f"{at}.imagePullSecrets[{place}].name", "Required value")


def _source_causes(volume: Mapping[str, Any], at: str) -> Iterator[Cause]:
    sources = [name for name in volume if name != "name" and volume[name] is not None]
    if not sources:
        yield Cause(REQUIRED, at, "Required value: must specify a volume type")
    for name in sources[1:]:
        yield Cause(FORBIDDEN, f"{at}.{name}", "Forbidden: may not specify more than 1 volume type")
    for source, field in (("secret", "secretName"), ("configMap", "name"), ("persistentVolumeClaim", "claimName")):
        value = volume.get(source)
        if value is not None and not value.get(field):
            yield Cause(REQUIRED, f"{at}.{source}.{field}", "Required value")
        mode = (value or {}).get("defaultMode")
        if mode is not None and not 0 <= mode <= 0o777:
            why = "must be a number between 0 and 0777 (octal), both inclusive"
            yield Cause(INVALID, f"{at}.{source}.defaultMode", f"Invalid value: {mode}: {why}")


def _container_causes(container: Mapping[str, Any], at: str, volumes: list[str]) -> Iterator[Cause]:
    yield from _name(container.get("name", ""), f"{at}.name")
    if not container.get("image"):
        yield Cause(REQUIRED, f"{at}.image", "Required value")
    elif container["image"] != container["image"].strip():
        yield Cause(INVALID, f"{at}.image", "Invalid value: must not have leading or trailing whitespace")
    for place, variable in enumerate(container.get("env") or ()):
        if not _VARIABLE.fullmatch(variable.get("name", "")):
            text = "a valid environment variable name must consist only of printable ASCII characters other than '='"
            yield Cause(INVALID, f"{at}.env[{place}].name", f'Invalid value: "{variable.get("name")}": {text}')
        if variable.get("value") and variable.get("valueFrom"):
            text = "Invalid value: may not be specified when `value` is not empty"
            yield Cause(INVALID, f"{at}.env[{place}].valueFrom", text)
    yield from _mount_causes(container, f"{at}.volumeMounts", volumes)
    yield from _resource_causes(container.get("resources") or {}, f"{at}.resources")


def _mount_causes(container: Mapping[str, Any], at: str, volumes: list[str]) -> Iterator[Cause]:
    paths = [mount.get("mountPath", "") for mount in container.get("volumeMounts") or ()]
    for place, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            yield Cause(NOT_FOUND, f"{at}[{place}].name", f'Not found: "{mount.get("name")}"')
        if not mount.get("mountPath"):
            yield Cause(REQUIRED, f"{at}[{place}].mountPath", "Required value")
        elif paths.count(mount["mountPath"]) > 1:
            text = f'Invalid value: "{mount["mountPath"]}": must be unique'
            yield Cause(INVALID, f"{at}[{place}].mountPath", text)
        elif ":" in mount["mountPath"]:
            text = f"Invalid value: \"{mount['mountPath']}\": must not contain ':'"
            yield Cause(INVALID, f"{at}[{place}].mountPath", text)


def _resource_causes(resources: Mapping[str, Any], at: str) -> Iterator[Cause]:
    parsed: dict[str, dict[str, Decimal]] = {"limits": {}, "requests": {}}
    for part, values in parsed.items():
        for name, text in (resources.get(part) or {}).items():
            problem = _amount_problem(name, text)
            if problem:
                yield Cause(INVALID, f"{at}.{part}[{name}]", f'Invalid value: "{text}": {problem}')
            else:
                values[name] = quantity(text)
    for name, value in parsed["requests"].items():
        limit = parsed["limits"].get(name)
        if extended(name) and limit is None:
            yield Cause(REQUIRED, f"{at}.limits", "Required value: Limit must be set for non overcommitable resources")
        elif extended(name) and limit != value:
            text = f'Invalid value: "{value}": must be equal to {name} limit of {limit}'
            yield Cause(INVALID, f"{at}.requests", text)
        elif limit is not None and value > limit:
            text = f'Invalid value: "{value}": must be less than or equal to {name} limit of {limit}'
            yield Cause(INVALID, f"{at}.requests", text)


def _amount_problem(name: str, text: object) -> str:
    """ "" = there is none."""
    try:
        value = quantity(text)
    except ValueError as error:
        return str(error)
    if name not in NATIVE and not name.startswith("hugepages-") and not extended(name):
        return f"{name} must be a standard resource type or fully qualified"
    if value < 0:
        return "must be greater than or equal to 0"
    return "must be an integer" if extended(name) and value != int(value) else ""


def _toleration_causes(toleration: Mapping[str, Any], at: str) -> Iterator[Cause]:
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect") or ""
    if operator not in ("Equal", "Exists"):
        known = f'Unsupported value: "{operator}": supported values: "Equal", "Exists"'
        yield Cause(UNSUPPORTED, f"{at}.operator", known)
    if operator == "Exists" and toleration.get("value"):
        text = "Invalid value: value must be empty when `operator` is 'Exists'"
        yield Cause(INVALID, f"{at}.operator", text)
    if not toleration.get("key") and operator != "Exists":
        text = 'Invalid value: operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield Cause(INVALID, f"{at}.operator", text)
    if effect and effect not in EFFECTS:
        known = ", ".join(f'"{word}"' for word in EFFECTS)
        yield Cause(UNSUPPORTED, f"{at}.effect", f'Unsupported value: "{effect}": supported values: {known}')
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        text = "Invalid value: effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield Cause(INVALID, f"{at}.effect", text)


def _name(name: str, at: str) -> Iterator[Cause]:
    if not name:
        yield Cause(REQUIRED, at, "Required value")
    elif not _NAME.fullmatch(name):
        yield Cause(INVALID, at, f'Invalid value: "{name}": {NAME_TEXT}')


def _duplicates(names: list[str], at: str, field: str) -> Iterator[Cause]:
    for place, name in enumerate(names):
        if name in names[:place]:
            yield Cause(DUPLICATE, f"{at}[{place}].{field}", f'Duplicate value: "{name}"')
