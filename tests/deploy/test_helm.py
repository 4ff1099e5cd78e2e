"""deploy/helm: what Helm makes of several sets of values, judged by Kubernetes' own schemas and by our rules."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from supervisor.providers.kubernetes import doctor
from supervisor.settings import credentials
from supervisor.settings import loading as settings
from supervisor.wiring import settings as wired
from tests.deploy.chart import CHART, NAMESPACE, RELEASE, Refused, Rendered, lint, mounted, rendered
from tests.deploy.chart_rules import BOOST_RIGHTS, RIGHTS, granted, problems
from tests.docs.test_pages_match_the_code import first_column, page

ROOT = Path(__file__).parents[2]
PROVIDER = ROOT / "supervisor/providers/kubernetes"
SETTINGS = """provider = "gce"
store_url = "gs://my-bucket/spot"
gce_project = "my-project-123456"
gce_zones = ["us-east1-c", "us-east1-b"]
gce_shapes = "t4=n1-standard-8+1xnvidia-tesla-t4"
"""
AS_JOBS = """store_url = "file:///mnt/spot-store/objects"

[providers.cluster]
kind = "kubernetes"
pools = {spot = "pool=spot"}
"""
SETS: Mapping[str, dict[str, Any]] = {
    "least": {},
    "one replica": {"replicas": 1},
    "sqlite": {"sqlite": {"enabled": True, "storageClass": "fast"}, "replicas": 1},
    "sqlite on a claim": {"sqlite": {"enabled": True, "claim": "old-data"}, "replicas": 1},
    "runs as jobs": {"runsNamespace": "trainings"},
    "store on a claim": {
        "settings": AS_JOBS,
        "runsNamespace": "trainings",
        "store": {"claim": "spot-store", "path": "/mnt/spot-store"},
    },
    "ingress": {
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "host": "spot.lab.example",
            "tlsSecret": "spot-tls",
            "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"},
        }
    },
    "network policy": {
        "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {"matchLabels": {"team": "ml"}}}]}
    },
    "migration": {"migrate": True},
    "everything": {
        "replicas": 3,
        "image": {
            "repository": "registry.lab.example:5000/spot",
            "digest": "sha256:" + "0a" * 32,
            "pullPolicy": "Always",
            "pullSecrets": ["registry"],
        },
        "adminToken": {"secret": "spot-admin", "key": "text"},
        "environmentFromSecrets": {"SPOT_ALERT_URL": {"secret": "spot-alerts", "key": "url"}},
        "allowedHosts": ["spot.internal"],
        "serviceAccount": {
            "annotations": {"iam.gke.io/gcp-service-account": "spot@my-project.iam.gserviceaccount.com"}
        },
        "nodeSelector": {"pool": "stable"},
        "tolerations": [{"key": "stable", "operator": "Exists", "effect": "NoSchedule"}],
        "resources": {"requests": {"cpu": 1}, "limits": {"memory": "2Gi"}},
        "runsNamespace": "trainings",
        "priorityBoost": True,
    },
}
VERSIONS = ("1.29", kubernetes_validate.latest_version())
SECRETS = {"spot-database": {"url": "postgresql://spot:pa55word@postgres/spot\n"}}
SECRETS["spot-alerts"] = {"url": "https://alerts.lab.example/hook"}
SECRETS["spot-admin"] = {"text": "sup_chosen"}


def chart_of(name: str, **more: Any) -> Rendered:
    return rendered({"settings": SETTINGS, **SETS[name], **more})


@pytest.mark.parametrize("name", SETS)
def test_every_object_is_one_of_kubernetes(name: str) -> None:
    objects = chart_of(name).objects
    assert len(objects) >= 4
    for version in VERSIONS:
        for each in objects:
            kubernetes_validate.validate(each, version, strict=True)
    keys = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
    assert len(set(keys)) == len(keys)


def test_a_misspelled_field_would_be_found() -> None:
    broken = deepcopy(chart_of("least").only("Deployment"))
    broken["spec"]["template"]["spec"]["terminationGracePeriod"] = 20
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[0], strict=True)


@pytest.mark.parametrize("name", SETS)
def test_it_keeps_its_promises(name: str) -> None:
    assert problems(chart_of(name)) == []


@pytest.mark.parametrize("name", SETS)
def test_helm_lint_finds_nothing(name: str) -> None:
    assert lint({"settings": SETTINGS, **SETS[name]}) == []


def test_the_default_values_alone_pass_helm_lint() -> None:
    assert lint({}) == []


def broken_chart(folder: Path, file: str, before: str, after: str) -> Path:
    copy = shutil.copytree(CHART, folder / "helm")
    text = (copy / file).read_text()
    assert before in text
    (copy / file).write_text(text.replace(before, after))
    return copy


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("access.yaml", "verbs: [create]\n", "verbs: [create, get]\n"),
        ("access.yaml", "verbs: [create, get, list, delete, patch]", 'verbs: ["*"]'),
        ("access.yaml", "kind: RoleBinding", "kind: ClusterRoleBinding"),
        ("access.yaml", "automountServiceAccountToken: false", "automountServiceAccountToken: true"),
        ("deployment.yaml", "not (empty .Values.runsNamespace)", "true"),
        ("deployment.yaml", "runAsUser: 10001", "runAsUser: 0"),
        ("_parts.tpl", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
        ("_parts.tpl", "SPOT_ALLOWED_HOSTS", "SPOT_ALOWED_HOSTS"),
        ("_parts.tpl", "value: localhost", "value: example.com"),
        ("_parts.tpl", "file:/etc/spot/database/url", "postgresql://spot:pa55word@postgres/spot"),
        ("_parts.tpl", "  - name: tmp\n", "  - name: temp\n"),
        ("deployment.yaml", 'include "spot.probe" "/readyz"', 'include "spot.probe" "/ready"'),
        ("deployment.yaml", "maxUnavailable: 0", "maxUnavailable: 1"),
        ("deployment.yaml", "terminationGracePeriodSeconds: 20", "terminationGracePeriodSeconds: 8"),
        ("deployment.yaml", "enableServiceLinks: false", "enableServiceLinks: true"),
        ("disruption.yaml", "minAvailable: 1", "minAvailable: 2"),
        ("network.yaml", "targetPort: http", "targetPort: web"),
        ("network.yaml", 'include "spot.selector" . | nindent 4', 'include "spot.labels" . | nindent 4'),
    ],
)
def test_a_broken_promise_is_found(tmp_path: Path, file: str, before: str, after: str) -> None:
    chart = broken_chart(tmp_path, f"templates/{file}", before, after)
    values = {"settings": SETTINGS, "runsNamespace": "trainings"}
    assert problems(rendered(values, chart)) or problems(rendered({**values, "runsNamespace": ""}, chart))


def test_the_role_is_in_the_namespace_of_the_runs_alone() -> None:
    chart = chart_of("runs as jobs")
    role, binding = chart.only("Role"), chart.only("RoleBinding")
    assert {each["metadata"]["namespace"] for each in (role, binding)} == {"trainings"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": RELEASE, "namespace": NAMESPACE}]
    assert granted(chart) == RIGHTS
    assert granted(chart_of("runs as jobs", priorityBoost=True)) == RIGHTS | BOOST_RIGHTS
    assert not chart_of("least").all("Role", "RoleBinding")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"sqlite": {"enabled": True}}, "set replicas to 1"),
        ({"settings": ""}, "write the settings in TOML"),
        ({"ingress": {"enabled": True}}, "set ingress.host"),
        ({"settings": SETTINGS + 'host = "127.0.0.1"\n'}, "host: the chart sets it itself"),
        ({"settings": SETTINGS + "allowed_hosts = []\n"}, "it is the value allowedHosts"),
        ({"settings": SETTINGS + ' "database_url"= "postgresql://…"\n'}, "it is a credential"),
        ({"settings": SETTINGS + 'alert_url = "https://…"\n'}, "it is a credential"),
        ({"replica": 2}, "replica"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"replicas": "two"}, "replicas"),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        rendered({"settings": SETTINGS, **values})


def differences(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> list[str]:
    """Values that only one of the two has."""
    known = schema["properties"]
    found = [f"{path}{name}" for name in sorted(values.keys() ^ (known.keys() - {"global"}))]
    for name in values.keys() & known.keys():
        if "properties" in known[name]:
            found += differences(values[name], known[name], f"{path}{name}.")
    return found


def test_the_schema_has_every_value_and_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert differences(values, schema) == []
    del values["sqlite"]["size"]
    assert differences({**values, "more": 1}, schema) == ["more", "sqlite.size"]


def test_the_version_of_the_program_is_the_tag_of_the_image() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == version
    assert chart_of("least").server["image"] == f"spot-supervisor:{version}"
    assert chart_of("everything").server["image"] == f"registry.lab.example:5000/spot@sha256:{'0a' * 32}"


def settings_of(chart: Rendered, folder: Path) -> settings.Settings:
    """Of the server in the pod."""
    environ = mounted(chart, folder / "pod", SECRETS, folder / "claims")
    return wired.load(environ={"HOME": "/nowhere", **environ}, file=environ["SPOT_CONFIG"])


@pytest.mark.parametrize("name", SETS)
def test_the_server_reads_its_settings(name: str, tmp_path: Path) -> None:
    chart = chart_of(name)
    found = settings_of(chart, tmp_path)
    assert [line for line in found.warnings if "is not a setting" in line] == []
    assert (found.access.host, found.access.port, found.log.log_format) == ("0.0.0.0", 8787, "json")  # noqa: S104
    assert not found.access.insecure_loopback, "tokens are required"
    assert f"{RELEASE}.{NAMESPACE}.svc" in found.access.allowed_hosts
    sqlite = SETS[name].get("sqlite", {}).get("enabled", False)
    assert found.database_url.startswith("sqlite:" if sqlite else "postgresql://spot:pa55word@")
    listed = first_column(page("docs/settings.md"))
    assert [key for key in tomllib.loads(chart.settings_file) if key not in (*listed, "providers")] == []


def test_names_and_secrets_of_the_values_reach_the_server(tmp_path: Path) -> None:
    everything = settings_of(chart_of("everything"), tmp_path)
    assert "spot.internal" in everything.access.allowed_hosts
    assert everything.alerts.alert_url == SECRETS["spot-alerts"]["url"]
    assert credentials.secret_of("admin_token", everything.access.admin_token) == "sup_chosen"
    assert "spot.lab.example" in settings_of(chart_of("ingress"), tmp_path / "other").access.allowed_hosts


def test_runs_are_where_the_rights_are_and_mount_the_claim_at_the_same_path(tmp_path: Path) -> None:
    chart = chart_of("store on a claim")
    found = settings_of(chart, tmp_path)
    assert found.store_url == (tmp_path / "claims/spot-store/objects").as_uri()
    runs = found.sections["cluster"].values
    assert runs.kubernetes_namespace == chart.only("Role")["metadata"]["namespace"]
    assert (runs.kubernetes_claim, runs.kubernetes_claim_mount) == ("spot-store", "/mnt/spot-store")


def test_the_database_of_sqlite_is_on_its_claim(tmp_path: Path) -> None:
    chart = chart_of("sqlite")
    found = settings_of(chart, tmp_path)
    assert str(tmp_path / "claims" / "spot-data") in found.database_url
    claim = chart.only("PersistentVolumeClaim")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert claim["spec"]["storageClassName"] == "fast"
    assert not chart_of("sqlite on a claim").all("PersistentVolumeClaim")


def test_changed_settings_restart_the_pods() -> None:
    def stamp(text: str) -> str:
        deployment = chart_of("least", settings=text).only("Deployment")
        return str(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/settings"])

    assert stamp(SETTINGS) != stamp(SETTINGS + "log_level = 'debug'\n")


def test_a_migration_has_what_the_server_has() -> None:
    chart = chart_of("migration")
    (before,) = chart.pod["initContainers"]
    assert before["args"] == ["migrate"]
    shared = ("image", "env", "volumeMounts", "securityContext")
    assert {name: before[name] for name in shared} == {name: chart.server[name] for name in shared}
    assert chart.only("Deployment")["spec"]["replicas"] == 1


# A request of the provider: the function that sends it, and the kind of its objects.
REQUEST = re.compile(r'(\w+)\(\s*(?:"\w+", |api, )?[\w.]*api\.(?:(jobs)\(|path\("(\w+)")')
VERBS = {"items": "list", "_read": "list", "find": "get", "get": "get", "_exists": "get", "content": "get"}
VERBS |= {verb: verb for verb in ("create", "patch", "delete")}
GROUPS = {"jobs": "batch", "localqueues": "kueue.x-k8s.io", "workloads": "kueue.x-k8s.io"}


def used(sources: str) -> dict[tuple[str, str], set[str]]:
    """The rights for all requests in these sources."""
    found: dict[tuple[str, str], set[str]] = {}
    for function, jobs, other in REQUEST.findall(sources):
        resource = "pods/log" if function == "content" else jobs or other
        found.setdefault((GROUPS.get(resource, ""), resource), set()).add(VERBS[function])
    return found


def test_the_chart_gives_the_rights_that_the_provider_uses() -> None:
    sources = "\n".join(path.read_text() for path in sorted(PROVIDER.glob("*.py")))
    assert used(sources) == RIGHTS | BOOST_RIGHTS
    assert used(sources + '\nself.api.get(self.api.path("secrets", name))')["", "secrets"] > RIGHTS["", "secrets"]
    asked = {
        (right.group, right.resource, right.subresource, right.verb) for right in doctor.RIGHTS if right.namespaced
    }
    assert {
        (group, *name.partition("/")[::2], verb) for (group, name), verbs in RIGHTS.items() for verb in verbs
    } >= asked
