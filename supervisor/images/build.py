"""An image of a folder: one way after the other, until one leads to an image in the registry.

1. `gcloud builds submit`: staging folder, list and project are said, nothing is left to gcloud's own defaults.
2. Our own archive, staged by HTTP, and the Cloud Build API: needs no gcloud.
3. `docker buildx build --push` on this computer: needs no Cloud Build.

A way that fails says why, in a line or two, and the next one is tried; only a Dockerfile that fails ends it, because
the same Dockerfile would fail again. Before the next way it is made sure that the last one has not built after all.
Other programs (gcloud, docker) run in a session of their own, so that Ctrl-C reaches us and not them; their lines are
passed on without secrets; and none outlives its time, or us.
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

from supervisor.images import context as template
from supervisor.images import reasons
from supervisor.images.cloud_build import DIGEST, Afterwards, Google, ServiceError
from supervisor.images.context import DOCKERFILE, TIME_S, Context, chosen, lay_out
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

_LINES = 400  # of the output, kept to find the reason in
_LEAVE_S = 10.0


@dataclass(frozen=True)
class Ended:
    """`code` None: its time was over, and it was ended."""

    code: int | None
    text: str


class NotInstalled(Exception):
    pass


def run(argv: Sequence[str], limit_s: float, line: Say, environment: Mapping[str, str] | None = None) -> Ended:
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
    config = job.work / template.BUILD_CONFIG
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
        digest_lines = [line for line in ended.text.splitlines() if DIGEST.match(line)]
        return Outcome(DIGEST.findall(digest_lines[-1])[0] if digest_lines else "", build)
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
    metadata = job.work / "docker.json"
    argv = [
        "docker", "buildx", "build", "--platform=linux/amd64", "--push", "--progress=plain",
        f"--tag={request.image}",
        f"--tag={request.marked}",
        f"--metadata-file={metadata}",
        f"--file={job.source / DOCKERFILE}",
        str(job.source),
    ]  # fmt: skip
    ended = _run(argv, request.build_s, job, "docker")
    if ended.code == 0:
        return Outcome(_told_digest(metadata))
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
        digest = json.loads(path.read_text(encoding="utf-8")).get("containerimage.digest", "")
    except (OSError, ValueError, AttributeError):
        return ""
    return digest if isinstance(digest, str) and DIGEST.fullmatch(digest) else ""


PUSHED = "pushed"  # the kind of a reason: built and pushed, but nobody tells the digest
_FINAL = frozenset({reasons.SOURCE, PUSHED})
_FIRST = (PUSHED, reasons.SOURCE, reasons.PERMISSION, reasons.IDENTITY)


def build(request: BuildRequest, say: Say, line: Say, context: Context | None = None) -> Built:
    """`request` as `checked` gave it; `context`: what was chosen and shown already. `say`: what a person should know;
    `line`: the output of other programs. Raises AllWaysFailed, ImageBuildRefused, and Interrupted for Ctrl-C."""
    google = Google(request)
    afterwards = Afterwards(request, google, say)
    failures: list[Failure] = []
    with tempfile.TemporaryDirectory(prefix="spot-build-") as room:
        work = Path(room)
        lay_out(context or chosen(request.folder), work / "source")
        job = Job(request, work / "source", work, google, afterwards, say, line)
        for number, way in enumerate(request.ways, start=1):
            say(f"Way {number} of {len(request.ways)}: {WAY_NAMES[way]}")
            try:
                outcome = _tried(job, way)
            except WayFailed as failed:
                failures.append(Failure(way, failed.reason))
                say(f"  did not work: {failed.reason.sentence}")
                if failed.reason.kind in _FINAL:
                    break
            except KeyboardInterrupt:
                raise Interrupted(_left(request, way, afterwards)) from None
            else:
                return Built(request.image, outcome.digest, way, outcome.build, outcome.recovered, tuple(failures))
    raise AllWaysFailed(_verdict(failures), tuple(failures))


def _tried(job: Job, way: str) -> Outcome:
    """WayFailed when it is sure, as far as it can be known, that this way has built nothing."""
    try:
        outcome = WAYS[way](job)
    except WayFailed as failed:
        recovered = _recovered(job, way, failed) if failed.began else None
        if recovered is None:
            raise
        job.say("  the answer was lost, but the image is in the registry")
        outcome = recovered
    if outcome.digest:
        return outcome
    digest = job.afterwards.digest_of(outcome.build)
    if not digest:
        text = f"{job.request.image} was built and pushed, but its digest cannot be read from the registry."
        raise WayFailed(Reason(text, f"Look at {job.request.marked} there.", PUSHED), build=outcome.build)
    return Outcome(digest, outcome.build, outcome.recovered)


def _recovered(job: Job, way: str, failed: WayFailed) -> Outcome | None:
    """None = nothing was built. WayFailed where Cloud Build has a better reason than the one that is known."""
    if way == DOCKER:
        return job.afterwards.in_registry()
    try:
        return job.afterwards.recover(failed.build)
    except WayFailed:
        if failed.reason.kind == reasons.PERMISSION:  # names who lacks what, which the build itself does not
            return None
        raise


def _verdict(failures: list[Failure]) -> str:
    """The reason that matters most stands first: one that any way would meet again."""
    first = leading(tuple(failures))
    begin = "" if first.kind == PUSHED else "No image was built. "
    return f"{begin}{first.sentence}"


def leading(failures: tuple[Failure, ...]) -> Reason:
    """What to mend first."""
    order = {kind: number for number, kind in enumerate(_FIRST)}
    return min((failure.reason for failure in failures), key=lambda reason: order.get(reason.kind, len(order)))


def _left(request: BuildRequest, way: str, afterwards: Afterwards) -> str:
    """After Ctrl-C: what still runs, and how to end it; "" = nothing. The programs here have been ended already."""
    if way == DOCKER:
        return ""
    where = f"--project={request.project} --region={request.region or GLOBAL}"
    try:
        build = afterwards.running()
    except ServiceError:
        listed = f'gcloud builds list --ongoing --filter="tags={request.mark}" {where}'
        return f"Whether a build still runs at Cloud Build cannot be read now. To see it: {listed}"
    if not build:
        return ""
    command = f"gcloud builds cancel {build} {where}"
    return f"Build {build} still runs at Cloud Build. To end it: {command}"
