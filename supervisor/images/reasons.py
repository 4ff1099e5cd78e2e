"""Why a build failed, in plain words: the errors of gcloud, Cloud Build, Cloud Storage, registries and docker.

Each known error has a sentence and a fix. An unknown error is shown by its own last line. The reason for a missing
permission says which account lacks it, on which resource, and the command that grants it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from supervisor.images.registry import parse
from supervisor.images.request import DOCKER, BuildRequest, Reason

PERMISSION, IDENTITY, LIMIT, SOURCE, OTHER = "permission", "identity", "limit", "source", "other"
FIX_DOCKERFILE = "A file that it needs may be left out by .gcloudignore: --dry-run lists what is sent."
WRITER = "roles/artifactregistry.writer"
_LONGEST = 300
_ACCOUNT = r"(?P<account>[\w.+-]+@[\w.-]+\w)"
_STORAGE_ROLES = {
    "storage.objects.get": "roles/storage.objectViewer",
    "storage.objects.list": "roles/storage.objectViewer",
    "storage.objects.create": "roles/storage.objectCreator",
    "storage.objects.delete": "roles/storage.objectUser",
    "storage.buckets.get": "roles/storage.bucketViewer",
}
_SECRETS = (
    (re.compile(r"ya29\.[\w.-]+"), "***"),
    (re.compile(r"(?i)\b(bearer|basic) +[\w.~+/=-]{8,}"), r"\1 ***"),
    (re.compile(r"(?<=://)[^/@\s]+:[^/@\s]+@"), "***@"),
    (re.compile(r"(?i)\b([\w-]*(?:token|secret|password|api[_-]?key)[\w-]*)(=|: *)[^\s,;\"']+"), r"\1\2***"),
)

Rule = Callable[[re.Match[str], BuildRequest, str], Reason]  # the third argument is the way


def masked(text: str) -> str:
    """Without tokens and passwords."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def diagnose(text: str, request: BuildRequest, way: str) -> Reason:
    """`text`: the whole output. The first matching rule counts: the rules are ordered from a cause to its effects."""
    text = masked(text)
    for pattern, rule in _RULES:
        match = re.search(pattern, text, flags=re.IGNORECASE | re.MULTILINE)
        if match is not None:
            return rule(match, request, way)
    return Reason(_last_line(text))


def lacks_source(account: str, request: BuildRequest, permission: str = "storage.objects.get") -> Reason:
    """`account` "" = unknown."""
    role = _STORAGE_ROLES.get(permission, "roles/storage.objectUser")
    shown = account or "The account that Cloud Build works as"
    text = f"{shown} may not read the source: {permission} on gs://{request.bucket} is missing (HTTP 403)."
    if permission != "storage.objects.get":
        text = f"{shown} lacks {permission} on gs://{request.bucket} (HTTP 403)."
    member = _member(account or _builder(request))
    command = f"gcloud storage buckets add-iam-policy-binding gs://{request.bucket} --member={member} --role={role}"
    return Reason(text, f"It needs {role}: {command}", PERMISSION)


def lacks_push(request: BuildRequest) -> Reason:
    """The account that Cloud Build works as may not push."""
    text = f"{request.account or 'The account that Cloud Build works as'} may not push to {request.repository}."
    repository = _artifact_registry(request)
    if repository is None:
        return Reason(text, f"It needs the right to push there; on Artifact Registry that is {WRITER}.", PERMISSION)
    name, location, project = repository
    command = (
        f"gcloud artifacts repositories add-iam-policy-binding {name} --location={location} --project={project} "
        f"--member={_member(_builder(request))} --role={WRITER}"
    )
    return Reason(text, f"It needs {WRITER}: {command}", PERMISSION)


def _artifact_registry(request: BuildRequest) -> tuple[str, str, str] | None:
    """(repository, location, project) of the image; None: it is not in Artifact Registry."""
    reference = parse(request.image)
    location, path = re.fullmatch(r"(.+)-docker\.pkg\.dev", reference.host), reference.path.split("/")
    return None if location is None or len(path) < 3 else (path[1], location[1], path[0])


def _builder(request: BuildRequest) -> str:
    """The account that Cloud Build works as, in the form for a shell."""
    number = f"$(gcloud projects describe {request.project} --format='value(projectNumber)')"
    return request.account or f"{number}-compute@developer.gserviceaccount.com"


def _template(text: str, fix: str = "", kind: str = OTHER) -> Rule:
    """A rule that fills in values of the request, the groups of the match, and the matched text as `matched`."""

    def rule(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
        values = {
            "project": request.project,
            "bucket": request.bucket,
            "region": request.region,
            "builder": _builder(request),
            "works_as": request.account or "the default account",
            "matched": _clip(match[0]),
            **match.groupdict(),
        }
        return Reason(text.format_map(values), fix.format_map(values), kind)

    return rule


def _storage(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    return lacks_source(match["account"], request, match["permission"])


def _source(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    return lacks_source("", request)


def _logs(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    account_match = re.search(_ACCOUNT, match[0])
    account = account_match["account"] if account_match else ""
    role, member = "roles/logging.logWriter", _member(account or _builder(request))
    command = f"gcloud projects add-iam-policy-binding {request.project} --member={member} --role={role}"
    shown = account or "The account that Cloud Build works as"
    return Reason(f"{shown} may not write the build's log.", f"It needs {role}: {command}", PERMISSION)


def _push_denied(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    if way != DOCKER:
        return lacks_push(request)
    host = parse(request.image).host
    return Reason(
        f"The registry {host} refuses the push: docker is not logged in there, or your account may not push to "
        f"{request.repository}.",
        f"Log in with `gcloud auth configure-docker {host}`; the account needs {WRITER}.",
        PERMISSION,
    )


def _no_repository(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    repository, fix = _artifact_registry(request), ""
    if repository is not None:
        name, location, project = repository
        fix = (
            f"Create it: gcloud artifacts repositories create {name} --repository-format=docker "
            f"--location={location} --project={project}"
        )
    return Reason(f"There is no repository for {request.repository}.", fix)


def _switched_off(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    service = re.search(r"\b([a-z]+\.googleapis\.com)", match.string[match.start() :])
    name = service[1] if service else "cloudbuild.googleapis.com"
    return Reason(
        f"The API {name} is switched off in project {request.project}.",
        f"Switch it on: gcloud services enable {name} --project={request.project}",
        PERMISSION,
    )


_LOGGED_OUT = (
    r"do not (currently )?have an active account|reauthenticat|invalid_grant|credentials were not found|"
    r"problem refreshing your current auth tokens|invalid authentication credentials|UNAUTHENTICATED"
)
_DOCKERFILE_FAILED = _template("The Dockerfile failed: {matched}", FIX_DOCKERFILE, SOURCE)
_RULES: tuple[tuple[str, Rule], ...] = (
    (
        r"gcloud crashed \((?P<kind>\w+)\): *(?P<words>.*?) *$",
        _template(
            "gcloud crashed ({kind}: {words}).",
            "This happens while it packs the folder; the other ways pack it themselves.",
        ),
    ),
    (_ACCOUNT + r" does not have (?P<permission>storage\.[\w.]+)", _storage),
    (r"could not resolve source[^\n]*403|storage\.objects\.get[^\n]*denied", _source),
    (
        r"requires a quota project|USER_PROJECT_DENIED",
        _template(
            "Google cannot count the calls of your credentials to a project that you may use; {project} should be it.",
            "gcloud auth application-default set-quota-project {project}; that needs "
            "roles/serviceusage.serviceUsageConsumer there",
            PERMISSION,
        ),
    ),
    (r"(has not been used in project \S+ before or it is disabled|SERVICE_DISABLED)", _switched_off),
    (r"(does not have permission to write logs|logging\.logEntries\.create)[^\n]*", _logs),
    (r"[^\n]*roles/logging\.logWriter[^\n]*", _logs),
    (r"repository [^\n]*not found|name ?unknown: repository", _no_repository),
    (
        r"pull access denied[^\n]*|failed to resolve source metadata[^\n]*|pull rate limit[^\n]*",
        _template("The base image of the Dockerfile cannot be pulled: {matched}"),
    ),
    (r"uploadArtifacts|unauthenticated request|no basic auth credentials|push_not_authorized", _push_denied),
    (r"(denied|unauthorized): [^\n]*|failed to authorize|authorization failed", _push_denied),
    (
        r"iam\.serviceaccounts\.actas",
        _template(
            "Your account may not start builds that work as {works_as}.",
            "It needs roles/iam.serviceAccountUser: gcloud iam service-accounts add-iam-policy-binding {builder} "
            "--project={project} --member=user:YOU --role=roles/iam.serviceAccountUser",
            PERMISSION,
        ),
    ),
    (
        r"cloudbuild\.builds\.create|caller does not have permission",
        _template(
            "Your account may not start builds in project {project} (HTTP 403).",
            "It needs roles/cloudbuild.builds.editor: gcloud projects add-iam-policy-binding {project} "
            "--member=user:YOU --role=roles/cloudbuild.builds.editor",
            PERMISSION,
        ),
    ),
    (
        _LOGGED_OUT,
        _template(
            "Your Google login is missing or too old for {project}.",
            "Log in: gcloud auth login, and gcloud auth application-default login.",
            IDENTITY,
        ),
    ),
    (
        r"specified bucket does not exist|bucket [^\n]* does not exist",
        _template(
            "There is no bucket gs://{bucket}.",
            "Name another with --staging, or make it: gcloud storage buckets create gs://{bucket} --project={project}",
        ),
    ),
    (
        r"cannot connect to the docker daemon|failed to connect to the docker api|docker daemon is not running",
        _template("The docker daemon does not run on this computer, or you may not use it.", "Start docker."),
    ),
    (
        r"unknown command: docker buildx|'buildx' is not a docker command|unknown flag: --push",
        _template("docker has no buildx on this computer.", "Install docker's buildx plugin."),
    ),
    (
        r"resource_exhausted|quota exceeded|quota [^\n]*exceeded",
        _template(
            "A quota of Cloud Build is used up in project {project}, region {region}.",
            "Wait, or name another --region.",
        ),
    ),
    (r"dockerfile parse error[^\n]*|failed to solve: process [^\n]*|COPY failed: [^\n]*", _DOCKERFILE_FAILED),
    (r"failed to (compute cache key|calculate checksum)[^\n]*not found[^\n]*", _DOCKERFILE_FAILED),
    (r"build step \d+ \"[^\n\"]*\" failed[^\n]*", _DOCKERFILE_FAILED),
)


def _member(account: str) -> str:
    kind = "serviceAccount" if account.endswith("gserviceaccount.com") else "user"
    return f'"{kind}:{account}"' if "$" in account else f"{kind}:{account}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip(" -=*")]
    errors = [line for line in lines if line.lower().startswith(("error", "fatal"))]
    last = (errors or lines or ["It ended without a message."])[-1]
    return _clip(re.sub(r"^(error|fatal):? *(\([\w.-]+\) *)?", "", last, flags=re.IGNORECASE) or last)


def _clip(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
