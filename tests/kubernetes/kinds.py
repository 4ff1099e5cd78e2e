"""The kinds that the API serves, and the query parameters of each verb. Everything else is a fault of the test."""

from __future__ import annotations

from dataclasses import dataclass

READ = frozenset({"get", "list"})
WRITE = frozenset({"create", "delete", "patch"})
META_FIELDS = frozenset({"metadata.name", "metadata.namespace"})


@dataclass(frozen=True)
class Kind:
    """`verbs`: without those of subresources. `fields`: what a fieldSelector may name beside name and namespace."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    verbs: frozenset[str] = READ | WRITE
    fields: frozenset[str] = frozenset()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """As errors name it: `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def kind_qualified(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


KUEUE = "kueue.x-k8s.io"
POD = Kind("", "v1", "Pod", "pods", fields=frozenset({"spec.nodeName", "status.phase", "spec.restartPolicy"}))
SECRET = Kind("", "v1", "Secret", "secrets", fields=frozenset({"type"}))
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", verbs=READ)
QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas", verbs=READ)
EVENT = Kind(
    "", "v1", "Event", "events", verbs=READ,
    fields=frozenset({f"involvedObject.{name}" for name in ("kind", "name", "namespace", "uid")} | {"reason", "type"}),
)  # fmt: skip
NODE = Kind("", "v1", "Node", "nodes", namespaced=False, verbs=READ, fields=frozenset({"spec.unschedulable"}))
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False, verbs=READ)
JOB = Kind("batch", "v1", "Job", "jobs", fields=frozenset({"status.successful"}))
REVIEW = Kind(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews",
    namespaced=False, verbs=frozenset({"create"}),
)  # fmt: skip
LOCAL_QUEUE = Kind(KUEUE, "v1beta1", "LocalQueue", "localqueues", verbs=READ)
WORKLOAD = Kind(KUEUE, "v1beta1", "Workload", "workloads", verbs=READ | {"patch"})
KINDS = (
    POD, SECRET, CONFIG_MAP, CLAIM, QUOTA, EVENT, NODE, NAMESPACE, JOB, REVIEW, LOCAL_QUEUE, WORKLOAD,
)  # fmt: skip
BY_KIND = {kind.kind: kind for kind in KINDS}

_WRITING = frozenset({"dryRun", "fieldManager", "fieldValidation", "pretty"})
PARAMETERS = {
    "list": frozenset(
        {"labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch"}
        | {"timeoutSeconds", "pretty"}
    ),
    "get": frozenset({"pretty", "resourceVersion"}),
    "create": _WRITING,
    "patch": _WRITING | {"force"},
    "delete": frozenset({"dryRun", "gracePeriodSeconds", "propagationPolicy", "orphanDependents", "pretty"}),
    "log": frozenset(
        {"container", "follow", "limitBytes", "previous", "sinceSeconds", "sinceTime", "tailLines", "timestamps"}
        | {"pretty"}
    ),
}
