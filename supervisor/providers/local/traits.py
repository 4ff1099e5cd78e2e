"""The traits of machines on this computer: processes beside the supervisor, free, with access to its files."""

from __future__ import annotations

from supervisor.ports.traits import SecretKinds, Traits

TRAITS = Traits(
    kind="local",
    title="This computer",
    group="local",
    place="data folder",
    images=False,
    secrets=SecretKinds(
        prefixes=("env:", "file:"),
        forms="env:NAME (the environment of the service) or file:/PATH (a file of mode 0600)",
        advice="into a file of mode 0600, or into the environment of the service, and name it in `secrets`, such as "
        "{API_KEY: file:/PATH} or {API_KEY: env:API_KEY}",
    ),
    stores={
        "file": "a folder of this computer, opened by the agent itself",
        "gs": "Cloud Storage, over HTTPS with the login of this computer, else with the account that its metadata "
        "server knows",
    },
    job_max_bytes=None,
    launches_at_once=8,
    shares_computer=True,
    irreplaceable=False,
    meter="nothing is billed",
    price_setting="local_prices",
    keeps=True,
)
