"""The settings of a Kubernetes cluster: how to reach it, its pools of nodes, and the shapes of pods.

This file checks everything that needs no request. The doctor checks the rest, such as whether a claim exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import Finding
from supervisor.providers.kubernetes.traits import TRAITS
from supervisor.settings.kinds import StoreForm, match, need
from supervisor.settings.values import LARGEST_COUNT, Argv, Rules, check_keys

if TYPE_CHECKING:
    from supervisor.domain.machines import Offer

STORE = StoreForm("file:///FOLDER of a claim, or a bucket", re.compile(r"(file:/|gs:)//.+", re.DOTALL))
_LABEL_KEY = r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_LABEL_VALUE = r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
LABELS = re.compile(rf"{_LABEL_KEY}={_LABEL_VALUE}(,{_LABEL_KEY}={_LABEL_VALUE})*")
TOLERATION = re.compile(rf"(?P<key>{_LABEL_KEY})(=(?P<value>{_LABEL_VALUE}))?(:(?P<effect>[A-Za-z]+))?")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
SIZE = r"[1-9]\d{0,8}(Mi|Gi|Ti|M|G|T)"
RULES = Rules(
    counts={"kubernetes_gpus": (1, 1024), "kubernetes_cpus": (1, LARGEST_COUNT)},
    pairs={
        "kubernetes_pools": "pool=labels pairs, such as spot=cloud.example/spot=true; more labels follow a comma",
        "kubernetes_gpus": "shape=GPUs pairs of whole GPUs, such as a100=1,a100x8=8",
        "kubernetes_cpus": "shape=CPUs pairs, such as a100=8,a100x8=64",
        "kubernetes_memory": "shape=memory pairs, such as a100=64Gi,a100x8=512Gi",
        "kubernetes_nodes": "shape=labels pairs, such as a100=cloud.example/gpu=a100",
    },
    texts={
        "kubernetes_pools": LABELS,
        "kubernetes_memory": re.compile(SIZE),
        "kubernetes_nodes": LABELS,
    },
    empty=frozenset(
        {
            "kubernetes_kubeconfig", "kubernetes_context", "kubernetes_namespace", "kubernetes_service_account",
            "kubernetes_claim", "kubernetes_queue", "kubernetes_priority_class",
        }
    ),
)  # fmt: skip
_NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_FORMS: Mapping[str, tuple[str, str]] = {
    "kubernetes_kubeconfig": (r"[~/][^\x00-\x1f]{0,3000}", "the path of a kubeconfig file"),
    "kubernetes_namespace": (r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "the name of a namespace"),
    "kubernetes_service_account": (_NAME, "the name of a service account"),
    "kubernetes_claim": (_NAME, "the name of a volume claim"),
    "kubernetes_claim_mount": (r"(/[A-Za-z0-9._-]+)+", "an absolute path, such as /checkpoints"),
    "kubernetes_queue": (_NAME, "the name of a LocalQueue"),
    "kubernetes_priority_class": (_NAME, "the name of a priority class"),
    "kubernetes_gpu_resource": (_LABEL_KEY, "the name of a resource, such as nvidia.com/gpu"),
    "kubernetes_disk": (SIZE, "a size, such as 50Gi"),
    "kubernetes_shm": (SIZE, "a size, such as 8Gi"),
}
OWN_MOUNTS = ("/spot", "/dev/shm")  # noqa: S108 - of objects.py


@dataclass(frozen=True, kw_only=True)
class KubernetesSettings:
    """`kubernetes_kubeconfig`, `_context`: empty = the pod's own account, else the user's kubeconfig. `_namespace`:
    empty = that of the context. `_pools`: in the order of preference; each is a zone: its name -> labels of its nodes.
    `_spot_pools`: those that are preempted; none = each pool serves both kinds of requests. `_nodes`: labels of the
    nodes of a shape. `_disk`: the limit of the container's files and of the machine's folder. `_grace_s`: from TERM to
    KILL; None = two minutes. `_claim`: mounted at `_claim_mount` in each pod. `_queue`: Kueue's."""

    kubernetes_kubeconfig: str = ""
    kubernetes_context: str = ""
    kubernetes_namespace: str = ""
    kubernetes_pools: Mapping[str, str] = field(default_factory=dict)
    kubernetes_spot_pools: tuple[str, ...] = ()
    kubernetes_shapes: tuple[str, ...] = ("cpu",)
    kubernetes_gpus: Mapping[str, int] = field(default_factory=dict)
    kubernetes_gpu_resource: str = "nvidia.com/gpu"
    kubernetes_cpus: Mapping[str, int] = field(default_factory=dict)
    kubernetes_memory: Mapping[str, str] = field(default_factory=dict)
    kubernetes_nodes: Mapping[str, str] = field(default_factory=dict)
    kubernetes_disk: str = "20Gi"
    kubernetes_shm: str = "2Gi"
    kubernetes_tolerations: Argv = ()
    kubernetes_service_account: str = ""
    kubernetes_pull_secrets: tuple[str, ...] = ()
    kubernetes_claim: str = ""
    kubernetes_claim_mount: str = "/checkpoints"
    kubernetes_grace_s: float | None = None
    kubernetes_queue: str = ""
    kubernetes_priority_class: str = ""
    kubernetes_prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def zones(self) -> tuple[str, ...]:
        return tuple(self.kubernetes_pools)


def check(s: KubernetesSettings) -> None:
    """Raises SettingsRefused."""
    match(s, _FORMS)
    for name in ("kubernetes_gpus", "kubernetes_cpus", "kubernetes_memory", "kubernetes_nodes", "kubernetes_prices"):
        check_keys(name, getattr(s, name), "kubernetes_shapes", s.kubernetes_shapes)
    for pool in s.kubernetes_spot_pools:
        if pool not in s.kubernetes_pools:
            pools = ", ".join(s.kubernetes_pools) or "none"
            text = f"kubernetes_spot_pools names {pool}, which is not one of kubernetes_pools ({pools})"
            raise SettingsRefused(text, {"name": "kubernetes_spot_pools", "key": pool})
    _check_label_values("kubernetes_pools", s.kubernetes_pools)
    _check_label_values("kubernetes_shapes", s.kubernetes_shapes)
    _check_conflicts(s)
    for word in s.kubernetes_tolerations:
        toleration(word)
    if s.kubernetes_claim_mount.startswith(OWN_MOUNTS):
        text = f"kubernetes_claim_mount = {s.kubernetes_claim_mount}: {', '.join(OWN_MOUNTS)} are the supervisor's own"
        raise SettingsRefused(text, {"name": "kubernetes_claim_mount"})


def complete(s: KubernetesSettings) -> None:
    """Raises SettingsRefused."""
    need(TRAITS.kind, s, {"kubernetes_pools": "spot=cloud.example/spot=true"})


def labels_of(text: str) -> dict[str, str]:
    """`a=b,c=d` as labels."""
    return dict(part.split("=", 1) for part in text.split(",") if part)


def toleration(word: str) -> dict[str, str]:
    """Of `key`, `key:Effect`, `key=value` or `key=value:Effect`, as kubectl writes a taint. Raises SettingsRefused."""
    form = TOLERATION.fullmatch(word)
    if form is None or (form["effect"] and form["effect"] not in EFFECTS):
        text = f"kubernetes_tolerations = {word}: expected taints such as nvidia.com/gpu=present:NoSchedule or spot"
        raise SettingsRefused(text, {"name": "kubernetes_tolerations"})
    equal = {"operator": "Equal", "value": form["value"]} if form["value"] is not None else {"operator": "Exists"}
    return {"key": form["key"], **equal, **({"effect": form["effect"]} if form["effect"] else {})}


def offers(name: str, s: KubernetesSettings) -> tuple[Offer, ...]:
    """Every pool of a shape, then the next shape; on-demand after spot."""
    from supervisor.domain.machines import Offer, Placement

    offered = []
    for spot in (True, False):
        for shape in s.kubernetes_shapes:
            spot_usd, on_demand_usd = s.kubernetes_prices.get(shape, (None, None))
            for pool in s.kubernetes_pools:
                if not s.kubernetes_spot_pools or (pool in s.kubernetes_spot_pools) == spot:
                    placement = Placement(name, TRAITS.kind, pool, shape, spot)
                    offered.append(Offer(placement, spot_usd if spot else on_demand_usd, on_demand_usd))
    return tuple(offered)


def meaning(s: KubernetesSettings, store_url: str, image: str) -> tuple[str, tuple[Finding, ...]]:
    """The settings in effect, in words."""
    where = f"namespace {s.kubernetes_namespace}" if s.kubernetes_namespace else "the namespace of the context"
    claim = f"; claim {s.kubernetes_claim} at {s.kubernetes_claim_mount}" if s.kubernetes_claim else ""
    queue = f"; Kueue's queue {s.kubernetes_queue}" if s.kubernetes_queue else ""
    text = (
        f"machines are Jobs in {where}, on {', '.join(s.kubernetes_pools)}{claim}{queue}; objects in {store_url}; "
        f"image {image or 'of each run'}"
    )
    return text, ()


def _check_label_values(name: str, words: Iterable[str]) -> None:
    """They are the values of labels of each Job."""
    for word in words:
        if not word or not re.fullmatch(_LABEL_VALUE, word):
            text = f"{name}: {word}: expected a name that ends with a letter or a digit, because it is a label"
            raise SettingsRefused(text, {"name": name})


def _check_conflicts(s: KubernetesSettings) -> None:
    """A pod's nodes have the labels of its pool and of its shape: the same key with two values matches no node."""
    for pool, of_pool in s.kubernetes_pools.items():
        for shape, of_shape in s.kubernetes_nodes.items():
            first, second = labels_of(of_pool), labels_of(of_shape)
            for key in first.keys() & second.keys():
                if first[key] != second[key]:
                    raise SettingsRefused(
                        f"kubernetes_pools: {pool} has {key}={first[key]}, and kubernetes_nodes: {shape} has "
                        f"{key}={second[key]}: no node has both",
                        {"name": "kubernetes_nodes", "pool": pool, "shape": shape},
                    )
