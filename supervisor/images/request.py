"""The nouns of a build: its request, its result, and why a way failed.

A build has a mark: a unique tag of the image, and also a tag of the build at Cloud Build. If a response is lost, the
mark finds the build, or the image that it pushed, so nothing is built twice.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from supervisor.domain.errors import ImageBuildFailed, ImageBuildRefused
from supervisor.images.registry import parse
from supervisor.ports.provider import ImageMissing

GCLOUD, STAGED, DOCKER = "cloud-build", "staged", "docker"
WAYS = (GCLOUD, STAGED, DOCKER)
WAY_NAMES = {
    GCLOUD: "gcloud builds submit",
    STAGED: "own upload and the Cloud Build API",
    DOCKER: "docker buildx on this computer",
}
GLOBAL = "global"  # gcloud's own default for builds
BUILD_S = 3600.0

_PROJECT = re.compile(r"[a-z0-9][a-z0-9.:-]{0,62}\Z")
_REGION = re.compile(r"[a-z][a-z0-9-]{0,62}\Z")
_STAGING = re.compile(r"gs://([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])/?((?:[A-Za-z0-9._-]+/?)*)\Z")
_ACCOUNT = re.compile(r"[^\s@,]+@[^\s@,]+\Z")

Say = Callable[[str], None]


@dataclass(frozen=True)
class BuildRequest:
    """`image`: HOST/PATH:TAG. `staging`: gs://BUCKET/PREFIX for the sources of Cloud Build. `account`: that Cloud Build
    works as, "" = the project's default. `endpoint`: of Cloud Build, "" = Google's own. `mark`: see above. `poll_s`:
    between two reads of a build."""

    folder: Path
    image: str
    project: str = ""
    staging: str = ""
    region: str = GLOBAL
    account: str = ""
    ways: tuple[str, ...] = WAYS
    endpoint: str = ""
    build_s: float = BUILD_S
    poll_s: float = 5.0
    mark: str = field(default_factory=lambda: new_mark(time.time()))

    @property
    def repository(self) -> str:
        """The image without its tag."""
        return parse(self.image).name

    @property
    def marked(self) -> str:
        return f"{self.repository}:{self.mark}"

    @property
    def bucket(self) -> str:
        return self.staging.removeprefix("gs://").partition("/")[0]

    @property
    def source(self) -> str:
        """The name of the staged archive in the bucket."""
        prefix = self.staging.removeprefix("gs://").partition("/")[2].strip("/")
        return f"{prefix}/{self.mark}.tgz".lstrip("/")


@dataclass(frozen=True)
class Reason:
    """Why a way failed. `text`: what happened, one or two sentences. `fix`: a command where there is one, or "".
    `kind`: permission, identity, limit, source or other; `source` = the fault is in the folder or its Dockerfile, and
    no other way changes that."""

    text: str
    fix: str = ""
    kind: str = "other"

    @property
    def sentence(self) -> str:
        text = self.text if self.text.endswith((".", "…")) else f"{self.text}."
        return f"{text} {self.fix}".strip()


@dataclass(frozen=True)
class Failure:
    way: str
    reason: Reason


@dataclass(frozen=True)
class Built:
    """`recovered`: the response was lost, and the image was found by its mark. `build`: Cloud Build's id, "" = none."""

    image: str
    digest: str
    way: str
    build: str = ""
    recovered: bool = False
    failures: tuple[Failure, ...] = ()

    @property
    def reference(self) -> str:
        """NAME@sha256:..., for the spec of a run."""
        return f"{parse(self.image).name}@{self.digest}"


@dataclass(frozen=True)
class Outcome:
    """`digest` "" = the way worked without naming the pushed digest. `build`: Cloud Build's id, "" = none."""

    digest: str
    build: str = ""
    recovered: bool = False


class WayFailed(Exception):
    """A way failed. `began`: Cloud Build or a registry may have received something, so the mark must be looked up.
    `build`: Cloud Build's id, "" = unknown."""

    def __init__(self, reason: Reason, began: bool = False, build: str = "") -> None:
        super().__init__(reason.text)
        self.reason, self.began, self.build = reason, began, build


class AllWaysFailed(ImageBuildFailed):
    def __init__(self, detail: str, failures: tuple[Failure, ...]) -> None:
        super().__init__(detail, {"ways": [failure.way for failure in failures]})
        self.failures = failures


class Interrupted(ImageBuildFailed):
    """Ctrl-C. `left`: the build that still runs, and how to end it; "" = none."""

    def __init__(self, left: str) -> None:
        super().__init__(left or "The build was interrupted; nothing of it runs any more.")
        self.left = left


def new_mark(now: float) -> str:
    """`spot-20261122-031500-1a2b3c4d`, of the time in UTC."""
    return f"spot-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(4)}"


def checked(request: BuildRequest) -> BuildRequest:
    """The request, its image with a tag. ImageBuildRefused with the option that is wrong."""
    try:
        reference = parse(request.image)
    except ImageMissing as error:
        raise ImageBuildRefused(str(error)) from None
    if reference.digest:
        example = f"{reference.name}:1"
        raise ImageBuildRefused(f"{request.image} has a digest. Use a name with a tag, such as {example}.")
    uses_cloud_build = any(way != DOCKER for way in request.ways)
    for option, value, form, example in (
        ("--project", request.project, _PROJECT, "my-project-123456"),
        ("--region", request.region, _REGION, "us-east1, or global"),
        ("--staging", request.staging, _STAGING, "gs://my-bucket/build-staging"),
    ):
        if uses_cloud_build and not form.match(value):
            problem = f"{option} {value!r} is not valid" if value else f"{option} is not set"
            raise ImageBuildRefused(
                f"{problem}. Cloud Build needs it: for example {example}. (Or build with --way docker.)"
            )
    if request.account and not _ACCOUNT.match(request.account):
        raise ImageBuildRefused(f"--service-account {request.account!r} is not the address of an account.")
    return replace(request, image=f"{reference.name}:{reference.tag}")
