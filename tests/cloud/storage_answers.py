"""What the fake Cloud Storage says: resources in the shapes of storage.v1, partial responses, errors, downloads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from tests.cloud.storage_objects import Bucket, Refusal, Stored, timestamp
from tests.cloud.web import Request, Response

Fields = Mapping[str, Any]  # a parsed mask: name -> mask of its content, {} = all of it
# As the discovery document of storage.v1 names them.
_NAMES = """
    acl bucket cacheControl componentCount contentDisposition contentEncoding contentLanguage contentType contexts
    crc32c customTime customerEncryption etag eventBasedHold generation hardDeleteTime id kind kmsKeyName md5Hash
    mediaLink metadata metageneration name owner restoreToken retention retentionExpirationTime selfLink size
    softDeleteTime storageClass temporaryHold timeCreated timeDeleted timeFinalized timeStorageClassUpdated updated
"""
OBJECT_FIELDS = frozenset(_NAMES.split())
_ALL: Fields = {}
LIST_FIELDS = frozenset({"items", "kind", "nextPageToken", "prefixes"})
_TOKEN = re.compile(r"[(),/]|[^(),/]+")


def resource(stored: Stored, url: str, only: Fields = _ALL) -> dict[str, Any]:
    """An Object of storage.v1; 64-bit numbers are strings. `only`: what the mask leaves is not even made."""
    names = _MADE if not only or "*" in only else [name for name in only if name in _MADE]
    answer = {name: _MADE[name](stored, url) for name in names}
    if not stored.metadata:
        answer.pop("metadata", None)
    return answer


def _where(stored: Stored) -> str:
    return f"{stored.bucket}/o/{quote(stored.name, safe='')}"


_MADE: Mapping[str, Callable[[Stored, str], Any]] = {
    "kind": lambda _, __: "storage#object",
    "id": lambda stored, _: f"{stored.bucket}/{stored.name}/{stored.generation}",
    "selfLink": lambda stored, url: f"{url}/storage/v1/b/{_where(stored)}",
    "mediaLink": lambda stored, url: (
        f"{url}/download/storage/v1/b/{_where(stored)}?generation={stored.generation}&alt=media"
    ),
    "name": lambda stored, _: stored.name,
    "bucket": lambda stored, _: stored.bucket,
    "generation": lambda stored, _: str(stored.generation),
    "metageneration": lambda stored, _: str(stored.metageneration),
    "contentType": lambda stored, _: stored.content_type,
    "storageClass": lambda _, __: "STANDARD",
    "size": lambda stored, _: str(len(stored.data)),
    "md5Hash": lambda stored, _: stored.md5,
    "crc32c": lambda stored, _: stored.crc32c,
    "etag": lambda stored, _: etag(stored),
    "timeCreated": lambda stored, _: timestamp(stored.created),
    "updated": lambda stored, _: timestamp(stored.updated),
    "timeStorageClassUpdated": lambda stored, _: timestamp(stored.created),
    "timeFinalized": lambda stored, _: timestamp(stored.created),
    "metadata": lambda stored, _: dict(stored.metadata),
}


def bucket_resource(bucket: Bucket, url: str) -> dict[str, Any]:
    return {
        "kind": "storage#bucket",
        "id": bucket.name,
        "selfLink": f"{url}/storage/v1/b/{bucket.name}",
        "name": bucket.name,
        "projectNumber": "123456789012",
        "generation": str(int(bucket.created * 1e6)),
        "metageneration": "1",
        "location": "US-CENTRAL1",
        "locationType": "region",
        "storageClass": "STANDARD",
        "etag": "CAE=",
        "timeCreated": timestamp(bucket.created),
        "updated": timestamp(bucket.created),
        "iamConfiguration": {
            "bucketPolicyOnly": {"enabled": True},
            "uniformBucketLevelAccess": {"enabled": True},
            "publicAccessPrevention": "enforced",
        },
        **bucket.facts,
    }


def etag(stored: Stored) -> str:
    return f"C{stored.generation:x}E{stored.metageneration}="


def error(refusal: Refusal, request: Request) -> Response:
    """Google's JSON error; for downloads the bare message, for 304 nothing."""
    if refusal.status == 304:
        return Response(304, headers=refusal.headers)
    if request.one("alt") == "media":
        text = {"Content-Type": "text/html; charset=UTF-8"}
        return Response(refusal.status, refusal.message.encode(), {**text, **refusal.headers})
    detail = {"message": refusal.message, "domain": refusal.domain, "reason": refusal.reason}
    if refusal.status == 401:
        detail |= {"locationType": "header", "location": "Authorization"}
    if refusal.status == 412:
        detail |= {"locationType": "header", "location": "If-Match"}
    body = {"error": {"code": refusal.status, "message": refusal.message, "errors": [detail]}}
    return Response(refusal.status, body, refusal.headers)


# --- partial responses ------------------------------------------------------------------------------------------------


def parse_fields(text: str) -> Fields:
    """The mask `items(name,size),nextPageToken` as nested dicts, empty = everything. Refusal 400 when it does not
    parse."""
    if not text:
        return {}
    tokens = _TOKEN.findall(text.replace(" ", ""))
    mask = _selection(tokens)
    if tokens:
        raise _bad_fields(text)
    return mask


def _selection(tokens: list[str]) -> dict[str, Any]:
    mask = _selector(tokens)
    while tokens and tokens[0] == ",":
        tokens.pop(0)
        for name, inner in _selector(tokens).items():  # items/name,items/size are two of one
            mask[name] = {**mask.get(name, {}), **inner}
    return mask


def _selector(tokens: list[str]) -> dict[str, Any]:
    """`name`, `name/selector` or `name(selection)`."""
    if not tokens or tokens[0] in {"(", ")", ",", "/"}:
        raise _bad_fields("".join(tokens))
    name, inner = tokens.pop(0), {}
    if tokens and tokens[0] == "/":
        tokens.pop(0)
        inner = _selector(tokens)
    elif tokens and tokens[0] == "(":
        tokens.pop(0)
        inner = _selection(tokens)
        if not tokens or tokens.pop(0) != ")":
            raise _bad_fields(name)
    return {name: inner}


def masked(body: Any, mask: Fields) -> Any:
    """`body` with only what the mask names; an empty mask or `*` is everything."""
    if isinstance(body, list):
        return [masked(item, mask) for item in body]
    if not mask or "*" in mask or not isinstance(body, dict):
        return body
    return {name: masked(body[name], inner) for name, inner in mask.items() if name in body}


def check_known(mask: Fields, names: frozenset[str]) -> None:
    """Refusal 400 for a field that the API does not have: a misspelt one would be missing without a word."""
    for name in mask:
        if name not in names and name != "*":
            raise _bad_fields(name)


def _bad_fields(text: str) -> Refusal:
    return Refusal(400, "invalidParameter", f"Invalid field selection {text}")


# --- downloads --------------------------------------------------------------------------------------------------------


def media(stored: Stored, wanted: str | None) -> Response:
    """The content, or the part that the Range header `wanted` names."""
    headers = {
        "Content-Type": stored.content_type,
        "ETag": etag(stored),
        "X-Goog-Generation": str(stored.generation),
        "X-Goog-Metageneration": str(stored.metageneration),
        "X-Goog-Hash": f"crc32c={stored.crc32c},md5={stored.md5}",
        "X-Goog-Stored-Content-Encoding": "identity",
        "X-Goog-Stored-Content-Length": str(len(stored.data)),
        "X-Goog-Storage-Class": "STANDARD",
    }
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted or "")
    if found is None or found[0] == "bytes=-":
        return Response(200, stored.data, headers)
    size = len(stored.data)
    begin = int(found[1]) if found[1] else max(0, size - int(found[2]))
    end = min(int(found[2]), size - 1) if found[1] and found[2] else size - 1
    if begin >= size or begin > end:
        raise Refusal(
            416,
            "requestedRangeNotSatisfiable",
            f"Request range not satisfiable: {wanted}",
            {"Content-Range": f"bytes */{size}"},
        )
    return Response(206, stored.data[begin : end + 1], {**headers, "Content-Range": f"bytes {begin}-{end}/{size}"})
