"""The doctor's lines about a cluster: whether it answers, our rights, the claim, the quotas, the queue and the GPUs.

Each right is asked for by a SelfSubjectAccessReview, which every account may send. What only explains a wait (events,
nodes) is a warning where it is missing, and so is what only shows the age of a checkpoint to schedulers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from supervisor.domain.findings import FAIL, OK, WARN, Check, Finding
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.kubernetes.api import Api, ApiError, own
from supervisor.providers.kubernetes.objects import selector
from supervisor.providers.kubernetes.publishing import is_read
from supervisor.providers.kubernetes.settings import KubernetesSettings, toleration
from supervisor.providers.kubernetes.traits import TRAITS
from supervisor.providers.kubernetes.waiting import pool_of

NAME = "cluster"
HINT = "try it by hand: kubectl get jobs"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
THREADS = 6
SHARED = "ReadWriteMany"
KUEUE = ("kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2")


@dataclass(frozen=True, slots=True)
class Right:
    """`group` "": the core's. `is_needed` False: runs work without it. `namespaced` False: of the whole cluster."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    is_needed: bool = True
    namespaced: bool = True

    @property
    def text(self) -> str:
        return f"{self.verb} {self.resource}{'/' + self.subresource if self.subresource else ''}"


LIST_NODES = Right("list", "nodes", is_needed=False, namespaced=False)
RIGHTS = (
    *(Right(verb, "jobs", "batch") for verb in ("create", "get", "list", "delete")),
    Right("list", "pods"),
    Right("get", "pods", subresource="log"),
    Right("create", "secrets"),
    Right("create", "configmaps"),
    Right("list", "events", is_needed=False),
    Right("patch", "jobs", "batch", is_needed=False),
    Right("patch", "pods", is_needed=False),
    LIST_NODES,
)


def cluster_checks(api: Api, s: KubernetesSettings) -> list[Check]:
    return [Check(NAME, partial(_cluster, api, s), TRAITS.group, FAIL, HINT)]


def _cluster(api: Api, s: KubernetesSettings) -> Sequence[Finding]:
    try:
        return list(findings(api, s))
    except ProviderUnavailable as error:
        return [_finding(NAME, FAIL, "it does not answer", str(error), HINT)]


def findings(api: Api, s: KubernetesSettings) -> Iterator[Finding]:
    """Raises ProviderUnavailable."""
    rights = [right for right in RIGHTS if right.verb != "patch" or is_read(s)]
    with ThreadPoolExecutor(THREADS, thread_name_prefix="doctor") as pool:
        allowed = dict(zip(rights, pool.map(partial(_is_allowed, api), rights), strict=True))
    yield _namespace(api)
    yield from _rights(api, [right for right, is_allowed in allowed.items() if not is_allowed])
    if s.kubernetes_claim:
        yield _read("claim", partial(_claim, api, s))
    if s.kubernetes_queue:
        yield _read("queue", partial(_queue, api, s))
    yield _read("quota", partial(_quota, api))
    if allowed[LIST_NODES]:
        yield from _pools(api, s)


def _read(name: str, ask: Callable[[], Finding]) -> Finding:
    """A line that cannot be read is a warning of its own, and hides no other."""
    try:
        return ask()
    except ProviderUnavailable as error:
        return _finding(
            name, WARN, "it cannot be read", str(error), "look at it with kubectl, or give the right to read"
        )


def _is_allowed(api: Api, right: Right) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        **({"subresource": right.subresource} if right.subresource else {}),
        **({"namespace": api.namespace} if right.namespaced else {}),
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return own(api.create(REVIEWS, review), "status", "allowed") is True


def _namespace(api: Api) -> Finding:
    """A list of a namespace that does not exist is empty, so it is read itself, where that is allowed."""
    try:
        exists = api.find(f"/api/v1/namespaces/{api.namespace}") is not None
    except ApiError:
        return _finding(NAME, OK, f"it answers; namespace {api.namespace}")
    if exists:
        return _finding(NAME, OK, f"it answers; namespace {api.namespace}")
    fix = "create it, or change kubernetes_namespace"
    return _finding(NAME, FAIL, f"there is no namespace {api.namespace}", "the cluster says NotFound", fix)


def _rights(api: Api, missing: Sequence[Right]) -> Iterator[Finding]:
    needed = [right.text for right in missing if right.is_needed]
    if needed:
        fix = "ask for a Role with them: docs/providers/kubernetes.md"
        cause = f"the account may not do this in namespace {api.namespace}"
        yield _finding("rights", FAIL, f"missing: {', '.join(needed)}", cause, fix)
        return
    if missing:
        causes = {"list": "why a pod waits for a volume, a quota or a GPU stays unknown"}
        causes["patch"] = "no scheduler sees how old a checkpoint is"
        cause = "; ".join(text for verb, text in causes.items() if any(right.verb == verb for right in missing))
        fact = f"missing: {', '.join(right.text for right in missing)}"
        yield _finding("rights", WARN, fact, cause, "ask for them, or live without")
        return
    yield _finding("rights", OK, "all rights")


def _claim(api: Api, s: KubernetesSettings) -> Finding:
    claim = api.find(api.path("persistentvolumeclaims", s.kubernetes_claim))
    if claim is None:
        return _finding(
            "claim", FAIL, f"there is no claim {s.kubernetes_claim}", "no pod can start", "create it in the namespace"
        )
    modes = own(claim, "status", "accessModes") or own(claim, "spec", "accessModes") or []
    fact = f"{s.kubernetes_claim}, {', '.join(map(str, modes))}, {own(claim, 'status', 'phase')}"
    if SHARED not in modes:
        cause = "pods on two nodes cannot use it at once: the next attempt waits while the last node still holds it"
        return _finding("claim", WARN, fact, cause, f"use a claim with {SHARED}, or a bucket as the store")
    return _finding("claim", OK, fact)


def _queue(api: Api, s: KubernetesSettings) -> Finding:
    name = s.kubernetes_queue
    if any(_exists(api, api.path("localqueues", name, group)) for group in KUEUE):
        return _finding("queue", OK, f"{name} of Kueue")
    fix = "create it, or leave kubernetes_queue out"
    return _finding("queue", FAIL, f"there is no LocalQueue {name}", "a Job would wait for it forever", fix)


def _exists(api: Api, path: str) -> bool:
    """False also where the cluster does not know the kind at all."""
    try:
        return api.find(path) is not None
    except ApiError as error:
        if error.status == 404:
            return False
        raise


def _quota(api: Api) -> Finding:
    full = [
        f"{own(item, 'metadata', 'name')}: {name} {used} of {hard}"
        for item in api.items(api.path("resourcequotas"))
        for name, hard in (own(item, "status", "hard") or {}).items()
        if (used := (own(item, "status", "used") or {}).get(name)) == hard and str(hard) != "0"
    ]
    if full:
        return _finding("quota", WARN, "; ".join(full), "it is used up: no further pod starts", "ask for more of it")
    return _finding("quota", OK, "no quota of the namespace is used up")


def _pools(api: Api, s: KubernetesSettings) -> Iterator[Finding]:
    """Of each pool the nodes for its shapes with GPUs."""
    tolerations = [toleration(word) for word in s.kubernetes_tolerations]
    nodes = api.items("/api/v1/nodes")
    for zone in s.kubernetes_pools:
        shapes = [shape for shape in s.kubernetes_shapes if s.kubernetes_gpus.get(shape)]
        for shape in shapes or s.kubernetes_shapes[:1]:
            pool = pool_of(nodes, selector(s, zone, shape), tolerations, s.kubernetes_gpu_resource)
            name, fact = f"{zone} {shape}", f"{pool.nodes} nodes, {pool.gpus} of {s.kubernetes_gpu_resource}"
            if pool.taints:
                cause = f"every node has a taint that the pods do not tolerate: {', '.join(pool.taints)}"
                yield _finding(name, FAIL, fact, cause, "set kubernetes_tolerations")
            elif pool.nodes and shapes and not pool.gpus:
                yield _finding(name, WARN, fact, "no node has GPUs to give", "look at the device plugin of the nodes")
            elif not pool.nodes:
                yield _finding(
                    name, WARN, "no node now", "no node has its labels", "fine where an autoscaler adds nodes"
                )
            else:
                yield _finding(name, OK, fact)


def _finding(name: str, result: str, fact: str, cause: str = "", fix: str = "") -> Finding:
    return Finding(name, result, fact, cause, fix, TRAITS.group)
