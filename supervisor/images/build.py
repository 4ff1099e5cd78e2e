"""Builds an image from a folder: tries one way after the other, until the image is in the registry.

1. `gcloud builds submit`: staging folder, list and project are given, so gcloud's own defaults do not matter.
2. Our own archive, staged by HTTP, and the Cloud Build API: needs no gcloud.
3. `docker buildx build --push` on this computer: needs no Cloud Build.

A way that fails says why, in a line or two, and the next one is tried. Only a Dockerfile that fails ends the build,
because it would fail again. Before the next way it is checked that the last one has not built the image after all.
Other programs (gcloud, docker) run in a session of their own, so that Ctrl-C reaches this process and not them. Their
lines are passed on without secrets. None of them runs longer than its time limit, or than this process.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import tarfile
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from supervisor.images import reasons
from supervisor.images.cloud_build import DIGEST, BuildResult, CloudBuild, ServiceError
from supervisor.images.context import BUILD_CONFIG, DOCKERFILE, TIME_S, Context, build_config, chosen, lay_out
from supervisor.images.reasons import masked
from supervisor.images.request import (
    DOCKER,
    GCLOUD,
    GLOBAL,
    STAGED,
    WAY_NAMES,
    AllWaysFailed,
    BuildRequest,
    Built,
    Failure,
    Interrupted,
    Outcome,
    Reason,
    Say,
    WayFailed,
)
from supervisor.wording.figures import size_text

UPLOAD_S = 1800.0
PUSHED = "pushed"  # the kind of a reason: built and pushed, but the digest is unknown
_FINAL = frozenset({reasons.SOURCE, PUSHED})
_MOST_IMPORTANT = (PUSHED, reasons.SOURCE, reasons.PERMISSION, reasons.IDENTITY)
_LINES = 400  # of the output, kept to find the reason in
_END_S = 10.0
_CREATED = re.compile(r"Created \[[^\]]*/builds/([\w-]+)\]")


@dataclass(frozen=True)
class Job:
    """`source`: the laid-out folder; `work`: for other files. `line`: gets the output of other programs."""

    request: BuildRequest
    source: Path
    work: Path
    cloud_build: CloudBuild
    result: BuildResult
    say: Say
    line: Say


def build(request: BuildRequest, say: Say, line: Say, context: Context | None = None) -> Built:
    """`request`: from `checked`; `context`: files that were already chosen and shown. `say`: gets messages for the
    user; `line`: gets the output of other programs. Raises AllWaysFailed, ImageBuildRefused, and Interrupted for
    Ctrl-C."""
    cloud_build = CloudBuild(request)
    result = BuildResult(request, cloud_build, say)
    failures: list[Failure] = []
    with tempfile.TemporaryDirectory(prefix="spot-build-") as folder:
        work = Path(folder)
        lay_out(context or chosen(request.folder), work / "source")
        job = Job(request, work / "source", work, cloud_build, result, say, line)
        for number, way in enumerate(request.ways, start=1):
            say(f"Way {number} of {len(request.ways)}: {WAY_NAMES[way]}")
            try:
                outcome = _try_way(job, way)
            except WayFailed as failed:
                failures.append(Failure(way, failed.reason))
                say(f"  failed: {failed.reason.sentence}")
                if failed.reason.kind in _FINAL:
                    break
            except KeyboardInterrupt:
                raise Interrupted(_still_running(request, way, result)) from None
            else:
                return Built(request.image, outcome.digest, way, outcome.build, outcome.recovered, tuple(failures))
    first = leading(tuple(failures))
    prefix = "" if first.kind == PUSHED else "No image was built. "
    raise AllWaysFailed(f"{prefix}{first.sentence}", tuple(failures))


def leading(failures: tuple[Failure, ...]) -> Reason:
    """The reason to fix first: one that every way would meet again."""
    order = {kind: number for number, kind in enumerate(_MOST_IMPORTANT)}
    return min((failure.reason for failure in failures), key=lambda reason: order.get(reason.kind, len(order)))


def pack(folder: Path, target: Path) -> int:
    """Writes `target`; returns its size in bytes. OSError."""
    files = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(files, key=os.fsencode):
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=_plain)
    return target.stat().st_size


def _try_way(job: Job, way: str) -> Outcome:
    """WayFailed when, as far as it can be known, this way has built nothing."""
    try:
        outcome = _WAYS[way](job)
    except WayFailed as failed:
        recovered = _recovered(job, way, failed) if failed.began else None
        if recovered is None:
            raise
        job.say("  the response was lost, but the image is in the registry")
        outcome = recovered
    if outcome.digest:
        return outcome
    digest = job.result.digest_of(outcome.build)
    if not digest:
        text = f"{job.request.image} was built and pushed, but its digest cannot be read from the registry."
        raise WayFailed(Reason(text, f"Look up {job.request.marked} there.", PUSHED), build=outcome.build)
    return Outcome(digest, outcome.build, outcome.recovered)


def _recovered(job: Job, way: str, failed: WayFailed) -> Outcome | None:
    """None = nothing was built. WayFailed where Cloud Build has a better reason than the known one."""
    if way == DOCKER:
        return job.result.in_registry()
    try:
        return job.result.recover(failed.build)
    except WayFailed:
        if failed.reason.kind == reasons.PERMISSION:  # it names the account and the permission, unlike the build
            return None
        raise


def _still_running(request: BuildRequest, way: str, result: BuildResult) -> str:
    """After Ctrl-C: the build that still runs, and how to end it; "" = none. The programs here have ended already."""
    if way == DOCKER:
        return ""
    where = f"--project={request.project} --region={request.region or GLOBAL}"
    try:
        build_id = result.running()
    except ServiceError:
        command = f'gcloud builds list --ongoing --filter="tags={request.mark}" {where}'
        return f"Whether a build still runs at Cloud Build cannot be read now. To see it: {command}"
    if not build_id:
        return ""
    return f"Build {build_id} still runs at Cloud Build. To end it: gcloud builds cancel {build_id} {where}"


# --- the ways ---------------------------------------------------------------------------------------------------------


def _by_gcloud(job: Job) -> Outcome:
    request = job.request
    config = job.work / BUILD_CONFIG
    config.write_text(yaml.safe_dump(build_config(request), sort_keys=False), encoding="utf-8")
    ignore_file = job.work / "ignore-nothing"  # without a list, gcloud would apply rules of its own
    ignore_file.write_text("# everything in the folder has been chosen\n", encoding="utf-8")
    argv = [
        "gcloud", "builds", "submit", str(job.source),
        f"--project={request.project}",
        f"--region={request.region}",
        f"--config={config}",
        f"--gcs-source-staging-dir={request.staging}",
        f"--ignore-file={ignore_file}",
        "--format=value(results.images[].digest)",
        "--quiet",
    ]  # fmt: skip
    limit_s = request.build_s + UPLOAD_S
    ended = _run(argv, limit_s, job.line)
    created = _CREATED.search(ended.text)
    build_id = created[1] if created else ""
    if ended.code == 0:
        digest_lines = [line for line in ended.text.splitlines() if DIGEST.match(line)]
        return Outcome(DIGEST.findall(digest_lines[-1])[0] if digest_lines else "", build_id)
    reason = _reason_of_end("gcloud", ended, limit_s, job, GCLOUD)
    raise WayFailed(reason, began=bool(build_id) or reason.kind != reasons.IDENTITY, build=build_id)


def _by_upload(job: Job) -> Outcome:
    request = job.request
    packed = job.work / "source.tgz"
    size = pack(job.source, packed)
    job.say(f"  {size_text(size)} to gs://{request.bucket}/{request.source}")
    try:
        generation = job.cloud_build.upload(packed)
    except ServiceError as error:
        raise WayFailed(_reason_of_error(error, request)) from error
    try:
        outcome = _build_staged(job, generation)
    except WayFailed as failed:
        if not failed.began:
            job.cloud_build.remove_source()
        raise
    job.cloud_build.remove_source()
    return outcome


def _build_staged(job: Job, generation: str) -> Outcome:
    request = job.request
    source = {"bucket": request.bucket, "object": request.source}
    if generation:
        source["generation"] = generation
    try:
        build_id = job.cloud_build.create({**build_config(request), "source": {"storageSource": source}})
    except ServiceError as error:
        lost = error.status is None or error.status >= 500
        raise WayFailed(_reason_of_error(error, request), began=lost) from error
    job.say(f"  build {build_id} has started in project {request.project}")
    return job.result.wait(build_id)


def _by_docker(job: Job) -> Outcome:
    request = job.request
    metadata = job.work / "docker.json"
    argv = [
        "docker", "buildx", "build", "--platform=linux/amd64", "--push", "--progress=plain",
        f"--tag={request.image}",
        f"--tag={request.marked}",
        f"--metadata-file={metadata}",
        f"--file={job.source / DOCKERFILE}",
        str(job.source),
    ]  # fmt: skip
    ended = _run(argv, request.build_s, job.line)
    if ended.code == 0:
        return Outcome(_digest_in(metadata))
    raise WayFailed(_reason_of_end("docker", ended, request.build_s, job, DOCKER), began=True)


_WAYS: Mapping[str, Callable[[Job], Outcome]] = {GCLOUD: _by_gcloud, STAGED: _by_upload, DOCKER: _by_docker}


def _reason_of_error(error: ServiceError, request: BuildRequest) -> Reason:
    reason = reasons.diagnose(str(error), request, STAGED)
    if error.status == 403 and reason.kind == reasons.OTHER:
        return Reason(f"{reason.text} (HTTP 403)", reason.fix, reasons.PERMISSION)
    return reason


def _reason_of_end(program: str, ended: Ended, limit_s: float, job: Job, way: str) -> Reason:
    if ended.code is None:
        text = f"{program} had not finished after {limit_s / 60:.0f} min and was ended."
        return Reason(text, kind=reasons.LIMIT)
    return reasons.diagnose(ended.text, job.request, way)


def _digest_in(metadata: Path) -> str:
    """ "" = unknown."""
    try:
        digest = json.loads(metadata.read_text(encoding="utf-8")).get("containerimage.digest", "")
    except (OSError, ValueError, AttributeError):
        return ""
    return digest if isinstance(digest, str) and DIGEST.fullmatch(digest) else ""


# --- other programs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """`code` None: it was ended at its time limit."""

    code: int | None
    text: str


def _run(argv: Sequence[str], limit_s: float, line: Say) -> Ended:
    """Each line of both outputs goes to `line`. WayFailed where the program is not installed. On every exception,
    KeyboardInterrupt included, the program and its children are ended first."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise WayFailed(Reason(f"{argv[0]} is not installed on this computer.")) from error
    lines: deque[str] = deque(maxlen=_LINES)
    reader = threading.Thread(target=_read, args=(process, lines, line), daemon=True)
    reader.start()
    try:
        code: int | None = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _end(process)
    reader.join(_END_S)
    return Ended(code, "\n".join(lines))


def _read(process: subprocess.Popen[str], lines: deque[str], line: Say) -> None:
    assert process.stdout is not None
    with process.stdout, suppress(ValueError):
        for words in process.stdout:
            text = masked(words.rstrip())
            lines.append(text)
            line(text)


def _end(process: subprocess.Popen[str]) -> None:
    """SIGTERM to its group, then SIGKILL to the rest of it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = TIME_S
    return member
