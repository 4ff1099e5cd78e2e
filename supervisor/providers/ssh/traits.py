"""The traits of machines on hosts by SSH: processes there, with the files and the GPUs of the host."""

from __future__ import annotations

from supervisor.ports.traits import SecretKinds, Traits

TRAITS = Traits(
    kind="ssh",
    title="Hosts by SSH",
    group="ssh",
    place="list of hosts",
    images=False,
    secrets=SecretKinds(
        prefixes=("env:", "file:"),
        forms="env:NAME (the environment of the service) or file:/PATH (a file of mode 0600 on its computer)",
        advice="into a file of mode 0600, or into the environment of the service, and name it in `secrets`, such as "
        "{API_KEY: file:/PATH} or {API_KEY: env:API_KEY}",
    ),
    stores={
        "file": "a folder that each host has under the same path, opened by the agent itself",
        "gs": "Cloud Storage, over HTTPS with the login of the host",
    },
    job_max_bytes=None,
    launches_at_once=8,
    shares_computer=False,
    irreplaceable=False,
    meter="nothing stops the meter of a host by itself: what it costs ends where its owner ends it",
    price_setting="ssh_prices",
    relaunches=True,
    keeps=True,
)
