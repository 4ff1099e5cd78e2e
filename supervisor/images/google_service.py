"""Cloud Storage and Cloud Build as plain JSON, with Application Default Credentials: what a build needs of them.

Questions are repeated when the service is busy or the line breaks; so are uploads (they say if-generation-match 0) but
never the call that starts a build: whether it has begun is found out by its mark.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from supervisor.images.request import GLOBAL, BuildRequest

CLOUD_BUILD, STORAGE = "https://cloudbuild.googleapis.com", "https://storage.googleapis.com"
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
CALL_S, UPLOAD_S = 30.0, 900.0
TRIES, PAUSE_S = 4, 1.0
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
# Where credentials may come from even though the store is a stand-in for Google's.
_CONFIGURED = ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST")
Json = dict[str, Any]


class ServiceError(Exception):
    """`status` None: no clear answer came. The text holds the service's own words."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class Google:
    """Makes its session at the first call; every method raises ServiceError."""

    def __init__(self, request: BuildRequest, pause: Callable[[float], None] = time.sleep) -> None:
        self._request, self._pause = request, pause
        self._made: Any = None
        place = f"projects/{request.project}/locations/{request.region or GLOBAL}"
        self._builds = f"{request.endpoint or CLOUD_BUILD}/v1/{place}/builds"
        self._storage = os.environ.get("STORAGE_EMULATOR_HOST") or STORAGE

    def upload(self, archive: Path) -> str:
        """The staged object's generation."""
        bucket, name = self._request.bucket, self._request.source
        url = f"{self._storage.rstrip('/')}/upload/storage/v1/b/{bucket}/o"
        query = {"uploadType": "media", "name": name, "ifGenerationMatch": "0"}
        with archive.open("rb") as body:

            def send() -> Any:
                body.seek(0)
                return self._session().post(
                    url,
                    params=query,
                    data=body,
                    headers={"Content-Type": "application/gzip"},
                    timeout=UPLOAD_S,
                )

            try:
                return str(self._repeated(send).get("generation", ""))
            except ServiceError as error:
                if error.status == 412:  # an earlier try of ours got through: the name is nobody else's
                    return ""
                raise

    def remove_source(self) -> None:
        """The staged archive has served; one that cannot be deleted stays."""
        name = quote(self._request.source, safe="")
        url = f"{self._storage.rstrip('/')}/storage/v1/b/{self._request.bucket}/o/{name}"
        with suppress(ServiceError):
            self._spoken(lambda: self._session().delete(url, timeout=CALL_S))

    def create(self, build: Mapping[str, Any]) -> str:
        """Cloud Build's id of the new build. Asked once."""
        answer = self._answered(lambda: self._session().post(self._builds, json=build, timeout=CALL_S))
        told = answer.get("metadata", {}).get("build", {}).get("id", "")
        if not told:
            raise ServiceError("Cloud Build did not say which build it has started")
        return str(told)

    def get(self, build: str) -> Json:
        return self._repeated(lambda: self._session().get(f"{self._builds}/{build}", timeout=CALL_S))

    def find(self, but: Collection[str] = ()) -> Json | None:
        """The newest build with this request's mark that is not in `but`; None = there is none."""
        mark = self._request.mark
        query = {"filter": f'tags="{mark}"', "pageSize": "20"}
        answer = self._repeated(lambda: self._session().get(self._builds, params=query, timeout=CALL_S))
        found = [
            one for one in answer.get("builds", []) if mark in one.get("tags", []) and one["id"] not in but
        ]
        return max(found, key=lambda one: str(one.get("createTime", "")), default=None)

    def cancel(self, build: str) -> None:
        self._repeated(
            lambda: self._session().post(f"{self._builds}/{build}:cancel", json={}, timeout=CALL_S)
        )

    def authorization(self) -> str:
        """What Google's registries take; "" without credentials."""
        try:
            session, headers = self._session(), dict[str, str]()
            self._spoken(
                lambda: session.credentials.before_request(session._auth_request, "GET", "", headers)
            )
        except ServiceError:
            return ""
        return headers.get("authorization", "")

    # --- inside -------------------------------------------------------------------------------------------------------

    def _repeated(self, ask: Callable[[], Any]) -> Json:
        for number in range(TRIES):
            try:
                return self._answered(ask)
            except ServiceError as error:
                if number == TRIES - 1 or (error.status is not None and error.status not in _BUSY):
                    raise
            self._pause(PAUSE_S * 2**number)
        raise AssertionError("the last try returns or raises")

    def _answered(self, ask: Callable[[], Any]) -> Json:
        answer = self._spoken(ask)
        if answer.status_code != 200:
            raise ServiceError(_words(answer.content), answer.status_code)
        found: Json = self._spoken(answer.json)
        return found

    def _spoken(self, ask: Callable[[], Any]) -> Any:
        from google.auth.exceptions import GoogleAuthError
        from requests.exceptions import RequestException

        try:
            return ask()
        except GoogleAuthError as error:
            raise ServiceError(f"invalid authentication credentials: {error}", 401) from error
        except (RequestException, ValueError) as error:
            raise ServiceError(f"no clear answer: {str(error) or type(error).__name__}") from error

    def _session(self) -> Any:
        if self._made is None:
            self._made = _open_session()
        return self._made


def _open_session() -> Any:
    try:
        import google.auth
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession
    except ImportError:
        raise ServiceError(
            "Google's libraries are not installed: pip install 'spot-supervisor[google]'"
        ) from None
    try:
        if os.environ.get("STORAGE_EMULATOR_HOST") and not any(os.environ.get(name) for name in _CONFIGURED):
            credentials: Any = AnonymousCredentials()
        else:
            credentials = google.auth.default(scopes=SCOPES)[0]
    except (
        GoogleAuthError,
        OSError,
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        RecursionError,
    ) as error:
        raise ServiceError(f"Application Default Credentials were not found: {error}", 401) from None
    return AuthorizedSession(credentials)


def _words(content: bytes) -> str:
    """Google's own words of a refusal, its reason included."""
    try:
        told = json.loads(content)["error"]
        return f"{told.get('status', '')} {told.get('message', '')} {_reasons(told)}".strip()
    except (ValueError, KeyError, TypeError, AttributeError):
        return content[:500].decode(errors="replace")


def _reasons(told: Mapping[str, Any]) -> str:
    details = [one for one in told.get("details", ()) if isinstance(one, Mapping)]
    named = [str(one["reason"]) for one in details if "reason" in one]
    services = [str(one["metadata"]["service"]) for one in details if "service" in one.get("metadata", {})]
    return " ".join([*named, *services])
