"""The three ways to an image. Each gets the laid-out folder and ends with an Outcome, or raises WayFailed.

1. `gcloud builds submit`: staging folder, list and project are said, nothing is left to gcloud's own defaults.
2. Our own archive, staged by HTTP, and the Cloud Build API: needs no gcloud.
3. `docker buildx build --push` on this computer: needs no Cloud Build.

The laid-out folder as one .tgz whose bytes depend on nothing but the files: sorted names, one time, no owners.

Other programs (gcloud, docker): started in a session of their own, so that Ctrl-C reaches us and not them; their
lines are passed on without secrets; and none outlives its time, or us.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import tarfile
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from supervisor.images import reasons, template
from supervisor.images.afterwards import DIGEST, Afterwards
from supervisor.images.context import DOCKERFILE, TIME_S
from supervisor.images.google_service import Google, ServiceError
from supervisor.images.reasons import masked
from supervisor.images.request import DOCKER, GCLOUD, STAGED, BuildRequest, Outcome, Reason, Say, WayFailed
from supervisor.wording.figures import size_text

_LINES = 400  # of the output, kept to find the reason in
_LEAVE_S = 10.0


@dataclass(frozen=True)
class Ended:
    """`code` None: its time was over, and it was ended."""

    code: int | None
    text: str


class NotInstalled(Exception):
    pass


def run(
    argv: Sequence[str], limit_s: float, line: Say, environment: Mapping[str, str] | None = None
) -> Ended:
    """Each line of both outputs goes to `line`. NotInstalled where there is no such program. On KeyboardInterrupt, and
    on every other exception, the program and what it started are ended first."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise NotInstalled(argv[0]) from error
    kept: deque[str] = deque(maxlen=_LINES)
    reader = threading.Thread(target=_read, args=(process, kept, line), daemon=True)
    reader.start()
    try:
        code: int | None = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _end(process)
    reader.join(_LEAVE_S)
    return Ended(code, "\n".join(kept))


def _read(process: subprocess.Popen[str], kept: deque[str], line: Say) -> None:
    assert process.stdout is not None
    with process.stdout, suppress(ValueError):
        for words in process.stdout:
            text = masked(words.rstrip())
            kept.append(text)
            line(text)


def _end(process: subprocess.Popen[str]) -> None:
    """TERM to its group, KILL to what is left of it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LEAVE_S)


def pack(folder: Path, target: Path) -> int:
    """Writes `target`; its size in bytes. OSError."""
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(_files(folder), key=os.fsencode):
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=_plain)
    return target.stat().st_size


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = TIME_S
    return member


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
    size = pack(job.source, packed)
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


def _run(argv: list[str], limit_s: float, job: Job, program: str) -> Ended:
    try:
        return run(argv, limit_s, job.line)
    except NotInstalled:
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
