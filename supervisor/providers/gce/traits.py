"""The traits of machines on Google Compute Engine: rented, started from an image, deleted when they are not needed."""

from __future__ import annotations

from functools import partial

from supervisor.domain.findings import Finding
from supervisor.ports.traits import SecretKinds, Traits

# The metadata of a machine has at most 512 KB. A command of 190 KB takes half of it; the job has the space that is left
# beside the start-up script.
JOB_MAX_BYTES = 220_000

TRAITS = Traits(
    kind="gce",
    title="Google Cloud",
    group="google",
    place="project or bucket",
    images=True,
    secrets=SecretKinds(
        prefixes=("gcp:",),
        forms="gcp:projects/PROJECT/secrets/SECRET/versions/VERSION (Secret Manager, read by the machine's own "
        "account)",
        advice="into Secret Manager (gcloud secrets create NAME --data-file=-), and name it in `secrets`, such as "
        "{API_KEY: gcp:projects/PROJECT/secrets/NAME/versions/1}",
    ),
    stores={"gs": "Cloud Storage, over HTTPS with the account of the machine"},
    job_max_bytes=JOB_MAX_BYTES,
    launches_at_once=32,  # a create call waits seconds for its response
    shares_computer=False,
    irreplaceable=False,
    meter="the supervisor deletes the machine; a limit of its own (maxRunDuration) deletes it without the supervisor",
    account_noun="project",
    tool="gcloud: --project={name}",
    compare="Does your console or gcloud show another project? Compare: gcloud config list; gcloud compute instances "
    "list --project={name}",
    log_service="Cloud Logging",
    log_keeps="machines that were started with gce_serial_logging = true",
    price_setting="gce_prices",
    keeps=True,
    races=True,
    removal="gcloud compute instances delete {name} --zone={zone} --project={account}",
)

google_finding = partial(Finding, group=TRAITS.group)
