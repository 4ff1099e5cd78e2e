"""What the chart promises and no schema of Kubernetes checks: rights, the pod's limits, probes, and names that fit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from supervisor.settings import loading as settings
from supervisor.wiring import settings as wired
from tests.deploy.chart import Object, Rendered

ROOT = Path(__file__).parents[2]
OPENAPI = json.loads((ROOT / "openapi/openapi.json").read_text())
VARIABLES = {settings.env_name(name) for name in wired.load({}, {"HOME": "/h"}).flat} | {"SPOT_CONFIG"}
ENDS_WITHIN_S = 5  # after its TERM
# What the provider of Jobs does, and nothing else: (group, resource) -> verbs. A test compares it with the provider.
RIGHTS = {
    ("batch", "jobs"): {"create", "get", "list", "delete", "patch"},
    ("", "pods"): {"list", "patch"},
    ("", "pods/log"): {"get"},
    ("", "secrets"): {"create"},
    ("", "configmaps"): {"create"},
    ("", "events"): {"list"},
    ("", "resourcequotas"): {"list"},
    ("", "persistentvolumeclaims"): {"get"},
    ("kueue.x-k8s.io", "localqueues"): {"get"},
}
BOOST_RIGHTS = {("kueue.x-k8s.io", "workloads"): {"list", "patch"}}  # on request: it changes the order of a queue


def problems(chart: Rendered) -> list[str]:
    """Every broken promise."""
    rules = (_rights, _secrets, _pods, _limits, _probes, _selectors, _references, _availability)
    return [problem for rule in rules for problem in rule(chart)]


def granted(chart: Rendered) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in (rule for role in chart.all("Role") for rule in role["rules"]):
        for key in ((group, resource) for group in rule["apiGroups"] for resource in rule["resources"]):
            found.setdefault(key, set()).update(rule["verbs"])
    return found


def _rights(chart: Rendered) -> Iterator[str]:
    for each in chart.all("ClusterRole", "ClusterRoleBinding"):
        yield f"{each['kind']}: rights beyond one namespace"
    if chart.all("Role") and granted(chart) not in (RIGHTS, RIGHTS | BOOST_RIGHTS):
        yield "Role: other rights than the provider needs"
    mounts = chart.pod["automountServiceAccountToken"]
    if mounts != bool(chart.all("Role")):
        yield "Deployment: a token of the cluster without rights, or rights without a token"
    if chart.only("ServiceAccount")["automountServiceAccountToken"]:
        yield "ServiceAccount: other pods get its token"


def _secrets(chart: Rendered) -> Iterator[str]:
    for each in chart.all("Secret"):
        yield f"Secret {each['metadata']['name']}: a value in the chart"
    text = json.dumps(chart.objects)
    if re.search(r"://[^/\s\"]*:[^/\s\"]*@|sup_[A-Za-z0-9_-]{49}|whsec_", text):
        yield "a secret in an object"
    for variable in (variable for container in _containers(chart) for variable in container["env"]):
        if variable["name"].startswith("SPOT_") and variable["name"] not in VARIABLES:
            yield f"{variable['name']} is not a setting"


def _pods(chart: Rendered) -> Iterator[str]:
    pod, context = chart.pod, chart.pod["securityContext"]
    if not (context["runAsNonRoot"] and context["runAsUser"] > 0):
        yield "runs as root"
    if context["seccompProfile"] != {"type": "RuntimeDefault"}:
        yield "no seccomp profile"
    if pod["enableServiceLinks"]:
        yield "a Service called spot sets SPOT_PORT"
    notice_s = int(chart.server["lifecycle"]["preStop"]["exec"]["command"][1])
    if pod["terminationGracePeriodSeconds"] < notice_s + 2 * ENDS_WITHIN_S:
        yield "is killed before it has ended"


def _limits(chart: Rendered) -> Iterator[str]:
    for container in _containers(chart):
        limits = container["securityContext"]
        if limits["allowPrivilegeEscalation"] or not limits["readOnlyRootFilesystem"]:
            yield f"{container['name']}: may write its image, or get more rights"
        if limits["capabilities"] != {"drop": ["ALL"]}:
            yield f"{container['name']}: has capabilities"
        if "memory" not in container["resources"]["limits"] or "cpu" in container["resources"]["limits"]:
            yield f"{container['name']}: no limit of memory, or one of CPU"
        if not re.search(r"[^:@](:[\w.-]+|@sha256:[0-9a-f]{64})$", container["image"]):
            yield f"{container['name']}: an image without tag and digest"
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        if mounts != {volume["name"] for volume in chart.pod["volumes"]}:
            yield f"{container['name']}: mounts are not the volumes"


def _probes(chart: Rendered) -> Iterator[str]:
    ports = {port["name"] for port in chart.server["ports"]}
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = chart.server[name]["httpGet"]
        if "get" not in OPENAPI["paths"].get(get["path"], {}):
            yield f"{name}: there is no {get['path']}"
        if get["httpHeaders"] != [{"name": "Host", "value": "localhost"}]:
            yield f"{name}: a name under which the supervisor does not respond"
        if get["port"] not in ports:
            yield f"{name}: no such port"
    if chart.server["livenessProbe"]["httpGet"]["path"] != "/livez":
        yield "an unavailable database would restart the supervisor"


def _selectors(chart: Rendered) -> Iterator[str]:
    labels = chart.only("Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = {"Deployment": chart.only("Deployment")["spec"]["selector"]["matchLabels"]}
    selectors["Service"] = chart.only("Service")["spec"]["selector"]
    selectors |= {each["kind"]: each["spec"]["selector"]["matchLabels"] for each in chart.all("PodDisruptionBudget")}
    selectors |= {each["kind"]: each["spec"]["podSelector"]["matchLabels"] for each in chart.all("NetworkPolicy")}
    for kind, selector in selectors.items():
        if not selector or not selector.items() <= labels.items():
            yield f"{kind}: selects other pods"
        if "app.kubernetes.io/version" in selector:
            yield f"{kind}: an update would select other pods"


def _references(chart: Rendered) -> Iterator[str]:
    (port,) = chart.only("Service")["spec"]["ports"]
    if port["targetPort"] not in {each["name"] for each in chart.server["ports"]}:
        yield "Service: no such port"
    account = _name(chart.only("ServiceAccount"))
    if chart.pod["serviceAccountName"] != account:
        yield "Deployment: another account"
    for binding in chart.all("RoleBinding"):
        if binding["roleRef"]["name"] != _name(chart.only("Role")) or binding["subjects"][0]["name"] != account:
            yield "RoleBinding: another role or account"
        if binding["metadata"]["namespace"] != chart.only("Role")["metadata"]["namespace"]:
            yield "RoleBinding: in another namespace than its role"
    for ingress in chart.all("Ingress"):
        backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
        if backend != {"name": _name(chart.only("Service")), "port": {"name": port["name"]}}:
            yield "Ingress: another service"


def _availability(chart: Rendered) -> Iterator[str]:
    spec = chart.only("Deployment")["spec"]
    budgets, replicas = chart.all("PodDisruptionBudget"), spec["replicas"]
    if len(budgets) != (1 if replicas > 1 else 0):
        yield "PodDisruptionBudget: missing, or of a single replica, whose node could never be drained"
    for budget in budgets:
        if not 1 <= budget["spec"]["minAvailable"] < replicas:
            yield "PodDisruptionBudget: leaves no replica, or lets none go"
    volumes = {volume["name"]: volume for volume in chart.pod["volumes"]}
    alone = "persistentVolumeClaim" in volumes["data"] or "initContainers" in chart.pod
    strategy = spec["strategy"]
    if alone:
        if replicas > 1 or strategy != {"type": "Recreate"}:
            yield "Deployment: two supervisors on one data folder, or beside a migration"
    elif strategy.get("rollingUpdate") != {"maxUnavailable": 0, "maxSurge": 1}:
        yield "Deployment: an update leaves a gap"


def _containers(chart: Rendered) -> list[Object]:
    return [*chart.pod.get("initContainers", []), *chart.pod["containers"]]


def _name(found: Object) -> str:
    return str(found["metadata"]["name"])
