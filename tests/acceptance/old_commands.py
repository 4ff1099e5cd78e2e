"""What users of the older runner typed, from its quick reference and its monitoring notes: each once, by our own words.

The table of docs/migration.md must have a row for each, and the transcript must run what that row says.
"""

from __future__ import annotations

# The scripts' paths are left out: `submit` is gcp_submit_primary.sh, `build` gcp_build_image.sh, `ops` gcp_ops.sh.
OLD = (
    "gcloud auth list",
    "gcloud config list",
    "rg '^(PROJECT|REGION|…)=' FILE.env",
    "build",
    "submit",
    "submit --run-id RUN",
    "submit --skip-build",
    "submit --skip-build --cleanup-all --yes",
    "submit --dry-run",
    "ops status --run-id RUN",
    "ops health --json",
    "ops serial --run-id RUN 200",
    "ops events --run-id RUN --since 24h",
    "ops list all",
    "ops watch 60",
    "ops preempt --run-id RUN",
    "ops delete --run-id RUN",
    "ops delete --yes",
    "ops delete --all",
    "gcloud compute instances list --project=P",
    "gcloud compute instances describe VM",
    "gcloud compute instances delete VM",
    "gcloud logging read 'logName:\"google_metadata_script_runner\"'",
)
