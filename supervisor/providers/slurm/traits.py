"""The traits of jobs of a Slurm cluster: they share its file system, and its meter is walltime, not money."""

from __future__ import annotations

from supervisor.ports.traits import SecretKinds, Traits

TRAITS = Traits(
    kind="slurm",
    title="Slurm cluster",
    group="slurm",
    place="cluster",
    images=False,
    secrets=SecretKinds(
        prefixes=("env:", "file:"),
        forms="env:NAME (the environment of the service) or file:/PATH (a file of mode 0600 on its computer)",
        advice="into a file of mode 0600, or into the environment of the service, and name it in `secrets`, such as "
        "{API_KEY: file:/PATH} or {API_KEY: env:API_KEY}",
    ),
    stores={
        "file": "a folder of the shared file system, opened by the agent itself",
        "gs": "Cloud Storage, over HTTPS with the login of the compute node",
    },
    job_max_bytes=None,
    launches_at_once=8,
    shares_computer=False,
    irreplaceable=False,
    warning_s=120.0,
    meter="walltime and fairshare are used until the job ends; there is no bill to stop",
)
