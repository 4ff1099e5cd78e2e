"""The doctor's checks of permissions, with Google's own testIamPermissions, which needs no permission itself.

There are three resources: the project (Cloud Resource Manager), the account that machines run as (IAM), and the bucket
(Cloud Storage, in bucket.py). The permissions are in permissions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.providers.gce.calls.account import RESOURCE_MANAGER
from supervisor.providers.gce.calls.errors import ApiError, access_fix
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.doctor.permissions import (
    ON_REQUEST,
    PROJECT,
    WORKER_ACCOUNT,
    groups_in_use,
    needed_in_project,
)
from supervisor.providers.gce.traits import google_finding

IAM = "https://iam.googleapis.com"
# Without these groups runs still work: something is not shown, or zones are tried in another order.
OPTIONAL = ("looks", "capacity_advice", "subnet")
ADVICE = "compute.advice."
# No predefined role for machines is known to contain these.
BEYOND_COMPUTE_ADMIN = (ADVICE, "logging.")
COMPUTE_ADMIN = "roles/compute.instanceAdmin.v1"
OWN_ROLE = "spotSupervisor"  # its name in docs/google-cloud.md and deploy/terraform
ADVICE_ROLE = "spotAdvice"
SHOWN = 5

OtherApi = Callable[..., Mapping[str, Any]]  # Compute.other_api


def project_access(config: GceConfig, other_api: OtherApi, account: str) -> Finding:
    """Each permission of the project that these settings need. Those that only some runs need are named where they are
    missing, and no warning: who never keeps a machine need not grant them."""
    name, needed = "project access", needed_in_project(config)
    root = (config.resource_manager_endpoint or RESOURCE_MANAGER).rstrip("/")
    url = f"{root}/v1/projects/{config.project}:testIamPermissions"
    on_request = [permission for group in ON_REQUEST for permission in PROJECT[group]]
    try:
        all_missing = _missing(other_api, url, tuple(dict.fromkeys((*needed, *on_request))))
    except ApiError as error:
        return _not_checked(name, error, config, "cloudresourcemanager.googleapis.com")
    missing = [permission for permission in all_missing if permission in needed]
    if not missing:
        fact = f"all {len(needed)} permissions that these settings need in {config.project}"
        return google_finding(name, OK, "; ".join((fact, *_without(all_missing))))
    required = {each for group in groups_in_use(config) if group not in OPTIONAL for each in PROJECT[group]}
    shown = ", ".join(missing[:SHOWN]) + (f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else "")
    cause = "; ".join(dict.fromkeys(needed[permission] for permission in missing[:SHOWN]))
    result = FAIL if required & set(missing) else WARN
    fix = _grant(config.project, account, missing)
    return google_finding(name, result, f"missing in {config.project}: {shown}", cause, fix)


def _without(missing: Sequence[str]) -> Iterator[str]:
    for group, use in ON_REQUEST.items():
        names = [permission for permission in PROJECT[group] if permission in missing]
        if names:
            yield f"none for {use}, which needs {', '.join(names)}"


def worker_account(config: GceConfig, other_api: OtherApi, facts: Mapping[str, Any], account: str) -> Finding:
    """The account that machines run as: does it exist, may the supervisor use it, may it do too much?"""
    name, project = "account", config.project
    own = config.service_account != "default"
    email = config.service_account if own else str(facts.get("defaultServiceAccount", ""))
    if not email:
        fact = f"{project} has no default account for machines, and gce_service_account is not set"
        return google_finding(name, FAIL, fact, "no machine can be started", _create_worker(project))
    root = (config.iam_endpoint or IAM).rstrip("/")
    url = f"{root}/v1/projects/-/serviceAccounts/{email}:testIamPermissions"
    try:
        missing = _missing(other_api, url, tuple(WORKER_ACCOUNT))
    except ApiError as error:
        if error.status == 404:
            return _no_such_account(email, project)
        return _not_checked(name, error, config, "iam.googleapis.com")
    if missing:
        fix = (
            f"gcloud iam service-accounts add-iam-policy-binding {email} --project={project} "
            f"--member={member(account)} --role=roles/iam.serviceAccountUser"
        )
        cause = "; ".join(WORKER_ACCOUNT[permission] for permission in missing)
        return google_finding(name, FAIL, f"missing on {email}: {', '.join(missing)}", cause, fix)
    if own:
        return google_finding(name, OK, f"machines run as {email}, and the supervisor may start them with it")
    cause = "by default this account may edit the whole project, and so may every training"
    fact = f"machines run as the project's default account {email}"
    return google_finding(name, WARN, fact, cause, _create_worker(project))


def _create_worker(project: str) -> str:
    return (
        f"gcloud iam service-accounts create spot-worker --project={project}; give it "
        "roles/storage.objectUser on the bucket and set "
        f"gce_service_account = spot-worker@{project}.iam.gserviceaccount.com"
    )


def member(account: str) -> str:
    """The account in the form of an IAM policy. Pods have a pool instead of an account: then a placeholder."""
    if "@" not in account:
        return "serviceAccount:ACCOUNT"
    return f"{'serviceAccount' if account.endswith('gserviceaccount.com') else 'user'}:{account}"


def _missing(other_api: OtherApi, url: str, permissions: Sequence[str]) -> list[str]:
    held = other_api("POST", url, {"permissions": list(permissions)}).get("permissions") or ()
    return [permission for permission in permissions if permission not in held]


def _grant(project: str, account: str, missing: Sequence[str]) -> str:
    """Commands that grant the missing permissions: a predefined role, and our own role for the rest."""
    beyond = [permission for permission in missing if permission.startswith(BEYOND_COMPUTE_ADMIN)]
    steps = []
    if len(beyond) < len(missing):
        steps.append(
            f"gcloud projects add-iam-policy-binding {project} --member={member(account)} --role={COMPUTE_ADMIN}"
        )
    for role, names in (
        (OWN_ROLE, [permission for permission in beyond if not permission.startswith(ADVICE)]),
        (ADVICE_ROLE, [permission for permission in beyond if permission.startswith(ADVICE)]),
    ):
        if names:
            steps.append(f"gcloud iam roles update {role} --project={project} --add-permissions={','.join(names)}")
    return " && ".join(steps)


def _no_such_account(email: str, project: str) -> Finding:
    name, _, domain = email.partition("@")
    fix = f"gcloud iam service-accounts list --project={project}; then set gce_service_account to one of them"
    if domain == f"{project}.iam.gserviceaccount.com":
        fix = f"gcloud iam service-accounts create {name} --project={project}"
    cause = "machines would run as this account, so none can be started"
    return google_finding("account", FAIL, f"{email}: not there", cause, fix)


def _not_checked(name: str, error: ApiError, config: GceConfig, api: str) -> Finding:
    fix = access_fix(error, api, config.project) or "repeat: spot doctor"
    return google_finding(name, WARN, "not checked: a missing permission shows at the first launch", str(error), fix)
