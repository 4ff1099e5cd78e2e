"""What deploy/terraform grants: read from the files themselves, once a process, with a real parser of HCL.

Only their syntax is supported: roles whose permissions are lists of `locals`, `*_iam_member` resources, and
members that are our accounts or people of a variable. Anything else is an error, so that nothing is overlooked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import hcl2

TERRAFORM = Path(__file__).parents[2] / "deploy" / "terraform"
SUPERVISOR, WORKER, BUILD, BUILDER = "supervisor", "worker", "build", "builder"
PERSON = "person"  # the user whose own credentials a supervisor uses

# Google's own roles, as far as they are used: https://cloud.google.com/iam/docs/understanding-roles. Nothing is asked
# for of what a role holds beside.
PREDEFINED: Mapping[str, tuple[str, ...]] = {
    "roles/iam.serviceAccountUser": ("iam.serviceAccounts.actAs",),
    "roles/secretmanager.secretAccessor": ("secretmanager.versions.access",),
    "roles/storage.objectViewer": ("storage.objects.get",),
    "roles/logging.logWriter": ("logging.logEntries.create",),
    "roles/artifactregistry.writer": (
        "artifactregistry.repositories.downloadArtifacts",
        "artifactregistry.repositories.uploadArtifacts",
    ),
}
# Words of an expression -> the identity.
_MEMBERS = {
    "google_service_account.worker.": WORKER,
    "google_service_account.build.": BUILD,
    "local.supervisors": SUPERVISOR,
    "var.builders": BUILDER,
    "var.supervisor_users": PERSON,
}
_ACCOUNTS = {"google_service_account.worker.": "worker account", "google_service_account.build.": "build account"}
_PLACES = {
    "google_project_iam_member": "project",
    "google_storage_bucket_iam_member": "bucket",
    "google_artifact_registry_repository_iam_member": "repository",
    "google_secret_manager_secret_iam_member": "secret",
}


@dataclass(frozen=True, order=True)
class Grant:
    """`where`: project, bucket, staging (a folder of the bucket), repository, secret, worker account, build account."""

    identity: str
    permission: str
    where: str


@cache
def files() -> Mapping[str, Any]:
    """name -> the parsed file. Raises what the parser raises."""
    found = {}
    for path in sorted((*TERRAFORM.glob("*.tf"), *TERRAFORM.glob("*.tfvars"))):
        with path.open(encoding="utf-8") as opened:
            found[path.name] = _plain(hcl2.load(opened))
    return found


def blocks(kind: str) -> list[Mapping[str, Any]]:
    """All `variable`, `resource`, `locals`, `output` ... blocks, as the parser gives them."""
    return [block for parsed in files().values() for block in parsed.get(kind, [])]


def resources() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(type, name, attributes)."""
    for block in blocks("resource"):
        for kind, named in block.items():
            for name, attributes in named.items():
                yield kind, name, attributes


@cache
def local_values() -> Mapping[str, Any]:
    return {name: value for block in blocks("locals") for name, value in block.items()}


@cache
def grants() -> frozenset[Grant]:
    """With every feature that the variable `features` allows."""
    return frozenset(
        Grant(_identity(attributes), permission, _where(kind, attributes))
        for kind, _, attributes in resources()
        if kind.endswith(("_iam_member", "_iam_binding", "_iam_policy"))
        for permission in _permissions(attributes["role"])
    )


def _permissions(role: str) -> tuple[str, ...]:
    """KeyError for a role that is not known here."""
    own = re.fullmatch(r"\$\{google_project_iam_custom_role\.(\w+)(?:\[0\])?\.id\}", role)
    return custom_roles()[own[1]] if own else PREDEFINED[role]


@cache
def custom_roles() -> Mapping[str, tuple[str, ...]]:
    return {
        name: tuple(_listed(attributes["permissions"]))
        for kind, name, attributes in resources()
        if kind == "google_project_iam_custom_role"
    }


def _listed(expression: str) -> Iterator[str]:
    """`local.NAME`, or a flattening of the groups of one."""
    names = list(dict.fromkeys(re.findall(r"local\.(\w+_permissions)\b", expression)))
    assert len(names) == 1, f"which permissions are meant by {expression}?"
    value = local_values()[names[0]]
    for group in value.values() if isinstance(value, dict) else [value]:
        yield from group


def _identity(attributes: Mapping[str, Any]) -> str:
    said = attributes["member"]
    if said == "${each.value}":
        said = attributes["for_each"]
    found = [identity for words, identity in _MEMBERS.items() if words in said]
    assert len(found) == 1, f"whose is {said}?"
    return found[0]


def _where(kind: str, attributes: Mapping[str, Any]) -> str:
    if kind == "google_service_account_iam_member":
        return next(name for words, name in _ACCOUNTS.items() if words in attributes["service_account_id"])
    if "condition" in attributes:
        assert "local.staging_objects" in str(attributes["condition"])
        return "staging"
    return _PLACES[kind]


def _plain(value: Any) -> Any:
    """Without the marks of the parser: quotes around strings, `__is_block__`."""
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items() if not str(key).startswith("__")}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1]
    return value
