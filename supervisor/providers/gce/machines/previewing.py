"""What a launch would send to Google, shown before anything is sent: the instance, and its metadata made readable.

The body is the one that a launch builds, by the same function. The start-up script is the text of this version; the
agent is named by its content and not uploaded for this. What is packed in the metadata (the job, the command) is shown
unpacked beside it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from supervisor.ports.provider import LaunchRejected, LaunchRequest
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.machines import instance
from supervisor.providers.gce.machines.instance import Parcel, startup_script


def preview(config: GceConfig, agent: Path | None, request: LaunchRequest) -> Mapping[str, object]:
    """`instance`: the body of instances.insert without its metadata; `metadata`: key -> value as a machine reads it;
    `unpacked`: what the packed values say. Raises LaunchRejected."""
    if agent is None:
        raise LaunchRejected("this installation has no agent; `make agent` builds it")
    try:
        parcel = Parcel(startup_script(), hashlib.sha256(agent.read_bytes()).hexdigest())
    except OSError as error:
        raise LaunchRejected(f"this installation is not complete: {error}") from error
    body = instance.build(config, request, parcel)
    metadata = {item["key"]: item["value"] for item in body.pop("metadata")["items"]}
    return {
        "kind": "compute.instances.insert",
        "project": config.project,
        "zone": request.placement.zone,
        "request_id": request.request_id,
        "instance": body,
        "metadata": metadata,
        "unpacked": {
            "spot-job-command": base64.b64decode(metadata["spot-job-command"]).decode(),
            "spot-job": json.loads(gzip.decompress(base64.b64decode(metadata["spot-job"]))),
        },
    }
