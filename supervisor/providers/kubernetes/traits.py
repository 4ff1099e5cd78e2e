"""The traits of Jobs of a Kubernetes cluster: they run images, and their nodes cost as long as the pool has them."""

from __future__ import annotations

from supervisor.ports.traits import SecretKinds, Traits

# A Secret has at most 1 MiB, for the job with its command and for the values of secrets.
JOB_MAX_BYTES = 220_000

TRAITS = Traits(
    kind="kubernetes",
    title="Kubernetes",
    group="kubernetes",
    place="namespace",
    images=True,
    secrets=SecretKinds(
        prefixes=("k8s:", "env:", "file:"),
        forms="k8s:NAME/KEY (a key of a Secret in the namespace, which only the pod reads), env:NAME (the environment "
        "of the service) or file:/PATH (a file of mode 0600 on its computer)",
        advice="into a Secret (kubectl create secret generic NAME --from-file=KEY), and name it in `secrets`, such as "
        "{API_KEY: k8s:NAME/KEY}",
    ),
    stores={
        "file": "a folder of a volume claim, which the supervisor and the pods mount at the same path",
        "gs": "Cloud Storage, over HTTPS with the account of the pod",
    },
    job_max_bytes=JOB_MAX_BYTES,
    launches_at_once=16,
    shares_computer=False,
    irreplaceable=False,
    meter="a deleted Job frees its pod; the node goes on costing until its pool shrinks",
    price_setting="kubernetes_prices",
    removal="kubectl delete job {name}",
)
