"""May the supervisor's account do what it must? Asked of Google's own test of permissions, which needs none itself.

Three places: the project (Cloud Resource Manager), the account that machines run as (IAM), and the bucket (Cloud
Storage, in doctor_bucket). The table of what is needed stands in permissions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.providers.gce.calls.errors import ApiError, open_door
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.doctor.permissions import PROJECT, WORKER_ACCOUNT, groups_in_use, needed_in_project

RESOURCE_MANAGER, IAM = "https://cloudresourcemanager.googleapis.com", "https://iam.googleapis.com"
# Without these machines can still be kept alive: something is not shown, or asked for in another order.
COMFORTS = ("looks", "capacity_advice", "subnet")
ADVICE = "compute.advice."
# What no ready-made role for machines is known to hold.
BEYOND_COMPUTE_ADMIN = (ADVICE, "logging.")
COMPUTE_ADMIN = "roles/compute.instanceAdmin.v1"
OWN_ROLE = "spotSupervisor"  # as docs/google-cloud.md and deploy/terraform call it
ADVICE_ROLE = "spotAdvice"
SHOWN = 5

Elsewhere = Callable[..., Mapping[str, Any]]  # Compute.elsewhere


def project_access(config: GceConfig, elsewhere: Elsewhere, account: str) -> Finding:
    """Each permission of the project that these settings need."""
    name, needed = "project access", needed_in_project(config)
    root = (config.resource_manager_endpoint or RESOURCE_MANAGER).rstrip("/")
    url = f"{root}/v1/projects/{config.project}:testIamPermissions"
    try:
        held = _held(elsewhere, url, tuple(needed))
    except ApiError as error:
        return _not_asked(name, error, config, "cloudresourcemanager.googleapis.com")
    missing = [permission for permission in needed if permission not in held]
    if not missing:
        return told(name, OK, f"all {len(needed)} permissions that these settings need in {config.project}")
    vital = {one for group in groups_in_use(config) if group not in COMFORTS for one in PROJECT[group]}
    shown = ", ".join(missing[:SHOWN]) + (f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else "")
    cause = "; ".join(dict.fromkeys(needed[permission] for permission in missing[:SHOWN]))
    result = FAIL if vital & set(missing) else WARN
    return told(name, result, f"missing in {config.project}: {shown}", cause, _grant(config.project, account, missing))


def worker_account(config: GceConfig, elsewhere: Elsewhere, facts: Mapping[str, Any], account: str) -> Finding:
    """The account that machines run as: is it there, may the supervisor start machines with it, may it do too much?"""
    name, project = "account", config.project
    own = config.service_account != "default"
    email = config.service_account if own else str(facts.get("defaultServiceAccount", ""))
    if not email:
        fact = f"{project} has no account of its own for machines, and gce_service_account names none"
        return told(name, FAIL, fact, "no machine can be started", make_worker(project))
    root = (config.iam_endpoint or IAM).rstrip("/")
    url = f"{root}/v1/projects/-/serviceAccounts/{email}:testIamPermissions"
    try:
        held = _held(elsewhere, url, tuple(WORKER_ACCOUNT))
    except ApiError as error:
        if error.status == 404:
            return _no_such_account(email, project)
        return _not_asked(name, error, config, "iam.googleapis.com")
    missing = [permission for permission in WORKER_ACCOUNT if permission not in held]
    if missing:
        fix = (
            f"gcloud iam service-accounts add-iam-policy-binding {email} --project={project} "
            f"--member={member(account)} --role=roles/iam.serviceAccountUser"
        )
        cause = "; ".join(WORKER_ACCOUNT[one] for one in missing)
        return told(name, FAIL, f"missing on {email}: {', '.join(missing)}", cause, fix)
    if own:
        return told(name, OK, f"machines run as {email}, and the supervisor may start them so")
    cause = "by default it may edit the whole project, and so may every training"
    return told(name, WARN, f"machines run as the project's own account {email}", cause, make_worker(project))


def make_worker(project: str) -> str:
    return (
        f"gcloud iam service-accounts create spot-worker --project={project}; give it "
        "roles/storage.objectUser on the bucket and set "
        f"gce_service_account = spot-worker@{project}.iam.gserviceaccount.com"
    )


def member(account: str) -> str:
    """As an IAM policy names it. Pods name a pool instead of an account: nobody can be named then."""
    if "@" not in account:
        return "serviceAccount:ACCOUNT"
    return f"{'serviceAccount' if account.endswith('gserviceaccount.com') else 'user'}:{account}"


def _held(elsewhere: Elsewhere, url: str, permissions: Sequence[str]) -> frozenset[str]:
    return frozenset(elsewhere("POST", url, {"permissions": list(permissions)}).get("permissions") or ())


def _grant(project: str, account: str, missing: Sequence[str]) -> str:
    """Commands that give what is missing: a ready-made role, and for the rest our own role."""
    beyond = [one for one in missing if one.startswith(BEYOND_COMPUTE_ADMIN)]
    steps = []
    if len(beyond) < len(missing):
        steps.append(
            f"gcloud projects add-iam-policy-binding {project} --member={member(account)} --role={COMPUTE_ADMIN}"
        )
    for role, names in (
        (OWN_ROLE, [one for one in beyond if not one.startswith(ADVICE)]),
        (ADVICE_ROLE, [one for one in beyond if one.startswith(ADVICE)]),
    ):
        if names:
            steps.append(f"gcloud iam roles update {role} --project={project} --add-permissions={','.join(names)}")
    return " && ".join(steps)


def _no_such_account(email: str, project: str) -> Finding:
    name, _, domain = email.partition("@")
    fix = f"gcloud iam service-accounts list --project={project}; then set gce_service_account to one of them"
    if domain == f"{project}.iam.gserviceaccount.com":
        fix = f"gcloud iam service-accounts create {name} --project={project}"
    return told("account", FAIL, f"{email}: not there", "machines would run as it, so none can be started", fix)


def _not_asked(name: str, error: ApiError, config: GceConfig, api: str) -> Finding:
    fix = open_door(error, api, config.project) or "ask again: spot doctor"
    return told(name, WARN, "not asked for: what is missing shows at the first launch", str(error), fix)


def told(name: str, result: str, fact: str, cause: str = "", fix: str = "") -> Finding:
    return Finding(name, result, fact, cause, fix, group="google")
