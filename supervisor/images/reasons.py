"""What went wrong, in plain words: the texts of gcloud, Cloud Build, Cloud Storage, registries and docker, each with
what mends it. A text that nobody here knows is told by its own last line.

A permission is told with who lacks it, on what, and the command that gives it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from supervisor.images.registry import parse
from supervisor.images.request import DOCKER, BuildRequest, Reason

PERMISSION, IDENTITY, LIMIT, SOURCE, OTHER = "permission", "identity", "limit", "source", "other"
MEND_DOCKERFILE = "A file that it misses may be left out by .gcloudignore: --dry-run lists what is sent."
_LONGEST = 300
_ACCOUNT = r"(?P<who>[\w.+-]+@[\w.-]+\w)"
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
Told = tuple[str, Callable[[re.Match[str], BuildRequest, str], Reason]]


def masked(text: str) -> str:
    """Without tokens and passwords."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def diagnose(text: str, request: BuildRequest, way: str) -> Reason:
    """`text`: everything that was said. The first rule that fits decides: they stand from the cause to its effects."""
    text = masked(text)
    for pattern, tell in _RULES:
        match = re.search(pattern, text, flags=re.IGNORECASE | re.MULTILINE)
        if match is not None:
            return tell(match, request, way)
    return Reason(_last_words(text))


def builder(request: BuildRequest) -> str:
    """Whom Cloud Build works as, as a shell would write it."""
    if request.account:
        return request.account
    number = f"$(gcloud projects describe {request.project} --format='value(projectNumber)')"
    return f"{number}-compute@developer.gserviceaccount.com"


def lacks_source(who: str, request: BuildRequest, permission: str = "storage.objects.get") -> Reason:
    """`who` "" = not told."""
    role = _STORAGE_ROLES.get(permission, "roles/storage.objectUser")
    shown = who or "The account that Cloud Build works as"
    text = f"{shown} may not read the source: {permission} on gs://{request.bucket} is missing (HTTP 403)."
    if permission != "storage.objects.get":
        text = f"{shown} lacks {permission} on gs://{request.bucket} (HTTP 403)."
    member = _member(who or builder(request))
    command = f"gcloud storage buckets add-iam-policy-binding gs://{request.bucket} --member={member} --role={role}"
    return Reason(text, f"It needs {role}: {command}", PERMISSION)


def lacks_push(who: str, request: BuildRequest) -> Reason:
    """`who` "" = whom Cloud Build works as."""
    role = "roles/artifactregistry.writer"
    host, path = parse(request.image).host, parse(request.image).path.split("/")
    shown = who or request.account or "The account that Cloud Build works as"
    text = f"{shown} may not push to {request.repository}."
    place = re.fullmatch(r"(.+)-docker\.pkg\.dev", host)
    if place is None or len(path) < 3:
        return Reason(text, f"It needs the right to push there; on Artifact Registry that is {role}.", PERMISSION)
    command = (
        f"gcloud artifacts repositories add-iam-policy-binding {path[1]} --location={place[1]} --project={path[0]} "
        f"--member={_member(who or builder(request))} --role={role}"
    )
    return Reason(text, f"It needs {role}: {command}", PERMISSION)


def _crashed(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    return Reason(
        f"gcloud crashed ({match['kind']}: {match['words'].strip()}).",
        "That happens while it packs the folder; the other ways pack it themselves.",
    )


def _storage(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    return lacks_source(match["who"], request, match["permission"])


def _source_unnamed(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    return lacks_source("", request)


def _logs(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    account = re.search(_ACCOUNT, match[0])
    who = account["who"] if account else ""
    role = "roles/logging.logWriter"
    command = (
        f"gcloud projects add-iam-policy-binding {request.project} --member={_member(who or builder(request))} "
        f"--role={role}"
    )
    shown = who or "The account that Cloud Build works as"
    return Reason(f"{shown} may not write the build's log.", f"It needs {role}: {command}", PERMISSION)


def _push_denied(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    if way != DOCKER:
        return lacks_push("", request)
    host = parse(request.image).host
    return Reason(
        f"The registry {host} refuses the push: docker is not logged in there, or your account may not push to "
        f"{request.repository}.",
        f"Log in with `gcloud auth configure-docker {host}`; the account needs roles/artifactregistry.writer.",
        PERMISSION,
    )


def _no_repository(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    host, path = parse(request.image).host, parse(request.image).path.split("/")
    place = host.removesuffix("-docker.pkg.dev")
    fix = ""
    if place != host and len(path) >= 3:
        fix = (
            f"Create it: gcloud artifacts repositories create {path[1]} --repository-format=docker "
            f"--location={place} --project={path[0]}"
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


def _no_quota_project(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    return Reason(
        f"Google counts the calls of your credentials to no project that you may use; {request.project} should be it.",
        f"gcloud auth application-default set-quota-project {request.project}; that needs "
        "roles/serviceusage.serviceUsageConsumer there",
        PERMISSION,
    )


def _may_not_build(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    role = "roles/cloudbuild.builds.editor"
    return Reason(
        f"Your account may not start builds in project {request.project} (HTTP 403).",
        f"It needs {role}: gcloud projects add-iam-policy-binding {request.project} --member=user:YOU --role={role}",
        PERMISSION,
    )


def _may_not_act(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    who = request.account or builder(request)
    return Reason(
        f"Your account may not start builds that work as {request.account or 'the default account'}.",
        f"It needs roles/iam.serviceAccountUser: gcloud iam service-accounts add-iam-policy-binding {who} "
        f"--project={request.project} --member=user:YOU --role=roles/iam.serviceAccountUser",
        PERMISSION,
    )


def _no_base(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    return Reason(f"The image that the Dockerfile begins with cannot be pulled: {_clip(match[0])}")


def _step(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
    return Reason(f"The Dockerfile failed: {_clip(match[0])}", MEND_DOCKERFILE, SOURCE)


def _plain(text: str, fix: str = "", kind: str = OTHER) -> Callable[[re.Match[str], BuildRequest, str], Reason]:
    def tell(match: re.Match[str], request: BuildRequest, way: str) -> Reason:
        values = {"project": request.project, "bucket": request.bucket, "region": request.region}
        return Reason(text.format_map(values), fix.format_map(values), kind)

    return tell


_LOGGED_OUT = (
    r"do not (currently )?have an active account|reauthenticat|invalid_grant|credentials were not found|"
    r"problem refreshing your current auth tokens|invalid authentication credentials|UNAUTHENTICATED"
)
_LOGIN = "Your Google login is missing or too old for {project}."
_RULES: tuple[Told, ...] = (
    (r"gcloud crashed \((?P<kind>\w+)\): (?P<words>.*)", _crashed),
    (_ACCOUNT + r" does not have (?P<permission>storage\.[\w.]+)", _storage),
    (r"could not resolve source[^\n]*403|storage\.objects\.get[^\n]*denied", _source_unnamed),
    (r"requires a quota project|USER_PROJECT_DENIED", _no_quota_project),
    (r"(has not been used in project \S+ before or it is disabled|SERVICE_DISABLED)", _switched_off),
    (r"(does not have permission to write logs|logging\.logEntries\.create)[^\n]*", _logs),
    (r"[^\n]*roles/logging\.logWriter[^\n]*", _logs),
    (r"repository [^\n]*not found|name ?unknown: repository", _no_repository),
    (r"pull access denied[^\n]*|failed to resolve source metadata[^\n]*|pull rate limit[^\n]*", _no_base),
    (r"uploadArtifacts|unauthenticated request|no basic auth credentials|push_not_authorized", _push_denied),
    (r"(denied|unauthorized): [^\n]*|failed to authorize|authorization failed", _push_denied),
    (r"iam\.serviceaccounts\.actas", _may_not_act),
    (r"cloudbuild\.builds\.create|caller does not have permission", _may_not_build),
    (_LOGGED_OUT, _plain(_LOGIN, "Log in: gcloud auth login, and gcloud auth application-default login.", IDENTITY)),
    (
        r"specified bucket does not exist|bucket [^\n]* does not exist",
        _plain(
            "There is no bucket gs://{bucket}.",
            "Name another with --staging, or make it: gcloud storage buckets create gs://{bucket} --project={project}",
        ),
    ),
    (
        r"cannot connect to the docker daemon|failed to connect to the docker api|docker daemon is not running",
        _plain("The docker daemon does not run on this computer, or you may not use it.", "Start docker."),
    ),
    (
        r"unknown command: docker buildx|'buildx' is not a docker command|unknown flag: --push",
        _plain("docker has no buildx on this computer.", "Install docker's buildx plugin."),
    ),
    (
        r"resource_exhausted|quota exceeded|quota [^\n]*exceeded",
        _plain(
            "A quota of Cloud Build is used up in project {project}, region {region}.",
            "Wait, or name another --region.",
        ),
    ),
    (r"dockerfile parse error[^\n]*|failed to solve: process [^\n]*|COPY failed: [^\n]*", _step),
    (r"failed to (compute cache key|calculate checksum)[^\n]*not found[^\n]*", _step),
    (r"build step \d+ \"[^\n\"]*\" failed[^\n]*", _step),
)


def _member(account: str) -> str:
    kind = "serviceAccount" if account.endswith("gserviceaccount.com") else "user"
    return f'"{kind}:{account}"' if "$" in account else f"{kind}:{account}"


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip(" -=*")]
    complaints = [line for line in lines if line.lower().startswith(("error", "fatal"))]
    words = (complaints or lines or ["It ended without a word."])[-1]
    return _clip(re.sub(r"^(error|fatal):? *(\([\w.-]+\) *)?", "", words, flags=re.IGNORECASE) or words)


def _clip(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
