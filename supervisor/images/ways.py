"""The three ways to an image. Each gets the laid-out folder and ends with an Outcome, or raises WayFailed.

1. `gcloud builds submit`: staging folder, list and project are said, nothing is left to gcloud's own defaults.
2. Our own archive, staged by HTTP, and the Cloud Build API: needs no gcloud.
3. `docker buildx build --push` on this computer: needs no Cloud Build.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from supervisor.images import archive, programs, reasons, template
from supervisor.images.afterwards import DIGEST, Afterwards
from supervisor.images.context import DOCKERFILE
from supervisor.images.google_service import Google, ServiceError
from supervisor.images.request import DOCKER, GCLOUD, STAGED, BuildRequest, Outcome, Reason, Say, WayFailed
from supervisor.wording.figures import size_text

UPLOAD_S = 1800.0
_CREATED = re.compile(r"Created \[[^\]]*/builds/([\w-]+)\]")


@dataclass(frozen=True)
class Job:
    """`source`: the laid-out folder; `work`: room for files beside it. `line`: other programs' output."""

    request: BuildRequest
    source: Path
    work: Path
    google: Google
    afterwards: Afterwards
    say: Say
    line: Say


def by_gcloud(job: Job) -> Outcome:
    request = job.request
    config = job.work / template.CONFIG
    config.write_text(yaml.safe_dump(template.build_config(request), sort_keys=False), encoding="utf-8")
    everything = job.work / "ignore-nothing"  # without a list, gcloud would apply rules of its own
    everything.write_text("# everything in the folder has been chosen\n", encoding="utf-8")
    argv = [
        "gcloud", "builds", "submit", str(job.source),
        f"--project={request.project}",
        f"--region={request.region}",
        f"--config={config}",
        f"--gcs-source-staging-dir={request.staging}",
        f"--ignore-file={everything}",
        "--format=value(results.images[].digest)",
        "--quiet",
    ]  # fmt: skip
    ended = _run(argv, request.build_s + UPLOAD_S, job, "gcloud")
    created = _CREATED.search(ended.text)
    build = created[1] if created else ""
    if ended.code == 0:
        told = [line for line in ended.text.splitlines() if DIGEST.match(line)]
        return Outcome(DIGEST.findall(told[-1])[0] if told else "", build)
    reason = reasons.diagnose(ended.text, request, GCLOUD)
    if ended.code is None:
        minutes = (request.build_s + UPLOAD_S) / 60
        reason = Reason(f"gcloud had not finished after {minutes:.0f} min and was ended.", kind=reasons.LIMIT)
    raise WayFailed(reason, began=bool(build) or reason.kind != reasons.IDENTITY, build=build)


def by_upload(job: Job) -> Outcome:
    request, google = job.request, job.google
    packed = job.work / "source.tgz"
    size = archive.pack(job.source, packed)
    job.say(f"  {size_text(size)} to gs://{request.bucket}/{request.source}")
    try:
        generation = google.upload(packed)
    except ServiceError as error:
        raise WayFailed(_reason(error, request)) from error
    try:
        outcome = _started(job, generation)
    except WayFailed as failed:
        if not failed.began:
            google.remove_source()
        raise
    google.remove_source()
    return outcome


def _started(job: Job, generation: str) -> Outcome:
    request = job.request
    source = {"bucket": request.bucket, "object": request.source}
    if generation:
        source["generation"] = generation
    build = {**template.build_config(request), "source": {"storageSource": source}}
    try:
        name = job.google.create(build)
    except ServiceError as error:
        lost = error.status is None or error.status >= 500
        raise WayFailed(_reason(error, request), began=lost) from error
    job.say(f"  build {name} has begun in project {request.project}")
    return job.afterwards.wait(name)


def by_docker(job: Job) -> Outcome:
    request = job.request
    told = job.work / "docker.json"
    argv = [
        "docker", "buildx", "build", "--platform=linux/amd64", "--push", "--progress=plain",
        f"--tag={request.image}",
        f"--tag={request.marked}",
        f"--metadata-file={told}",
        f"--file={job.source / DOCKERFILE}",
        str(job.source),
    ]  # fmt: skip
    ended = _run(argv, request.build_s, job, "docker")
    if ended.code == 0:
        return Outcome(_told_digest(told))
    reason = reasons.diagnose(ended.text, request, DOCKER)
    if ended.code is None:
        minutes = request.build_s / 60
        reason = Reason(f"docker had not finished after {minutes:.0f} min and was ended.", kind=reasons.LIMIT)
    raise WayFailed(reason, began=True)


WAYS: Mapping[str, Callable[[Job], Outcome]] = {GCLOUD: by_gcloud, STAGED: by_upload, DOCKER: by_docker}


def _run(argv: list[str], limit_s: float, job: Job, program: str) -> programs.Ended:
    try:
        return programs.run(argv, limit_s, job.line)
    except programs.NotInstalled:
        raise WayFailed(Reason(f"{program} is not installed on this computer.")) from None


def _reason(error: ServiceError, request: BuildRequest) -> Reason:
    reason = reasons.diagnose(str(error), request, STAGED)
    if error.status == 403 and reason.kind == reasons.OTHER:
        return Reason(f"{reason.text} (HTTP 403)", reason.fix, reasons.PERMISSION)
    return reason


def _told_digest(path: Path) -> str:
    try:
        found = json.loads(path.read_text(encoding="utf-8")).get("containerimage.digest", "")
    except (OSError, ValueError, AttributeError):
        return ""
    return found if isinstance(found, str) and DIGEST.fullmatch(found) else ""
