"""A request to the fake Cloud Storage: its method of the API, its object, its conditions."""

from __future__ import annotations

import base64
import binascii
from typing import Any
from urllib.parse import unquote

from tests.cloud.storage_objects import Conditions, Refusal
from tests.cloud.storage_uploads import parts
from tests.cloud.web import Request


def route(request: Request) -> tuple[str, str, str]:
    """The method's name in the discovery document, the bucket, the object. Refusal 404 for other requests."""
    path = request.raw_path.removeprefix("/upload").removeprefix("/download").removeprefix("/resumable/upload")
    match path.strip("/").split("/"), request.method:
        case ["storage", "v1", "b", bucket], "GET":
            return "storage.buckets.get", unquote(bucket), ""
        case ["storage", "v1", "b", bucket, "iam", "testPermissions"], "GET":
            return "storage.buckets.testIamPermissions", unquote(bucket), ""
        case ["storage", "v1", "b", bucket, "o"], "GET":
            return "storage.objects.list", unquote(bucket), ""
        case ["storage", "v1", "b", bucket, "o"], "POST" | "PUT" | "DELETE":
            if request.raw_path.startswith("/upload/"):
                return "storage.objects.insert", unquote(bucket), request.one("name") or ""
        case ["storage", "v1", "b", bucket, "o", name], "GET" | "PATCH" | "DELETE":
            return f"storage.objects.{request.method.lower()}", unquote(bucket), unquote(name)
    raise Refusal(404, "notFound", "Not Found")


def sent(request: Request, kind: str | None) -> tuple[dict[str, Any], str, bytes]:
    """What an upload says of its object, its content's type and the content."""
    if kind == "multipart":
        return parts(request)
    if kind == "resumable":
        return request.json() or {}, request.headers.get("x-upload-content-type", ""), b""
    if kind == "media":
        return {}, request.headers.get("content-type", "application/octet-stream"), request.body
    raise Refusal(400, "invalidParameter", "Invalid value for: uploadType")


def conditions(request: Request) -> Conditions:
    return Conditions(
        number(request, "ifGenerationMatch"),
        number(request, "ifGenerationNotMatch"),
        number(request, "ifMetagenerationMatch"),
        number(request, "ifMetagenerationNotMatch"),
    )


def number(request: Request, name: str) -> int | None:
    text = request.one(name)
    if text is None:
        return None
    if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdigit():
        raise Refusal(400, "invalidParameter", f'Invalid value "{text}" for {name}.')
    return int(text)


def token(request: Request) -> bytes:
    try:
        return base64.b64decode(request.one("pageToken") or "", altchars=b"-_", validate=True)
    except binascii.Error:
        raise Refusal(400, "invalid", "Invalid page token.") from None
