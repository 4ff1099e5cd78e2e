"""What the API refuses although the schema allows it: names, references, sizes, and fields that may not change."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.kubernetes.errors import DUPLICATE, FORBIDDEN, INVALID, REQUIRED, TOO_LONG, UNSUPPORTED, Cause
from tests.kubernetes.kinds import CONFIG_MAP, JOB, LOCAL_QUEUE, POD, SECRET, WORKLOAD, Kind
from tests.kubernetes.pod_rules import pod_spec_causes, template_causes

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
_KEY = re.compile(rf"({SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_FILE = re.compile(r"[-._a-zA-Z0-9]{1,253}")
SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{SUBDOMAIN}')"
)
MOST_BYTES = 1 << 20  # of a Secret or ConfigMap
ANNOTATION_BYTES = 256 << 10
# Of a Job's spec; the others, such as suspend and activeDeadlineSeconds, may change.
FIXED = ("completions", "selector", "podFailurePolicy", "completionMode", "podReplacementPolicy", "manualSelector")
# Of the template while the Job is suspended and has not started.
MOVABLE = ("nodeSelector", "tolerations", "affinity", "schedulingGates")


def causes(kind: Kind, resource: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[Cause]:
    """`old`: the object before a change; None = it is new."""
    found = list(_metadata_causes(resource.get("metadata") or {}))
    if kind is JOB:
        found += _job_causes(resource)
        found += _changed_job(resource, old) if old is not None else ()
    elif kind is POD:
        found += pod_spec_causes(resource["spec"], "spec")
        if old is not None and old["spec"] != resource["spec"]:
            found.append(Cause(FORBIDDEN, "spec", "Forbidden: pod updates may not change fields other than the image"))
    elif kind in (SECRET, CONFIG_MAP):
        found += _data_causes(kind, resource)
        found += _changed_data(resource, old) if old is not None else ()
    elif kind in (LOCAL_QUEUE, WORKLOAD):
        found += [] if isinstance(resource.get("spec"), dict) else [Cause(REQUIRED, "spec", "Required value")]
    return found


def _metadata_causes(metadata: Mapping[str, Any]) -> Iterator[Cause]:
    name = metadata.get("name") or ""
    if not name:
        yield Cause(REQUIRED, "metadata.name", "Required value: name or generateName is required")
    elif not re.fullmatch(SUBDOMAIN, name):
        yield _invalid("metadata.name", name, SUBDOMAIN_TEXT)
    elif len(name) > 253:
        yield _invalid("metadata.name", name, "must be no more than 253 characters")
    yield from label_causes(metadata.get("labels") or {}, "metadata.labels")
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        if not _KEY.fullmatch(key.lower()):
            yield _invalid("metadata.annotations", key, "name part must consist of alphanumeric characters")
    if sum(len(key) + len(value) for key, value in annotations.items()) > ANNOTATION_BYTES:
        yield Cause(TOO_LONG, "metadata.annotations", f"Too long: may not be more than {ANNOTATION_BYTES} bytes")
    yield from _owner_causes(metadata.get("ownerReferences") or ())


def _owner_causes(owners: Sequence[Mapping[str, Any]]) -> Iterator[Cause]:
    for place, owner in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                at = f"metadata.ownerReferences[{place}].{field}"
                yield Cause(REQUIRED, at, "Required value: must not be empty")
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        yield _invalid("metadata.ownerReferences", "", "Only one reference can have Controller set to true")


def label_causes(labels: Mapping[str, str], field: str) -> Iterator[Cause]:
    for key, value in labels.items():
        if not _KEY.fullmatch(key):
            yield _invalid(field, key, "name part must consist of alphanumeric characters, '-', '_' or '.'")
        if len(value) > 63:
            yield _invalid(field, value, "must be no more than 63 characters")
        elif not _VALUE.fullmatch(value):
            yield _invalid(field, value, "a valid label must be an empty string or consist of alphanumeric characters")


def _job_causes(job: Mapping[str, Any]) -> Iterator[Cause]:
    spec = job["spec"]
    least = (("parallelism", 0), ("completions", 0), ("backoffLimit", 0), ("activeDeadlineSeconds", 0))
    for name, minimum in (*least, ("ttlSecondsAfterFinished", 0)):
        value = spec.get(name)
        if value is not None and value < minimum:
            yield _invalid(f"spec.{name}", value, "must be greater than or equal to 0")
    policy = spec.get("podReplacementPolicy", "TerminatingOrFailed")
    if policy not in ("Failed", "TerminatingOrFailed"):
        yield _unsupported("spec.podReplacementPolicy", policy, ("Failed", "TerminatingOrFailed"))
    if spec.get("podFailurePolicy"):
        if policy != "Failed" and "podReplacementPolicy" in spec:
            yield _unsupported("spec.podReplacementPolicy", policy, ("Failed",))
        if spec["template"]["spec"].get("restartPolicy") != "Never":
            text = 'only "Never" is supported when podFailurePolicy is specified'
            yield _invalid("spec.template.spec.restartPolicy", spec["template"]["spec"].get("restartPolicy", ""), text)
    if spec.get("completionMode", "NonIndexed") not in ("NonIndexed", "Indexed"):
        yield _unsupported("spec.completionMode", spec["completionMode"], ("Indexed", "NonIndexed"))
    yield from template_causes(spec["template"], job["metadata"].get("name") or "")
    yield from label_causes((spec["template"].get("metadata") or {}).get("labels") or {}, "spec.template.labels")


def _changed_job(job: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    new_spec, old_spec = job["spec"], old["spec"]
    for name in FIXED:
        if new_spec.get(name) != old_spec.get(name):
            yield Cause(INVALID, f"spec.{name}", f"Invalid value: {new_spec.get(name)!r}: field is immutable")
    before, after = dict(old_spec["template"]), dict(new_spec["template"])
    if old_spec.get("suspend") and not (old.get("status") or {}).get("startTime"):
        before, after = _without_movable(before), _without_movable(after)
    if before != after:
        yield Cause(INVALID, "spec.template", "Invalid value: the template of a Job: field is immutable")


def _without_movable(template: Mapping[str, Any]) -> dict[str, Any]:
    spec = {name: value for name, value in template["spec"].items() if name not in MOVABLE}
    return {"spec": spec}


def _data_causes(kind: Kind, resource: Mapping[str, Any]) -> Iterator[Cause]:
    size, plain, coded = 0, resource.get("data") or {}, resource.get("binaryData") or {}
    for field, values in (("data", plain), ("binaryData", coded)):
        for key, value in values.items():
            if not _FILE.fullmatch(key) or key in (".", ".."):
                yield _invalid(f"{field}[{key}]", key, "a valid config key must consist of alphanumeric characters")
            encoded = kind is SECRET or field == "binaryData"
            try:
                size += len(base64.b64decode(value, validate=True)) if encoded else len(value.encode())
            except binascii.Error:
                yield _invalid(f"{field}[{key}]", "", "illegal base64 data")
    for key in plain.keys() & coded.keys():
        yield Cause(DUPLICATE, f"data[{key}]", f'Duplicate value: "{key}"')
    if size > MOST_BYTES:
        yield Cause(TOO_LONG, "data" if kind is SECRET else "", f"Too long: may not be more than {MOST_BYTES} bytes")


def _changed_data(resource: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    if resource.get("type") != old.get("type"):
        yield Cause(INVALID, "type", f"Invalid value: {resource.get('type')!r}: field is immutable")
    if old.get("immutable"):
        for field in ("data", "binaryData", "immutable"):
            if resource.get(field) != old.get(field):
                yield Cause(FORBIDDEN, field, "Forbidden: field is immutable when `immutable` is set")


def _invalid(field: str, value: object, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else value
    return Cause(INVALID, field, f"Invalid value: {shown}: {why}")


def _unsupported(field: str, value: object, known: tuple[str, ...]) -> Cause:
    words = ", ".join(f'"{word}"' for word in known)
    return Cause(UNSUPPORTED, field, f'Unsupported value: "{value}": supported values: {words}')
