"""The current content of a tag: one HEAD request to the image's own registry (Docker registry API, version 2).

A registry that needs a token says where to get one; without an account the token is anonymous. Only Google's registries
and Google's token service get the supervisor's own token. Plain http is used only for a registry on this computer.
"""

from __future__ import annotations

import base64
import hashlib
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlsplit

import httpx

from supervisor.domain.texts import clause
from supervisor.ports.provider import ImageHidden, ImageMissing, ProviderUnavailable

DOCKER_HUB, DOCKER_HUB_HOST = "docker.io", "registry-1.docker.io"
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.docker.distribution.manifest.v2+json"
)
TIMEOUT_S = 8.0
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_PATH = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_GOOGLE = re.compile(r"(?:[a-z0-9-]+\.)*(?:pkg\.dev|gcr\.io)\Z")


@dataclass(frozen=True, slots=True)
class Reference:
    """`name` as it was written, without its tag; `host` and `path` in the form for the registry."""

    name: str
    host: str
    path: str
    tag: str
    digest: str = ""

    @property
    def url(self) -> str:
        scheme = "http" if _is_loopback(self.host) else "https"
        return f"{scheme}://{self.host}/v2/{self.path}/manifests/{self.tag}"


def parse(image: str) -> Reference:
    """By Docker's rules: a first part with a dot or a colon, or `localhost`, is a registry. ImageMissing for a text
    that is not a reference."""
    before, _, digest = image.partition("@")
    name, colon, tag = before.rpartition(":")
    if not colon or "/" in tag:
        name, tag = before, "latest"
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        host, path = first, rest
    else:
        host, path = DOCKER_HUB, name
    if host in (DOCKER_HUB, "index.docker.io"):
        host, path = DOCKER_HUB_HOST, path if "/" in path else f"library/{path}"
    if not _PATH.match(path) or not _TAG.match(tag) or (digest and not _DIGEST.match(digest)):
        raise ImageMissing(f"{image!r} is not a reference to an image: write HOST/PATH:TAG or HOST/PATH@sha256:...")
    return Reference(name, host, path, tag, digest)


@cache
def _certificates() -> ssl.SSLContext:
    """Kept: reading them takes 20 ms of CPU, which is most of a pin."""
    return httpx.create_ssl_context()


class Registries:
    """`authorization`: makes the header for Google's registries; it may raise ProviderUnavailable."""

    def __init__(self, authorization: Callable[[], str], timeout_s: float = TIMEOUT_S) -> None:
        self._authorization, self._timeout_s = authorization, timeout_s

    def pin(self, image: str) -> str:
        """`name@sha256:...`. ImageMissing, ImageHidden, ProviderUnavailable."""
        reference = parse(image)
        if reference.digest:
            return f"{reference.name}@{reference.digest}"
        try:
            with httpx.Client(timeout=self._timeout_s, follow_redirects=False, verify=_certificates()) as client:
                return f"{reference.name}@{self._digest(client, reference)}"
        except httpx.HTTPError as error:
            raise ProviderUnavailable(
                f"the registry {reference.host} does not respond: {type(error).__name__} {clause(error)}"
            ) from error

    def _digest(self, client: httpx.Client, reference: Reference) -> str:
        headers = {"Accept": MANIFESTS}
        if _is_google(reference.host):
            headers["Authorization"] = self._authorization()
        response = client.head(reference.url, headers=headers)
        if response.status_code == 401 and "www-authenticate" in response.headers:
            token = self._token(client, reference, response.headers["www-authenticate"])
            if token:
                headers["Authorization"] = f"Bearer {token}"
                response = client.head(reference.url, headers=headers)
        _raise_for_status(reference, response)
        digest = response.headers.get("docker-content-digest", "")
        if not digest:  # old registries send it for a GET only, or not at all
            response = client.get(reference.url, headers=headers)
            _raise_for_status(reference, response)
            digest = f"sha256:{hashlib.sha256(response.content).hexdigest()}"
        if not _DIGEST.match(digest):
            raise ProviderUnavailable(f"the registry {reference.host} sends no sha256 of {reference.name}")
        return str(digest)

    def _token(self, client: httpx.Client, reference: Reference, challenge: str) -> str:
        """From the registry's token service; "" = none."""
        fields = dict(re.findall(r'([a-z_]+)="([^"]*)"', challenge))
        realm = urlsplit(fields.get("realm", ""))
        safe = realm.scheme == "https" or (_is_loopback(realm.netloc) and _is_loopback(reference.host))
        if not challenge.lower().startswith("bearer") or not safe:
            return ""
        scope = fields.get("scope") or f"repository:{reference.path}:pull"
        headers = {}
        if _is_google(reference.host) and _is_google(realm.netloc):
            own = self._authorization().removeprefix("Bearer ")
            headers["Authorization"] = "Basic " + base64.b64encode(f"oauth2accesstoken:{own}".encode()).decode()
        query = {"service": fields.get("service", ""), "scope": scope}
        response = client.get(fields["realm"], params=query, headers=headers)
        if response.status_code in (400, 401, 403, 404):
            return ""
        response.raise_for_status()
        try:
            grant = response.json()
            return str(grant.get("token") or grant.get("access_token") or "")
        except (ValueError, AttributeError):
            return ""


def _raise_for_status(reference: Reference, response: httpx.Response) -> None:
    whole = f"{reference.name}:{reference.tag}"
    if response.status_code in (400, 404):
        raise ImageMissing(f"the registry {reference.host} has no image {whole}")
    if response.status_code in (401, 403):
        raise ImageHidden(f"the registry {reference.host} does not allow the supervisor to read {whole}")
    if response.status_code != 200:
        raise ProviderUnavailable(f"the registry {reference.host} responds with {response.status_code} for {whole}")


def _is_loopback(host: str) -> bool:
    return host.rpartition(":")[0] in _LOOPBACK or host in _LOOPBACK


def _is_google(host: str) -> bool:
    return bool(_GOOGLE.match(host))
