"""The traits of sessions of Kaggle notebooks: free, no shell, and over after some hours whatever the work does."""

from __future__ import annotations

from dataclasses import replace

from supervisor.ports.traits import SecretKinds, Traits

TRAITS = Traits(
    kind="kaggle",
    title="Kaggle",
    group="kaggle",
    place="account",
    images=False,
    secrets=SecretKinds(
        prefixes=("env:", "file:"),
        forms="env:NAME (the environment of the service) or file:/PATH (a file of mode 0600 on its computer)",
        advice="into a file of mode 0600, or into the environment of the service, and name it in `secrets`, such as "
        "{API_KEY: file:/PATH} or {API_KEY: env:API_KEY}",
    ),
    stores={
        "file": "a folder of the supervisor's computer, through the supervisor",
        "gs": "Cloud Storage, through the supervisor; no key is in the notebook",
    },
    job_max_bytes=None,
    launches_at_once=1,
    shares_computer=False,
    irreplaceable=False,
    warning_s=300.0,
    meter="a session uses weekly hours of its accelerator until it ends; there is no bill to stop",
    account_noun="user",
    removal="kaggle kernels delete {account}/{name}",
)


# Of sessions without the internet. What their source holds is stored by Kaggle, so no secret is in it; and what Kaggle
# takes as the source of one notebook is not documented, so it is small.
CODE_MAX_BYTES = 256 << 10
APART = replace(
    TRAITS,
    secrets=SecretKinds(
        prefixes=(),
        forms="nothing: Kaggle stores what a session without the internet begins with, so no secret is in it",
        advice="nowhere: set kaggle_internet = true, or do without",
    ),
    stores=dict.fromkeys(TRAITS.stores, "through the output of each version"),
    code_max_bytes=CODE_MAX_BYTES,
    network=False,
)


def traits_of(internet: bool) -> Traits:
    return TRAITS if internet else APART
