"""The traits of sessions of Colab: nobody can keep one alive, and their files go through the supervisor's own door."""

from __future__ import annotations

from supervisor.ports.traits import SecretKinds, Traits

TRAITS = Traits(
    kind="colab",
    title="Colab",
    group="colab",
    place="account",
    images=False,
    secrets=SecretKinds(
        prefixes=("env:", "file:"),
        forms="env:NAME (the environment of the service) or file:/PATH (a file of mode 0600 on its computer)",
        advice="into a file of mode 0600, or into the environment of the service, and name it in `secrets`, such as "
        "{API_KEY: file:/PATH} or {API_KEY: env:API_KEY}",
    ),
    stores={
        "file": "a folder of the supervisor's computer, over HTTPS through the supervisor",
        "gs": "Cloud Storage, over HTTPS through the supervisor or by signed addresses; no key is in a notebook",
    },
    job_max_bytes=None,
    launches_at_once=4,
    shares_computer=False,
    irreplaceable=False,
    meter="compute units of a paid plan are used until the session ends; the free plan bills nothing",
    account_noun="account",
    price_setting="colab_prices",
    removal="colab stop -s {name}",
)
